"""What a rule is, what comes out when one matches, the table of rules, and text from elsewhere made safe to print."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_tfdebug.errors import listed
from pytest_tfdebug.marker_arguments import several
from pytest_tfdebug.redaction import leaving, redact

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest brings it there
    import tomli as tomllib

#: Characters of one shown value, and of one line.
VALUE_LIMIT, LINE_LIMIT = 160, 400
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def strip_colour(text: str) -> str:
    """Return the text without ANSI sequences."""
    return _ANSI.sub("", text)


def shown(text: object, limit: int = VALUE_LIMIT) -> str:
    """Return one value for use inside a line: on one line, escaped, without secrets, cut in the middle."""
    whole = redact(strip_colour(str(text)[: 100 * limit]))[: 50 * limit]  # half a secret has no form to know it by
    return cut(leaving(" ".join(whole.split())), limit)


def safe_line(text: str) -> str:
    """Return one line of a report, with its own indentation."""
    return cut(leaving(strip_colour(text)), LINE_LIMIT)


def cut(text: str, limit: int) -> str:
    """Return the text with its middle left out if it is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    left = f" ... {len(text) - limit} characters ... "
    head = max(1, (limit - len(left)) * 2 // 3)
    tail = max(1, limit - len(left) - head)
    return f"{text[:head]}{left}{text[-tail:]}"


def listing(names: list[str], most: int = 6) -> str:
    """Return the first names as part of a sentence, and how many more there are: ``a, b, c and 4 more``."""
    return listed([shown(name, 80) for name in names], most)


SILENT = "silent correctness"

Templates = tuple[str, ...]


@dataclass(frozen=True)
class FailureRule:
    """One kind of failure, or of message that transformers logs where it might have raised.

    ``what``, ``fix`` and ``then`` are templates over the named groups of ``text``, the facts, and ``{code}``,
    ``{site}``, ``{nodeid}``, ``{rerun}`` and ``{version}`` (of transformers); the first template whose names are all
    known is used, so the last one should need none.
    """

    bucket: str
    name: str  # identity, for tests and for people who talk about it
    # names of exception classes; one must be among the exception's class and its bases. None of what is logged.
    raised: tuple[str, ...]
    text: str  # searched in the exception's message, or in the logged one, colours removed
    what: Templates  # what happened, one line
    fix: Templates  # the smallest fix, a command or a line of code
    then: Templates  # the next diagnostic step
    source: str  # where the text comes from: the function that raises or logs it, or a public address
    because: str = ""  # searched in the exception and its causes, as ``Type: message``; for rules that share a text
    # packages that raise it from Python. A ``raise`` elsewhere only quotes the text and does not match. If none are
    # named, a ``raise`` in the user's code does not match.
    libraries: tuple[str, ...] = ()
    # the reader of the live objects, a key of ``facts.READERS``; it may find that the rule does not apply
    facts: str = ""

    def found(self, phase: str, names: dict[str, str], lines: tuple[str, ...]) -> Classification:
        """Return a failure of this kind, with what is known of it filled in."""
        what, fix, then = (fill(templates, names) for templates in (self.what, self.fix, self.then))
        return Classification(self.name, self.bucket, phase, what, fix, then, lines)


@dataclass(frozen=True)
class Facts:
    """What was read from the live objects: names for the templates, and lines to show."""

    names: dict[str, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Classification:
    """One classified failure, its templates filled in."""

    rule: str
    bucket: str
    phase: str
    what: str
    fix: str
    then: str
    facts: tuple[str, ...] = ()


class _Names(dict[str, str]):
    """Known names; an unknown one becomes a placeholder in capitals, as in the usage line of a command."""

    def __missing__(self, name: str) -> str:
        return name.upper()


def fill(templates: Templates, names: dict[str, str]) -> str:
    """Return the first template whose names are all known, filled in; else the last, with placeholders."""
    for template in templates[:-1]:
        if all(names.get(name) for name in re.findall(r"{(\w+)}", template)):
            return template.format_map(names)
    return templates[-1].format_map(_Names(names))


def table(name: str) -> dict[str, Any]:
    """Return a table of triage, which is kept as data beside this file."""
    found: dict[str, Any] = tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))
    return found


_LOGGED = "logged"


def _rule(bucket: str, name: str, row: dict[str, Any]) -> FailureRule:
    lists: dict[str, Any] = {key: several(row.pop(key, [])) for key in ("raised", "libraries", "what", "fix", "then")}
    return FailureRule(bucket, name, **lists, **row)


_TABLE = table("rules.toml")
RULES = tuple(
    _rule(bucket, name, row) for bucket, rows in _TABLE.items() if bucket != _LOGGED for name, row in rows.items()
)
LOG_RULES = tuple(_rule(SILENT, name, row) for name, row in _TABLE[_LOGGED].items())
