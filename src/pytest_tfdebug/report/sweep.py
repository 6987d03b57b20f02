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
    unseen = [f"  {'blind':<{_WIDTH}} {it.told}: {it.why}; use {it.value}" for it in blind.values()]
    table = [*unseen, *rest, *([f"  never    {', '.join(never)}"] if never else [])]
    refused = list(_lines([row for row in others if row.verdict == "refused"], {}))
    known = ", ".join(f'"{name}": "why"' for name in dict.fromkeys(row.field for row in failing))
    advice = f"Next: let the port read what it ignores, or say why it need not: known={{{known}}}."
    return CheckText(
        _answer(report),
        tuple(_lines(failing, blind)),
        tuple(outdated),
        (advice,) if failing else (),
        drift=tuple(refused if failing else table),
        everything=tuple(table),
        circumstances=tuple(report.notes),
    )


def _answer(report: SweepResult) -> str:
    worst: dict[str, str] = {}
    for row in report.rows:  # of several rows of a field the worst comes first
        worst.setdefault(row.field, row.verdict)
    first = f"{sum(verdict != 'never' for verdict in worst.values())} of {counted(len(worst), 'field')} matter"
    if not report.has_port:
        unseen = [spot.record().in_short for spot in report.blind]
        cannot = f"with these inputs a test would pass for a port that ignores {listed(unseen, 3)}"
        return f"{report.name}: {first}; {cannot if unseen else 'these inputs see each of them'}"
    known = {row.field for row in report.rows if row.known}
    told = [f"{list(worst.values()).count('agrees')} agree"]
    for verdict, (one, several) in _SAID.items():
        names = [name for name in worst if worst[name] == verdict and name not in known]
        told += [f"{len(names)} {one if len(names) == 1 else several}: {listed(names, 3)}"] if names else []
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
            yield f"{indent}a golden of these inputs cannot see it: at {blind[name].own} {blind[name].why}"
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
