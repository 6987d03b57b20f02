"""The modules of a repository, read when something is looked up in them, and what names mean across them."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import libcst as cst

from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.read import syntax
from pytest_tfdebug.scan.read.bindings import BoundFunction, BoundValue, Class, Decorator, Import, Module
from pytest_tfdebug.scan.read.files import decode
from pytest_tfdebug.scan.read.reader import check, read

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pytest_tfdebug.scan.read.tree import Tree

_DEPTH = 20  # of a chain of re-exports


class External(NamedTuple):
    """Something that is not in the repository, under its full name: ``unittest.skip``."""

    name: str


@dataclass(frozen=True, eq=False)
class File:
    """A module of the repository, or a package directory without ``__init__.py`` (``module`` is then empty)."""

    path: str
    module: Module


class Found(NamedTuple):
    """A class, function or value of a module of the repository."""

    file: File
    binding: Class | BoundFunction | BoundValue


Symbol: TypeAlias = "External | File | Found"


class Workspace:
    """Looks names up across the files of a repository; the model test files may not be empty.

    Attributes:
        bad: The files that cannot be read, with the reason.
        unread: What makes or leaves out tests when a model test file runs, ``file:line: source``.
        may_skip: Tells whether calling a dotted name of a file may skip; the runner sets it.
        resolve: Returns what a dotted name of a module means, or None where its first part is not bound there.
        exported: Returns what an import of a name from a module brings.
        module_path: Returns the file that an import in a file names, or None where it is not in the repository.
    """

    def __init__(self, tree: Tree, models: Collection[str], *, is_checked: bool) -> None:
        self.bad: dict[str, str] = {}
        self.unread: dict[str, list[str]] = {}
        self.may_skip: Callable[[File, str], bool] = lambda *_: True
        self._tree, self._models, self._is_checked = tree, models, is_checked
        self._read: dict[str, File | None] = {}
        self.resolve, self.exported = cache(self._resolve), cache(self._attribute)
        self.module_path = cache(self._module_path)
        self._package, self._file = cache(self._find_package), cache(self._find)

    def file(self, path: str) -> File | None:
        """Return a module by its path, or None where it cannot be read; ``bad`` then says why."""
        if path not in self._read:
            try:
                self._read[path] = File(path, self._module(path))
            except (BadSourceError, RecursionError) as error:
                self._read[path] = self.note_bad(path, error)
        return self._read[path]

    def note_bad(self, path: str, error: Exception, line: int = 0) -> Any:
        """Note that a file, or a part of it, cannot be read."""
        reason = str(error) if isinstance(error, BadSourceError) else "nested too deeply to be followed"
        where = f"line {line}: " if line and not reason.startswith("line ") else ""
        self.bad.setdefault(path, f"{where}{reason}")

    def node(self, file: File, of: BoundValue | Decorator) -> Any:
        """Return the libcst node of an expression in a file; None where it is not known or cannot be read."""
        try:
            return syntax.expression(of.text) if of.text else None
        except BadSourceError as error:
            return self.note_bad(file.path, error, of.line)

    def callee(self, file: File, node: Any) -> Symbol | None:
        """Return what a call in a file calls, or what a name means."""
        dotted = syntax.dotted(getattr(node, "func", node))
        return self.resolve(file, dotted) if dotted else None

    def _module(self, path: str) -> Module:
        content = self._tree.read(path)
        if path in self._models and not content.strip():
            raise BadSourceError("empty")
        text = decode(content)
        if path in self._models and ("globals()" in text or "not_supported" in text):
            lines = enumerate(text.split("\n"), 1)
            self.unread[path] = [f"{path}:{number}: {line.strip()}" for number, line in lines if _is_at_run_time(line)]
        if self._is_checked:
            check(text)

        def may_skip(dotted: str) -> bool:
            file = self._read.get(path)
            return file is not None and self.may_skip(file, dotted)

        return read(text, partial(self.note_bad, path), may_skip)

    def _resolve(self, file: File, dotted: str, depth: int = 0) -> Symbol | None:
        first, *rest = dotted.split(".")
        return self._attribute_of(self.lookup(file, first, depth), rest, depth)

    def _attribute_of(self, symbol: Symbol | None, names: list[str], depth: int = 0) -> Symbol | None:
        for name in names:
            symbol = self._attribute(symbol, name, depth)
        return symbol

    def resolve_in(self, body: Class | None, file: File, dotted: str) -> Symbol | None:
        """Return what a dotted name means in the body of a class of a module, or in the module where there is none."""
        first, *rest = dotted.split(".")
        binding = body.members.get(first) if body is not None else None
        if isinstance(binding, Import):
            return self._attribute_of(self._imported(file, binding, 0), rest)
        if isinstance(binding, BoundValue):
            return self._attribute_of(Found(file, binding), rest)
        return self.resolve(file, dotted)

    def lookup(self, file: File, name: str, depth: int = 0) -> Symbol | None:
        """Return what a name at the top level of a module means."""
        if depth > _DEPTH:
            return None
        binding = file.module.names.get(name)
        if isinstance(binding, Import):
            return self._imported(file, binding, depth)
        if isinstance(binding, BoundValue) and binding.previous is None:
            return self._alias(file, binding, name, depth)
        if binding is not None:
            return Found(file, binding)
        modules = (self.module(file.path, star) for star in file.module.stars)
        found = (self.lookup(module, name, depth + 1) for module in modules if isinstance(module, File))
        return next((each for each in found if each is not None), None)

    def _alias(self, file: File, value: BoundValue, name: str, depth: int) -> Symbol | None:
        """Follow ``Base = ModelTesterMixin`` and ``Base = ModelTesterMixin if available() else object``."""
        may_be_alias = " if " in value.text or "(" not in value.text  # and so no large table
        node = self.node(file, value) if may_be_alias else None
        while isinstance(node, cst.IfExp):
            node = node.body
        dotted = syntax.dotted(node)
        is_other = bool(dotted) and dotted.partition(".")[0] != name
        target = self._resolve(file, dotted, depth + 1) if is_other else None
        return target if target is not None else Found(file, value)

    def _imported(self, file: File, binding: Import, depth: int) -> Symbol | None:
        module = self.module(file.path, binding.module)
        if not binding.name:
            return module
        if isinstance(module, File) and module.path == file.path:
            return None
        if depth or not isinstance(module, File):  # a deeper look-up may have been cut short by a cycle
            return self._attribute(module, binding.name, depth)
        return self.exported(module, binding.name)

    def _attribute(self, symbol: Symbol | None, name: str, depth: int = 0) -> Symbol | None:
        if isinstance(symbol, External):
            return External(f"{symbol.name}.{name}")
        if isinstance(symbol, File):
            found = self.lookup(symbol, name, depth + 1)
            if found is not None:
                return found
            base = symbol.path.removesuffix("__init__.py").removesuffix("/")
            path = self._file(posixpath.join(base, name)) if not base.endswith(".py") else None
            submodule = self.file(path) if path is not None else None
            return submodule or External(f"{base.removesuffix('.py').replace('/', '.')}.{name}")
        if isinstance(symbol, Found) and isinstance(symbol.binding, Class):
            member = symbol.binding.members.get(name)
            return Found(symbol.file, member) if isinstance(member, (Class, BoundFunction, BoundValue)) else None
        return None

    def module(self, importer: str, module: str) -> File | External:
        """Return the module that an import in a file names."""
        path = self.module_path(importer, module)
        found = self.file(path) if path is not None else None
        return found or External(module.lstrip(".") or posixpath.dirname(importer).replace("/", "."))

    def _module_path(self, importer: str, module: str) -> str | None:
        directory, name = importer.rpartition("/")[0], module.lstrip(".")
        dots = len(module) - len(name)
        if dots:
            above = directory.split("/")[: len(directory) if dots == 1 else 1 - dots]
            return self._file("/".join([*filter(None, above), *filter(None, name.split("."))]))
        first, *rest = name.split(".")
        package = self._package(directory, first)
        return self._file(posixpath.join(package, *rest)) if package is not None else None

    def _find_package(self, directory: str, name: str) -> str | None:
        """Return a top-level module as pytest and an installed repository would find it, nearest first."""
        above = [directory]
        while above[-1]:
            above.append(above[-1].rpartition("/")[0])
        paths = (posixpath.join(each, name) for each in (*above, "src", "tests"))
        return next((path for path in paths if self._file(path) is not None), None)

    def _find(self, path: str) -> str | None:
        """Return the file of a module path without its suffix; a package without ``__init__.py`` has an empty one."""
        if self._tree.is_file(f"{path}.py"):
            return f"{path}.py"
        if not self._tree.is_dir(path):
            return None
        package = f"{path}/__init__.py"
        if not self._tree.is_file(package):
            self._read.setdefault(package, File(package, Module({})))
        return package


def _is_at_run_time(line: str) -> bool:
    """Tell whether a line makes a class under a name of its own, or lists tests to leave out (``adapters``)."""
    target, sign, value = line.partition("=")
    if target.strip().startswith("globals()["):
        return bool(sign) and target.rstrip().endswith("]") and value[:1] != "="
    listed = line.partition("not_supported")[2].replace(" ", "")
    return listed.startswith("=[") and listed[2:3] not in {"", "]"}
