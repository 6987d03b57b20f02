"""How many wrong lines are found in copies of modeling files: the commonest port, with the reference's own names.

A modeling file of transformers is copied, one line that runs is edited at random (in a forward, an ``__init__`` or a
helper such as ``rotate_half``), the copy takes the reference's weights, and both are compared. The same line of the
reference counts as ``reference``; what the columns say is told in ``edits.py``.
"""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

import command
import pytest_tfdebug
from edits import DIFFERS, Edit, Subject, Wrong, measure, watched
from models import ARCHITECTURES, DECODER, build
from pytest_tfdebug.tracing.record.leaves import walk

_DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("Mistral", {"sliding_window": 4}),
    "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 24}),
    "phi": ("Phi", {"partial_rotary_factor": 0.5}),
    "qwen2": ("Qwen2", {"use_sliding_window": False}),
    "falcon": ("Falcon", {"alibi": False, "new_decoder_architecture": False, "multi_query": True}),
    "opt": ("OPT", {"ffn_dim": 96, "word_embed_proj_dim": 64}),
}
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
        assert spec is not None and spec.loader is not None  # noqa: PT018 - the file is there, and it is Python
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


def subject(name: str, seed: int, folder: Path) -> Subject:
    """Return the copies of an architecture's file."""
    reference, inputs = build(name)
    reference.set_attn_implementation("eager")  # the helper that is written out
    expected = pytest_tfdebug.trace(reference, **inputs)
    with torch.no_grad():
        right = reference(**inputs)

    def compare(port: torch.nn.Module) -> Any:
        return pytest_tfdebug.compare(expected, pytest_tfdebug.trace(port, **inputs))

    def infect(edit: Edit) -> Wrong | None:
        copied = Copy(reference, edit, folder)
        port = copied.built()
        with torch.no_grad():
            is_changed = differs(right, port(**inputs))
        places = {(str(copied.original), edit.line)}
        return Wrong(copied.path, frozenset(), partial(compare, port), lambda: places) if is_changed else None

    clean, draw = Copy(reference, None, folder), random.Random(seed)  # noqa: S311 - the same edits every time
    lines = {clean.original.name: clean.runs(inputs)}
    return Subject(name, {clean.original.name: clean.text}, lines, infect, lambda: compare(clean.built()), draw)


def main() -> None:
    """Print the table."""
    options = command.parser(__doc__, "edits", "seed", "only", "show", edits=10, only=[*ARCHITECTURES]).parse_args()
    command.quiet()
    command.only_work_counts()
    with tempfile.TemporaryDirectory() as folder:
        measure((subject(name, options.seed, Path(folder)) for name in options.only), options)


if __name__ == "__main__":
    main()
