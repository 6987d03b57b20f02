"""Pages from records, and what a notebook shows: HTML that needs no network."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pytest_tfdebug.check_record import CallRecord, CheckRecord, ForwardRecord, plain
from pytest_tfdebug.report.page import view
from pytest_tfdebug.report.page.view import on_log_scale, share
from pytest_tfdebug.report.tables import told_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jinja2 import Environment

    from pytest_tfdebug.records import Call
    from pytest_tfdebug.report.check_text import CheckText


_ROOM = files("pytest_tfdebug.report.page")


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
    from jinja2.utils import htmlsafe_json_dumps

    return htmlsafe_json_dumps(plain(msgspec.to_builtins(value)), separators=(",", ":"))


_AnyCall = TypeVar("_AnyCall", "Call", "CallRecord")
#: More calls than this are counted: a notebook keeps what it shows.
_MOST = 2000
#: Shares of the tolerance from the bottom of the curve to its top, with the tolerance halfway.
_TOP = 1e3


def trace_html(title: str, calls: Sequence[Call], notes: Iterable[str]) -> str:
    """Return a trace: its tree, with what raised or is not finite marked."""
    tree = _tree(calls, lambda call: (call.name, told_of(call), "differs" if _fails(call) else ""))
    return fill_template("notebook.html", title=title, code=(), sentences=notes, curve=(), **tree)


def comparison_html(text: CheckText, forward: ForwardRecord) -> str:
    """Return a comparison: the culprit first, then the drift along depth and the tree."""
    measured = sorted((call for call in forward.own if call.share is not None), key=lambda call: call.ended)
    tree = _tree(forward.own, lambda call: (_name(call), _share(call), call.state), forward.culprit)
    sentences, curve = (*text.why, *text.advice), list(_points(measured))
    return fill_template("notebook.html", title=text.answer, code=text.code, sentences=sentences, curve=curve, **tree)


def _tree(
    calls: Sequence[_AnyCall], told: Callable[[_AnyCall], tuple[str, str, str]], culprit: int | None = None
) -> dict[str, Any]:
    """Return the outermost calls, each with those inside it, and how many are left out."""
    parents = {call.index: call.parent for call in calls}
    leading, at = set[int](), parents.get(culprit) if culprit is not None else None
    while at is not None:
        leading.add(at)
        at = parents[at]
    inside: dict[int | None, list[dict[str, Any]]] = {None: []}
    for call in calls[:_MOST]:
        name, what, state = told(call)
        inside[call.index] = []
        shown = {"name": name, "class_name": call.class_name, "told": what, "state": state}
        marks = {"is_culprit": call.index == culprit, "leads_on": call.index in leading}
        inside[call.parent].append({**shown, **marks, "inside": inside[call.index]})
    return {"calls": inside[None], "left_out": len(calls[_MOST:])}


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
