"""What a rule is, the table of rules, and the failure that one may know.

A failure is its exceptions from the outside in, their frames, and the user's line that failed. Text that came from
elsewhere is made safe to print.
"""

from __future__ import annotations

import dis
import linecache
import re
import sys
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import listed
from pytest_tfdebug.frames import is_users, module_of, package_of
from pytest_tfdebug.marker_arguments import several
from pytest_tfdebug.redaction import leaving, redact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType
    from typing import TypeGuard

    from pytest_tfdebug.records import SourceRange

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


def _rule(bucket: str, name: str, row: dict[str, Any]) -> FailureRule:
    lists: dict[str, Any] = {key: several(row.pop(key, [])) for key in ("raised", "libraries", "what", "fix", "then")}
    return FailureRule(bucket, name, **lists, **row)


_TABLE = table("rules.toml")
LOG_RULES = tuple(_rule("silent correctness", name, row) for name, row in _TABLE.pop("logged").items())
RULES = tuple(_rule(bucket, name, row) for bucket, rows in _TABLE.items() for name, row in rows.items())

_MAX_LINKS = 24
#: Of an endless recursion, the first frames are read.
_MAX_FRAMES = 400
_MESSAGE_LIMIT = 8000
_RAISE = dis.opmap["RAISE_VARARGS"]
#: Verdicts of the test itself: an exception that was handled before one is not why the test failed.
_VERDICTS = frozenset({"AssertionError", "Failed"})
#: This package's own errors already say what to do, about their cause too.
_OWN_ERROR = "TFDebugError"


@dataclass(frozen=True)
class Link:
    """One exception of a chain."""

    error: BaseException
    types: tuple[str, ...]  # names of its class and the classes above it, without their modules
    message: str  # its text, cut to a length that is safe to search

    @property
    def described(self) -> str:
        """The last line of its traceback: ``Type: message``."""
        return f"{self.types[0]}: {self.message}"

    @cached_property
    def steps(self) -> tuple[TracebackType, ...]:
        """The entries of its traceback, from where it was caught to where it was raised."""
        return tuple(islice(_steps(self.error.__traceback__), _MAX_FRAMES))

    def is_quoted(self, libraries: tuple[str, ...]) -> bool:
        """Whether the exception only quotes a library's text: a ``raise`` of the user's code or of a mock made it.

        If packages are named, any ``raise`` outside of them counts.
        """
        last = self.steps[-1] if self.steps else None
        if last is None or last.tb_frame.f_code.co_code[last.tb_lasti] != _RAISE:
            return False
        if libraries:
            return package_of(last.tb_frame) not in libraries
        return is_users(last.tb_frame) or module_of(last.tb_frame) == "unittest.mock"


@dataclass(frozen=True)
class Failure:
    """What is known of a failed test or collection."""

    nodeid: str  # the test, or the file or directory that could not be collected
    phase: str  # ``collection``, ``setup``, ``call`` or ``teardown``
    links: tuple[Link, ...]  # its exceptions, from the outermost in

    @classmethod
    def of(cls, error: BaseException, nodeid: str, phase: str) -> Failure:
        """Take an exception apart, through causes, contexts and groups."""
        return cls(nodeid, phase, tuple(islice(_links(error), _MAX_LINKS)))

    @cached_property
    def frames(self) -> tuple[FrameType, ...]:
        """The frames of all exceptions, innermost first within each, without repetition."""
        found: dict[int, FrameType] = {}
        for link in self.links:
            for step in reversed(link.steps):
                found.setdefault(id(step.tb_frame), step.tb_frame)
        return tuple(found.values())

    @cached_property
    def site(self) -> SourceRange | None:
        """The user's line that failed: the innermost one of the first exception that has any."""
        for link in self.links:
            for step in reversed(link.steps):
                if is_users(step.tb_frame):
                    return site_of(step)
        return None

    def rewritten(self, wrong: str, right: str) -> dict[str, str]:
        """Return the user's line with one name replaced, as the template name ``rewritten``.

        Empty if the line does not have the name, or nothing is known to replace it with.
        """
        code = self.site.code if self.site is not None else ""
        fixed = re.sub(rf"(?<![\w-]){re.escape(wrong)}(?![\w-])", lambda _: right or wrong, code)
        return {"rewritten": shown(fixed, LINE_LIMIT)} if fixed != code else {}

    def local_values(self, *names: str) -> Iterator[Any]:
        """Yield the frames' local variables of these names, innermost frame first."""
        found = (frame.f_locals.get(name) for frame in self.frames for name in names)
        yield from (value for value in found if value is not None)


def site_of(step: TracebackType) -> SourceRange:
    """Return the line of code of one entry of a traceback; below the working directory, the path is relative."""
    from pytest_tfdebug.records import SourceRange  # what fails for another reason needs no record

    path, line, here = Path(step.tb_frame.f_code.co_filename), step.tb_lineno, Path.cwd()
    code = linecache.getline(str(path), line, step.tb_frame.f_globals).strip()
    return SourceRange(str(path.relative_to(here) if path.is_relative_to(here) else path), line, line, code)


def is_a(value: object, name: str) -> TypeGuard[Any]:
    """Whether a value is of a class of this name or of one derived from it; nothing is imported to tell."""
    return any(kind.__name__ == name for kind in type(value).__mro__)


def _links(error: BaseException) -> Iterator[Link]:
    waiting, seen = [error], set[int]()
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        types = tuple(kind.__name__ for kind in type(current).__mro__ if kind is not object)
        yield Link(current, types, _message(current))
        if _OWN_ERROR in types:
            continue
        # by name, since Python 3.10 has groups only from a backport
        inner = list(getattr(current, "exceptions", ())) if is_a(current, "BaseExceptionGroup") else []
        if current.__cause__ is not None:
            inner.append(current.__cause__)
        elif current.__context__ is not None and not current.__suppress_context__ and not _VERDICTS & set(types):
            inner.append(current.__context__)
        waiting = inner + waiting


def _message(error: BaseException) -> str:
    try:
        message = str(error.args[0] if isinstance(error, KeyError) and len(error.args) == 1 else error)
    except Exception as unreadable:  # noqa: BLE001 - a foreign __str__ may raise anything, and the test has failed already
        return f"<message unreadable: {type(unreadable).__name__}>"
    return cut(redact(cut(message, 20 * _MESSAGE_LIMIT)), _MESSAGE_LIMIT)


def _steps(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
