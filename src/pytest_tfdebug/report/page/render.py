"""Pages from records, and what a notebook shows: HTML that needs no network."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.check_record import plain
from pytest_tfdebug.report.page import view
from pytest_tfdebug.report.page.view import on_log_scale, share
from pytest_tfdebug.report.tables import told_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jinja2 import Environment

    from pytest_tfdebug.check_record import CallRecord, CheckRecord, ForwardRecord
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.report.check_text import CheckText


_ROOM = files("pytest_tfdebug.report.page")
#: Characters that could end a script element, and how JSON writes them otherwise.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def assets() -> Iterator[tuple[str, str]]:
    """Yield name and text of the files that the pages share."""
    for file in sorted(_ROOM.joinpath("static").iterdir(), key=lambda file: file.name):
        yield file.name, file.read_text(encoding="utf-8")


def render_index(cards: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> str:
    """Return the index of a run."""
    return fill_template("index.html", root="", cards=cards, run=run, index=view.index(cards, run))


def render_check(check: CheckRecord) -> str:
    """Return the page of one check of ``--tf-json``."""
    return fill_template("check.html", root="../", check=check, card=view.card(check), view=view.page(check))


def fill_template(template: str, **values: Any) -> str:  # noqa: ANN401 - whatever a template shows
    """Return a template with values in it, all of them escaped."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def load(name: str) -> str:
        return _ROOM.joinpath("templates").joinpath(name).read_text(encoding="utf-8")

    made = Environment(
        loader=FunctionLoader(load), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    shown = (view.share, view.short, view.figure, view.first_line)
    made.filters |= {"embedded": _embedded, **{function.__name__: function for function in shown}}
    return made


def _embedded(value: object) -> Any:  # noqa: ANN401 - markup
    """Return a value as JSON that can stand in a script element."""
    import msgspec
    from markupsafe import Markup

    text = json.dumps(plain(msgspec.to_builtins(value)), separators=(",", ":"), ensure_ascii=False)
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return Markup(text)  # noqa: S704 - what could end the element is escaped above


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
