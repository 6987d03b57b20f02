"""Import a port with one line of its real source edited, beside the port as it is installed.

The source file is copied to a temporary directory and edited there; the modules that depend on it are imported once
more, with the copy in the file's place. Code objects and ``linecache`` see a real file with real line numbers.
"""

from __future__ import annotations

import ast
import atexit
import copy
import difflib
import functools
import importlib
import importlib.util
import itertools
import shutil
import sys
import tempfile
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from stubs import stubbed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import ModuleType

_serial = itertools.count()


def imported(name: str) -> ModuleType:
    """Return a module of a port as it is installed."""
    with stubbed():
        return importlib.import_module(name)


class EditedFile(MetaPathFinder):
    """A source file of a port with one text replaced by another, imported in the original's place.

    Args:
        module: Name of the module whose file is edited.
        old: Text in the file; it must occur once, or be the first occurrence after ``after``.
        new: The text in its place.
        after: Where the search begins.
        reloaded: The modules and packages that are imported anew so that they see the edit.

    Attributes:
        path: The edited copy.
        lines: Numbers of the lines of the edited statements; beside a line that was taken out, those around it.
    """

    def __init__(self, module: str, old: str, new: str, *, after: str, reloaded: Sequence[str]) -> None:
        self._module, self._reloaded = module, tuple(reloaded)
        with stubbed():
            spec = importlib.util.find_spec(module)
        self._locations = spec.submodule_search_locations  # of a package, where its other modules are
        origin = Path(spec.origin)
        text = origin.read_text(encoding="utf-8")
        edited = replaced(text, old, new, after)
        self.lines = frozenset(edited_lines(text, edited))
        self.path = _directory() / str(next(_serial)) / Path(*spec.parent.split(".")) / origin.name
        self.path.parent.mkdir(parents=True)
        self.path.write_text(edited, encoding="utf-8")

    def of_lines(self, lines: Iterable[int]) -> EditedFile:
        """Return the same file with fewer of the edited lines: those of one of several edits."""
        fewer = copy.copy(self)
        fewer.lines = frozenset(lines)
        return fewer

    def find_spec(self, fullname, path=None, target=None):
        """Put the copy in the place of the file."""
        if fullname != self._module:
            return None
        locations = self._locations
        return importlib.util.spec_from_file_location(fullname, self.path, submodule_search_locations=locations)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let :func:`imported` return modules with the edit, and the installed ones again afterwards."""
        theirs = {name: sys.modules.pop(name) for name in list(sys.modules) if self._is_reloaded(name)}
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            for name in [name for name in sys.modules if self._is_reloaded(name)]:
                del sys.modules[name]
            sys.modules.update(theirs)
            for name, module in theirs.items():
                parent, _, attribute = name.rpartition(".")
                if parent in sys.modules and not self._is_reloaded(parent):
                    setattr(sys.modules[parent], attribute, module)

    def _is_reloaded(self, name: str) -> bool:
        return any(name == each or name.startswith(f"{each}.") for each in self._reloaded)


def replaced(text: str, old: str, new: str, after: str) -> str:
    """Return a text with the one occurrence of a text in it, or the first after another, replaced.

    Raises:
        ValueError: If it occurs otherwise.
    """
    start = text.find(after)
    place = text.find(old, start)
    if start < 0 or place < 0 or (not after and text.count(old) != 1):
        raise ValueError(f"{old!r} occurs {text.count(old, max(start, 0))} times after {after!r}.")
    return text[:place] + new + text[place + len(old) :]


def edited_lines(text: str, edited: str) -> Iterator[int]:
    """Yield the lines of the statements that were edited in a text; beside a line that was taken out, those around it."""
    tree = ast.parse(edited)
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    for line in _differing_lines(text, edited):
        yield line
        for node in statements:
            if node.lineno <= line <= (node.end_lineno or line):
                yield from range(node.lineno, (node.end_lineno or line) + 1)


def _differing_lines(text: str, edited: str) -> Iterator[int]:
    matcher = difflib.SequenceMatcher(None, text.splitlines(), edited.splitlines(), autojunk=False)
    for tag, _, _, first, last in matcher.get_opcodes():
        if tag == "delete":
            yield from (first, first + 1)
        elif tag != "equal":
            yield from range(first + 1, last + 1)


@functools.cache
def _directory() -> Path:
    """One temporary directory for the edited files of this process, gone when it ends."""
    directory = tempfile.mkdtemp(prefix="edited_ports_")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)
