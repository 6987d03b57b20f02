"""The modules of a repository, read when something is looked up in them, and what names mean across them."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.facts import Class, Function, Import, Mention, Module, Value

if TYPE_CHECKING:
    from pytest_tfdebug.scan.parser import Parser
    from pytest_tfdebug.scan.reading import Reader
    from pytest_tfdebug.scan.tree import Tree

_DEPTH = 20  # of a chain of re-exports


class External(NamedTuple):
    """Something that is not in the repository, under its full name: ``unittest.skip``."""

    name: str


class Source(NamedTuple):
    """A module of the repository, or a package directory without ``__init__.py`` (``facts`` is then empty)."""

    path: str
    facts: Module


class Found(NamedTuple):
    """A class, function or value of a module of the repository."""

    source: Source
    binding: Class | Function | Value


Symbol: TypeAlias = "External | Source | Found"
_EMPTY = Module({}, (), ())


class Workspace:
    """Looks names up across the files of a repository.

    Args:
        tree: Where the files are.
        reader: Reads the facts of a path.
        parser: Gives expressions their meaning.
    """

    def __init__(self, tree: Tree, reader: Reader, parser: Parser) -> None:
        self.parser = parser
        self.bad: dict[str, str] = {}
        self._tree, self._reader = tree, reader
        self._sources: dict[str, Source | None] = {}
        self._packages: dict[tuple[str, str], str | None] = {}
        self._mentions: dict[str, Mention] = {}
        self._resolved: dict[tuple[str, str], Symbol | None] = {}
        self._exported: dict[tuple[str, str], Symbol | None] = {}
        self._files: dict[str, str | None] = {}
        self._modules: dict[tuple[str, str, bool], str | None] = {}

    def source(self, path: str) -> Source | None:
        """Return a module by its path, or None where it cannot be read; ``bad`` then says why."""
        if path not in self._sources:
            try:
                self._sources[path] = Source(path, self._reader.facts(path))
            except BadSourceError as error:
                self.bad[path] = str(error)
                self._sources[path] = None
        return self._sources[path]

    def filled(self, source: Source, cls: Class) -> Class:
        """Return a class of a module with what its body binds."""
        return cls if cls.span is None else self._reader.filled(source.path, cls)

    def mentions(self, source: Source) -> Mention:
        """Return the patterns for a skip in a module, its aliases included."""
        if source.path not in self._mentions:
            self._mentions[source.path] = Mention.of(source.facts.names)
        return self._mentions[source.path]

    def resolve(self, source: Source, dotted: str, depth: int = 0) -> Symbol | None:
        """Return what a dotted name of a module means, or None where its first part is not bound there."""
        key = (source.path, dotted)
        if key in self._resolved:
            return self._resolved[key]
        first, *rest = dotted.split(".")
        symbol = self.lookup(source, first, depth)
        for part in rest:
            symbol = self._attribute(symbol, part, depth)
        if depth == 0:  # a deeper look-up may have been cut short by a cycle
            self._resolved[key] = symbol
        return symbol

    def lookup(self, source: Source, name: str, depth: int = 0) -> Symbol | None:
        """Return what a name at the top level of a module means."""
        if depth > _DEPTH:
            return None
        binding = source.facts.names.get(name)
        if isinstance(binding, Import):
            return self._imported(source, binding, depth)
        if isinstance(binding, Value) and binding.previous is None:
            return self._alias(source, binding, name, depth)
        if binding is not None:
            return Found(source, binding)
        for star in source.facts.stars:
            module = self.module(source.path, star)
            found = self.lookup(module, name, depth + 1) if isinstance(module, Source) else None
            if found is not None:
                return found
        return None

    def _alias(self, source: Source, value: Value, name: str, depth: int) -> Symbol | None:
        """Follow ``Base = ModelTesterMixin`` and ``Base = ModelTesterMixin if available() else object``."""
        expression = self.parser.expression(value.text) if value.text else ("code", "")
        while expression[0] == "if":
            expression = expression[2]
        if expression[0] == "ref" and expression[1].partition(".")[0] != name:
            target = self.resolve(source, expression[1], depth + 1)
            if target is not None:
                return target
        return Found(source, value)

    def _imported(self, source: Source, binding: Import, depth: int) -> Symbol | None:
        module = self.module(source.path, binding.module)
        if not binding.name:
            return module
        if isinstance(module, Source) and module.path == source.path:
            return None
        if depth or not isinstance(module, Source):  # a deeper look-up may have been cut short by a cycle
            return self._attribute(module, binding.name, depth)
        return self.exported(module, binding.name)

    def exported(self, module: Source, name: str) -> Symbol | None:
        """Return what an import of a name from a module brings."""
        key = (module.path, name)
        if key not in self._exported:
            self._exported[key] = self._attribute(module, name, 0)
        return self._exported[key]

    def _attribute(self, symbol: Symbol | None, name: str, depth: int) -> Symbol | None:
        if isinstance(symbol, External):
            return External(f"{symbol.name}.{name}")
        if isinstance(symbol, Source):
            found = self.lookup(symbol, name, depth + 1)
            return found if found is not None else self._submodule(symbol, name)
        if isinstance(symbol, Found) and isinstance(symbol.binding, Class):
            member = self.filled(symbol.source, symbol.binding).members.get(name)
            return Found(symbol.source, member) if isinstance(member, (Class, Function, Value)) else None
        return None

    def _submodule(self, source: Source, name: str) -> Symbol:
        base = source.path.removesuffix("__init__.py").removesuffix("/")
        path = self._file(posixpath.join(base, name)) if not base.endswith(".py") else None
        found = self.source(path) if path is not None else None
        dotted = base.removesuffix(".py").replace("/", ".")
        return found if found is not None else External(f"{dotted}.{name}")

    def module(self, importer: str, module: str) -> Source | External:
        """Return the module that an import in a file names."""
        path = self.module_path(importer, module)
        found = self.source(path) if path is not None else None
        name = module.lstrip(".") or posixpath.dirname(importer).replace("/", ".")
        return found if found is not None else External(name)

    def module_path(self, importer: str, module: str) -> str | None:
        """Return the file that an import in a file names, or None where it is not in the repository."""
        directory, name = importer.rpartition("/")[0], module.lstrip(".")
        dots = len(module) - len(name)
        if dots > 1:
            directory = "/".join(directory.split("/")[: 1 - dots])
        key = (directory, name, dots > 0)
        if key not in self._modules:
            self._modules[key] = self._module_path(*key)
        return self._modules[key]

    def _module_path(self, directory: str, name: str, is_relative: bool) -> str | None:  # noqa: FBT001 - a key
        if is_relative:
            return self._file(posixpath.join(directory, *name.split("."))) if name else self._file(directory)
        first, *rest = name.split(".")
        package = self._package(directory, first)
        return self._file(posixpath.join(package, *rest)) if package is not None else None

    def _package(self, directory: str, name: str) -> str | None:
        """Return a top-level module as pytest and an installed repository would find it, nearest first."""
        key = (directory, name)
        if key not in self._packages:
            path = posixpath.join(directory, name)
            if self._file(path) is not None:
                self._packages[key] = path
            elif directory:
                self._packages[key] = self._package(directory.rpartition("/")[0], name)
            else:
                found = (path for path in (f"src/{name}", f"tests/{name}") if self._file(path) is not None)
                self._packages[key] = next(found, None)
        return self._packages[key]

    def _file(self, path: str) -> str | None:
        """Return the file of a module path without its suffix; a package without ``__init__.py`` has an empty one."""
        if path not in self._files:
            self._files[path] = self._find(path)
        return self._files[path]

    def _find(self, path: str) -> str | None:
        if self._tree.is_file(f"{path}.py"):
            return f"{path}.py"
        if not self._tree.is_dir(path):
            return None
        package = f"{path}/__init__.py"
        if not self._tree.is_file(package):
            self._sources.setdefault(package, Source(package, _EMPTY))
        return package
