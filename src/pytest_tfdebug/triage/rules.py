"""The table of rules, as ``rules.toml`` has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_tfdebug.triage.rule import FailureRule, LogRule
from pytest_tfdebug.triage.table import table

_LOGGED = "logged"


def _several(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _rule(bucket: str, name: str, row: dict[str, Any]) -> FailureRule:
    several: dict[str, Any] = {
        key: _several(row.pop(key, [])) for key in ("raised", "libraries", "what", "fix", "then")
    }
    return FailureRule(bucket, name, **several, **row)


_TABLE = table(Path(__file__).with_suffix(".toml"))
RULES = tuple(
    _rule(bucket, name, row) for bucket, rows in _TABLE.items() if bucket != _LOGGED for name, row in rows.items()
)
LOG_RULES = tuple(LogRule(name, **row) for name, row in _TABLE[_LOGGED].items())
