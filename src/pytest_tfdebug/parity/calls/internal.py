"""Outputs that are equal while something inside differs: a warning, unless it is to fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.parity.calls.blame_calls import Verdict
from pytest_tfdebug.parity.tensors.coverage import has_output
from pytest_tfdebug.records import FAILING

if TYPE_CHECKING:
    from pytest_tfdebug.parity.tensors.comparator import Compared

#: What becomes of a comparison in which the outputs agree and something inside does not.
Internal = Literal["warn", "fail"]


def checked_internal(value: object) -> None:
    """Refuse what is not an :data:`Internal`."""
    if value not in get_args(Internal):
        raise TFDebugError(f"internal={value!r} is not one of {', '.join(map(repr, get_args(Internal)))}.")


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
    returned = [leaf for root in roots for leaf in root.outputs if leaf.problem not in ("", "extra")]
    return (
        bool(roots)
        and all(map(has_output, roots))
        and all(leaf.problem == "missing" and leaf.how for leaf in returned)  # left out
        and not any(leaf.problem in FAILING for leaf in written)
    )
