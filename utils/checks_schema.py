"""The JSON schema of ``--tf-json``, made from the records: ``python utils/checks_schema.py`` prints it.

Source:
    https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pytest_tfdebug.check_record import SCHEMA, CheckRecord

#: JSON has no number for these three.
_NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]}

_RUN = ["verdict", "command", "directory", "rootdir", "exit_status", "environment", "tests"]
_TEXTS = {name: {"type": "string"} for name in ("kind", "type", "message")}
#: How a test ended; the error of one that failed.
_TEST: dict[str, Any] = {
    "type": "object",
    "required": ["test", "outcome", "error"],
    "properties": {
        "test": {"type": "string"},
        "outcome": {"enum": ["passed", "failed", "skipped"]},
        "error": {"anyOf": [{"type": "null"}, {"type": "object", "required": list(_TEXTS), "properties": _TEXTS}]},
    },
}


def checks_schema() -> dict[str, Any]:
    """Return the schema of the whole file."""
    import msgspec

    [check], definitions = msgspec.json.schema_components([CheckRecord], ref_template="#/$defs/{name}")
    definitions = {name: _written(form) for name, form in sorted(definitions.items())}
    culprit = definitions["CulpritRecord"]
    culprit["properties"]["explanation"] = {"type": "string"}  # of its other texts; of the first culprit alone
    definitions["SourceRange"]["required"].remove("code")  # where it is not known, it is left out
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Checks of pytest-tfdebug",
        "type": "object",
        "required": ["schema", "generator", "run", "checks"],
        "properties": {
            "schema": {"const": SCHEMA},
            "generator": {"type": "object"},
            "run": {"type": "object", "required": _RUN, "properties": {"tests": {"type": "array", "items": _TEST}}},
            "checks": {"type": "array", "items": check},
        },
        "$defs": definitions,
    }


def _written(form: Any) -> Any:
    """Return a form as records are written: every key is there, whatever a reader may leave out."""
    if isinstance(form, list):
        return [_written(each) for each in form]
    if not isinstance(form, dict):
        return form
    if form.get("type") == "number":
        return _NUMBER
    kept = {key: _written(each) for key, each in form.items() if key not in ("title", "default", "required")}
    if "anyOf" in kept:
        kept["anyOf"].sort(key=str)  # whose order is that of no version of msgspec
    if "description" in kept:
        kept["description"] = kept["description"].partition("\n")[0]
    return {**kept, "required": list(kept["properties"])} if "properties" in kept else kept


if __name__ == "__main__":
    sys.stdout.write(json.dumps(checks_schema(), indent=2) + "\n")
