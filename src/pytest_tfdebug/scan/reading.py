"""Facts of files: known from an earlier run, or cut from their text."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from pytest_tfdebug.scan.cut import Outline, outline
from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.facts import Class
from pytest_tfdebug.scan.layout import place
from pytest_tfdebug.scan.source import decode
from pytest_tfdebug.scan.tree import digest

if TYPE_CHECKING:
    from pytest_tfdebug.scan.facts import Module
    from pytest_tfdebug.scan.known import Known
    from pytest_tfdebug.scan.tree import Tree

#: Model test files up to which every file is checked for syntax errors inside functions too; it takes 0.3 s.
CHECKED = 24
#: Model test files whose text is kept; hardly ever is a class asked for that is not in the last one.
_RECENT = 16


class Reader:
    """Reads the facts of the files of a tree, each once.

    Args:
        tree: The files.
        known: Facts of earlier runs; None where neither they nor those of this run are wanted.
        is_exact: Parse every file whole with libcst.
        is_checked: Check the syntax of every file, inside functions too.
    """

    def __init__(
        self, tree: Tree, known: Known | None = None, *, is_exact: bool = False, is_checked: bool = False
    ) -> None:
        self.is_exact = is_exact
        self._tree, self._known, self._is_checked = tree, known, is_checked
        self._used: dict[str, tuple[str, Module]] = {}
        self._filled: dict[tuple[str, tuple[int, int] | None], Class] = {}
        self._outlines: dict[str, Outline] = {}
        self._recent: list[str] = []

    @property
    def has_news(self) -> bool:
        """Whether something of a file is known that was not before."""
        return self._known is not None and (bool(self._filled) or not self._used.keys() <= self._known.files.keys())

    def used(self) -> dict[str, Module]:
        """Return the facts of the files that were read, by the digest of their content."""
        return {
            key: facts._replace(
                names={
                    name: self._filled.get((path, binding.span), binding) if isinstance(binding, Class) else binding
                    for name, binding in facts.names.items()
                }
            )
            for key, (path, facts) in self._used.items()
        }

    def filled(self, path: str, cls: Class) -> Class:
        """Return a class of a file with what its body binds."""
        key = (path, cls.span)
        if key not in self._filled:
            found = self._outlines.get(path) or self._outline(path, decode(self._tree.read(path)))
            self._filled[key] = found.filled(cls)
        return self._filled[key]

    def facts(self, path: str) -> Module:
        """Return the facts of a file.

        Raises:
            BadSourceError: If it is no Python source.
        """
        content = self._tree.read(path)
        if not content.strip() and place(path) is not None:
            raise BadSourceError("empty")
        if self._known is None:
            return self._read(path, content)
        key = digest(content)
        facts = self._known.files.get(key)
        if facts is None or self._is_checked:
            facts = self._read(path, content)
        self._used[key] = path, facts
        return facts

    def _read(self, path: str, content: bytes) -> Module:
        text = decode(content)
        if self._is_checked:
            check(text)
        if self.is_exact:
            from pytest_tfdebug.scan.exact import exact

            return exact(text)
        return self._outline(path, text).module

    def _outline(self, path: str, text: str) -> Outline:
        self._outlines[path] = found = outline(text)
        if place(path) is not None:
            self._recent.append(path)
        if len(self._recent) > _RECENT:
            self._outlines.pop(self._recent.pop(0), None)
        return found


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
