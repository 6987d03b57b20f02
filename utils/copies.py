"""How many wrong lines are found in copies of modeling files: the commonest port, with the reference's own names.

A modeling file of transformers is copied, one line that runs is edited at random (in a forward, an ``__init__`` or a
helper such as ``rotate_half``), the copy takes the reference's weights, and both are compared. The same line of the
reference counts as ``reference``; what the columns say is told in ``edits.py``.
"""

from __future__ import annotations

import random
from functools import partial
from importlib import import_module
from typing import Any

import torch

import command

# isort: split
from cases import Case, to_edit

from edits import DIFFERS, Subject, lines_of, measure
from models import ARCHITECTURES, DECODER, build
from padding_models import _of
from pytest_tfdebug.tracing.record.leaves import walk

_DECODERS: dict[str, dict[str, Any]] = {
    "Mistral": {"sliding_window": 4},
    "Gemma2": {"head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 24},
    "Phi": {"partial_rotary_factor": 0.5},
    "Qwen2": {"use_sliding_window": False},
    "Falcon": {"alibi": False, "new_decoder_architecture": False, "multi_query": True},
    "OPT": {"ffn_dim": 96, "word_embed_proj_dim": 64},
}
for _name, _more in _DECODERS.items():
    _make = partial(_of, f"{_name}ForCausalLM", f"{_name}Config", **{**DECODER, **_more})
    ARCHITECTURES[_name.lower()] = _make, ARCHITECTURES["llama"][1]


def subject(name: str, seed: int) -> Subject:
    """Return the copies of an architecture's file."""
    reference, inputs = build(name)
    reference.set_attn_implementation("eager")  # the helper that is written out
    kind = type(reference)
    file = str(import_module(kind.__module__).__file__)

    def pair(_: object = None) -> Case:
        port = getattr(import_module(kind.__module__), kind.__name__)(reference.config)
        port.load_state_dict(reference.state_dict(), strict=True)
        return Case(reference, port.eval(), (), inputs, (), inputs)

    def run() -> Any:
        case = pair()
        case.port(**inputs)
        return case.port

    with torch.no_grad():
        right, lines = reference(**inputs), lines_of(kind.__module__, run)
    return Subject(
        to_edit(name, kind.__module__, pair),
        pair(),
        lines,
        random.Random(seed),  # noqa: S311 - the same edits every time
        lambda case: differs(right, case),
        lambda edit, _: {(file, edit.line)},
    )


@torch.no_grad()
def differs(right: object, case: Any) -> bool:
    """Tell whether an output of floating point differs."""
    pairs = zip(walk(right), walk(case.port(**case.port_kwargs)), strict=False)
    floats = [(one.tensor, other.tensor) for one, other in pairs if one.tensor.is_floating_point()]
    return any(one.shape != other.shape or not (one - other).norm() <= DIFFERS * one.norm() for one, other in floats)


def main() -> None:
    """Print the table."""
    options = command.parser(__doc__, "edits", "seed", "only", "show", edits=10, only=[*ARCHITECTURES]).parse_args()
    command.quiet()
    command.only_work_counts()
    measure((subject(name, options.seed) for name in options.only), options)


if __name__ == "__main__":
    main()
