"""Pages from records: HTML that needs no network."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.check_record import plain
from pytest_tfdebug.report.page import view

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jinja2 import Environment

    from pytest_tfdebug.check_record import CheckRecord


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
    import msgspec
    from jinja2.utils import htmlsafe_json_dumps

    return htmlsafe_json_dumps(plain(msgspec.to_builtins(value)), separators=(",", ":"))
