"""The ratchet: what has changed since an earlier report, and whether it may."""

from __future__ import annotations

import json
from collections import Counter, deque
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.read.files import read
from pytest_tfdebug.scan.report import render
from pytest_tfdebug.scan.report.result import STOPPED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    _Entry: TypeAlias = Mapping[str, Any]

#: What a report has to say of a test, and of a class.
_MODELS = ("models_ran", "models_skipped", "models_partially_skipped")
_TEXTS = ("model", "class", "state", "reason", "file")
#: Bytes of a report that are read; one of all tests of transformers takes 3 MB.
_LONGEST = 20_000_000


class Change(NamedTuple):
    """A skip that differs from the earlier report; ``earlier`` is its reason, or what it was called, there."""

    kind: str
    test: str
    entry: Mapping[str, Any]
    earlier: str = ""


class Kind(NamedTuple):
    """What a kind of change is called, how GitHub shows it, and whether it fails the ratchet."""

    title: str
    level: str
    fails: bool


KINDS = {
    "new": Kind("New skips", "error", fails=True),
    "no-reason": Kind("Skips without a reason", "error", fails=True),
    "renamed": Kind("Renamed skips", "notice", fails=False),
    "changed": Kind("Changed reasons", "warning", fails=False),
    "gone": Kind("Gone skips", "notice", fails=False),
}
#: What names a skip: its test, its model and its class.
_Key: TypeAlias = "tuple[str, ...]"
_Skips: TypeAlias = "dict[_Key, list[_Skip]]"
#: A test, a model, or a model and its class.
_Name: TypeAlias = "tuple[str, ...]"
#: What identifies the skips of a name beside that name.
_Facts: TypeAlias = "frozenset[tuple[str, ...]]"
#: How many of the names that share a skip are looked at; there may be thousands.
_LOOKED_AT = 30


class _Skip(NamedTuple):
    """An entry of a report, and what named it there."""

    name: _Key
    entry: _Entry


def load(path: Path, written_by: str = "python -m pytest_tfdebug.scan") -> dict[str, dict[str, Any]]:
    """Return an earlier report; errors name the command that writes one.

    Raises:
        ScanError: If the file cannot be read or is no report of this scanner.
    """
    try:
        report = json.loads(read(path, _LONGEST).decode())
    except OSError as error:
        raise ScanError(f"Cannot read {path}: {error.strerror or error}; write it with {written_by}.") from error
    except (ValueError, RecursionError) as error:
        raise ScanError(f"{path} is not JSON ({error}); write it with {written_by}.") from error
    if not isinstance(report, dict) or not all(map(_is_test, report.values())):
        raise ScanError(f"{path} is not a report of this scanner; write it with {written_by}.")
    found: dict[str, dict[str, Any]] = report
    return found


def _is_test(test: object) -> bool:
    """Tell whether what JSON holds is what a report says of a test."""
    if not isinstance(test, dict) or not test.keys() >= {*_MODELS, "tests"}:
        return False
    entries = test["tests"]
    return all(are(str, test[key]) for key in _MODELS) and are(dict, entries) and all(map(_is_entry, entries))


def _is_entry(entry: dict[str, Any]) -> bool:
    return entry.keys() >= {*_TEXTS, "line"} and all(isinstance(entry[key], str) for key in _TEXTS)


def are(kind: type, items: object) -> bool:
    """Tell whether what JSON holds is a list of such."""
    return isinstance(items, list) and all(isinstance(item, kind) for item in items)


def changes(earlier: Mapping[str, Any], now: Mapping[str, Any], *, strict_reasons: bool = False) -> list[Change]:
    """Return what differs between two reports.

    What the earlier report holds is accepted as it is, unless ``strict_reasons`` asks for a reason of every skip. A
    test, class or model that has another name now is renamed; a test that only the earlier report has is compared with
    nothing.
    """
    before, after = _skips(earlier), _skips(now)
    were, are = _known(earlier), _known(now)
    for part in _PARTS:
        before = _renamed(before, after, are, were, part)
    found: list[Change] = []
    for key in {**after, **before}:
        for was, entry in _paired(before.get(key, []), after.get(key, [])):
            found += _change(key, was, entry, now, strict_reasons=strict_reasons)
    order = list(KINDS)
    return sorted(found, key=lambda change: order.index(change.kind))


def without_reason(now: Mapping[str, Any]) -> list[Change]:
    """Return the skips of a report that have no reason."""
    return [change for change in changes(now, now, strict_reasons=True) if change.kind == "no-reason"]


def _change(
    key: _Key, was: _Skip | None, now: _Skip | None, report: Mapping[str, Any], *, strict_reasons: bool
) -> Iterator[Change]:
    """Yield what has become of a skip."""
    if now is None:
        if was is not None and key[0] in report:
            yield Change("gone", key[0], was.entry)
        return
    entry, reason = now.entry, now.entry["reason"]
    is_bare = entry["state"] == "skipped" and not reason.strip()
    if was is None:
        yield Change("new", key[0], entry)
        return
    earlier = was.entry["reason"]
    if is_bare and (strict_reasons or earlier.strip()):
        yield Change("no-reason", key[0], entry, earlier)
    elif earlier != reason:
        yield Change("changed", key[0], entry, earlier)
    if was.name != key:
        names = (old for old, name in zip(was.name, key, strict=True) if old != name)
        yield Change("renamed", key[0], entry, ", ".join(names))


def _skips(report: Mapping[str, Any]) -> _Skips:
    found: _Skips = {}
    for test, values in report.items():
        for entry in values["tests"]:
            if entry["state"] in STOPPED:
                key = test, entry["model"], entry["class"]
                found.setdefault(key, []).append(_Skip(key, entry))
    return found


class _Part(NamedTuple):
    """A part of a skip's name that may have changed, and what else in the name identifies the skip."""

    own: slice
    rest: slice


_PARTS = tuple(_Part(slice(*own), slice(*rest)) for own, rest in (((1,), (1, 2)), ((1, 2), (1,)), ((1, 3), (1,))))


def _known(report: Mapping[str, Any]) -> set[_Name]:
    """Return the tests, models and classes that a report names."""
    models = {(model,) for values in report.values() for key in _MODELS for model in values[key]}
    classes = {(entry["model"], entry["class"]) for values in report.values() for entry in values["tests"]}
    return {(test,) for test in report} | models | classes


def _renamed(before: _Skips, after: _Skips, gone_from: set[_Name], new_to: set[_Name], part: _Part) -> _Skips:
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
    for name, are in new.items():
        equal.setdefault(are, deque()).append(name)
    names = {old: equal[were].popleft() for old, were in gone.items() if equal.get(were)}
    taken = set(names.values())
    sharing: dict[tuple[str, ...], list[_Name]] = {}
    for name in reversed(new):
        for fact in new[name]:
            sharing.setdefault(fact, []).append(name)
    for old in sorted(gone, key=lambda name: len(gone[name]), reverse=True):
        if old not in names:
            alike = Counter(name for fact in sorted(gone[old]) for name in _free(sharing.get(fact, []), taken))
            most = [name for name, same in alike.most_common() if 2 * same > max(len(gone[old]), len(new[name]))]
            names.update(zip([old], most, strict=False))
            taken.update(most[:1])
    return names


def _free(names: list[_Name], taken: Collection[_Name]) -> list[_Name]:
    """Return the first few names, from the end, that are not taken, and forget those before them that are."""
    found: list[_Name] = []
    while names and len(found) < _LOOKED_AT:
        name = names.pop()
        if name not in taken:
            found.append(name)
    names.extend(reversed(found))
    return found


def _by_name(skips: _Skips, part: _Part, others: set[_Name]) -> dict[_Name, _Facts]:
    """Return, for each name that is not in ``others``, what else identifies its skips."""
    found: dict[_Name, set[tuple[str, ...]]] = {}
    for key, entries in skips.items():
        if key[part.own] not in others:
            facts = found.setdefault(key[part.own], set())
            facts.update((*key[part.rest], skip.entry["reason"]) for skip in entries)
    return {name: frozenset(facts) for name, facts in found.items()}


def _paired(before: list[_Skip], after: list[_Skip]) -> Iterator[tuple[_Skip | None, _Skip | None]]:
    """Yield the skips of the classes of one name side by side; two files of a model may each have such a class."""
    moved: list[_Skip] = []
    left: dict[str, deque[_Skip]] = {}
    for skip in after:
        left.setdefault(skip.entry["file"], deque()).append(skip)
    for was in before:
        same = left.get(was.entry["file"])
        if same:
            yield was, same.popleft()
        else:
            moved.append(was)
    yield from zip_longest(moved, chain(*left.values()))


def is_failure(found: list[Change]) -> bool:
    """Tell whether changes fail the ratchet."""
    return any(KINDS[change.kind].fails for change in found)


def lines(found: list[Change], against: str = "", *, verbose: bool = False) -> Iterator[str]:
    """Yield the changes as text: all new skips first, of the others the first few."""
    for kind, (title, _, fails) in KINDS.items():
        of_kind = [change for change in found if change.kind == kind]
        if of_kind:
            yield f"{title} : {len(of_kind)}"
        shown = of_kind if fails or verbose else of_kind[: render.SHOWN]
        yield from (f" - {_text(change)}" for change in shown)
        if len(shown) < len(of_kind):
            yield f" - ... {len(of_kind) - len(shown)} more, with --verbose"
    if not found:
        yield f"No skip has changed since {against}."
    elif is_failure(found):
        yield "Run the tests instead of skipping them, give each skip a reason, or write a new report to accept them."


def _text(change: Change) -> str:
    entry = change.entry
    reason = entry["reason"] or "(no reason)"
    if change.kind == "changed":
        reason = f"{change.earlier or '(no reason)'} -> {reason}"
    if change.kind == "renamed":
        reason = f"was {change.earlier}"
    return f"{change.test} of {entry['model']}: {render.on_one_line(reason)}  ({entry['class']}, {render.place(entry)})"


def as_annotations(found: list[Change]) -> Iterator[str]:
    """Yield the changes as annotations that GitHub shows at their lines."""
    for change in found:
        title, level, _ = KINDS[change.kind]
        yield render.annotation(level, change.entry, f"{title.removesuffix('s')}: {change.test}")


def as_json(found: list[Change]) -> Iterator[str]:
    """Yield the changes as a JSON list."""
    yield json.dumps([_row(change) for change in found], indent=2)


def as_markdown(found: list[Change]) -> Iterator[str]:
    """Yield the changes as a table in markdown."""
    yield "| change | test | model | reason | where |"
    yield "| --- | --- | --- | --- | --- |"
    for change in found:
        entry = change.entry
        reason = render.cell(entry["reason"])
        yield f"| {change.kind} | `{change.test}` | {entry['model']} | {reason} | {render.place(entry)} |"


#: ``--format`` -> how changes are printed.
FORMATS = {"json": as_json, "markdown": as_markdown, "github": as_annotations}
_COLUMNS = ("change", "test", "earlier", "model", "class", "state", "form", "reason", "condition", "file", "line")


def _row(change: Change) -> dict[str, Any]:
    values = {"change": change.kind, "test": change.test, "earlier": change.earlier, **change.entry}
    return {column: values[column] for column in _COLUMNS if column in values}
