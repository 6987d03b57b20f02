"""Earlier reports on disk: what a scan has written, or the compact baseline that ``--write-baseline`` writes.

A compact baseline is JSON with what the ratchet compares and no more: tests, files and reasons by number, and
of each class, by file, the tests that it skips and why. One of transformers takes a hundredth of a report.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypedDict

from pytest_tfdebug.scan.cache import MISTAKES
from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.read.files import check_json, read
from pytest_tfdebug.scan.report.result import STOPPED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: The states that are held against an earlier report.
HELD = STOPPED | {"empty"}
#: What a report has to say of a class, and of a test.
_Entry = TypedDict("_Entry", {"model": str, "class": str, "state": str, "reason": str, "file": str, "line": int})
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
    tests: list[_Entry]


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
