"""How many wrong lines are found in copies of modeling files: the commonest port, with the reference's own names.

A modeling file of transformers is copied, one line that runs is edited at random (in a forward, an ``__init__`` or a
helper such as ``rotate_half``), the copy takes the reference's weights, and both are compared. The same line of the
reference counts as ``reference``; what the columns say is told in ``edits.py``.
"""

from __future__ import annotations

import random
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import transformers

import command

# isort: split
from editing import EditedFile

import pytest_tfdebug
from edits import DIFFERS, Edit, Subject, Wrong, measure, owned, watched
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


def _decoder(name: str, more: dict[str, Any]) -> torch.nn.Module:
    config = getattr(transformers, f"{name}Config")(**{**DECODER, **more})
    model: torch.nn.Module = getattr(transformers, f"{name}ForCausalLM")(config)
    return model


ARCHITECTURES.update({name: (partial(_decoder, *of), ARCHITECTURES["llama"][1]) for name, of in _DECODERS.items()})


def differs(expected: object, actual: object) -> bool:
    """Tell whether an output of floating point differs."""
    pairs = zip(walk(expected), walk(actual), strict=False)
    floats = [(one.tensor, other.tensor) for one, other in pairs if one.tensor.is_floating_point()]
    return any(one.shape != other.shape or not (one - other).norm() <= DIFFERS * one.norm() for one, other in floats)


def subject(name: str, seed: int) -> Subject:
    """Return the copies of an architecture's file."""
    reference, inputs = build(name)
    reference.set_attn_implementation("eager")  # the helper that is written out
    expected, kind = pytest_tfdebug.trace(reference, **inputs), type(reference)
    original = Path(sys.modules[kind.__module__].__file__ or "")
    text = original.read_text(encoding="utf-8")
    with torch.no_grad():
        right = reference(**inputs)

    def copied(edit: Edit | None) -> Any:
        new = edit.of(text) if edit else text
        return EditedFile(kind.__module__, text, new, after="", reloaded=[kind.__module__])

    def built(copy: Any) -> torch.nn.Module:
        with copy.in_place():
            port: torch.nn.Module = getattr(import_module(kind.__module__), kind.__name__)(reference.config)
        port.load_state_dict(reference.state_dict(), strict=True)
        return port.eval()

    def compare(port: torch.nn.Module) -> Any:
        return pytest_tfdebug.compare(expected, pytest_tfdebug.trace(port, **inputs))

    @torch.no_grad()
    def infect(edit: Edit) -> Wrong | None:
        copy = copied(edit)
        port, places = built(copy), {(str(original), edit.line)}
        is_changed = differs(right, port(**inputs))
        return Wrong(copy.path, frozenset(), partial(compare, port), lambda: places) if is_changed else None

    clean, draw = copied(None), random.Random(seed)  # noqa: S311 - the same edits every time
    with watched({str(clean.path)}) as seen, torch.no_grad():
        port = built(clean)
        port(**inputs)
    lines = {original.name: owned(seen[str(clean.path)], port)}
    return Subject(name, {original.name: text}, lines, infect, lambda: compare(built(clean)), draw)


def main() -> None:
    """Print the table."""
    options = command.parser(__doc__, "edits", "seed", "only", "show", edits=10, only=[*ARCHITECTURES]).parse_args()
    command.quiet()
    command.only_work_counts()
    measure((subject(name, options.seed) for name in options.only), options)


if __name__ == "__main__":
    main()
