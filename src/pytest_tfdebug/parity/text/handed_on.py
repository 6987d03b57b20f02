"""Where a number was chosen that a function was given: ``rms(x, gain)`` leaves ``eps=1e-6`` of ``rms`` as it is.

Example: ``x.square().mean(-1) + eps`` is right for every other caller of ``rms``; the caller that is wrong is named.
"""

from __future__ import annotations

import ast
from math import isclose
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.closeness import number_of
from pytest_tfdebug.parity.text.text_differences import source_file
from pytest_tfdebug.records import SourceRange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pytest_tfdebug.values import Line


def chooser_of(number: float, lines: Sequence[Line], attributes: Mapping[str, str]) -> int:
    """Return which of some lines has chosen a number that the first one uses; 0 where no caller is known to have.

    Args:
        number: The number.
        lines: The line that uses it, then those by which its function was called, innermost first.
        attributes: What the module of these functions holds, by name.
    """
    return _Frames(number, lines, attributes).chooser(0) or 0


class _Frames:
    """Lines that were under way, one called by the next."""

    def __init__(self, number: float, lines: Sequence[Line], attributes: Mapping[str, str]) -> None:
        self._number, self._lines, self._attributes = number, lines, attributes

    def chooser(self, depth: int, names: Collection[str] = ()) -> int | None:
        """Return which line chose the number, from a line that uses it under some names; any where none is given."""
        function = self._function(depth)
        if function is None or depth + 1 >= len(self._lines):
            return None
        if not names:
            used = list(self._nodes(depth))
            if any(self._is_it(node) for node in used):
                return depth
            names = {node.id for node in used if isinstance(node, ast.Name)}
        given = [each for each in _parameters(function) if each.arg in names]
        for call in self._nodes(depth + 1):
            if isinstance(call, ast.Call) and _name_of(call.func) == function.name:
                for each in given:
                    chosen = self._bound(call, function, each, depth + 1)
                    if chosen is not None:
                        return chosen
        return None

    def _bound(self, call: ast.Call, function: ast.FunctionDef, parameter: ast.arg, depth: int) -> int | None:
        """Return which line chose what a call gives as a parameter, if that is the number."""
        given = _argument(call, function, parameter)
        if isinstance(given, ast.Name):
            return self.chooser(depth, {given.id})
        return depth if given is not None and self._is_it(given) else None

    def _is_it(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            number = number_of(self._attributes.get(node.attr, ""))
        elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            number = float(node.value)
        else:
            return False
        return number is not None and isclose(number, self._number, rel_tol=1e-9)

    def _function(self, depth: int) -> ast.FunctionDef | None:
        line = self._lines[depth]
        file = source_file(line.file)
        node = None if file is None else file.function(file.around(SourceRange(line.file, line.line, line.line)))
        return node if isinstance(node, ast.FunctionDef) and node.name == line.function else None

    def _nodes(self, depth: int) -> Iterator[ast.AST]:
        """Yield all that stands in the statement of a line."""
        line, function = self._lines[depth].line, self._function(depth)
        for statement in ast.walk(function) if function is not None else ():
            if not isinstance(statement, ast.stmt) or hasattr(statement, "body"):
                continue
            if statement.lineno <= line <= (statement.end_lineno or 0):
                yield from ast.walk(statement)


def _name_of(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _parameters(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _argument(call: ast.Call, function: ast.FunctionDef, parameter: ast.arg) -> ast.expr | None:
    """Return what a call gives as a parameter of a function, or its default; None where neither is known."""
    keyword = next((each.value for each in call.keywords if each.arg == parameter.arg), None)
    if keyword is not None:
        return keyword
    arguments = function.args
    in_order = [*arguments.posonlyargs, *arguments.args]
    if parameter in in_order:
        place = in_order.index(parameter)
        is_method = in_order[0].arg in ("self", "cls") and isinstance(call.func, ast.Attribute)
        given = call.args[: place + 1 - is_method]
        if any(isinstance(each, ast.Starred) for each in given) or (is_method and not place):
            return None
        if len(given) == place + 1 - is_method:
            return given[-1]
        defaults = [*[None] * (len(in_order) - len(arguments.defaults)), *arguments.defaults]
        return defaults[place]
    return arguments.kw_defaults[arguments.kwonlyargs.index(parameter)]
