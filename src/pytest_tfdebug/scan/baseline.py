"""The ratchet: what has changed since an earlier report, and whether it may."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pytest_tfdebug.scan import render
from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.files import read
from pytest_tfdebug.scan.report import STOPPED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    _Entry: TypeAlias = Mapping[str, Any]

_KEYS = frozenset({"models_ran", "models_skipped", "models_partially_skipped", "tests"})
_FIELDS = frozenset({"model", "class", "state", "reason", "file", "line"})


class Change(NamedTuple):
    """A skip that differs from the earlier report: ``kind`` is ``new``, ``gone``, ``changed`` or ``no-reason``."""

    kind: str
    test: str
    entry: Mapping[str, Any]
    earlier: str = ""


#: What each kind of change is called, how GitHub shows it, and whether it fails the ratchet.
KINDS = {
    "new": ("New skips", "error", True),
    "no-reason": ("Skips without a reason", "error", True),
    "changed": ("Changed reasons", "warning", False),
    "gone": ("Gone skips", "notice", False),
}


def load(path: Path) -> dict[str, dict[str, Any]]:
    """Return an earlier report.

    Raises:
        ScanError: If the file cannot be read or is no report of this scanner.
    """
    try:
        report = json.loads(read(path).decode())
    except OSError as error:
        raise ScanError(f"Cannot read {path}: {error.strerror or error}; run the scan once to write it.") from error
    except (ValueError, RecursionError) as error:
        raise ScanError(f"{path} is not JSON ({error}); write it with python -m pytest_tfdebug.scan.") from error
    tests = report.values() if isinstance(report, dict) else [None]
    if not all(isinstance(test, dict) and test.keys() >= _KEYS and _are_entries(test["tests"]) for test in tests):
        raise ScanError(f"{path} is not a report of this scanner; write it with python -m pytest_tfdebug.scan.")
    found: dict[str, dict[str, Any]] = report
    return found


def _are_entries(entries: object) -> bool:
    return isinstance(entries, list) and all(isinstance(entry, dict) and entry.keys() >= _FIELDS for entry in entries)


def changes(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """Return what differs between two reports; a test that only the earlier one has is compared with nothing."""
    before, after = _skips(earlier), _skips(now)
    pairs = [(key[0], *pair) for key in {**after, **before} for pair in _paired(before[key], after[key])]
    found = [Change("new", test, entry) for test, was, entry in pairs if entry is not None and was is None]
    found += [
        Change("no-reason", test, entry)
        for test, _, entry in pairs
        if entry is not None and entry["state"] == "skipped" and not entry["reason"].strip()
    ]
    found += [
        Change("changed", test, entry, was["reason"])
        for test, was, entry in pairs
        if was is not None and entry is not None and was["reason"] != entry["reason"]
    ]
    found += [
        Change("gone", test, was) for test, was, entry in pairs if was is not None and entry is None and test in now
    ]
    return found


def _skips(report: Mapping[str, Any]) -> defaultdict[tuple[str, str, str], list[_Entry]]:
    found: defaultdict[tuple[str, str, str], list[_Entry]] = defaultdict(list)
    for test, values in report.items():
        for entry in values["tests"]:
            if entry["state"] in STOPPED:
                found[test, entry["model"], entry["class"]].append(entry)
    return found


def _paired(before: list[_Entry], after: list[_Entry]) -> Iterator[tuple[_Entry | None, _Entry | None]]:
    """Yield the skips of the classes of one name, of which two files of a model may have one each, side by side."""
    moved, left = [], list(after)
    for was in before:
        same = next((entry for entry in left if entry["file"] == was["file"]), None)
        if same is None:
            moved.append(was)
        else:
            left.remove(same)
            yield was, same
    yield from zip_longest(moved, left)


def is_failure(found: list[Change]) -> bool:
    """Tell whether changes fail the ratchet."""
    return any(KINDS[change.kind][2] for change in found)


def lines(found: list[Change], against: str) -> Iterator[str]:
    """Yield the changes as text."""
    for kind, (title, _, _) in KINDS.items():
        of_kind = [change for change in found if change.kind == kind]
        if of_kind:
            yield f"{title} : {len(of_kind)}"
        for change in of_kind:
            yield f" - {_text(change)}"
    if not found:
        yield f"No skip has changed since {against}."
    elif is_failure(found):
        yield "Run the tests instead of skipping them, give each skip a reason, or write a new report to accept them."


def _text(change: Change) -> str:
    entry = change.entry
    reason = entry["reason"] or "(no reason)"
    if change.kind == "changed":
        reason = f"{change.earlier or '(no reason)'} -> {reason}"
    return f"{change.test} of {entry['model']}: {render.on_one_line(reason)}  ({entry['class']}, {render.place(entry)})"


def as_annotations(found: list[Change]) -> Iterator[str]:
    """Yield the changes as annotations that GitHub shows at their lines."""
    for change in found:
        title, level, _ = KINDS[change.kind]
        yield render.annotation(level, change.entry, f"{title.rstrip('s')}: {change.test}")
