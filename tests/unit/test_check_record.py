"""The record of a check: JSON, its schema, its name."""

import json
from pathlib import Path

from checks_schema import checks_schema
from pytest_tfdebug.check_record import CallPair, CallRecord, CheckRecord, ForwardRecord
from pytest_tfdebug.records import CulpritRecord, SourceRange

DOCUMENTED = Path(__file__).resolve().parents[2] / "docs" / "checks.schema.json"
RECORD = CheckRecord(
    "tests/test_it.py::Test::test_port[a/b]",
    "parity",
    "failed",
    "It differs.",
    culprit=CulpritRecord("inner", "module", SourceRange("model.py", 3, 4), "", "Linear"),
    rename={"inner": "other"},
    forward=ForwardRecord(
        (CallRecord(0, "Model", "Model", 0, None, 0, "differs", float("inf"), float("nan")),),
        pairs=(CallPair(0, 0, "name"),),
    ),
)


def of_type(value, schema, definitions):
    """Tell whether a value is what a schema of ours says: the few words of JSON schema that it uses."""
    if "$ref" in schema:
        return of_type(value, definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return any(of_type(value, each, definitions) for each in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    kinds = {"string": str, "integer": int, "boolean": bool, "null": type(None), "number": (int, float), "array": list}
    if schema["type"] != "object":
        inside = value if isinstance(value, list) else []
        items = schema.get("prefixItems") or [schema.get("items")] * len(inside)
        return isinstance(value, kinds[schema["type"]]) and all(
            of_type(each, item, definitions) for each, item in zip(inside, items, strict=True)
        )
    properties = schema.get("properties", {})
    rest = schema.get("additionalProperties")
    return (
        isinstance(value, dict)
        and set(schema.get("required", ())) <= set(value)
        and all(of_type(each, properties.get(key, rest), definitions) for key, each in value.items())
    )


def test_schema_in_the_documentation_is_that_of_the_records():
    assert json.loads(DOCUMENTED.read_text()) == checks_schema()


def test_record_is_what_the_schema_says():
    definitions = checks_schema()["$defs"]
    check = json.loads(json.dumps(RECORD.to_dict(), allow_nan=False))

    assert of_type(check, definitions["CheckRecord"], definitions)
    assert not of_type({**check, "status": "perhaps"}, definitions["CheckRecord"], definitions)
    assert not of_type(
        {**check, "surprise": 1}, definitions["CheckRecord"] | {"additionalProperties": {"enum": []}}, definitions
    )


def test_numbers_that_json_does_not_have_are_words():
    [call] = RECORD.to_dict()["forward"]["own"]

    assert (call["share"], call["max_abs"]) == ("inf", "nan")


def test_checks_of_one_name_in_two_files_have_pages_of_their_own():
    other = CheckRecord("tests/test_other.py::Test::test_port[a/b]", "parity", "failed", "It differs.")

    assert RECORD.slug.startswith("test-port-a-b-parity-")
    assert RECORD.slug != other.slug
    assert "/" not in RECORD.slug
