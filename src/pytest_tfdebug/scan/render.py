"""A result as text: pure functions from a report's dictionaries to lines."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.github import workflow_command
from pytest_tfdebug.scan.resolve.conditions import alternatives

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_tfdebug.scan.result import CommonTest

#: Reasons shown of one test without ``--verbose``.
SHOWN = 10
#: Characters of a condition that are shown where it stands for many.
_WIDEST = 100
#: States of classes of models that run a test elsewhere -> their headings.
_PARTLY = {
    "skipped": "Skipped by a part of the model's classes",
    "vanished": "Vanished: bound to something that is not a function",
    "empty": "Empty: the body tests nothing",
}
_HEADINGS = {
    "models_ran": "ran",
    "models_skipped": "skipped",
    "models_partially_skipped": "partial",
    "models_conditional": "conditional",
    "models_vanished": "vanished",
    "models_empty": "empty",
}


def one_test(test: str, report: Mapping[str, Any], *, verbose: bool = False) -> Iterator[str]:
    """Yield the summary of one test: how many models ran and skipped it, and why."""
    ran, skipped, waiting = len(report["models_ran"]), set(report["models_skipped"]), len(report["models_conditional"])
    total = ran + len(skipped)
    yield f"== {test} =="
    some = f" ({'all' if waiting == ran else waiting} of them on a condition)" if waiting else ""
    yield f"Ran    : {ran}/{total}{some}"
    yield f"Skipped : {len(skipped)}/{total} ({report['skipped_proportion']:.1%})"
    yield from _list([entry for entry in report["tests"] if entry["model"] in skipped], verbose=verbose)
    others: dict[str, list[dict[str, Any]]] = {}
    for entry in report["tests"]:
        if entry["model"] not in skipped:
            others.setdefault(entry["state"], []).append(entry)
    for state, title in _PARTLY.items():
        if found := others.get(state):
            yield f"{title} : {len({entry['model'] for entry in found})}"
            yield from _list(found, verbose=verbose)
    if conditional := others.get("conditional"):
        yield f"Conditional : {waiting}/{total}{'' if verbose else ' (--verbose lists them)'}"
        pairs = {(entry["condition"], entry["model"]) for entry in conditional}
        yield from _list(conditional, verbose=True) if verbose else _conditions(condition for condition, _ in pairs)
    if report["models_partially_skipped"] and "skipped" not in others:
        yield f"Skipped for a part of its parameters : {', '.join(sorted(report['models_partially_skipped']))}"


def _list(entries: list[dict[str, Any]], *, verbose: bool) -> Iterator[str]:
    shown = entries if verbose else entries[:SHOWN]
    for entry in shown:
        yield f" - {entry['model']}: {on_one_line(_why(entry))}  ({entry['class']}, {place(entry)})"
    if len(entries) > len(shown):
        yield f" - ... {len(entries) - len(shown)} more, with --verbose"


def _conditions(conditions: Iterable[str]) -> Iterator[str]:
    """Yield a line for each of the commonest conditions, with how often it is one of those that are enough to skip."""
    counted: Counter[str] = Counter()
    for condition, count in Counter(conditions).items():
        counted.update(dict.fromkeys(alternatives(condition), count))
    for condition, count in sorted(counted.items(), key=lambda each: (-each[1], each[0]))[:SHOWN]:
        text = on_one_line(condition)
        yield f" - {count}: {text[:_WIDEST]}{'...' * (len(text) > _WIDEST)}"
    if len(counted) > SHOWN:
        yield f" - ... {len(counted) - SHOWN} more conditions"


def reason(entry: Mapping[str, Any]) -> str:
    """Return why a test does not run, also where nobody has written it."""
    return entry["reason"] or ("its body tests nothing" if entry["state"] == "empty" else "(no reason)")


def _why(entry: Mapping[str, Any]) -> str:
    condition = f" [if {entry['condition']}]" if entry["condition"] else ""
    return f"{reason(entry)}{condition}"


def on_one_line(text: str) -> str:
    """Return a reason as it is shown in a line of text."""
    return " ".join(text.splitlines())


def place(entry: Mapping[str, Any]) -> str:
    """Return ``file:line`` of an entry, which terminals open."""
    return f"{entry['file']}:{entry['line']}" if entry["line"] else entry["file"]


def by_proportion(report: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the tests of a report, those that most models skip first."""
    return sorted(report, key=lambda test: (-report[test]["skipped_proportion"], test))


def all_tests(tests: Iterable[CommonTest], models: Sequence[str], *, verbose: bool = False) -> Iterator[str]:
    """Yield a table of all tests, sorted by the share of models that skip them, its totals, and what they hang on.

    With ``verbose`` every skip is listed below its test.
    """
    ordered = sorted(tests, key=lambda test: (-test.skipped_proportion, test.name))
    counts = [[len(test.lists[key]) for key in _HEADINGS] for test in ordered]
    rows = [["test", "origin", *_HEADINGS.values(), "skipped %"]]
    for test, numbers in zip(ordered, counts, strict=True):
        rows.append([test.name, test.origin, *map(str, numbers), f"{test.skipped_proportion:.1%}"])
    totals = [sum(column) for column in zip(*counts, strict=True)]
    rows.append(["total", "", *map(str, totals), f"{totals[1] / max(totals[0] + totals[1], 1):.1%}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, shown in zip(rows, (None, *ordered, None), strict=True):
        words = [cell.ljust(width) for cell, width in zip(row[:2], widths, strict=False)]
        figures = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        yield "  ".join([*words, *figures]).rstrip()
        entries = shown.to_dict()["tests"] if verbose and shown is not None else ()
        stopped = [entry for entry in entries if entry["state"] in {"skipped", "vanished", "empty"}]
        yield from (f"    {line}" for line in _list(stopped, verbose=True))
    cases = [case for test in ordered for case in test.cases]
    conditions = [case.state.condition for case in cases if case.state.state == "conditional"]
    if conditions:
        yield f"Conditional, each test in each class : {len(conditions)}"
        yield from _conditions(conditions)
    without = sorted(set(models).difference(case.model for case in cases))
    if without:
        rest = f" and {len(without) - SHOWN} more" if len(without) > SHOWN else ""
        yield f"Models of which no class has one of these tests : {', '.join(without[:SHOWN])}{rest}"


def to_markdown(report: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table of the tests, and the skips of each."""
    lines = ["| test | origin | ran | skipped | share |", "| --- | --- | ---: | ---: | ---: |"]
    for test in by_proportion(report):
        values = report[test]
        counts = f"{len(values['models_ran'])} | {len(values['models_skipped'])} | {values['skipped_proportion']:.1%}"
        lines.append(f"| `{test}` | {values['origin']} | {counts} |")
    for test in by_proportion(report):
        entries = [each for each in report[test]["tests"] if each["state"] != "conditional"]
        if entries:
            lines += ["", f"### {test}", "", "| model | state | reason | where |", "| --- | --- | --- | --- |"]
        for each in entries:
            lines.append(f"| {cell(each['model'])} | {each['state']} | {cell(each['reason'])} | {cell(place(each))} |")
    return "\n".join(lines) + "\n"


#: What markdown, HTML and GitHub's mentions begin with -> how it is shown as itself.
_MARKS = {mark: f"\\{mark}" for mark in "\\`*_[]|!~#$"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}


def cell(text: str) -> str:
    """Return a text as it stands in a table of markdown: as text alone."""
    return "".join(_MARKS.get(mark, mark) for mark in " ".join(text.split()))


def annotation(level: str, entry: Mapping[str, Any], title: str, more: str = "") -> str:
    """Return a workflow command that GitHub shows at a line."""
    text = f"{entry['model']} ({entry['class']}): {_why(entry)}{more}"
    return workflow_command(level, text, file=entry["file"], line=entry["line"], title=title)


def as_annotations(report: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Yield an annotation for each skip: a warning where it has no reason or the test vanished or is empty."""
    for test, values in report.items():
        for entry in values["tests"]:
            state, has_reason = entry["state"], bool(entry["reason"]) and entry["state"] == "skipped"
            if state in {"skipped", "vanished", "empty"}:
                more = " without a reason" if state == "skipped" and not has_reason else ""
                yield annotation("notice" if has_reason else "warning", entry, f"{test} is {state}{more}")
