"""A failure taken apart: its exceptions from the outside in, their frames, and the line of the user's that failed."""

from __future__ import annotations

import dis
import linecache
import re
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.frames import is_users, module_of, package_of
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.triage.rules import LINE_LIMIT, cut, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType
    from typing import TypeGuard

    from pytest_tfdebug.records import SourceRange

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

    @property
    def frames(self) -> tuple[FrameType, ...]:
        """The frames of its traceback, from where it was caught to where it was raised."""
        return tuple(step.tb_frame for step in self.steps)

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

    def seen_from(self, position: int) -> Failure:
        """Return the failure with one of its exceptions first, so that its frames and its line of code come first."""
        return replace(self, links=self.links[position:] + self.links[:position])

    @cached_property
    def frames(self) -> tuple[FrameType, ...]:
        """The frames of all exceptions, innermost first within each, without repetition."""
        found: dict[int, FrameType] = {}
        for link in self.links:
            for frame in reversed(link.frames):
                found.setdefault(id(frame), frame)
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

    def local_values(self, *names: str) -> Iterator[tuple[FrameType, Any]]:
        """Yield the frames' local variables of these names, innermost frame first."""
        for frame in self.frames:
            values = frame.f_locals
            yield from ((frame, values[name]) for name in names if values.get(name) is not None)


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
