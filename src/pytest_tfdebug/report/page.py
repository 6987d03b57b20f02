"""Pages from the records alone, a failed check as Markdown, and what a notebook shows: HTML that needs no network."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import replace
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

    from pytest_tfdebug.check_record import CallRecord, CheckRecord, ValueRecord
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
    "certify": "Changes caught",
}
#: Name of a check -> titles of its sides: the one under test, and the one that it is held to.
_SIDES = {
    "parity": ("Here", "Reference"),
    "padding_invariant": ("Padded", "As the test called it"),
    "overflow_free": ("Here", ""),
}
_OTHER_SIDES = ("Made again", "As the test called it")
#: Calls as columns: a page of 5,000 calls stays small.
_COLUMNS = ("path", "class_name", "call", "parent", "ended", "state", "share", "max_abs", "allowed", "relative_l2")


def card(check: CheckRecord) -> CheckRecord:
    """Return what the index shows of a check: its record without what fills its page."""
    return replace(check, id=check.slug, forward=None, text="", headroom=(), loads=(), fields=(), blind=(), kills=None)


def _title(check: CheckRecord) -> str:
    file, _, name = check.test.partition("::")
    return (name or file).replace("::", " › ") + (f" · {check.name}" if check.name else "")


def _kind(check: CheckRecord) -> str:
    return KINDS.get(check.check, check.check)


def _data(forward: ForwardRecord) -> dict[str, Any]:
    """Return what the scripts of a page draw."""
    return {
        "measure": forward.measure,
        "culprit": forward.culprit,
        "own": plain(_columns(forward.own)) if forward.own else None,
        "reference": plain(_columns(forward.reference)),
        "pairs": [[pair.own, pair.reference, pair.by] for pair in forward.pairs],
        "elements": plain(msgspec.to_builtins(forward.elements)),
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


def _on_log_scale(used: float) -> float:
    """Return a share of a range as a length from 0 to 1 on a logarithmic scale that begins at 1e-6."""
    decades = 6.0
    return 1.0 if not isfinite(used) else min(1.0, max(0.0, 1 + log10(max(used, 1e-30)) / decades))


def _share(value: float) -> str:
    """Return a share of a tolerance in words: ``0.2×``."""
    return f"{value:.2g}×" if value else "equal"


def issue(check: CheckRecord, command: str) -> str:
    """Return a check as the text of an issue."""
    return fill_template("issue.md", check=check, forward=check.forward or ForwardRecord(), command=command) + "\n"


def render_index(cards: Sequence[CheckRecord], run: Mapping[str, Any]) -> str:
    """Return the index of a run."""
    promises: dict[str, dict[str, CheckRecord]] = {}
    for each in cards:
        if each.check == "conformance":
            promises.setdefault(each.model, {})[each.name.rpartition(" ")[2]] = each
    environment = {name: as_text(value) for name, value in run["environment"].items() if value not in (None, {}, [])}
    kinds = sorted(Counter(map(_kind, cards)).items())
    failed = sum(each.status == "failed" for each in cards)
    counts = {"failed": failed, "passed": len(cards) - failed, "kinds": kinds}
    told = {"promises": promises, "environment": environment, "command": shlex.join(run["command"])}
    return fill_template("index.html", root="", cards=cards, **counts, **told)


def render_check(check: CheckRecord) -> str:
    """Return the page of one check of ``--tf-json``."""
    forward, command = check.forward or ForwardRecord(), f"pytest {shlex.quote(check.test)}"
    shown = {"forward": forward, "near": list(_side_by_side(forward.values, forward.reference_values))}
    texts = {"command": command, "rename": rename_argument(check.rename), "issue": issue(check, command)}
    sides = _SIDES.get(check.check, _OTHER_SIDES)
    return fill_template("check.html", root="../", check=check, sides=sides, data=_data(forward), **shown, **texts)


def fill_template(template: str, **values: Any) -> str:  # noqa: ANN401 - whatever a template shows
    """Return a template with values in it, all of them escaped where it is HTML."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    made = Environment(
        loader=PackageLoader("pytest_tfdebug.report"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    made.filters |= {"share": _share, "on_log_scale": _on_log_scale}
    made.filters |= {"title_of": _title, "kind_of": _kind, "name_of": _name, "told_of": _told}
    return made


_AnyCall = TypeVar("_AnyCall", "Call", "CallRecord")
#: More calls than this are counted: a notebook keeps what it shows.
_MOST = 2000


def trace_html(title: str, calls: Sequence[Call], notes: Iterable[str]) -> str:
    """Return a trace: its tree, with what raised or is not finite marked."""
    tree = _tree(calls, lambda call: (call.name, told_of(call), "differs" if _fails(call) else ""))
    return fill_template("notebook.html", title=title, code=(), sentences=notes, curve=(), **tree)


def comparison_html(text: CheckText, forward: ForwardRecord) -> str:
    """Return a comparison: the culprit first, then the drift along depth and the tree."""
    measured = sorted((call for call in forward.own if call.share is not None), key=lambda call: call.ended)
    tree = _tree(forward.own, lambda call: (_name(call), _told(call), call.state), forward.culprit)
    shown = {"title": text.answer, "code": text.code, "sentences": (*text.why, *text.advice), "curve": measured}
    return fill_template("notebook.html", **shown, **tree)


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


def _name(call: CallRecord) -> str:
    return f"{call.path}#{call.call}" if call.call else call.path


def _told(call: CallRecord) -> str:
    return call.state if call.share is None else _share(call.share) + (" of tolerance" if call.share else "")


def _fails(call: Call) -> bool:
    statistics = [record.statistics for record in call.outputs or () if record.statistics is not None]
    return call.error is not None or any(each.non_finite for each in statistics)
