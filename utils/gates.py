"""How many injected port bugs the usual gates catch: equal argmax, cosine above 0.98, atol 1e-3; and this package.

Every bug of ``fixtures/bugs.py`` goes into a copy of its model. The gates see what the model returns; this package
holds the model to a golden of 64 kB, by the tolerance of the dtype and by floors (``tolerance="fp64"``).
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

import command
from bugs import BUGS
from models import IS_V5, build
from pytest_tfdebug import Trace, compare, trace
from pytest_tfdebug.tracing.file.samples import sampled
from pytest_tfdebug.tracing.values.floors import measure_floors

if TYPE_CHECKING:
    from collections.abc import Callable


def _close(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    return torch.allclose(actual, expected, rtol=0.0, atol=1e-3)


#: Gate -> whether it lets a tensor pass, and at how many outputs it looks.
GATES: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], bool], int | None]] = {
    "argmax of the first output": (lambda one, other: torch.equal(one.argmax(-1), other.argmax(-1)), 1),
    "its cosine above 0.98": (lambda one, o: float(torch.cosine_similarity(one.flatten(), o.flatten(), 0)) > 0.98, 1),  # noqa: PLR2004
    "it, within atol 1e-3": (_close, 1),
    "all outputs within 1e-3": (_close, None),
}
OURS = {"pytest-tfdebug": "dtype", 'tolerance="fp64"': "fp64"}


def _passes(gate: str, expected: Trace, actual: Trace) -> bool:
    is_close, count = GATES[gate]
    theirs, own = ([record.tensor for record in side.calls[0].outputs or () if record.dtype.startswith("float")]
                   for side in (expected, actual))  # fmt: skip
    pairs = [*zip(theirs, own, strict=False)][:count]
    is_whole = count is not None or len(theirs) == len(own)
    return is_whole and all(one.shape == other.shape and is_close(one, other) for one, other in pairs)


@cache
def _reference(name: str) -> tuple[torch.nn.Module, dict[str, Any], Trace, Trace]:
    """Return a model, its inputs, its forward, and a golden of that."""
    model, inputs = build(name)
    recorded = trace(model, **inputs)
    measure_floors(recorded)
    return model, inputs, recorded, replace(sampled(recorded), again=None)  # the line is not asked for


def main() -> None:
    """Print how many bugs each gate catches."""
    every = command.parser(__doc__, "every").parse_args().every
    command.quiet()
    caught: dict[str, int] = dict.fromkeys([*GATES, *OURS], 0)
    bugs = [bug for bug in BUGS if IS_V5 or not bug.needs_v5][::every]
    for bug in bugs:
        right, inputs, recorded, golden = _reference(bug.architecture)
        wrong = copy.deepcopy(right)
        bug.inject(wrong)
        actual = trace(wrong, **inputs)
        for gate in GATES:
            caught[gate] += not _passes(gate, recorded, actual)
        for name, tolerance in OURS.items():
            caught[name] += not compare(golden, actual, internal="fail", tolerance=tolerance).ok
    table = command.Table(f"of {len(bugs)} bugs", "caught")
    for name, count in caught.items():
        table.add(name, {"caught": count})


if __name__ == "__main__":
    main()
