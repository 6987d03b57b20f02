"""Other names of local variables and another layout: the text of a port that somebody else has written.

::

    hidden = layer(hidden, mask)  # of all      ->      hidden_ = layer(hidden_, mask)

Parameters keep their names, for callers may give them by name.
"""

from __future__ import annotations

import ast
import copy
import symtable
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Disguised(NamedTuple):
    """A text in other words."""

    text: str
    lines: dict[int, range]  # the lines of a statement, for each line that it had

    def of(self, lines: Iterable[int]) -> set[int]:
        """Return where lines of the former text stand; one without a statement stands before the next that has one."""
        return {line for each in lines for line in self.lines[min(at for at in self.lines if at >= each)]}


def disguised(text: str) -> Disguised:
    """Return a text of Python with other local names, and laid out anew."""
    before = ast.parse(text)
    local = dict(_local_names(symtable.symtable(text, "", "exec")))
    after = ast.unparse(_Renamed(local).visit(copy.deepcopy(before)))
    lines: dict[int, range] = {}
    for old, new in zip(_statements(before), _statements(ast.parse(after)), strict=True):  # the inner after the outer
        lines.update(dict.fromkeys(_lines(old), _lines(new)))
    lines[len(text.splitlines()) + 1] = range(len(after.splitlines()), len(after.splitlines()) + 1)
    return Disguised(f"{after}\n", lines)


def _local_names(table: symtable.SymbolTable) -> Iterator[tuple[tuple[str, int], set[str]]]:
    """Yield the local names of each outermost function, by its name and line."""
    for inner in table.get_children():
        if isinstance(inner, symtable.Function):
            local = (each for each in inner.get_symbols() if each.is_local() and not each.is_parameter())
            names = {each.get_name() for each in local if not each.is_imported() and not each.is_namespace()}
            yield (inner.get_name(), inner.get_lineno()), names
        else:
            yield from _local_names(inner)


class _Renamed(ast.NodeTransformer):
    def __init__(self, local: dict[tuple[str, int], set[str]]) -> None:
        self._local = local
        self._names = set[str]()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        begin = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        return self._within(node, self._local.get((node.name, begin), set()))

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._within(node, set())

    def _within(self, node: ast.FunctionDef | ast.Lambda, local: set[str]) -> ast.AST:
        outer = self._names
        parameters = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
        self._names = (outer | local) - parameters
        self.generic_visit(node)
        self._names = outer
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._spelt(node.id)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = node.name and self._spelt(node.name)
        return self.generic_visit(node)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        node.names = [*map(self._spelt, node.names)]
        return node

    def _spelt(self, name: str) -> str:
        return f"{name}_" if name in self._names else name


def _statements(tree: ast.AST) -> list[ast.stmt]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def _lines(node: ast.stmt) -> range:
    """Return the lines of a statement, of one that holds others those of its head."""
    inner = [each.lineno for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)]
    end = node.end_lineno or node.lineno
    return range(node.lineno, max(node.lineno, min(inner) - 1) + 1 if inner else end + 1)
