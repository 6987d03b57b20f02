"""How many injected port bugs the usual gates catch: equal argmax, cosine above 0.98, atol 1e-3; and this package.

Every bug of ``fixtures/bugs.py`` goes into a copy of its model, and the outputs of both are compared in each way.
``caught``: the gate fails. The gates see what the model returns; this package holds the model to a golden of 64 kB, by
the tolerance of the dtype and by floors (``tolerance="fp64"``).
"""

from __future__ import annotations

import copy
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "fixtures"))

import pytest_tfdebug
from bugs import BUGS  # type: ignore[import-not-found]  # the folder is put on the path above
from models import ARCHITECTURES, IS_V5, build  # type: ignore[import-not-found]
from pytest_tfdebug.tracing.file.samples import sampled
from pytest_tfdebug.tracing.values.floors import measure_floors

if TYPE_CHECKING:
    from collections.abc import Callable

_LEAST_COSINE, _ATOL = 0.98, 1e-3


def _same_argmax(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    return torch.equal(expected.argmax(-1), actual.argmax(-1))


def _alike(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    return float(torch.cosine_similarity(expected.flatten(), actual.flatten(), dim=0)) > _LEAST_COSINE


def _close(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    return torch.allclose(actual, expected, rtol=0.0, atol=_ATOL)


#: Gate -> whether it lets a tensor pass, and whether it looks at the first output alone.
GATES: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], bool], bool]] = {
    "argmax of the first output equal": (_same_argmax, True),
    "cosine of the first output above 0.98": (_alike, True),
    "first output within atol 1e-3": (_close, True),
    "every output, caches included, within atol 1e-3": (_close, False),
}
OURS = {"pytest-tfdebug": "dtype", 'pytest-tfdebug, tolerance="fp64"': "fp64"}


def _passes(gate: str, expected: pytest_tfdebug.Trace, actual: pytest_tfdebug.Trace) -> bool:
    is_close, is_first = GATES[gate]
    theirs, own = (
        [record.tensor for record in trace.calls[0].outputs or () if record.dtype.startswith("float")]
        for trace in (expected, actual)
    )
    if len(theirs) != len(own) and not is_first:
        return False
    return all(
        one is not None and other is not None and one.shape == other.shape and is_close(one, other)
        for one, other in [*zip(theirs, own, strict=False)][: 1 if is_first else None]
    )


def _reference(name: str) -> tuple[torch.nn.Module, dict[str, Any], pytest_tfdebug.Trace, pytest_tfdebug.Trace]:
    """Return a model, its inputs, its forward, and a golden of that."""
    model, inputs = build(name)
    recorded = pytest_tfdebug.trace(model, **inputs)
    measure_floors(recorded)
    golden = replace(sampled(recorded), again=None)  # whether it fails is asked, not in which line
    return model, inputs, recorded, golden


def main() -> None:
    """Print how many bugs each gate catches."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    bugs = [bug for bug in BUGS if IS_V5 or not bug.needs_v5]
    references = {name: _reference(name) for name in ARCHITECTURES}
    caught: dict[str, int] = dict.fromkeys([*GATES, *OURS], 0)
    for bug in bugs:
        right, inputs, recorded, golden = references[bug.architecture]
        wrong = copy.deepcopy(right)
        bug.inject(wrong)
        actual = pytest_tfdebug.trace(wrong, **inputs)
        for gate in GATES:
            caught[gate] += not _passes(gate, recorded, actual)
        for name, tolerance in OURS.items():
            report = pytest_tfdebug.compare(golden, actual, internal="fail", tolerance=tolerance)
            caught[name] += not report.ok
    print(f"| gate | caught, of {len(bugs)} bugs |\n|---|---|")
    for name, count in caught.items():
        print(f"| {name} | {count} |")


if __name__ == "__main__":
    main()
