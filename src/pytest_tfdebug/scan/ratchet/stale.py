"""Skips that skip nothing any more, and skips that could say why: what ``--fix`` rewrites."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import TestCase

import libcst as cst
from packaging.version import InvalidVersion, Version

from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.read import syntax
from pytest_tfdebug.scan.read.bindings import BoundFunction, BoundValue, Decorator
from pytest_tfdebug.scan.read.files import decode
from pytest_tfdebug.scan.read.layout import is_owned
from pytest_tfdebug.scan.read.outline import uncommented
from pytest_tfdebug.scan.resolve.decorators import SKIP_DECORATORS
from pytest_tfdebug.scan.resolve.workspace import External
from pytest_tfdebug.scan.state.class_states import unnumbered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.scan.read.tree import Tree
    from pytest_tfdebug.scan.resolve.classes import Linked
    from pytest_tfdebug.scan.scanner import Scanner

#: Words before the version at which a skip is to end, and words that may stand between them and it.
_UNTIL = frozenset({"until", "till", "before"})
_BETWEEN = frozenset({"version", "release", "v", "the"})
#: How comments begin that are meant for tools.
_NO_REASONS = ("noqa", "type:", "fmt:", "pylint:", "pragma:", "copied from", "ignore copy")
#: Files that name the version of a repository, besides ``__init__.py`` of its packages.
_VERSIONED = ("setup.py", "pyproject.toml")


class StaleMark(NamedTuple):
    """Something to rewrite: the file and line of a ``def``, assignment or decorator, and the name that it binds.

    ``reason`` is what to give a decorator, empty where none is known, and None where all of it is to go.
    """

    path: str
    line: int
    name: str
    text: str
    reason: str | None = None


class StaleSkips:
    """Finds the stale skips of a repository whose models have been scanned; ``until=`` is held to a day."""

    def __init__(self, scanner: Scanner, tree: Tree, today: dt.date) -> None:
        self._scanner, self._tree, self._today = scanner, tree, today
        self._classes = [cls for cls in scanner.linker.classes if is_owned(cls.file.path, scanner.owned)]
        self._heirs: dict[Linked, list[Linked]] = {}
        for cls in scanner.linker.classes:
            for base in cls.mro:
                self._heirs.setdefault(base, []).append(cls)
        self._version, self._package = _version(tree)

    def find(self) -> list[StaleMark]:
        """Return every override, flag and decorator that is stale, by place."""
        found: list[StaleMark] = []
        flags: list[tuple[Linked, str, BoundValue]] = []
        for cls in self._classes:
            heirs = self._heirs[cls]
            if not any(heir.inherited.is_test_case or heir.name.startswith("Test") for heir in heirs):
                continue
            found += self._expired(cls, cls.facts.decorators)
            for name, member in cls.facts.members.items():
                is_needed = _is_given(cls, name, heirs)
                if isinstance(member, BoundFunction) and name.startswith("test_"):
                    found += self._override(cls, name, member, is_needed=is_needed)
                elif isinstance(member, BoundValue) and not is_needed and _is_flag(name, member):
                    flags.append((cls, name, member))
        read = self._read({name for _, name, _ in flags})
        for cls, name, value in flags:
            if name not in read:
                text = f"nothing reads the flag {name} of {cls.name}"
                found.append(StaleMark(cls.file.path, value.line, name, text))
        return sorted(set(found), key=lambda each: each[:4])

    def _override(self, cls: Linked, name: str, function: BoundFunction, *, is_needed: bool) -> Iterator[StaleMark]:
        """Yield the override of a test that skips what is not there, or skips it longer than it should."""
        found = list(self._expired(cls, function.decorators))
        if not is_needed and function.does_nothing_but_skip and self._is_skipped(cls, name, function):
            text = f"{cls.name}.{name} skips a test that no base gives it"
            yield StaleMark(cls.file.path, function.line, name, text)
        elif found and is_needed and function.does_nothing_but_skip:
            yield found[0]._replace(line=function.line, name=name)
        else:
            yield from found

    def _is_skipped(self, cls: Linked, name: str, function: BoundFunction) -> bool:
        state = self._scanner.states.definitions.of(name, cls, function).state
        is_skipped = state is not None and state.is_skipped
        return is_skipped or any(not skip.guards for skip in self._scanner.runner.test(cls, function, cls)[0])

    def _expired(self, cls: Linked, decorators: Iterable[Decorator]) -> Iterator[StaleMark]:
        for decorator in decorators:
            is_skip = "skip" in decorator.text.lower()
            skips = self._scanner.decorators.of(cls.file, decorator, cls.facts) if is_skip else ()
            end = _until(self._scanner.workspace.node(cls.file, decorator)) if is_skip else ""
            if any(skip.guards for skip in skips):
                continue
            texts = [f"until={end!r}"] if end and self._is_over(end) else []
            for skip in skips:
                version = _version_in(skip.reason, self._package)
                texts += [f"{version}: {skip.reason}"] if version and self._is_past(version) else []
            for text in texts:
                yield StaleMark(cls.file.path, decorator.line, "", f"a skip of {cls.name} was to end with {text}")

    def _is_over(self, end: str) -> bool:
        try:
            return dt.date.fromisoformat(end) < self._today
        except ValueError:
            return self._is_past(end)

    def _is_past(self, version: str) -> bool:
        """Tell whether the repository has reached a version; one in development has not reached its own."""
        wanted, now = _parsed(version), _parsed(self._version)
        return wanted is not None and now is not None and wanted <= now

    def _read(self, names: set[str]) -> set[str]:
        """Return the names that a file of the repository may read as an attribute or a string."""
        found: set[str] = set()
        for path in self._tree.files("") if names else ():
            if not path.endswith(".py"):
                continue
            try:
                text = self._tree.read(path).decode(errors="replace")
            except BadSourceError:
                continue
            found.update(name for name in names - found if name in text and _is_read(text, name))
        return found

    def without_reason(self) -> Iterator[StaleMark]:
        """Yield every decorator that skips without a reason, with the reason that a comment or docstring gives."""
        for cls in self._classes:
            functions = [member for member in cls.facts.members.values() if isinstance(member, BoundFunction)]
            holders = [(cls.name, each, "") for each in cls.facts.decorators]
            holders += [(f"{cls.name}.{of.name}", each, of.docstring) for of in functions for each in of.decorators]
            for name, decorator, docstring in holders:
                if self._is_bare(cls, decorator):
                    reason = self._comment(cls.file.path, decorator.line) or docstring
                    text = f"{name} is skipped without a reason{'' if reason else ', and nothing beside it says why'}"
                    yield StaleMark(cls.file.path, decorator.line, "", text, reason)

    def _comment(self, path: str, line: int) -> str:
        """Return the comment on a line, or the one above it."""
        lines = decode(self._tree.read(path)).split("\n")
        own, above = lines[line - 1], lines[line - 2].strip() if line > 1 else ""
        comments = (own[len(uncommented(own)) :], above if above.startswith("#") else "")
        texts = (comment.lstrip("# ").strip() for comment in comments)
        return next((text for text in texts if text and not text.lower().startswith(_NO_REASONS)), "")

    def _is_bare(self, cls: Linked, decorator: Decorator) -> bool:
        symbol = self._scanner.workspace.callee(cls.file, self._scanner.workspace.node(cls.file, decorator))
        known = SKIP_DECORATORS.get(symbol.name) if isinstance(symbol, External) else None
        skips = self._scanner.decorators.of(cls.file, decorator, cls.facts)
        return known is not None and not known.has_condition and not any(skip.reason.strip() for skip in skips)


def _is_given(cls: Linked, name: str, heirs: list[Linked]) -> bool:
    """Tell whether a base may give this name to a class or to one that inherits from it."""
    names = (name, *unnumbered(name))
    is_open = any(not heir.inherited.is_closed for heir in heirs)
    return is_open or any(heir.after(cls, each) is not None for heir in heirs for each in names)


def _is_flag(name: str, value: BoundValue) -> bool:
    """Tell whether a class attribute is a switch of a test suite, and none of ``unittest``."""
    return value.text in {"True", "False", "None"} and not name.startswith("_") and not hasattr(TestCase, name)


def _is_read(text: str, name: str) -> bool:
    """Tell whether a name stands in a text other than where a class binds it."""
    at = text.find(name)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(name) : at + len(name) + 1]
        if not (before.isidentifier() or before.isdigit() or after.isidentifier() or after.isdigit()):
            line = text[text.rfind("\n", 0, at) + 1 : at]
            rest = text[at + len(name) :].lstrip(" ")
            is_bound = not line.strip() and rest[:1] in {"=", ":"} and rest[:2] != "=="
            if not is_bound:
                return True
        at = text.find(name, at + 1)
    return False


def _until(node: Any) -> str:
    """Return the ``until=`` of a decorator."""
    args = syntax.arguments(node) if isinstance(node, cst.Call) else []
    values = (syntax.constant(arg.value) for arg in args if arg.keyword == "until")
    return next((value for value in values if isinstance(value, str)), "")


def _version_in(reason: str, package: str) -> str:
    """Return the version up to which a reason asks for its skip."""
    words = [word.strip(".,;:()[]'\"`").lower() for word in reason.split()]
    for at, word in enumerate(words):
        rest = [other for other in words[at + 1 :] if other not in {*_BETWEEN, package}] if word in _UNTIL else []
        if rest and words[at + 1 :].index(rest[0]) <= len(_BETWEEN) and _parsed(rest[0]) is not None:
            return rest[0]
    return ""


def _parsed(text: str) -> Version | None:
    """Return a version of two numbers or more; None for what is none."""
    with suppress(InvalidVersion):
        found = Version(text)
        return found if len(found.release) > 1 else None
    return None


def _version(tree: Tree) -> tuple[str, str]:
    """Return the version and the name of the package that a repository holds; empty where they are not known."""
    paths = [path for path in tree.files("src") if path.count("/") == 2 and path.endswith("/__init__.py")]  # noqa: PLR2004
    for path in (*paths, *_VERSIONED):
        try:
            text = tree.read(path).decode(errors="replace") if tree.is_file(path) else ""
        except BadSourceError:
            continue
        for line in text.splitlines():
            name, _, value = line.partition("=")
            if name.strip() in {"__version__", "version"}:
                version = value.partition("#")[0].strip(" ,'\"")
                if _parsed(version) is not None:
                    return version, path.split("/")[1] if "/" in path else ""
    return "", ""
