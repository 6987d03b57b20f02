"""A failed invariance check as people read it: what was done, where it shows, from when on, and why."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Protocol

from pytest_tfdebug.report.parity import describe, drift_table, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.records import CallComparison, Culprit, Divergence, LeafComparison

_WIDTH = 110
#: More numbers in a row than these are shown as a range.
_PAIR = 2


class Compared(Protocol):
    """A comparison of two traces; ``parity.result.ParityReport`` is one."""

    culprit: Culprit | None
    divergences: list[Divergence]
    calls: list[CallComparison]


class TokenFacts(Protocol):
    """Which tokens differ; ``invariance.located.Tokens`` is one."""

    @property
    def row(self) -> int:
        """Row of the first token that differs."""

    @property
    def position(self) -> int:
        """Its position."""

    @property
    def differing(self) -> int:
        """Number of positions that differ."""

    @property
    def real(self) -> int:
        """Number of real positions."""


def render_headline(name: str, verdict: str, label: str) -> str:
    """Return the first line: who, what, and after what."""
    return f"{name} {verdict}: {label}."


def wrapped(text: str) -> Iterator[str]:
    """Yield a fact's lines, indented, none longer than a report's width."""
    yield from wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ")


def render_output(leaf: LeafComparison | None, error: str) -> Iterator[str]:
    """Yield which output changed."""
    if leaf is None:
        yield f"  The repeated call raised {error}"
        return
    yield f"  Output: {leaf.leaf or 'the returned tensor'}, shape {leaf.shape}, {leaf.dtype}"
    if leaf.metrics is None and leaf.expected is None:
        yield "    NaN at pad positions only; the next layer would spread it to real tokens"
    yield from (f"    {line}" for line in list(describe(leaf))[:2])


def render_place(
    what: str, culprit: Culprit | None, parity: Compared | None, tokens: TokenFacts | None, reason: str
) -> Iterator[str]:
    """Yield where it gets in: module or lines, the first tensor, the first token."""
    if culprit is None:
        yield f"  Where it happens could not be placed: {reason}"
        return
    source = f", {culprit.source}" if culprit.source else ""
    yield f"  {what} at {culprit.path!r} ({culprit.class_name}): {culprit.kind}{source}."
    yield from wrapped(culprit.explanation)
    if culprit.divergence is not None:
        yield from facts_of(culprit.divergence)
    if tokens is not None:
        yield (
            f"  First token: position {tokens.position} of row {tokens.row}; "
            f"{tokens.differing} of {tokens.real} real positions differ"
        )
    elif parity is not None:
        yield "  First token: none, the tensor has no token axis"


def render_pads(side: str, failing: Sequence[int], passing: Sequence[int], unit: str, length: int) -> Iterator[str]:
    """Yield from how many pads on it shows."""
    if not failing:
        return
    first = failing[0]
    padded = f" (padded length {length + first})" if length else ""
    yield f"  First pad length: {first}{padded}"
    kept = f"; {_numbers(passing)} do not" if passing else "; none tried leaves it"
    yield f"  Pads on the {side}, in {unit}: {_numbers(failing)} change the answer{kept}"


def render_drift(parity: Compared | None, culprit: Culprit | None) -> Iterator[str]:
    """Yield the error along depth."""
    if parity is not None and culprit is not None:
        yield from drift_table(parity.calls, parity.culprit or culprit, len(parity.divergences), verbose=False)


def _numbers(values: Sequence[int]) -> str:
    """Return ascending numbers in words, three or more in a row as a range."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    shown = [
        part
        for run in runs
        for part in ([f"{run[0]} to {run[-1]}"] if len(run) > _PAIR else [str(each) for each in run])
    ]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
