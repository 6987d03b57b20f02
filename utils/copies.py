"""How many wrong lines are found in copies of modeling files: the commonest port, with the reference's own names.

A modeling file of transformers is copied, one line that runs is edited at random (in a forward, an ``__init__`` or a
helper such as ``rotate_half``), the copy takes the reference's weights, and both are compared. Edits that raise, do not
take the weights or change no output are passed over.

line    the edited line, or the same line of the reference, is named in at most three lines or one statement
module  a module that runs the line, those with the line among them
unsure  another place, said to be uncertain
wrong   another place, with certainty
missed  no culprit
"""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

import command
import pytest_tfdebug
from edits import DIFFERS, Edit, edits_of, head, infected, names, watched
from models import ARCHITECTURES, DECODER, build
from pytest_tfdebug.tracing.record.leaves import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.records import Culprit

_DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("Mistral", {"sliding_window": 4}),
    "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 24}),
    "phi": ("Phi", {"partial_rotary_factor": 0.5}),
    "qwen2": ("Qwen2", {"use_sliding_window": False}),
    "falcon": ("Falcon", {"alibi": False, "new_decoder_architecture": False, "multi_query": True}),
    "opt": ("OPT", {"ffn_dim": 96, "word_embed_proj_dim": 64}),
}
_COLUMNS = ("edits", "line", "module", "unsure", "wrong", "missed", "error")
_serial = itertools.count()


def _decoder(name: str, more: dict[str, Any]) -> torch.nn.Module:
    config = getattr(transformers, f"{name}Config")(**{**DECODER, **more})
    model: torch.nn.Module = getattr(transformers, f"{name}ForCausalLM")(config)
    return model


ARCHITECTURES.update({name: (partial(_decoder, *of), ARCHITECTURES["llama"][1]) for name, of in _DECODERS.items()})


class Copy:
    """A modeling file beside the model that it is of.

    Args:
        reference: The model.
        edit: What is edited.
        folder: Where the copy is written.
    """

    def __init__(self, reference: torch.nn.Module, edit: Edit | None, folder: Path) -> None:
        self._reference = reference
        self.original = Path(sys.modules[type(reference).__module__].__file__ or "")
        self.path = folder / f"{next(_serial)}" / f"my_{self.original.name}"
        self.text = self.original.read_text(encoding="utf-8")
        self.path.parent.mkdir()
        self.path.write_text(edit.of(self.text) if edit else self.text, encoding="utf-8")

    def built(self) -> torch.nn.Module:
        """Return a model of the copy with the reference's weights."""
        package = type(self._reference).__module__.rpartition(".")[0]
        spec = importlib.util.spec_from_file_location(f"{package}.{self.path.stem}_{self.path.parent.name}", self.path)
        assert spec is not None and spec.loader is not None  # noqa: S101, PT018 - the file is there, and it is Python
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
            port: torch.nn.Module = getattr(module, type(self._reference).__name__)(self._reference.config)
        finally:
            del sys.modules[spec.name]
        port.load_state_dict(self._reference.state_dict(), strict=True)
        return port.eval()

    def runs(self, inputs: dict[str, Any]) -> dict[int, set[str]]:
        """Build the model and call it; return the lines that ran, with the paths of the modules that ran each."""
        with watched({str(self.path)}) as seen, torch.no_grad():
            port = self.built()
            port(**inputs)
        named = {id(module): path for path, module in port.named_modules()}
        lines = {}
        for line, owners in seen[str(self.path)].items():
            paths = {(named[owner], is_made) for owner, is_made in owners if owner in named}
            inside = {path for path in named.values() if any(made and path.startswith(f"{at}.") for at, made in paths)}
            lines[line] = {path or type(port).__name__ for path in {*inside, *(path for path, _ in paths)}}
        return lines


def differs(expected: object, actual: object) -> bool:
    """Tell whether an output of floating point differs."""
    pairs = zip(walk(expected), walk(actual), strict=False)
    floats = [(one.tensor, other.tensor) for one, other in pairs if one.tensor.is_floating_point()]
    return any(one.shape != other.shape or not (one - other).norm() <= DIFFERS * one.norm() for one, other in floats)


def judged(culprit: Culprit | None, copied: Copy, line: int, owners: set[str]) -> str:
    """Return what a report is worth."""
    if culprit is None:
        return "missed"
    if names(culprit.source, copied.path, {line}) or names(culprit.reference, copied.original, {line}):
        return "line"
    callers = itertools.accumulate(culprit.path.split("."), "{}.{}".format)
    if culprit.path in owners or (culprit.kind in ("not-called", "extra-call") and owners.intersection(callers)):
        return "module"
    return "wrong" if culprit.certain else "unsure"


def measured(name: str, count: int, seed: int, within: str) -> Iterator[tuple[str, str]]:
    """Yield the verdict on each edit of a file, and what was edited with the head of the report."""
    reference, inputs = build(name)
    reference.set_attn_implementation("eager")  # the helper that is written out
    expected = pytest_tfdebug.trace(reference, **inputs)
    with torch.no_grad():
        right = reference(**inputs)

    def infect(edit: Edit) -> tuple[Copy, torch.nn.Module] | None:
        copied = Copy(reference, edit, Path(folder))
        port = copied.built()
        with torch.no_grad():
            return (copied, port) if differs(right, port(**inputs)) else None

    with tempfile.TemporaryDirectory() as folder:
        clean = Copy(reference, None, Path(folder))
        edits = list(edits_of(clean.text, clean.runs(inputs), within=within))
        draw = random.Random(seed)  # noqa: S311 - the same edits every time
        for edit, (copied, port) in infected(edits, count, draw, infect):
            told = edit.told(clean.text)
            try:
                report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(port, **inputs))
                culprit, text = report.culprit, str(report)
            except Exception as error:  # noqa: BLE001 - whatever is raised is the outcome
                yield "error", f"{told}\n      {type(error).__name__}: {error}"
                continue
            verdict = judged(culprit, copied, edit.line, copied.runs(inputs)[edit.line])
            yield verdict, f"{told}\n{head(text, 12)}"


def main() -> None:
    """Print the table."""
    parser = command.parser(__doc__, "edits", "seed", "only", "show", edits=10, only=[*ARCHITECTURES])
    parser.add_argument("--forwards", action="store_true", help="edit nothing but forwards")
    options = parser.parse_args()
    command.quiet()
    table = command.Table("copy of", *_COLUMNS)
    for name in options.only:
        counted: Counter[str] = Counter()
        for verdict, told in measured(name, options.edits, options.seed, "forward" if options.forwards else ""):
            counted[verdict] += 1
            if options.show and verdict != "line":
                print(f"{name}: {verdict.upper()}: {told}")
        table.add(name, {**counted, "edits": counted.total(), "module": counted["line"] + counted["module"]})
    table.total()


if __name__ == "__main__":
    main()
