"""What feeds what inside one function, read from its source.

A backward slice over straight-line Python: good enough to find the statements whose values reach a call, and when it
errs it names a line too many.
"""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.records import Site

#: Statements that hold no other statement.
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Assert, ast.Raise, ast.Delete)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
#: Attributes and methods that tell of a tensor's form, not of its values.
_FORM = frozenset({"shape", "size", "dim", "ndim", "device", "dtype"})


@dataclass(frozen=True)
class Function:
    """A function's source.

    Args:
        tree: The file it stands in.
        node: The function.
    """

    tree: ast.Module
    node: ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def first(self) -> int:
        """First line of the body, after the docstring."""
        body = self.node.body[1:] if ast.get_docstring(self.node) and len(self.node.body) > 1 else self.node.body
        return body[0].lineno

    @property
    def last(self) -> int:
        """Last line of the body."""
        return self.node.end_lineno or self.node.body[-1].lineno

    def lines_feeding(self, site: Site | None, calls: set[int]) -> list[int]:
        """Return the first lines of the statements whose values reach a call, or the function's result.

        Args:
            site: The call; None for what the function returns.
            calls: Lines of child calls whose results are known to be right: the slice stops at them.
        """
        statements = sorted(self._statements(), key=lambda statement: statement.lineno)
        targets: list[ast.stmt]
        if site is None:
            targets = [*[item for item in statements if isinstance(item, ast.Return)][-1:]]
        else:
            targets = [item for item in statements if item.lineno <= site.line <= (item.end_lineno or item.lineno)]
        forms = _forms(statements)
        needed = {name for target in targets for name in _loaded(target, calls)} - forms
        until = targets[0].lineno if targets else 0
        lines = []
        for statement in reversed([item for item in statements if item.lineno < until]):
            assigned = _assigned(statement)
            if not assigned & needed:
                continue
            if not isinstance(statement, ast.AugAssign) and not _is_nested(self.node, statement):
                needed -= assigned
            if _is_bare_call(statement, calls):
                continue
            needed |= _loaded(statement, calls) - forms
            lines.append(statement.lineno)
        return lines

    def _statements(self) -> Iterator[ast.stmt]:
        for node in ast.walk(self.node):
            if isinstance(node, _SIMPLE):
                yield node


def function_at(site: Site) -> Function | None:
    """Return the function that a call site stands in; None where its source cannot be read."""
    tree = _parse("".join(linecache.getlines(site.file)))
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorated = min((item.lineno for item in node.decorator_list), default=node.lineno)
            if site.first_line in (decorated, node.lineno) and site.line <= (node.end_lineno or 0):
                return Function(tree, node) if tree else None
    return None


def statement_at(tree: ast.Module, line: int) -> tuple[int, int]:
    """Return first and last line of the innermost simple statement on a line."""
    return _innermost(tree, _SIMPLE, line, line) or (line, line)


def innermost_loop(tree: ast.Module, first: int, last: int) -> tuple[int, int] | None:
    """Return the extent of the smallest loop that holds two lines."""
    return _innermost(tree, _LOOPS, first, last)


@lru_cache(maxsize=64)
def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def _innermost(tree: ast.Module, kinds: tuple[type[ast.stmt], ...], first: int, last: int) -> tuple[int, int] | None:
    extents = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, kinds) and node.lineno <= first and last <= (node.end_lineno or 0)
    ]
    return min(extents, key=lambda extent: extent[1] - extent[0], default=None)


def _is_nested(function: ast.FunctionDef | ast.AsyncFunctionDef, statement: ast.stmt) -> bool:
    """Tell whether a statement stands under a condition or loop, so that an earlier value may survive it."""
    return statement not in function.body


def _assigned(statement: ast.stmt) -> set[str]:
    return {
        node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    } | {
        target.value.id
        for target in getattr(statement, "targets", [])
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name)
    }


def _loaded(node: ast.AST, calls: set[int]) -> set[str]:
    """Return the names that a node reads, those inside the arguments of child calls left out."""
    if isinstance(node, ast.Call) and _is_child_call(node, calls):
        return set()
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Store) or node.id == "self" else {node.id}
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        found |= _loaded(child, calls)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        found.add(node.target.id)
    return found


def _is_child_call(node: ast.Call, calls: set[int]) -> bool:
    if node.lineno not in calls:
        return False
    root: ast.expr = node.func
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        if isinstance(root.value, ast.Call):  # a method of a call's result, as in self.q_proj(x).view(...)
            return False
        root = root.value
    return isinstance(root, ast.Name)


def _is_bare_call(statement: ast.stmt, calls: set[int]) -> bool:
    """Tell whether a statement only keeps a child call's result."""
    value = getattr(statement, "value", None)
    return isinstance(statement, ast.Assign) and isinstance(value, ast.Call) and _is_child_call(value, calls)


def _forms(statements: list[ast.stmt]) -> set[str]:
    """Return the names that only ever hold a shape, device or dtype, or are made of nothing else."""
    forms: set[str] = set()
    values: set[str] = set()
    for statement in statements:
        value = getattr(statement, "value", None)
        if value is None:
            continue
        asks = any(isinstance(node, ast.Attribute) and node.attr in _FORM for node in ast.walk(value))
        loaded = _loaded(value, set())
        (forms if asks or (loaded and loaded <= forms) else values).update(_assigned(statement))
    return forms - values
