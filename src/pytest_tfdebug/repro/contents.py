"""The parts of a repro: the README and the terminal list them, and the user may leave some out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


class Part(NamedTuple):
    """A part of a repro.

    Args:
        name: Its name in the terminal.
        files: Globs of its files.
        text: What is in there.
        left_out_with: The names that leave it out when ``--tf-repro-without`` has one of them.
    """

    name: str
    files: tuple[str, ...]
    text: str
    left_out_with: tuple[str, ...] = ()

    def files_in(self, directory: Path) -> list[Path]:
        """Return the files of the part that a repro has."""
        return [file for pattern in self.files for file in sorted(directory.glob(pattern))]


PARTS = (
    Part("weights", ("*.safetensors.index.json", "model*.safetensors"), "the model's weights", ("weights",)),
    Part("inputs in plain text", ("inputs.json", "inputs.safetensors"), "the inputs, in plain text", ("inputs",)),
    Part("attributes of the model", ("model.pt",), "the tree of its modules, with their attributes", ("weights",)),
    Part("configuration", ("*config.json",), "the model's configuration"),
    Part("the golden", ("golden.safetensors",), "inputs, outputs and what lies between", ("inputs",)),
    Part("paths of this machine", ("repro.py", "environment.json"), "folders of the machine that wrote it, versions"),
)


def leave_out(directory: Path, without: Sequence[str]) -> list[str]:
    """Delete the parts that are to be left out and return the names of their files."""
    gone = [file for part in PARTS if set(part.left_out_with) & set(without) for file in part.files_in(directory)]
    for file in gone:
        file.unlink()
    return [file.name for file in gone]


def summary(directory: Path, left_out: Sequence[str]) -> str:
    """Return the line of the terminal that says what a repro holds."""
    held = ", ".join(part.name for part in PARTS if part.files_in(directory))
    gone = f" It is without {', '.join(left_out)}." if left_out else ""
    return f"It holds {held}.{gone}"


def readme(title: str, directory: Path, left_out: Sequence[str]) -> str:
    """Return the text of a repro's README."""
    found = [(part, part.files_in(directory)) for part in PARTS]
    held = "".join(f"- {_quoted(file.name for file in files)}: {part.text}\n" for part, files in found if files)
    gone = f"\nLeft out: {_quoted(left_out)}. Put files of these names here before you run it.\n" if left_out else ""
    return (
        f"{title} Run: `python repro.py`\n\n"
        "Running it runs `repro.py`, which imports the modules it names, from the folders it names where they exist.\n"
        "Read it first if it is not yours. Weights, inputs and goldens are safetensors and JSON, and `torch.load` is\n"
        "used with `weights_only=True` alone.\n\n"
        f"What it holds, for you to look at before you share it:\n\n{held}{gone}"
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
