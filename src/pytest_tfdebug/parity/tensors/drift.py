"""Drift or regression: what a failed comparison looks like.

Another version of a library, another machine or thread count changes the order of operations: every tensor moves a
little, none jumps, and the sum grows slowly with depth. A bug leaves everything before it as it was and jumps at one
module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_tfdebug.records import FORMS, as_they_ended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.parity.result import ParityReport

Finding = Literal["drift", "regression", "unclear"]

#: Machine epsilon by dtype (``torch.finfo``): the relative L2 that one rounding makes.
_EPSILON = {"float64": 2.2e-16, "float32": 1.2e-7, "float16": 9.8e-4, "bfloat16": 7.8e-3}
#: A module that multiplies the error by this is a jump. Rounding in one layer of the models of ``fixtures/`` multiplies
#: it by up to 8 (eager against SDPA attention, float32); the bugs of the catalogue start at 800.
_JUMP = 50.0
#: Rounding that has grown beyond this multiple of epsilon is no rounding any more.
_LARGE = 1e4
_NO_JUMP = "no module jumps, and the relative L2 stays below"


@dataclass(frozen=True)
class Assessment:
    """What the evidence speaks for."""

    finding: Finding  # ``drift``, ``regression`` or ``unclear``
    reason: str  # why, in a sentence

    def __str__(self) -> str:
        named = {"drift": "it is probably drift: ", "regression": "it is probably a regression: ", "unclear": ""}
        return f"Drift or regression: {named[self.finding]}{self.reason}"


def assess(report: ParityReport, changes: Sequence[str], wrong_weights: Sequence[str]) -> Assessment:
    """Weigh the shape of the error and what has changed around the model since it was recorded."""
    culprit = report.culprit
    kind, divergence = (culprit.kind, culprit.divergence) if culprit is not None else (None, None)
    if kind == "inputs":
        return Assessment("unclear", "the model was given other inputs.")
    if wrong_weights:
        return Assessment("regression", f"the weights are not the recorded ones ({wrong_weights[0]!r}).")
    if kind in ("not-called", "extra-call"):
        return Assessment("regression", "the modules that are called differ.")
    if any(leaf.problem in FORMS for item in report.calls for leaf in item.outputs):
        return Assessment("regression", "an output has another shape or dtype.")
    if divergence is not None and divergence.comparison.problem == "missing":
        return Assessment("regression", "a tensor is missing.")
    return _told_by_size(report, "; ".join(changes))


def _told_by_size(report: ParityReport, since: str) -> Assessment:
    sizes = [
        (leaf.metrics.relative_l2 if leaf.metrics is not None else 0.0, leaf)
        for item in as_they_ended(report.calls)
        for leaf in item.made
        if leaf.problem in ("", "values")
    ]
    first = next((place for place, (_, leaf) in enumerate(sizes) if leaf.problem), None)
    if first is None:
        return Assessment("unclear", "no output that can be measured differs.")
    at, leaf = sizes[first]
    before = max((size for size, _ in sizes[:first]), default=0.0)
    is_whole = all(one.expected is None or one.expected.digest is None for _, one in sizes[:first])
    largest = max(size for size, _ in sizes)
    epsilon = _EPSILON.get(leaf.dtype, _EPSILON["float32"])
    if at > _JUMP * max(before, epsilon):
        equal = "equal bit by bit" if is_whole else "equal in everything that the golden keeps"
        was = f"within a relative L2 of {before:.1e}" if before else equal
        reason = f"the first output that could be compared is off by a relative L2 of {at:.1e}."
        if first:
            reason = f"before the culprit every output is {was}, there it jumps to {at:.1e}."
    elif largest > _LARGE * epsilon:
        reason = f"the error reaches a relative L2 of {largest:.1e}, more than rounding explains."
    elif since:
        return Assessment("drift", f"{_NO_JUMP} {largest:.1e}; changed since: {since}.")
    else:
        told = f"{_NO_JUMP} {largest:.1e}, as rounding does, but the environment is the recorded one."
        return Assessment("unclear", told)
    return Assessment("regression", reason)
