"""Edits of a statement that may be what a proved change asks for; whether one is, only a run of it tells.

The change says which kind of edit to look for, and what is new; where in the statement it goes is tried.
"""

from __future__ import annotations

import ast
import itertools
import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.closeness import number_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_tfdebug.records import ChangeRecord

#: Operators that a binary expression may have instead.
_BINARY = {"add": ("+", ast.Add), "sub": ("-", ast.Sub), "mul": ("*", ast.Mult), "div": ("/", ast.Div)}
#: Activations of torch.nn.functional by the names of the search.
_FUNCTIONAL = ("gelu", "silu", "relu", "elu", "leaky_relu", "softplus", "tanh", "sigmoid")
#: Things in one list whose orders are tried.
_ORDERED = 4
#: Expressions that a tensor or a number may be.
_EXPRESSIONS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.BinOp)


class Edit(NamedTuple):
    """Other text in the place of some of a file."""

    start: int  # where it begins, in characters of the file
    end: int  # where it ends
    text: str


class EditedStatement(NamedTuple):
    """A statement of a file, in what it stands."""

    node: ast.stmt
    function: ast.FunctionDef | None
    owner: ast.ClassDef | None
    offset: Callable[[int, int], int]  # character of the file at a line and a column in bytes
    text: str  # the whole file
    is_outermost: bool  # whether it stands in no other

    @property
    def rows(self) -> range:
        """Its lines in the file, without those of statements in it."""
        inner = min((each.lineno for each in _blocks(self.node)), default=None)
        last = self.node.end_lineno or self.node.lineno
        return range(self.node.lineno, last + 1 if inner is None else max(inner, self.node.lineno + 1))

    def row_of(self, edit: Edit) -> int:
        """Return the line of the file in which an edit of it begins."""
        return self.text.count("\n", 0, edit.start) + 1

    @property
    def is_definition(self) -> bool:
        """Whether it defines a function or a class."""
        return isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return where a node of it begins, with its decorators, and ends."""
        first = min((each.lineno for each in getattr(node, "decorator_list", ())), default=node.lineno)
        start = self.offset(first, 0) if first < node.lineno else self.offset(node.lineno, node.col_offset)
        end = self.offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return start, end

    def source(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def instead(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        """Return the edit that writes something else for a node."""
        return Edit(*self.span(node), text)

    @property
    def expressions(self) -> list[ast.expr]:
        """The expressions in it that may be tensors or numbers, the innermost last."""
        head = self.node
        inner = {id(each) for block in _blocks(head) for each in ast.walk(block)}
        return [
            each
            for each in ast.walk(head)
            if isinstance(each, (*_EXPRESSIONS, ast.Constant)) and id(each) not in inner and not _is_target(each)
        ]

    @property
    def names(self) -> list[str]:
        """What the function around has names for."""
        if self.function is None:
            return []
        every = [each.arg for each in (*self.function.args.args, *self.function.args.kwonlyargs)]
        before = (each for each in ast.walk(self.function) if isinstance(each, ast.Name) and _is_target(each))
        every += [each.id for each in before if each.lineno <= self.node.lineno]
        return [each for each in dict.fromkeys(every) if each != "self"]

    @property
    def own(self) -> list[str]:
        """What the class around calls its parts: ``self.norm``."""
        if self.owner is None:
            return []
        held = (each for each in ast.walk(self.owner) if isinstance(each, ast.Attribute) and _is_target(each))
        return list(dict.fromkeys(each.attr for each in held if isinstance(each.value, ast.Name)))


def edits_of(statement: EditedStatement, change: ChangeRecord) -> Iterator[Edit]:
    """Yield the edits of a statement that may be a change, the likeliest first."""
    if change.side == "reference":
        if change.kind == "left out":
            yield from _lacking(statement, change)
        return
    yield from _KINDS[change.kind](statement, change)


def statement_at(text: str, line: int) -> EditedStatement | None:
    """Return the innermost statement that holds a line of a file; None where there is none."""
    inner_first = reversed(statements_of(text))  # of a line that holds several, too
    holding = (each for each in inner_first if each.node.lineno <= line <= (each.node.end_lineno or 0))
    return max(holding, key=lambda each: each.node.lineno, default=None)


@lru_cache(maxsize=8)
def statements_of(text: str) -> tuple[EditedStatement, ...]:
    """Return every statement of a file, the outer ones before those in them."""
    rows = text.splitlines(keepends=True)
    begins = [0, *itertools.accumulate(map(len, rows))]

    def offset(row: int, column: int) -> int:
        return begins[row - 1] + len(rows[row - 1].encode()[:column].decode(errors="ignore"))

    found: list[EditedStatement] = []
    around: list[tuple[ast.AST, ast.FunctionDef | None, ast.ClassDef | None]] = [(ast.parse(text), None, None)]
    while around:
        node, function, owner = around.pop(0)
        function = node if isinstance(node, ast.FunctionDef) else function
        owner = node if isinstance(node, ast.ClassDef) else owner
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                found.append(EditedStatement(child, function, owner, offset, text, isinstance(node, ast.Module)))
            if isinstance(child, (ast.stmt, ast.ExceptHandler)):
                around.append((child, function, owner))
    return tuple(found)


def _numbers(statement: EditedStatement, change: ChangeRecord) -> Iterator[Edit]:
    constants = [each for each in statement.expressions if isinstance(each, ast.Constant)]
    yield from (
        statement.instead(each, change.new) for each in constants if repr(each.value) == change.old
    )  # a flag too
    old, new = number_of(change.old or "1"), number_of(change.new)
    if old is None or new is None:
        return
    same = [each for each in constants if _is_close(each.value, old)]
    yield from (statement.instead(each, change.new) for each in same)
    opposite = [each for each in constants if _is_close(each.value, -old)]
    yield from (statement.instead(each, f"{-new!r}") for each in opposite)
    others = [each for each in statement.expressions if not isinstance(each, ast.Constant)]
    yield from (statement.instead(each, change.new) for each in others)
    if old == 1:  # a scale that was not there
        yield from (statement.instead(each, f"({statement.source(each)} * {change.new})") for each in others)


def _left_out(statement: EditedStatement, _change: ChangeRecord) -> Iterator[Edit]:
    for each in statement.expressions:
        if isinstance(each, ast.BinOp):
            yield from (statement.instead(each, statement.source(part)) for part in (each.left, each.right))
        elif isinstance(each, ast.Call):
            parts = list(each.args[:1])
            parts += [each.func.value] if isinstance(each.func, ast.Attribute) else []
            yield from (statement.instead(each, statement.source(part)) for part in parts)
    if isinstance(statement.node, (ast.Expr, ast.AugAssign)):
        yield statement.instead(statement.node, "pass")


def _calls(statement: EditedStatement, change: ChangeRecord) -> Iterator[Edit]:
    for each in statement.expressions:
        if isinstance(each, ast.BinOp):
            yield from _other_operator(statement, each, change)
        elif isinstance(each, ast.Call):
            yield from _other_function(statement, each, change)
    if change.old not in _BINARY and change.new in _FUNCTIONAL:  # a function that was not there
        for each in statement.expressions:
            if not isinstance(each, ast.Constant):
                yield statement.instead(each, f"torch.nn.functional.{change.new}({statement.source(each)})")


def _other_operator(statement: EditedStatement, node: ast.BinOp, change: ChangeRecord) -> Iterator[Edit]:
    sign = _BINARY.get(change.new)
    if sign is not None and isinstance(node.op, tuple(kind for _, kind in _BINARY.values())):
        yield statement.instead(node, f"{statement.source(node.left)} {sign[0]} {statement.source(node.right)}")


def _other_function(statement: EditedStatement, node: ast.Call, change: ChangeRecord) -> Iterator[Edit]:
    name, _, approximate = change.new.partition("_tanh")
    is_tanh = bool(approximate) or change.new.endswith("_tanh")
    given = [statement.source(each) for each in node.args]
    given += [f"{each.arg}={statement.source(each.value)}" for each in node.keywords if each.arg != "approximate"]
    given += ['approximate="tanh"'] if is_tanh else []
    if change.new == "softmax":
        given = [*given[:1], "dim=-1"]
    if isinstance(node.func, ast.Attribute):
        if not node.args and not is_tanh:  # a method
            inside = "-1" if change.new == "softmax" else ""
            yield statement.instead(node, f"{statement.source(node.func.value)}.{name}({inside})")
        yield statement.instead(node, f"{statement.source(node.func.value)}.{name}({', '.join(given)})")
    if name in (*_FUNCTIONAL, "softmax") and given:
        yield statement.instead(node, f"torch.nn.functional.{name}({', '.join(given)})")


def _orders(statement: EditedStatement, _change: ChangeRecord) -> Iterator[Edit]:
    for each in ast.walk(statement.node):
        if isinstance(each, ast.BinOp):
            yield statement.instead(each, f"{statement.source(each.right)} {_sign(each)} {statement.source(each.left)}")
        lists: list[Sequence[ast.expr]] = []
        if isinstance(each, (ast.Tuple, ast.List)):
            lists.append(each.elts)
        elif isinstance(each, ast.Call):
            lists.append(each.args)
        for parts in lists:
            if 1 < len(parts) <= _ORDERED:
                start, end = statement.span(parts[0])[0], statement.span(parts[-1])[1]
                texts = [statement.source(part) for part in parts]
                for order in itertools.permutations(texts):
                    if list(order) != texts:
                        yield Edit(start, end, ", ".join(order))


def _sign(node: ast.BinOp) -> str:
    return next((sign for sign, kind in _BINARY.values() if isinstance(node.op, kind)), "@")


def _operands(statement: EditedStatement, change: ChangeRecord) -> Iterator[Edit]:
    whole = _value(statement.node)
    if not change.old or change.old == change.new:
        yield from _plus(statement, whole)
    for each in statement.expressions:
        if isinstance(each, (ast.Name, ast.Attribute)) and not isinstance(each.ctx, ast.Store):
            own = statement.source(each)
            yield from (statement.instead(each, name) for name in statement.names if name != own)
            if own.startswith("self."):
                yield from (statement.instead(each, f"self.{name}") for name in statement.own if own != f"self.{name}")
    yield from _plus(statement, whole)


def _lacking(statement: EditedStatement, change: ChangeRecord) -> Iterator[Edit]:
    """Yield what a port may lack: a module of its own that it does not call, or a sum with what it has."""
    tensors = [each for each in statement.expressions if not isinstance(each, ast.Constant)]
    if change.old.strip("_") in ("add", "mul"):
        sign = _BINARY[change.old.strip("_")][0]
        for each in tensors:
            for name in statement.names:
                yield statement.instead(each, f"({statement.source(each)} {sign} {name})")
    used = {each.attr for each in ast.walk(statement.node) if isinstance(each, ast.Attribute)}
    for name in (name for name in statement.own if name not in used):
        yield from (statement.instead(each, f"self.{name}({statement.source(each)})") for each in tensors)


def _plus(statement: EditedStatement, node: ast.expr | None) -> Iterator[Edit]:
    if node is not None:
        yield from (statement.instead(node, f"{statement.source(node)} + {name}") for name in statement.names)


def _nothing(_statement: EditedStatement, _change: ChangeRecord) -> Iterator[Edit]:
    yield from ()


_KINDS: dict[str, Callable[[EditedStatement, ChangeRecord], Iterator[Edit]]] = {
    "number": _numbers,
    "left out": _left_out,
    "call": _calls,
    "order": _orders,
    "operand": _operands,
    "weights": _nothing,
}


def _value(node: ast.stmt) -> ast.expr | None:
    return node.value if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)) else None


def _is_target(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def _blocks(node: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements within another one: these have lines of their own."""
    for name in ("body", "orelse", "finalbody"):
        yield from getattr(node, name, [])


def _is_close(value: object, number: float) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and math.isclose(float(str(value)), number, rel_tol=1e-9)


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Return the text of a file after some edits."""
    for edit in sorted(edits, reverse=True):
        text = f"{text[: edit.start]}{edit.text}{text[edit.end :]}"
    return text
