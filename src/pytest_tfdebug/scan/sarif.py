"""The ratchet's changes as SARIF, which GitHub's code scanning and editors show at their lines.

Source:
    https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.scan.baseline import Change

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
#: How GitHub's annotations call a level, and how SARIF does.
_LEVELS = {"error": "error", "warning": "warning", "notice": "note"}


def as_sarif(found: Iterable[Change]) -> Iterator[str]:
    """Yield the changes as one document of SARIF 2.1.0, a rule for each kind of change."""
    from pytest_tfdebug.scan.baseline import KINDS

    rules = [
        {
            "id": f"skip-{kind}",
            "shortDescription": {"text": about.title.rstrip("s")},
            "defaultConfiguration": {"level": _LEVELS[about.level]},
        }
        for kind, about in KINDS.items()
    ]
    order = list(KINDS)
    results = [_result(change, _LEVELS[KINDS[change.kind].level], order.index(change.kind)) for change in found]
    driver = {"name": "pytest-tfdebug scan", "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    yield json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _result(change: Change, level: str, rule: int) -> dict[str, Any]:
    entry = change.entry
    reason = entry["reason"] or "no reason"
    told = f"{change.earlier or 'no reason'} -> {reason}" if change.kind == "changed" else reason
    # a line that moves is the same skip still
    name = "\n".join((change.kind, change.test, entry["model"], entry["class"]))
    return {
        "ruleId": f"skip-{change.kind}",
        "ruleIndex": rule,
        "level": level,
        "message": {"text": f"{change.test} of {entry['model']} ({entry['class']}): {told}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(entry["file"]), "uriBaseId": "%SRCROOT%"},
                    "region": {"startLine": max(1, entry["line"])},
                }
            }
        ],
        "partialFingerprints": {"skip/v1": hashlib.sha256(name.encode(errors="backslashreplace")).hexdigest()},
    }
