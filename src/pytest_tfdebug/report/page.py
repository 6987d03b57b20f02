"""Pages from the records alone, a failed check as Markdown, and what a notebook shows: HTML that needs no network."""

from __future__ import annotations

import shlex
from collections import Counter
from functools import cache
from math import isfinite, log10
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pytest_tfdebug.check_record import ForwardRecord, plain
from pytest_tfdebug.environment import as_text
from pytest_tfdebug.report.comparison import rename_argument
from pytest_tfdebug.report.tables import told_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jinja2 import Environment

    from pytest_tfdebug.check_record import CallRecord, CheckRecord, HeadroomRecord, SourceText, ValueRecord
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.report.check_text import CheckText


#: Name of a check -> its name on a page.
KINDS = {
    "parity": "Parity",
    "padding_invariant": "Padding",
    "batch": "Batch",
    "cache": "Cache",
    "attention": "Attention",
    "save_load": "Save and load",
    "dtype": "Dtype",
    "overflow_free": "Overflow",
    "clean_load": "Load",
    "conformance": "Promise",
    "sweep": "Sweep",
    "triage": "Failure",
}
#: Name of a check -> titles of its sides: the one under test, and the one that it is held to.
_SIDES = {
    "parity": ("Here", "Reference"),
    "padding_invariant": ("Padded", "As the test called it"),
    "overflow_free": ("Here", ""),
}
_OTHER_SIDES = ("Made again", "As the test called it")
#: What the index shows of a check as it is.
_SHOWN_AS_THEY_ARE = ("test", "status", "model", "headline", "culprit", "coverage", "worst", "repeats", "name")
#: Calls as columns: a page of 5,000 calls stays small.
_COLUMNS = ("path", "class_name", "call", "parent", "ended", "state", "share", "max_abs", "allowed", "relative_l2")


def card(check: CheckRecord) -> dict[str, Any]:
    """Return what the index shows of a check."""
    file, _, name = check.test.partition("::")
    coverage = check.coverage
    return {
        **{key: getattr(check, key) for key in _SHOWN_AS_THEY_ARE},
        "id": check.slug,
        "file": file,
        "title": (name or file).replace("::", " › ") + (f" · {check.name}" if check.name else ""),
        "kind": KINDS.get(check.check, check.check),
        "covered": coverage.share if coverage is not None and coverage.expected else None,
    }


def _index(cards: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the head of the index says about all checks."""
    states, promises = Counter(each["status"] for each in cards), dict[str, dict[str, Any]]()
    for each in cards:
        if each["kind"] == KINDS["conformance"]:
            promises.setdefault(each["model"], {})[each["name"].rpartition(" ")[2]] = each
    environment = {name: as_text(value) for name, value in run["environment"].items() if value not in (None, {}, [])}
    return {
        "failed": states["failed"],
        "passed": states["passed"],
        "promises": promises,
        "kinds": sorted(Counter(each["kind"] for each in cards).items()),
        "command": shlex.join(run["command"]),
        "environment": environment,
    }


def _page(check: CheckRecord) -> dict[str, Any]:
    """Return what the page of a check shows beside the record itself."""
    forward = check.forward or ForwardRecord()
    values = [forward.values, forward.reference_values]
    command = f"pytest {shlex.quote(check.test)}"
    return {
        "command": command,
        "sides": _SIDES.get(check.check, _OTHER_SIDES),
        "rename": rename_argument(check.rename),
        "issue": issue(check, command),
        "codes": [_code(source) for source in forward.sources],
        "near": list(_side_by_side(*values)),
        "shown": [[row.index for row in rows] for rows in values],
        "has_values": any(values),
        "headroom": [_headroom(row) for row in check.headroom],
        "data": {
            "measure": forward.measure,
            "culprit": forward.culprit,
            "own": plain(_columns(forward.own)) if forward.own else None,
            "reference": plain(_columns(forward.reference)),
            "pairs": [[pair.own, pair.reference, pair.by] for pair in forward.pairs],
            "elements": plain(msgspec.to_builtins(forward.elements)),
        },
    }


def _side_by_side(
    own: Sequence[ValueRecord], reference: Sequence[ValueRecord]
) -> Iterator[tuple[ValueRecord | None, ValueRecord | None]]:
    """Yield the values of both sides row by row: one beside its partner, the others between them in their order."""
    places = {row.index: place for place, row in enumerate(reference)}
    at = 0
    for row in own:
        place = places.get(row.partner, -1) if row.partner is not None else -1
        if place >= at:
            yield from ((None, between) for between in reference[at:place])
            at = place + 1
            yield row, reference[place]
        else:
            yield row, None
    yield from ((None, rest) for rest in reference[at:])


def _columns(calls: Sequence[CallRecord]) -> dict[str, list[Any]]:
    columns = {name: [_rounded(getattr(row, name)) for row in calls] for name in ("index", *_COLUMNS)}
    columns["shape"] = [" × ".join(map(str, row.shape)) + (f" {row.dtype}" if row.dtype else "") for row in calls]
    for name in ("path", "class_name", "state", "shape"):  # each word is written once, and then its number
        words = list(dict.fromkeys(columns[name]))
        at = {word: place for place, word in enumerate(words)}
        columns[name] = [at[word] for word in columns[name]]
        columns[f"{name}_words"] = words
    return columns


def _rounded(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _code(source: SourceText | None) -> dict[str, Any] | None:
    if source is None:
        return None
    marked, text = source.marked, list(source.text)
    while text and not text[-1].strip():
        text.pop()
    lines = [
        (number, line, marked is not None and marked.first <= number <= marked.last)
        for number, line in enumerate(text, source.first)
    ]
    return {"file": source.file, "line": marked.first if marked else source.first, "lines": lines}


def _headroom(row: HeadroomRecord) -> dict[str, Any]:
    used = row.value / row.limit if row.limit else 1.0
    ratio = row.limit / row.value if row.value else float("inf")
    return {"row": row, "ratio": ratio, "used": _on_log_scale(used), "fits": ratio > 1}


def _on_log_scale(used: float) -> float:
    """Return a share of a range as a length from 0 to 1 on a logarithmic scale that begins at 1e-6."""
    decades = 6.0
    return 1.0 if not isfinite(used) else min(1.0, max(0.0, 1 + log10(max(used, 1e-30)) / decades))


def _share(value: float) -> str:
    """Return a share of a tolerance in words: ``0.2×``."""
    return f"{value:.2g}×" if value else "equal"


def issue(check: CheckRecord, command: str) -> str:
    """Return a check as the text of an issue."""
    return "\n".join(_lines(check, command)) + "\n"


def _lines(check: CheckRecord, command: str) -> Iterator[str]:
    yield f"**{check.headline}**"
    culprit, forward = check.culprit, check.forward
    if culprit is not None and culprit.explanation:
        yield f"\n{culprit.explanation}"
    if check.diagnosis:
        yield f"\n{check.diagnosis}"
    for title, source in zip(("Here", "Reference"), forward.sources if forward else (), strict=False):
        if source is not None and source.marked is not None:
            text = source.text[source.marked.first - source.first : source.marked.last - source.first + 1]
            fence = "~~~~" if any("```" in line for line in text) else "```"
            yield from (f"\n{title}, `{source.marked}`\n", f"{fence}python", *text, fence)
    if culprit is not None and culprit.figures:
        yield f"\n{culprit.tensor}"
        yield from (f"- {figure}" for figure in culprit.figures)
    for title, lines in (
        ("Changed since the golden was recorded", check.changed),
        ("Weights that are not the recorded ones", check.weights),
    ):
        if lines:
            yield f"\n{title}: {', '.join(lines)}"
    yield f"\n```\n{command}\n```"


def render_index(cards: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> str:
    """Return the index of a run."""
    return fill_template("index.html", root="", cards=cards, run=run, index=_index(cards, run))


def render_check(check: CheckRecord) -> str:
    """Return the page of one check of ``--tf-json``."""
    return fill_template("check.html", root="../", check=check, card=card(check), view=_page(check))


def fill_template(template: str, **values: Any) -> str:  # noqa: ANN401 - whatever a template shows
    """Return a template with values in it, all of them escaped."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("pytest_tfdebug.report")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    made.filters["share"] = _share
    return made


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
    tree = _tree(forward.own, lambda call: (_name(call), _told(call), call.state), forward.culprit)
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
        height = _on_log_scale((call.share or 0.0) / _TOP)
        told = f"{_name(call)}: {_told(call)}"
        yield {
            "x": round(600 * place / max(len(calls) - 1, 1), 1),
            "y": round(100 - 100 * height, 1),
            "told": told,
            "state": call.state,
        }


def _name(call: CallRecord) -> str:
    return f"{call.path}#{call.call}" if call.call else call.path


def _told(call: CallRecord) -> str:
    return call.state if call.share is None else _share(call.share) + (" of tolerance" if call.share else "")


def _fails(call: Call) -> bool:
    statistics = [record.statistics for record in call.outputs or () if record.statistics is not None]
    return call.error is not None or any(each.non_finite for each in statistics)
