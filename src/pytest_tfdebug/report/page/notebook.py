"""A trace and a comparison as a notebook shows them: HTML that needs neither a script nor the page's files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_tfdebug.report.page.render import fill_template
from pytest_tfdebug.report.page.view import on_log_scale, share
from pytest_tfdebug.report.tables import told_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_tfdebug.check_record import CallRecord, ForwardRecord
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.report.check_text import CheckText

#: More calls than this are counted: a notebook keeps what it shows.
_MOST = 2000
#: Shares of the tolerance from the bottom of the curve to its top, with the tolerance halfway.
_TOP = 1e3


@dataclass
class ShownCall:
    """A call in the tree, with those inside it."""

    name: str
    class_name: str
    told: str
    state: str = ""
    is_culprit: bool = False
    inside: list[ShownCall] = field(default_factory=list)

    @property
    def leads_on(self) -> bool:
        """Whether the culprit is inside."""
        return any(each.is_culprit or each.leads_on for each in self.inside)


def trace_html(title: str, calls: Sequence[Call], notes: Iterable[str]) -> str:
    """Return a trace: its tree, with what raised or is not finite marked."""
    rows = (
        (
            call.index,
            call.parent,
            ShownCall(call.name, call.class_name, told_of(call), "differs" if _fails(call) else ""),
        )
        for call in calls[:_MOST]
    )
    left_out = len(calls[_MOST:])
    return fill_template(
        "notebook.html", title=title, code=(), sentences=notes, curve=(), calls=_tree(rows), left_out=left_out
    )


def comparison_html(text: CheckText, forward: ForwardRecord) -> str:
    """Return a comparison: the culprit first, then the drift along depth and the tree."""
    rows = (
        (
            call.index,
            call.parent,
            ShownCall(_name(call), call.class_name, _share(call), call.state, call.index == forward.culprit),
        )
        for call in forward.own[:_MOST]
    )
    measured = sorted((call for call in forward.own if call.share is not None), key=lambda call: call.ended)
    return fill_template(
        "notebook.html",
        title=text.answer,
        code=text.code,
        sentences=(*text.why, *text.advice),
        curve=list(_points(measured)),
        calls=_tree(rows),
        left_out=len(forward.own[_MOST:]),
    )


def _tree(rows: Iterable[tuple[int, int | None, ShownCall]]) -> list[ShownCall]:
    """Return the outermost calls, each with those inside it."""
    known: dict[int | None, list[ShownCall]] = {None: []}
    for index, parent, branch in rows:
        known[index] = branch.inside
        known[parent].append(branch)
    return known[None]


def _points(calls: Sequence[CallRecord]) -> Iterator[dict[str, object]]:
    """Yield a point of the curve for each call, in the order in which calls ended."""
    for place, call in enumerate(calls):
        height = on_log_scale((call.share or 0.0) / _TOP)
        told = f"{_name(call)}: {_share(call)}"
        yield {
            "x": round(600 * place / max(len(calls) - 1, 1), 1),
            "y": round(100 - 100 * height, 1),
            "told": told,
            "state": call.state,
        }


def _name(call: CallRecord) -> str:
    return f"{call.path}#{call.call}" if call.call else call.path


def _share(call: CallRecord) -> str:
    return call.state if call.share is None else f"{share(call.share)} of tolerance" if call.share else "equal"


def _fails(call: Call) -> bool:
    statistics = [record.statistics for record in call.outputs or () if record.statistics is not None]
    return call.error is not None or any(each.non_finite for each in statistics)
