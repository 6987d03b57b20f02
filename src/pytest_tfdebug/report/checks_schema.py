"""The JSON schema of ``--tf-json``, made from the records: ``python -m pytest_tfdebug.report.checks_schema`` prints it.

Source:
    https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pytest_tfdebug.check_record import SCHEMA, CheckRecord

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    # JSON has no number for these three
    float: {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]},
}


def checks_schema() -> dict[str, Any]:
    """Return the schema of the whole file."""
    definitions: dict[str, Any] = {}
    check = _of(CheckRecord, definitions)
    record = definitions["CheckRecord"]
    record["properties"] = {"id": {"type": "string"}, **record["properties"]}
    record["required"] = ["id", *record["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Checks of pytest-tfdebug",
        "type": "object",
        "required": ["schema", "generator", "run", "checks"],
        "properties": {
            "schema": {"const": SCHEMA},
            "generator": {"type": "object"},
            "run": {"type": "object", "required": ["command", "directory", "rootdir", "exit_status", "environment"]},
            "checks": {"type": "array", "items": check},
        },
        "$defs": definitions,
    }


def _of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - a type
    """Return the schema of a type, and put those of dataclasses among the definitions."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in {Union, UnionType}:
        return {"anyOf": [_of(each, definitions) for each in inner]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(inner[1], definitions)}
    if origin is tuple:
        items = [_of(each, definitions) for each in inner if each is not Ellipsis]
        is_long = inner[-1] is Ellipsis
        many = (
            {"items": items[0]} if is_long else {"prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        )
        return {"type": "array", **many}
    assert is_dataclass(kind)  # noqa: S101 - nothing else is in a record
    name = kind.__name__  # type: ignore[union-attr] # a class, and no object of one
    if name not in definitions:
        definitions[name] = {}
        hints = get_type_hints(kind)
        properties = {field.name: _of(hints[field.name], definitions) for field in fields(kind)}
        definitions[name] = {"type": "object", "required": list(properties), "properties": properties}
    return {"$ref": f"#/$defs/{name}"}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(checks_schema(), indent=2) + "\n")
