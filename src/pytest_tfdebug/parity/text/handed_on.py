"""Where a number was chosen that a function was given: ``rms(x, gain)`` leaves ``eps=1e-6`` of ``rms`` as it is.

Example: ``x.square().mean(-1) + eps`` is right for every other caller of ``rms``; the caller that is wrong is named.
"""

from __future__ import annotations

import ast
from collections import Counter
from math import isclose
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.closeness import number_of
from pytest_tfdebug.parity.text.text_differences import SourceFile, called_name, function_around, source_file
from pytest_tfdebug.records import SourceRange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from typing_extensions import Self

    from pytest_tfdebug.values import Line


def chooser_of(number: float, lines: Sequence[Line], attributes: Mapping[str, str]) -> int:
    """Return which of some lines has chosen a number that the first one uses; 0 where no caller is known to have.

    Args:
        number: The number.
        lines: The line that uses it, then those by which its function was called, innermost first.
        attributes: What the module of these functions holds, by name.
    """
    return _Frames(number, lines, attributes).chooser(0) or 0


def set_before(old: str, line: Line, ran: Collection[tuple[str, int]]) -> SourceRange | None:
    """Return the statement that gives a line the number, or the list, that it uses; None where none is known to.

    Of ``scale = query.shape[1] ** -0.5`` and then ``scores = scores * scale`` that is the first, and of ``x * scale_of(
    sizes)`` what the helper returns: both run no operator, and nothing else uses what they give.

    Args:
        old: What is used, as text.
        line: The line that uses it.
        ran: The lines that have run operators, with their files: what these give is no number.
    """
    setting = _Setting.of(line, ran)
    if setting is None or any(is_literal(node, old) for node in ast.walk(setting.at)):
        return None
    numbers = {name: each for name, each in setting.before.items() if not setting.has_run(each)}
    used = [node.id for node in _handed(setting.at, numbers.keys()) if setting.is_used_here_alone(node.id)]
    helpers = [found for node in ast.walk(setting.at) if (found := setting.returned(node, old)) is not None]
    if len(used) + len(helpers) != 1:
        return None
    return helpers[0] if helpers else setting.returned(numbers[used[0]].value, old) or setting.lines(numbers[used[0]])


def chosen_before(line: Line, ran: Collection[tuple[str, int]]) -> SourceRange | None:
    """Return the statement that chooses among tensors what a line uses, ``memory = memories[i]``; None for none.

    It runs no operator itself, and takes from what a statement before has made, or one thing or another.
    """
    setting = _Setting.of(line, ran)
    if setting is None:
        return None
    made = {name for name, each in setting.before.items() if setting.has_run(each)}
    chosen = [
        each
        for name, each in setting.before.items()
        if name not in made and name in _read_by(setting.at) and _is_choice(each.value, made)
    ]
    return setting.lines(chosen[0]) if len(chosen) == 1 else None


def guard_of(lines: SourceRange) -> SourceRange | None:
    """Return a statement with the ``if`` that alone decides whether it runs; None where none does."""
    around = function_around(lines)
    for node in ast.walk(around[2]) if around is not None else ():
        if isinstance(node, ast.If) and len(node.body) == 1 and node.body[0].lineno == lines.first:
            return SourceRange(lines.file, node.lineno, lines.last)
    return None


def chooses(lines: SourceRange, text: str, attributes: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Tell whether some lines choose a number, by writing it out or by arithmetic, and do not hand one on.

    So does what takes one of some attributes of the module that is the number.
    """
    file = source_file(lines.file)
    if file is None:
        return True  # nothing is known of it
    held = {f"self.{name}" for name, value in attributes.items() if is_equal(value, text)}
    return any(
        _is_arithmetic(part) or is_literal(part, text) or (held and ast.unparse(part) in held)
        for node in _statements(file.tree)
        if node.lineno <= lines.last and lines.first <= (node.end_lineno or 0)
        for part in ast.walk(node)
        if isinstance(part, ast.expr)
    )


def _is_arithmetic(node: ast.AST) -> bool:
    """Tell whether an expression computes a number of numbers: of two names one may be a tensor."""
    if not isinstance(node, ast.BinOp):
        return False
    return any(
        isinstance(getattr(side, "operand", side), ast.Constant)
        or ".shape" in ast.unparse(side)
        or ".size(" in ast.unparse(side)
        for side in (node.left, node.right)
    )


def is_equal(text: str, other: str) -> bool:
    """Tell whether two texts are one number, or one list: ``(1, 2)`` and ``[1, 2]``."""
    try:
        one, two = ast.literal_eval(text), ast.literal_eval(other)
    except (ValueError, SyntaxError):
        return text == other
    return bool(one == two) or (isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)) and [*one] == [*two])


def _is_choice(node: ast.expr, made: Collection[str]) -> bool:
    """Tell whether an expression takes one thing or another, or one of some that were made: no shape of these."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, (ast.Tuple, ast.List)):  # of what was kept on the way
        return any(_is_choice(getattr(each, "value", each), made) for each in node.elts)
    return isinstance(node, ast.IfExp) or (isinstance(node, ast.Name) and node.id in made)


#: Statements some of whose own may not run.
_BLOCKS = (ast.If, ast.For, ast.While, ast.Try, ast.Match)


class _Setting(NamedTuple):
    """A statement, and what its function binds before it."""

    file: SourceFile
    function: ast.FunctionDef | ast.AsyncFunctionDef
    at: ast.stmt
    before: dict[str, ast.Assign]  # what alone sets each of its variables before, whenever the statement runs
    ran: Collection[int]  # the lines of the file that have run operators

    @classmethod
    def of(cls, line: Line, ran: Collection[tuple[str, int]]) -> Self | None:
        """Return the setting of a line; None where its function is not known."""
        around = function_around(SourceRange(line.file, line.line, line.line))
        if around is None:
            return None
        file, _, function = around
        statements = list(_statements(function))
        at = next((each for each in statements if each.lineno <= line.line <= (each.end_lineno or 0)), None)
        if at is None:
            return None
        names = (each for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
        counts = Counter(each.id for each in names if each.lineno < at.lineno)
        blocks = [each for each in ast.walk(function) if isinstance(each, _BLOCKS) and not _holds(each, at)]
        bound = {
            each.targets[0].id: each
            for each in statements
            if isinstance(each, ast.Assign)
            and each.lineno < at.lineno
            and len(each.targets) == 1
            and isinstance(each.targets[0], ast.Name)
            and counts[each.targets[0].id] == 1  # one that is bound again may be anything
            and not any(_holds(block, each) for block in blocks)  # as one that is bound where the line is not
        }
        return cls(file, function, at, bound, {number for path, number in ran if path == line.file})

    def has_run(self, node: ast.stmt) -> bool:
        """Tell whether a statement has run an operator."""
        return not {*self.ran}.isdisjoint(range(node.lineno, (node.end_lineno or node.lineno) + 1))

    def is_used_here_alone(self, name: str) -> bool:
        """Tell whether nothing else in the function reads a variable."""
        inside = {id(node) for node in ast.walk(self.at)}
        nodes = (node for node in ast.walk(self.function) if isinstance(node, ast.Name) and node.id == name)
        return all(id(node) in inside for node in nodes if isinstance(node.ctx, ast.Load))

    def returned(self, node: ast.AST, old: str) -> SourceRange | None:
        """Return the one statement by which a function that is called here alone may return a number."""
        name = called_name(node) if isinstance(node, ast.Call) else ""
        known = [each for path, each in self.file.functions.items() if name and path.rpartition(".")[2] == name]
        if len(known) != 1 or self.has_run(known[0]) or self.file.calls_of(name) != 1:
            return None
        returns = [
            each
            for each in ast.walk(known[0])
            if isinstance(each, ast.Return) and each.value is not None and _may_be(each.value, old)
        ]
        return self.lines(returns[0]) if len(returns) == 1 else None

    def lines(self, node: ast.stmt) -> SourceRange:
        """Return the lines of a statement."""
        return SourceRange(self.file.path, node.lineno, node.end_lineno or node.lineno)


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements that hold no others."""
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not hasattr(node, "body"))


def _holds(block: ast.stmt, node: ast.stmt) -> bool:
    return block.lineno <= node.lineno <= (block.end_lineno or 0)


def _may_be(node: ast.AST, text: str) -> bool:
    """Tell whether an expression may give a number: one that is written out gives no other."""
    return is_literal(node, text) or not isinstance(node, ast.Constant)


def is_literal(node: ast.AST, text: str) -> bool:
    """Tell whether a part of a statement is a number, or a list, that is given as text."""
    try:
        one, other = ast.literal_eval(node), ast.literal_eval(text)
        return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
    except (ValueError, TypeError, SyntaxError):
        return False


def _read_by(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}


def _handed(at: ast.stmt, numbers: Collection[str]) -> Iterator[ast.Name]:
    """Yield where a statement hands one of some numbers, or its negative, to an operator: no other arithmetic."""

    def is_number(node: ast.AST) -> bool:
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        return names.issubset(numbers) and not any(isinstance(each, ast.Call) for each in ast.walk(node))

    made = {
        id(side)
        for node in ast.walk(at)
        if isinstance(node, (ast.BinOp, ast.UnaryOp)) and is_number(node)
        if not isinstance(getattr(node, "operand", None), ast.Name)
        for side in ast.walk(node)
    }
    for node in ast.walk(at):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id in numbers
            and id(node) not in made
        ):
            yield node


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
        given = [each for each in parameters_of(function) if each.arg in names]
        for call in self._nodes(depth + 1):
            if isinstance(call, ast.Call) and called_name(call) == function.name:
                for each in given:
                    chosen = self._bound(call, function, each, depth + 1)
                    if chosen is not None:
                        return chosen
        return None

    def _bound(self, call: ast.Call, function: ast.FunctionDef, parameter: ast.arg, depth: int) -> int | None:
        """Return which line chose what a call gives as a parameter, if that is the number."""
        given = argument_of(call, function, parameter)
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
        for statement in _statements(function) if function is not None else ():
            if statement.lineno <= line <= (statement.end_lineno or 0):
                yield from ast.walk(statement)


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """Return the parameters of a function that have names."""
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def argument_of(
    call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef, parameter: ast.arg
) -> ast.expr | None:
    """Return what a call gives as a parameter of a function, or its default; None where neither is known."""
    keyword = next((each.value for each in call.keywords if each.arg == parameter.arg), None)
    if keyword is not None:
        return keyword
    arguments = function.args
    in_order = [*arguments.posonlyargs, *arguments.args]
    if parameter in in_order:
        place = in_order.index(parameter)
        is_made = function.name == "__init__"
        is_method = in_order[0].arg in ("self", "cls") and (is_made or isinstance(call.func, ast.Attribute))
        given = call.args[: place + 1 - is_method]
        if is_method and not place:
            return None
        if any(isinstance(each, ast.Starred) for each in given):  # counted from the last, where all are given
            last = call.args[place - len(in_order) :]
            is_full = not (call.keywords or arguments.defaults or arguments.vararg)
            is_known = len(last) == len(in_order) - place and not any(isinstance(each, ast.Starred) for each in last)
            return last[0] if is_full and is_known else None
        if len(given) == place + 1 - is_method:
            return given[-1]
        defaults = [*[None] * (len(in_order) - len(arguments.defaults)), *arguments.defaults]
        return defaults[place]
    return arguments.kw_defaults[arguments.kwonlyargs.index(parameter)]
