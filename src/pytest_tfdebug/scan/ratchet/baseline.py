"""The ratchet: what has changed since an earlier report, and whether it may."""

from __future__ import annotations

import json
from collections import Counter, deque
from itertools import chain, groupby, islice, zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pytest_tfdebug.scan.ratchet.saved import HELD, MODELS
from pytest_tfdebug.scan.report import render

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    _Entry: TypeAlias = Mapping[str, Any]


#: Lines for a change that fails, as many as other checkers show of an output.
_MOST_LINES = 10


class SkipChange(NamedTuple):
    """A skip that differs from the earlier report; ``earlier`` is its reason, or what it was called, there."""

    kind: str
    test: str
    entry: Mapping[str, Any]
    earlier: str = ""


class Shared(NamedTuple):
    """How many models have a test, skip or empty it in a class of theirs, and say why."""

    models: int
    skip: int
    explain: int

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Shared:
        """Return the counts of what a report says of a test."""
        stopped = [entry for entry in values["tests"] if entry["state"] in HELD]
        explained = {entry["model"] for entry in stopped if entry["state"] == "skipped" and entry["reason"].strip()}
        models = len(values["models_ran"]) + len(values["models_skipped"])
        return cls(models, len({entry["model"] for entry in stopped}), len(explained))

    def __str__(self) -> str:
        return f"{self.skip} of {self.models} models skip this one; {self.explain} say{'s' * (self.explain == 1)} why"


class ChangeKind(NamedTuple):
    """What a kind of change is called, how GitHub shows it, and whether it fails the ratchet."""

    title: str
    level: str
    fails: bool


KINDS = {
    "new": ChangeKind("New skips", "error", fails=True),
    "empty": ChangeKind("Emptied tests", "error", fails=True),
    "no-reason": ChangeKind("Skips without a reason", "error", fails=True),
    "renamed": ChangeKind("Renamed skips", "notice", fails=False),
    "changed": ChangeKind("Changed reasons", "warning", fails=False),
    "gone": ChangeKind("Gone skips", "notice", fails=False),
}
#: What names a skip: its test, its model and its class.
_Key: TypeAlias = "tuple[str, ...]"
_Skips: TypeAlias = "dict[_Key, list[_ReportedSkip]]"
#: A test, a model, or a model and its class.
_Name: TypeAlias = "tuple[str, ...]"
#: What identifies the skips of a name beside that name.
_Facts: TypeAlias = "frozenset[tuple[str, ...]]"
#: How many of the names that share a skip are looked at; there may be thousands.
_LOOKED_AT = 30


class _ReportedSkip(NamedTuple):
    """An entry of a report, and what named it there."""

    name: _Key
    entry: _Entry


def changes(earlier: Mapping[str, Any], now: Mapping[str, Any], *, strict_reasons: bool = False) -> list[SkipChange]:
    """Return what differs between two reports.

    What the earlier report holds is accepted as it is, unless ``strict_reasons`` asks for a reason of every skip. A
    test, class or model that has another name now is renamed; a test that only the earlier report has is compared with
    nothing.
    """
    before, after = _skips(earlier), _skips(now)
    were, are = _known(earlier), _known(now)
    for part in _PARTS:
        before = _renamed(before, after, are, were, part)
    found: list[SkipChange] = []
    for key in {**after, **before}:
        for was, entry in _paired(before.get(key, []), after.get(key, [])):
            found += _change(key, was, entry, now, strict_reasons=strict_reasons)
    order = list(KINDS)
    return sorted(found, key=lambda change: order.index(change.kind))


def without_reason(now: Mapping[str, Any]) -> list[SkipChange]:
    """Return the skips of a report that have no reason."""
    return [change for change in changes(now, now, strict_reasons=True) if change.kind == "no-reason"]


def _change(
    key: _Key, was: _ReportedSkip | None, now: _ReportedSkip | None, report: Mapping[str, Any], *, strict_reasons: bool
) -> Iterator[SkipChange]:
    """Yield what has become of a skip."""
    if now is None:
        if was is not None and key[0] in report:
            yield SkipChange("gone", key[0], was.entry)
        return
    entry, reason = now.entry, now.entry["reason"]
    is_bare = entry["state"] == "skipped" and not reason.strip()
    if was is None:
        yield SkipChange("empty" if entry["state"] == "empty" else "new", key[0], entry)
        return
    earlier = was.entry["reason"]
    if entry["state"] == "empty" != was.entry["state"]:
        yield SkipChange("empty", key[0], entry, earlier)
    elif is_bare and (strict_reasons or earlier.strip()):
        yield SkipChange("no-reason", key[0], entry, earlier)
    elif earlier != reason:
        yield SkipChange("changed", key[0], entry, earlier)
    if was.name != key:
        names = (old for old, name in zip(was.name, key, strict=True) if old != name)
        yield SkipChange("renamed", key[0], entry, ", ".join(names))


def _skips(report: Mapping[str, Any]) -> _Skips:
    found: _Skips = {}
    for test, values in report.items():
        for entry in values["tests"]:
            if entry["state"] in HELD:
                key = test, entry["model"], entry["class"]
                found.setdefault(key, []).append(_ReportedSkip(key, entry))
    return found


class _NamePart(NamedTuple):
    """A part of a skip's name that may have changed, and what else in the name identifies the skip."""

    own: slice
    rest: slice


_PARTS = tuple(_NamePart(slice(*own), slice(*rest)) for own, rest in (((1,), (1, 2)), ((1, 2), (1,)), ((1, 3), (1,))))


def _known(report: Mapping[str, Any]) -> set[_Name]:
    """Return the tests, models and classes that a report names."""
    models = {(model,) for values in report.values() for key in MODELS for model in values[key]}
    classes = {(entry["model"], entry["class"]) for values in report.values() for entry in values["tests"]}
    return {(test,) for test in report} | models | classes


def _renamed(before: _Skips, after: _Skips, gone_from: set[_Name], new_to: set[_Name], part: _NamePart) -> _Skips:
    """Return the earlier skips under the names that they have now.

    A name is another one's where it is gone (the later report, ``gone_from``, lacks it) and the other is new (the
    earlier, ``new_to``, lacks it), and most skips of both are the same.
    """
    gone, new = _by_name(before, part, gone_from), _by_name(after, part, new_to)
    if not gone or not new:
        return before
    names = _new_names(gone, new)
    found: _Skips = {}
    for key, entries in before.items():
        name = list(key)
        name[part.own] = names.get(key[part.own], key[part.own])
        found.setdefault(tuple(name), []).extend(entries)
    return found


def _new_names(gone: Mapping[_Name, _Facts], new: dict[_Name, _Facts]) -> dict[_Name, _Name]:
    """Return what each name is called now: first those whose skips are all the same, then those with the most skips."""
    equal: dict[_Facts, deque[_Name]] = {}
    sharing: dict[tuple[str, ...], list[_Name]] = {}
    for name, are in new.items():
        equal.setdefault(are, deque()).append(name)
        for fact in are:
            sharing.setdefault(fact, []).append(name)
    names = {old: equal[were].popleft() for old, were in gone.items() if equal.get(were)}
    taken = set(names.values())
    for old in sorted(gone, key=lambda name: len(gone[name]), reverse=True):
        if old not in names:
            free = ((name for name in sharing.get(fact, ()) if name not in taken) for fact in sorted(gone[old]))
            alike = Counter(name for found in free for name in islice(found, _LOOKED_AT))
            most = [name for name, same in alike.most_common() if 2 * same > max(len(gone[old]), len(new[name]))]
            names.update(zip([old], most, strict=False))
            taken.update(most[:1])
    return names


def _by_name(skips: _Skips, part: _NamePart, others: set[_Name]) -> dict[_Name, _Facts]:
    """Return, for each name that is not in ``others``, what else identifies its skips."""
    found: dict[_Name, set[tuple[str, ...]]] = {}
    for key, entries in skips.items():
        if key[part.own] not in others:
            facts = found.setdefault(key[part.own], set())
            facts.update((*key[part.rest], skip.entry["reason"]) for skip in entries)
    return {name: frozenset(facts) for name, facts in found.items()}


def _paired(
    before: list[_ReportedSkip], after: list[_ReportedSkip]
) -> Iterator[tuple[_ReportedSkip | None, _ReportedSkip | None]]:
    """Yield the skips of the classes of one name side by side; two files of a model may each have such a class."""
    moved: list[_ReportedSkip] = []
    left: dict[str, deque[_ReportedSkip]] = {}
    for skip in after:
        left.setdefault(skip.entry["file"], deque()).append(skip)
    for was in before:
        same = left.get(was.entry["file"])
        if same:
            yield was, same.popleft()
        else:
            moved.append(was)
    yield from zip_longest(moved, chain(*left.values()))


def is_failure(found: list[SkipChange]) -> bool:
    """Tell whether changes fail the ratchet."""
    return any(KINDS[change.kind].fails for change in found)


def lines(
    found: list[SkipChange], now: Mapping[str, Any], against: str = "", *, verbose: bool = False
) -> Iterator[str]:
    """Yield the changes as text: the first few of each kind, and how many models share those that fail.

    Where a change fails and not all fit, only how many others there are is said of them.
    """
    by_kind = {kind: of_kind for kind in KINDS if (of_kind := [change for change in found if change.kind == kind])}
    failing = sum(KINDS[kind].fails for kind in by_kind)
    room = (
        (_MOST_LINES - 1 - len(by_kind)) // failing - 1 if failing else render.SHOWN
    )  # a heading for each, and advice
    all_lines = sum(
        1 + len(some) + KINDS[kind].fails * len({each.test for each in some}) for kind, some in by_kind.items()
    )
    is_brief = not verbose and failing > 0 and all_lines >= _MOST_LINES
    for kind, of_kind in by_kind.items():
        title, _, fails = KINDS[kind]
        yield f"{title} : {len(of_kind)}"
        if is_brief and not fails:
            continue
        left = 2 * len(of_kind) if verbose or (failing and not is_brief) else room
        told = 0
        for test, group in groupby(of_kind, attrgetter("test")):
            some = list(group)[: max(left - fails, 0)]
            yield from (f" - {_text(change)}" for change in some)
            if some and fails:
                yield f"   {Shared.of(now[test])}"
            told, left = told + len(some), left - len(some) - fails
        if told < len(of_kind):
            yield f" - ... {len(of_kind) - told} more, with --verbose"
    if not found:
        yield f"No skip has changed since {against}."
    elif failing:
        yield "Run the tests instead of skipping them, give each skip a reason, or write a new report to accept them."


def _text(change: SkipChange) -> str:
    entry = change.entry
    reason = entry["reason"] or ("its body tests nothing" if change.kind == "empty" else "(no reason)")
    if change.kind == "changed":
        reason = f"{change.earlier or '(no reason)'} -> {reason}"
    if change.kind == "renamed":
        reason = f"was {change.earlier}"
    return f"{change.test} of {entry['model']}: {render.on_one_line(reason)}  ({entry['class']}, {render.place(entry)})"


def _shares(found: Iterable[SkipChange], now: Mapping[str, Any]) -> dict[str, Shared]:
    return {test: Shared.of(now[test]) for test in {change.test for change in found}}


def as_annotations(found: list[SkipChange], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the changes as annotations that GitHub shows at their lines."""
    shares = _shares(found, now)
    for change in found:
        title, level, fails = KINDS[change.kind]
        shared = f"; {shares[change.test]}" if fails else ""
        yield render.annotation(level, change.entry, f"{title.removesuffix('s')}: {change.test}", shared)


def as_json(found: list[SkipChange], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the changes as a JSON list."""
    shares = _shares(found, now)
    rows = []
    for change in found:
        values = {"change": change.kind, "test": change.test, "earlier": change.earlier, **change.entry}
        kept = {column: values[column] for column in _COLUMNS if column in values}
        rows.append(kept | {"shared": shares[change.test]._asdict()})
    yield json.dumps(rows, indent=2)


def as_markdown(found: list[SkipChange], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the changes as a table in markdown, short enough for a comment on a pull request."""
    yield "| change | test | model | reason | where | shared |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for change in found[: render.SHOWN]:
        entry = change.entry
        cells = (entry["model"], render.cell(entry["reason"]), render.place(entry), Shared.of(now[change.test]))
        yield f"| {change.kind} | `{change.test}` | {' | '.join(map(str, cells))} |"
    if len(found) > render.SHOWN:
        yield f"\n{len(found) - render.SHOWN} more."


#: ``--format`` -> how changes are printed.
FORMATS = {"json": as_json, "markdown": as_markdown, "github": as_annotations}
_COLUMNS = ("change", "test", "earlier", "model", "class", "state", "form", "reason", "condition", "file", "line")
