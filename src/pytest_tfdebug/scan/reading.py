"""Facts of files: known from an earlier run, or cut from their text, by two processes where that pays."""

from __future__ import annotations

import os
import pickle
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_tfdebug.scan.cache import Known
from pytest_tfdebug.scan.cut import cut
from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.layout import place
from pytest_tfdebug.scan.source import decode
from pytest_tfdebug.scan.tree import digest

if TYPE_CHECKING:
    from pytest_tfdebug.scan.facts import Module
    from pytest_tfdebug.scan.tree import Tree

#: Bytes of model tests up to which every file is checked for syntax errors inside functions too; it takes 0.3 s.
CHECKED_SIZE = 512 * 1024
#: Bytes from which a second process pays for its start.
SHARED_SIZE = 2 * 1024 * 1024


class Reader:
    """Reads the facts of the files of a tree, each once.

    Args:
        tree: The files.
        known: Facts of earlier runs.
        is_exact: Parse every file whole with libcst.
        is_checked: Check the syntax of every file, however many there are.
    """

    def __init__(self, tree: Tree, known: Known, *, is_exact: bool = False, is_checked: bool = False) -> None:
        self.known, self.is_exact = known, is_exact
        self._tree, self._is_checked = tree, is_checked
        self._contents: dict[str, bytes] = {}
        self._used: dict[bytes, Module] = {}
        self._expressions = len(known.expressions)
        self._bad: dict[bytes, str] = {}

    @property
    def has_news(self) -> bool:
        """Whether something is known that was not before."""
        return len(self.known.expressions) > self._expressions or self._used.keys() != self.known.files.keys()

    def used(self) -> Known:
        """Return the facts of the files that were read, and of no others."""
        return Known(self._used, self.known.expressions)

    def prefetch(self, paths: list[str]) -> None:
        """Read files that are sure to be needed."""
        for path in paths:
            with suppress(BadSourceError):  # told when its facts are asked for
                self._contents[path] = self._tree.read(path)
        size = sum(map(len, self._contents.values()))
        self._is_checked = self._is_checked or size <= CHECKED_SIZE
        if self.is_exact or self._is_checked:
            return
        new = {digest(content): content for content in self._contents.values()}
        unknown = [(key, content) for key, content in new.items() if key not in self.known.files]
        has_second = hasattr(os, "fork") and (os.cpu_count() or 1) > 1
        if has_second and sum(len(content) for _, content in unknown) >= SHARED_SIZE:
            self._share(unknown)

    def _share(self, files: list[tuple[bytes, bytes]]) -> None:
        """Cut every other file in a process of its own."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            with os.fdopen(write, "wb") as pipe:
                pickle.dump([_cut(content) for _, content in files[1::2]], pipe, protocol=5)
            os._exit(0)
        os.close(write)
        mine = [_cut(content) for _, content in files[::2]]
        with os.fdopen(read, "rb") as pipe:
            theirs = pickle.load(pipe)  # noqa: S301 - from the process that this one has just forked
        os.waitpid(child, 0)
        for share, found in ((files[::2], mine), (files[1::2], theirs)):
            for (key, _), facts in zip(share, found, strict=True):
                if isinstance(facts, str):
                    self._bad[key] = facts
                else:
                    self.known.files[key] = facts

    def facts(self, path: str) -> Module:
        """Return the facts of a file.

        Raises:
            BadSourceError: If it is no Python source.
        """
        content = self._contents.pop(path, None)
        if content is None:
            content = self._tree.read(path)
        if not content.strip() and place(path) is not None:
            raise BadSourceError("empty")
        key = digest(content)
        if key in self._bad:
            raise BadSourceError(self._bad[key])
        facts = self.known.files.get(key)
        if facts is None or self._is_checked:
            facts = self._read(content)
        self._used[key] = facts
        return facts

    def _read(self, content: bytes) -> Module:
        text = decode(content)
        if self._is_checked:
            check(text)
        if self.is_exact:
            from pytest_tfdebug.scan.exact import exact

            return exact(text)
        return cut(text)


def _cut(content: bytes) -> Module | str:
    try:
        return cut(decode(content))
    except BadSourceError as error:
        return str(error)


def check(text: str) -> None:
    """Check that Python can compile a file.

    Raises:
        BadSourceError: If it cannot.
    """
    import ast

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        raise BadSourceError(f"line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadSourceError(f"cannot be compiled: {error}") from error
