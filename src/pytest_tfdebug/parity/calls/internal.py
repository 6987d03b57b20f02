"""Outputs that are equal while something inside differs: a warning, unless it is to fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.parity.calls.blame_calls import Verdict
from pytest_tfdebug.parity.tensors.measured import has_output
from pytest_tfdebug.records import FAILING

if TYPE_CHECKING:
    from pytest_tfdebug.parity.tensors.comparator import Compared
    from pytest_tfdebug.records import LeafComparison

#: What becomes of a comparison in which the outputs agree and something inside does not.
Internal = Literal["warn", "fail"]
_CHOICES = ("warn", "fail")


def checked_internal(value: object) -> None:
    """Refuse what is not an :data:`Internal`."""
    if value not in _CHOICES:
        raise TFDebugError(f"internal={value!r} is not one of {', '.join(map(repr, _CHOICES))}.")


def tolerate_internal(verdict: Verdict, compared: Compared) -> tuple[Verdict, str]:
    """Let a comparison pass whose root outputs and writes to caches agree."""
    culprit = verdict.culprit
    if culprit is None or culprit.kind == "inputs" or not is_equal_outside(compared):
        return verdict, ""
    count = max(1, sum(item.direction != "input" for item in verdict.divergences))
    values = "1 internal value differs" if count == 1 else f"{count} internal values differ"
    source = f", {culprit.source}" if culprit.source else ""
    ranks = f", {culprit.ranks}" if culprit.ranks else ""
    note = (
        f"Outputs equal, {values}: the first at {culprit.path!r} ({culprit.class_name}){source}{ranks}. "
        'internal="fail" makes this a failure.'
    )
    return Verdict(verdict.divergences, None, [note, *verdict.notes], verdict.is_compared), note


def is_equal_outside(compared: Compared) -> bool:
    """Tell whether the roots' outputs agree, and what was written to caches."""
    roots = [item for item in compared.calls if item.call.parent is None]
    written = (leaf for item in compared.calls for leaf, _ in item.writes)
    return (
        bool(roots)
        and all(map(has_output, roots))
        and not any(_is_open(leaf) for root in roots for leaf in root.outputs)
        and not any(leaf.problem in FAILING for leaf in written)
    )


def _is_open(leaf: LeafComparison) -> bool:
    """Tell whether an output of the model differs, or was not compared though it should be."""
    is_left_out = leaf.problem == "missing" and bool(leaf.how)
    return bool(leaf.problem) and leaf.problem != "extra" and not is_left_out
