"""The text of a sweep: which fields matter, which a port does not follow, and which the inputs cannot see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.report.check_text import CheckText
from pytest_tfdebug.report.comparison import parity_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.check_record import BlindRecord
    from pytest_tfdebug.data.sweep import SweepResult, SweptField

_WIDTH = len("ignored ")
#: Verdict -> how it is said of one field, and of several.
_SAID = {
    "ignored": ("is ignored", "are ignored"),
    "differs": ("differs", "differ"),
    "refused": ("is refused", "are refused"),
}


def sweep_text(report: SweepResult) -> CheckText:
    """Return the text of a sweep."""
    blind = {spot.field: spot.record() for spot in report.blind}
    failing = [row for row in report.rows if row.fails]
    others = [row for row in report.rows if not row.fails and row.verdict != "never"]
    never = [row.field for row in report.rows if row.verdict == "never"]
    outdated = [f"{name} is in known=, but it agrees now: remove it." for name in report.outdated]
    rest = list(_lines(others, {}))
    unseen = [f"  {'blind':<{_WIDTH}} {it.field}={it.own}: {it.why}; {it.value} shows it" for it in blind.values()]
    table = [*unseen, *rest, *([f"  never    {', '.join(never)}"] if never else [])]
    return CheckText(
        _answer(report),
        tuple(_lines(failing, blind)),
        tuple(outdated),
        drift=() if report.has_port and failing else tuple(table),
        everything=tuple(table),
        circumstances=tuple(report.notes),
    )


def _answer(report: SweepResult) -> str:
    worst: dict[str, str] = {}
    for row in report.rows:  # of several rows of a field the worst comes first
        worst.setdefault(row.field, row.verdict)
    first = f"{sum(verdict != 'never' for verdict in worst.values())} of {counted(len(worst), 'field')} matter"
    if not report.has_port:
        unseen = [f"{spot.field}={spot.own!r} (set {spot.record().value})" for spot in report.blind]
        cannot = f"these inputs cannot see {len(unseen)} of them: {listed(unseen, 3)}"
        return f"{report.name}: {first}; {cannot if unseen else 'these inputs see each of them'}"
    known = {row.field for row in report.rows if row.known}
    told = [f"{list(worst.values()).count('agrees')} agree"]
    for verdict, (one, several) in _SAID.items():
        names = [name for name in worst if worst[name] == verdict and name not in known]
        listing = f": {listed(names, 3)}" if verdict != "refused" else ""
        told += [f"{len(names)} {one if len(names) == 1 else several}{listing}"] if names else []
    told += [f"{len(known)} known to fail"] if known else []
    return f"{report.name} port: {first}; {', '.join(told)}"


def _lines(rows: Sequence[SweptField], blind: dict[str, BlindRecord]) -> Iterator[str]:
    groups: dict[tuple[str, str, str], list[SweptField]] = {}
    for row in rows:
        groups.setdefault((row.verdict, row.field, row.note), []).append(row)
    for (verdict, name, note), alike in groups.items():
        first = alike[0]
        values = ", ".join(str(row.value) for row in alike)
        yield f"  {verdict:<{_WIDTH}} {name} {first.own} -> {values}: {_moved(first)}" + (f" ({note})" if note else "")
        indent = " " * (_WIDTH + 3)
        if first.known:
            yield f"{indent}known: {first.known}"
        if name in blind:
            yield f"{indent}your golden cannot see it: at {blind[name].own} {blind[name].why}"
        if first.report is not None and not first.report.ok:
            text = parity_text(first.report)
            yield from (f"{indent}{line}" for line in (text.answer, *text.code))


def _moved(row: SweptField) -> str:
    reference = f"the reference moves by {_share(row.reference_moved)}"
    if row.verdict == "ignored":
        return f"{reference}, the port not at all"
    if row.verdict == "differs":
        return f"{reference}, and the port is off by {_share(row.error)}"
    return reference


def _share(value: float | None) -> str:
    if value is None or value == float("inf"):
        return "more than can be measured"
    return f"{value:.0%}" if value >= 0.01 else f"{value:.1g}"  # noqa: PLR2004 - a percent
