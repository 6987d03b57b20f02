"""Earlier reports on disk: what a scan has written, or the compact baseline that ``--write-baseline`` writes.

A compact baseline is JSON with what the ratchet compares and no more: tests, models, files and reasons by number, and
of each class, by file, the tests that it skips and why. One of transformers takes a hundredth of a report.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.read.files import check_json, read
from pytest_tfdebug.scan.report.result import STOPPED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: The states that are held against an earlier report.
HELD = STOPPED | {"empty"}
#: What a report has to say of a test, and of a class.
MODELS = ("models_ran", "models_skipped", "models_partially_skipped")
_TEXTS = ("model", "class", "state", "reason", "file")
#: Bytes of a report that are read; one of all tests of transformers takes 40 MB.
_LONGEST = 60_000_000
#: The key that tells a compact baseline from a report, and its version.
_MARK, _VERSION = "scan_baseline", 1
#: Stands in a reason for the name of the class.
_CLASS = "\x02"


def compact(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the compact baseline of a report, a line for each class."""
    reasons: dict[tuple[str, str], int] = {}
    files: dict[str, int] = {}
    classes: dict[tuple[str, str], dict[int, list[int]]] = {}
    for number, values in enumerate(report.values()):
        for entry in values["tests"]:
            skips = classes.setdefault((entry["model"], entry["class"]), {})
            if entry["state"] in HELD:
                reason = entry["state"], entry["reason"].replace(entry["class"] or _CLASS, _CLASS)
                file = files.setdefault(entry["file"], len(files))
                skips.setdefault(file, []).extend((number, reasons.setdefault(reason, len(reasons))))
    models = sorted({model for values in report.values() for key in MODELS for model in values[key]})
    tables = {"tests": list(report), "models": models, "files": list(files), "reasons": list(reasons)}
    yield f"{_json({_MARK: _VERSION, **tables})[:-1]},\n"
    yield '"classes":[\n' + ",\n".join(_json([*key, list(found.items())]) for key, found in sorted(classes.items()))
    yield "\n]}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _expanded(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a compact baseline in the form of a report, as far as it says.

    Raises:
        ValueError: If it is not such as :func:`compact` makes, or a LookupError or TypeError.
    """
    if document[_MARK] != _VERSION:
        raise ValueError(f"version {document[_MARK]!r}, and this one reads {_VERSION}")
    if not are(str, document["tests"]):
        raise ValueError("no names of tests")
    models, files, reasons = document["models"], document["files"], document["reasons"]
    known = {"models_ran": models, "models_skipped": [], "models_partially_skipped": []}
    tests = [(test, {**known, "tests": []}) for test in document["tests"]]
    for model, cls, found in document["classes"]:
        # of a class that skips nothing its name matters, as one with another name may have taken its skips over
        ran = {"model": model, "class": cls, "state": "ran", "reason": "", "file": "", "line": 0}
        tests[0][1]["tests"].append(ran)
        for file, row in found:
            for test, why in zip(row[::2], row[1::2], strict=True):
                state, reason = reasons[why]
                entry = {**ran, "state": state, "reason": reason.replace(_CLASS, cls), "file": files[file]}
                tests[test][1]["tests"].append(entry)
    return dict(tests)


def load(path: Path, written_by: str = "python -m pytest_tfdebug.scan") -> dict[str, dict[str, Any]]:
    """Return an earlier report; errors name the command that writes one.

    Raises:
        ScanError: If the file cannot be read or is no report of this scanner.
    """
    try:
        report = json.loads(check_json(read(path, _LONGEST)).decode())
    except OSError as error:
        raise ScanError(f"Cannot read {path}: {error.strerror or error}; write it with {written_by}.") from error
    except (ValueError, RecursionError) as error:
        raise ScanError(f"{path} is not JSON ({error}); write it with {written_by}.") from error
    try:
        report = _expanded(report) if isinstance(report, dict) and _MARK in report else report
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ScanError(f"{path} is not a whole baseline ({error}); write it with {written_by}.") from error
    if not isinstance(report, dict) or not all(map(_is_test, report.values())):
        raise ScanError(f"{path} is not a report of this scanner; write it with {written_by}.")
    found: dict[str, dict[str, Any]] = report
    return found


def _is_test(test: object) -> bool:
    """Tell whether what JSON holds is what a report says of a test."""
    if not isinstance(test, dict) or not test.keys() >= {*MODELS, "tests"}:
        return False
    entries = test["tests"]
    return all(are(str, test[key]) for key in MODELS) and are(dict, entries) and all(map(_is_entry, entries))


def _is_entry(entry: dict[str, Any]) -> bool:
    return entry.keys() >= {*_TEXTS, "line"} and all(isinstance(entry[key], str) for key in _TEXTS)


def are(kind: type, items: object) -> bool:
    """Tell whether what JSON holds is a list of such."""
    return isinstance(items, list) and all(isinstance(item, kind) for item in items)
