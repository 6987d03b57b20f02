"""The text of an audit of a load."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.report.check_text import CheckText, next_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.data.load import LoadResult, LoadRow

#: What to do about a verdict.
_ADVICE = {
    "never read": (
        "Map its name to the model's where the state dict is converted; or, if it is not meant to arrive, "
        "give allow=['its name']."
    ),
    "left at its initial values": "Load it: look at what load_state_dict returns, or pass strict=True.",
    "not scaled": "Multiply by the scale when the numbers are read.",
    "from elsewhere": "Look at how the names of layers are mapped.",
    "in another order": "Look at what the conversion transposes, and at the order in which it joins.",
    "wrongly tied": "Look at tie_word_embeddings, and at what the model ties after loading.",
    "not judged": "Load it in a form whose numbers can be read, or give allow=['its name'].",
}
_SHOWN = 12


def load_text(report: LoadResult) -> CheckText:
    """Return the text of an audit."""
    lost = [row for row in report.rows if not row.ok]
    groups = _groups(lost)
    table = [line for rows in groups for line in _lines(rows)]
    counts = Counter(row.verdict for row in report.rows if row.ok and row.of == "model")
    arrived = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    allowed = sum(row.allowed for row in report.rows)
    notes = [f"Of the model's tensors: {arrived}."] if arrived else []
    notes += [f"allow= names {counted(allowed, 'tensor')}."] if allowed else []
    everything = [f"  {row.verdict:<10} {row.tensor}{_from(row)}" for row in report.rows if row.ok]
    advice = next((_ADVICE[row.verdict] for row in lost if row.verdict in _ADVICE), "")
    return CheckText(
        _answer(report, groups),
        advice=tuple(next_step(advice)),
        drift=tuple(table[:_SHOWN]) + ((f"  and {len(table) - _SHOWN} more",) if len(table) > _SHOWN else ()),
        everything=(*table, *everything),
        circumstances=tuple(notes),
    )


def _answer(report: LoadResult, groups: Sequence[Sequence[LoadRow]]) -> str:
    whole = f"{report.model}: each of {counted(report.stored, 'tensor')} of {report.checkpoint} arrived"
    if not groups:
        return whole
    lost = [row for rows in groups for row in rows]
    number = len({row.tensor for row in lost if row.verdict != "loaded twice"} or {row.tensor for row in lost})
    told = [f"{_name(rows)} {_is(rows)}{_why(rows)}" for rows in groups]
    return f"{report.model}: {counted(number, 'tensor')} did not arrive from {report.checkpoint}: {listed(told, 2)}"


def _groups(rows: Sequence[LoadRow]) -> list[list[LoadRow]]:
    """Return rows of one verdict that differ in the numbers of their names alone together."""
    found: dict[tuple[str, str, str], list[LoadRow]] = {}
    for row in rows:
        found.setdefault((row.of, row.verdict, re.sub(r"\d+", "*", row.tensor)), []).append(row)
    return list(found.values())


def _name(rows: Sequence[LoadRow]) -> str:
    whose = " (in the checkpoint)" if rows[0].of == "checkpoint" and rows[0].verdict != "never read" else ""
    name = rows[0].tensor if len(rows) == 1 else f"{re.sub(r'[0-9]+', '*', rows[0].tensor)} ({len(rows)})"
    return name + whose


def _is(rows: Sequence[LoadRow]) -> str:
    verdict = rows[0].verdict
    verb = "was" if verdict in ("never read", "loaded twice") else "is"
    return f"{verb} {verdict}"


def _why(rows: Sequence[LoadRow]) -> str:
    """Return where a tensor that was never read probably belongs, in brackets."""
    return f" ({rows[0].detail})" if len(rows) == 1 and rows[0].verdict == "never read" and rows[0].detail else ""


def _lines(rows: Sequence[LoadRow]) -> Iterator[str]:
    first = rows[0]
    yield f"  {first.verdict}: {_name(rows)}{_from(first)}{f': {first.detail}' if first.detail else ''}"


def _from(row: LoadRow) -> str:
    return f" <- {listed(row.from_, 3)}" if row.from_ and row.from_ != (row.tensor,) else ""
