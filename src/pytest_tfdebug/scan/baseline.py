"""The ratchet: what has changed since an earlier report, and whether it may.

An earlier report is what a scan has written, or a compact baseline by ``--write-baseline``: JSON with what the ratchet
compares and no more: tests, files and reasons by number, and of each class, by file, the tests that it skips and why.
One of transformers takes a hundredth of a report.
"""

from __future__ import annotations

import json
from collections import deque
from itertools import chain, groupby, zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict

from pytest_tfdebug.scan import render
from pytest_tfdebug.scan.answer import MISTAKES
from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.read.files import check_json, read
from pytest_tfdebug.scan.result import STOPPED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    _Entry: TypeAlias = Mapping[str, Any]


#: The states that are held against an earlier report.
HELD = STOPPED | {"empty"}
#: What a report has to say of a class, and of a test.
_SavedSkip = TypedDict(
    "_SavedSkip", {"model": str, "class": str, "state": str, "reason": str, "file": str, "line": int}
)
#: Bytes of a report that are read; one of all tests of transformers takes 40 MB.
_LONGEST = 60_000_000
#: The key that tells a compact baseline from a report, and its version.
_MARK, _VERSION = "scan_baseline", 1
#: Stands in a reason for the name of the class.
_CLASS = "\x02"


class _Test(TypedDict):
    models_ran: list[str]
    models_skipped: list[str]
    models_partially_skipped: list[str]
    tests: list[_SavedSkip]


class _Compact(TypedDict):
    tests: list[str]
    files: list[str]
    reasons: list[tuple[str, str]]
    classes: list[tuple[str, str, list[tuple[int, list[int]]]]]


def compact(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the compact baseline of a report, a line for each class."""
    reasons: dict[tuple[str, str], int] = {}
    files: dict[str, int] = {}
    classes: dict[tuple[str, str], dict[int, list[int]]] = {}
    for number, values in enumerate(report.values()):
        for entry in values["tests"]:
            if entry["state"] in HELD:
                skips = classes.setdefault((entry["model"], entry["class"]), {})
                reason = entry["state"], entry["reason"].replace(entry["class"] or _CLASS, _CLASS)
                file = files.setdefault(entry["file"], len(files))
                skips.setdefault(file, []).extend((number, reasons.setdefault(reason, len(reasons))))
    tables = {"tests": list(report), "files": list(files), "reasons": list(reasons)}
    yield f"{_json({_MARK: _VERSION, **tables})[:-1]},\n"
    yield '"classes":[\n' + ",\n".join(_json([*key, list(found.items())]) for key, found in sorted(classes.items()))
    yield "\n]}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _expanded(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a compact baseline in the form of a report, as far as it says; one of ``MISTAKES`` if it is none."""
    from msgspec import convert

    if document[_MARK] != _VERSION:
        raise ValueError(f"version {document[_MARK]!r}, and this one reads {_VERSION}")
    found = convert(document, _Compact)
    tests: list[tuple[str, dict[str, Any]]] = [(test, {"tests": []}) for test in found["tests"]]
    for model, cls, skips in found["classes"]:
        for file, row in skips:
            for test, why in zip(row[::2], row[1::2], strict=True):
                state, reason = found["reasons"][why]
                entry = {"model": model, "class": cls, "state": state, "reason": reason.replace(_CLASS, cls)}
                tests[test][1]["tests"].append({**entry, "file": found["files"][file], "line": 0})
    return dict(tests)


def load(path: Path, written_by: str = "python -m pytest_tfdebug.scan") -> dict[str, dict[str, Any]]:
    """Return an earlier report; errors name the command that writes one.

    Raises:
        ScanError: If the file cannot be read or is no report of this scanner.
    """
    from msgspec import convert

    kind = "JSON"
    try:
        report: dict[str, dict[str, Any]] = json.loads(check_json(read(path, _LONGEST)).decode())
        if isinstance(report, dict) and _MARK in report:
            kind = "a whole baseline"
            report = _expanded(report)
        else:
            kind = "a report of this scanner"
            convert(report, dict[str, _Test])
        if not report:
            raise ValueError("it has no test")
    except OSError as error:
        raise ScanError(f"Cannot read {path}: {error.strerror or error}; write it with {written_by}.") from error
    except MISTAKES as error:
        raise ScanError(f"{path} is not {kind} ({error}); write it with {written_by}.") from error
    return report


#: Lines for a change that fails, as many as other checkers show of an output.
_MOST_LINES = 10


class SkipChange(NamedTuple):
    """A skip that differs from the earlier report; ``earlier`` is its reason there."""

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
    """What a kind of change is called, how GitHub shows it, and what to do about it if it fails the ratchet."""

    title: str
    level: str
    advice: str = ""

    @property
    def fails(self) -> bool:
        """Whether it fails the ratchet."""
        return bool(self.advice)


_RUN = "Run the tests instead of skipping them."


KINDS = {
    "new": ChangeKind("New skips", "error", _RUN),
    "empty": ChangeKind("Emptied tests", "error", _RUN),
    "no-reason": ChangeKind("Skips without a reason", "error", "Give each skip a reason."),
    "changed": ChangeKind("Changed reasons", "warning"),
    "gone": ChangeKind("Gone skips", "notice"),
}
#: Skips by their test, model and class.
_Skips: TypeAlias = "dict[tuple[str, ...], list[_Entry]]"


def changes(earlier: Mapping[str, Any], now: Mapping[str, Any], *, strict_reasons: bool = False) -> list[SkipChange]:
    """Return what differs between two reports.

    What the earlier report holds is accepted as it is, unless ``strict_reasons`` asks for a reason of every skip. A
    test that only the earlier report has is compared with nothing.
    """
    before, after = _skips(earlier), _skips(now)
    found: list[SkipChange] = []
    for key in after | before:
        for was, skip in _paired(before.get(key, []), after.get(key, [])):
            if skip is not None:
                found += _change(key[0], was, skip, strict_reasons=strict_reasons)
            elif was is not None and key[0] in now:
                found.append(SkipChange("gone", key[0], was))
    return sorted(found, key=lambda change: list(KINDS).index(change.kind))


def without_reason(now: Mapping[str, Any]) -> list[SkipChange]:
    """Return the skips of a report that have no reason."""
    return [change for change in changes(now, now, strict_reasons=True) if change.kind == "no-reason"]


def _change(test: str, was: _Entry | None, entry: _Entry, *, strict_reasons: bool) -> Iterator[SkipChange]:
    reason, state = entry["reason"], entry["state"]
    if was is None:
        yield SkipChange("empty" if state == "empty" else "new", test, entry)
        return
    earlier = was["reason"]
    if state == "empty" != was["state"]:
        yield SkipChange("empty", test, entry, earlier)
    elif state == "skipped" and not reason.strip() and (strict_reasons or earlier.strip()):
        yield SkipChange("no-reason", test, entry, earlier)
    elif earlier != reason:
        yield SkipChange("changed", test, entry, earlier)


def _skips(report: Mapping[str, Any]) -> _Skips:
    found: _Skips = {}
    for test, values in report.items():
        for entry in values["tests"]:
            if entry["state"] in HELD:
                found.setdefault((test, entry["model"], entry["class"]), []).append(entry)
    return found


def _paired(before: list[_Entry], after: list[_Entry]) -> Iterator[tuple[_Entry | None, _Entry | None]]:
    """Yield the skips of the classes of one name side by side; two files of a model may each have such a class."""
    moved: list[_Entry] = []
    left: dict[str, deque[_Entry]] = {}
    for skip in after:
        left.setdefault(skip["file"], deque()).append(skip)
    for was in before:
        same = left.get(was["file"])
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
    every = sum(1 + len(some) + KINDS[kind].fails * len({each.test for each in some}) for kind, some in by_kind.items())
    is_brief = not verbose and failing > 0 and every >= _MOST_LINES
    # a heading for each, and advice
    room = (_MOST_LINES - 1 - len(by_kind)) // failing - 1 if failing else render.SHOWN
    for kind, of_kind in by_kind.items():
        fails = KINDS[kind].fails
        yield f"{KINDS[kind].title} : {len(of_kind)}"
        if is_brief and not fails:
            continue
        left, told = 2 * len(of_kind) if verbose or (failing and not is_brief) else room, 0
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
        yield " ".join(dict.fromkeys(KINDS[kind].advice for kind in by_kind if KINDS[kind].fails))


def _text(change: SkipChange) -> str:
    entry = change.entry
    reason = render.reason(entry)
    if change.kind == "changed":
        reason = f"{change.earlier or '(no reason)'} -> {reason}"
    return f"{change.test} of {entry['model']}: {render.on_one_line(reason)}  ({entry['class']}, {render.place(entry)})"


def _shares(found: Iterable[SkipChange], now: Mapping[str, Any]) -> dict[str, Shared]:
    return {test: Shared.of(now[test]) for test in {change.test for change in found}}


def as_annotations(found: list[SkipChange], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the changes as annotations that GitHub shows at their lines."""
    shares = _shares(found, now)
    for change in found:
        title, level, advice = KINDS[change.kind]
        shared = f"; {shares[change.test]}" if advice else ""
        yield render.annotation(level, change.entry, f"{title.removesuffix('s')}: {change.test}", shared)


def as_json(found: list[SkipChange], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the changes as a JSON list."""
    shares = {test: shared._asdict() for test, shared in _shares(found, now).items()}
    rows = [
        {"change": kind, "test": test, "earlier": earlier, **entry, "shared": shares[test]}
        for kind, test, entry, earlier in found
    ]
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
