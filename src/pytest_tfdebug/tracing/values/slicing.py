"""What feeds what inside one function, read from its source, and the lines between two calls: glue.

A backward slice over straight-line Python: good enough to find the statements whose values reach a call, and when it
errs it names a line too many.
"""

from __future__ import annotations

import ast
import io
import linecache
import tokenize
from dataclasses import dataclass
from functools import lru_cache
from textwrap import dedent
from typing import TYPE_CHECKING

from pytest_tfdebug.records import Call, Site, SourceRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


#: Lines between a condition's last statement and one that comes right after it, at most.
_BEFORE = 3
#: Statements that hold no other statement.
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Assert, ast.Raise, ast.Delete)
#: A statement of more lines is shown by the line that ran.
_LONGEST = 12
#: Lines between a condition and what it leads to, or between a statement and what reads what it writes.
_NEAR = 8
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Attributes and methods that tell of a tensor's form, not of its values.
_FORM = frozenset({"shape", "size", "dim", "ndim", "device", "dtype"})


@dataclass(frozen=True)
class Function:
    """A function's source."""

    tree: ast.Module  # the file it stands in
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

    def lines_feeding(self, site: Site | None, calls: set[int], after: int = 0) -> list[int]:
        """Return the first lines of the statements whose values reach a call, or the function's result."""
        statements = sorted(self._statements(), key=lambda statement: statement.lineno)
        foreign = _foreign(self.node)
        ignored = _forms(statements, foreign) | foreign
        needed: set[str] = set()
        lines = []
        for statement in reversed(statements):
            end = statement.end_lineno or statement.lineno
            returns = isinstance(statement, ast.Return) and end >= after
            if returns if site is None else statement.lineno <= site.line <= end:
                needed |= _loaded(statement, calls) - ignored
                continue
            if not _written(statement) & needed:
                continue
            if not isinstance(statement, ast.AugAssign) and statement in self.node.body:  # others may not run
                needed -= _assigned(statement)
            if _is_bare_call(statement, calls):
                continue
            needed |= _loaded(statement, calls) - ignored
            lines.append(statement.lineno)
        return lines

    def _statements(self) -> Iterator[ast.stmt | ast.expr]:
        """Yield what holds no other statement: simple statements, and the conditions of the others."""
        for node in ast.walk(self.node):
            if isinstance(node, _SIMPLE):
                yield node
            elif isinstance(node, (ast.If, ast.While)):
                yield node.test


def function_at(site: Site) -> Function | None:
    """Return the function that a call site stands in; None where its source cannot be read."""
    tree = _parse(site.file)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, _FUNCTIONS):
            decorated = min((item.lineno for item in node.decorator_list), default=node.lineno)
            if site.first_line in (decorated, node.lineno) and site.line <= (node.end_lineno or 0):
                return Function(tree, node) if tree else None
    return None


def statement_at(tree: ast.Module, line: int) -> tuple[int, int]:
    """Return first and last line of the innermost simple statement on a line."""
    return _innermost(tree, _SIMPLE, line, line) or (line, line)


def statement_lines(file: str, line: int) -> tuple[int, int]:
    """Return the lines of the statement that a line belongs to; the line alone where that is long."""
    tree = _parse(file)
    first, last = statement_at(tree, line) if tree else (line, line)
    return (first, last) if last - first < _LONGEST else (line, line)


def is_statement(lines: SourceRange) -> bool:
    """Tell whether some lines are one statement, or a part of it."""
    first, last = statement_lines(lines.file, lines.first)
    return first <= lines.first and lines.last <= last


def branch_begin(file: str, line: int) -> int:
    """Return the line of the condition that leads to a line, where it stands near: it may be what is wrong."""
    tree = _parse(file)
    extents = _extents(tree, (ast.If,)) if tree else []
    return max((first for first, last in extents if first < line <= last and line - first <= _NEAR), default=line)


def decisions_near(file: str, line: int) -> list[int]:
    """Return the lines of the conditions near a line that decide on it, or on what stands right before it."""
    tree = _parse(file)
    extents = _extents(tree, (ast.If,)) if tree else []
    return [first for first, last in extents if first < line <= min(last + _BEFORE, first + _NEAR)]


def conditions_around(file: str, line: int) -> list[str]:
    """Return the tests of the ``if`` statements in whose branches a line stands."""
    tree = _parse(file)
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.If)) if tree else ()
    return [ast.unparse(node.test) for node in nodes if node.lineno < line <= (node.end_lineno or 0)]


def unpacked_at(call: SourceRange) -> SourceRange | None:
    """Return the last statement that makes a mapping which a call unpacks, ``**kwargs``.

    None where the function of the call makes none: it hands on what it was given.
    """
    given = (keyword for node in _calls_at(call) for keyword in node.keywords if keyword.arg is None)
    return _last_written(call, {each.value.id for each in given if isinstance(each.value, ast.Name)})


def argument_at(call: SourceRange, attribute: str, name: str, place: int) -> SourceRange | None:
    """Return the last statement that makes what a call gives as an argument.

    Args:
        call: The lines of the call.
        attribute: What is called, the last part of its name.
        name: The argument's name.
        place: Which one it is, from 0, where it is given without its name.

    Returns:
        None where the function of the call makes it within the call, or hands on what it was given.
    """
    for node in _calls_at(call):
        named = [keyword.value for keyword in node.keywords if keyword.arg == name]
        if isinstance(node.func, ast.Attribute) and node.func.attr == attribute and (named or place < len(node.args)):
            given = named[0] if named else node.args[place]
            return _last_written(call, {each.id for each in ast.walk(given) if isinstance(each, ast.Name)})
    return None


def feeding(lines: SourceRange) -> Iterator[SourceRange]:
    """Yield the statements before some lines, near them in their function, that write what these read."""
    tree = _parse(lines.file)
    nodes = (node for node in ast.walk(tree) if isinstance(node, _SIMPLE)) if tree else ()
    inside = [node for node in nodes if lines.first <= node.lineno and _end(node) <= lines.last]
    read = {name for node in inside for name in _loaded(node, set())}
    for first, last in _written_before(lines, read):
        if lines.first - first <= _NEAR:
            yield SourceRange(lines.file, first, last)


def _calls_at(call: SourceRange) -> Iterator[ast.Call]:
    tree = _parse(call.file)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Call) and call.first <= node.lineno and _end(node) <= call.last:
            yield node


def _last_written(call: SourceRange, names: set[str]) -> SourceRange | None:
    """Return the last statement before a call, in its function, that writes one of some variables."""
    made = _written_before(call, names)
    return SourceRange(call.file, *max(made)) if made else None


def _written_before(call: SourceRange, names: set[str]) -> list[tuple[int, int]]:
    """Return first and last line of the statements before a call, in its function, that write one of some variables."""
    tree = _parse(call.file)
    functions = (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)) if tree else ()
    around = [node for node in functions if node.lineno < call.first <= _end(node)]
    own = (node for node in ast.walk(around[-1]) if isinstance(node, _SIMPLE)) if around else ()
    return [(node.lineno, _end(node)) for node in own if node.lineno < call.first and _written(node) & names]


def _end(node: ast.expr | ast.stmt) -> int:
    return node.end_lineno or node.lineno


def text_of(file: str, first: int, last: int) -> str:
    """Return the text of some lines of a file without their common indentation; empty where it cannot be read."""
    return dedent("".join(linecache.getline(file, number) for number in range(first, last + 1))).rstrip()


def numbers_in(code: str) -> set[float]:
    """Return the numbers that are written in some lines of Python."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    try:
        return {
            float(ast.literal_eval(it.string)) for it in tokens if it.type == tokenize.NUMBER and "j" not in it.string
        }
    except (tokenize.TokenError, SyntaxError):  # a part of a statement
        return set()


def innermost_loop(tree: ast.Module, first: int, last: int) -> tuple[int, int] | None:
    """Return the extent of the smallest loop that holds two lines."""
    return _innermost(tree, _LOOPS, first, last)


def _parse(file: str) -> ast.Module | None:
    return _parsed("".join(linecache.getlines(file)))


@lru_cache(maxsize=64)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def _innermost(tree: ast.Module, kinds: tuple[type[ast.stmt], ...], first: int, last: int) -> tuple[int, int] | None:
    around = (extent for extent in _extents(tree, kinds) if extent[0] <= first and last <= extent[1])
    return min(around, key=lambda extent: extent[1] - extent[0], default=None)


@lru_cache(maxsize=64)
def _extents(tree: ast.Module, kinds: tuple[type[ast.stmt], ...]) -> list[tuple[int, int]]:
    """Return first and last line of every statement of some kinds: a file is asked about many of its lines."""
    return [(node.lineno, node.end_lineno or node.lineno) for node in ast.walk(tree) if isinstance(node, kinds)]


def _assigned(statement: ast.AST) -> set[str]:
    return {
        name
        for node in ast.walk(statement)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store) and (name := _own_name(node))
    }


def _written(statement: ast.AST) -> set[str]:
    """Return the names that a statement assigns, and those whose value it changes in part or in place."""
    changed: list[ast.expr] = []
    for node in ast.walk(statement):
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            changed.append(node)
        elif isinstance(node, ast.Call):
            changed += [keyword.value for keyword in node.keywords if keyword.arg == "out"]
            if _is_in_place(node):
                changed += [node.func, *node.args[:1]]
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and any(_loaded(given, set()) for given in (*call.args, *call.keywords)):
        changed.append(call.func)  # made for its effect: list.append, dict.update
    return _assigned(statement) | {name for node in changed if (name := _own_name(_chain(node)[-1]))}


def _is_in_place(call: ast.Call) -> bool:
    """Tell whether a call changes what it is given: torch ends the names of such methods and functions in ``_``."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name.endswith("_") and not name.endswith("__")


def _chain(node: ast.AST) -> list[ast.AST]:
    """Return an expression such as ``a.view(-1)[0]`` and what it is made from, down to the name that it begins with."""
    found = [node]
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)) and _own_name(node) is None:
        node = node.func if isinstance(node, ast.Call) else node.value
        found.append(node)
    return found


def _own_name(node: ast.AST) -> str | None:
    """Return the name that a node is, ``self.name`` for an attribute of ``self``; None for another node."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return node.id if isinstance(node, ast.Name) and node.id != "self" else None


def _is_form(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _FORM


def _is_own_value(node: ast.AST) -> bool:
    """Tell whether a node takes a value from ``self``: ``self.embed(x)`` does, ``self.bias.shape[0]`` does not."""
    *outer, inner = _chain(node)
    is_of_self = bool(outer) and isinstance(node, (ast.Call, ast.Subscript)) and isinstance(inner, ast.Attribute)
    return is_of_self and not any(map(_is_form, outer))


def _loaded(node: ast.AST, calls: set[int], is_left_out: Callable[[ast.AST], bool] = lambda _node: False) -> set[str]:
    """Return the names that a node reads, those inside the arguments of child calls left out, and some others."""
    if is_left_out(node) or (isinstance(node, ast.Call) and _is_child_call(node, calls)):
        return set()
    if isinstance(node, (ast.Name, ast.Attribute)) and (name := _own_name(node)):
        return set() if isinstance(node.ctx, ast.Store) else {name}
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        found |= _loaded(child, calls, is_left_out)
    if isinstance(node, ast.AugAssign) and (name := _own_name(node.target)):
        found.add(name)
    return found


def _is_child_call(node: ast.Call, calls: set[int]) -> bool:
    chain = _chain(node.func)  # none of a method of a call's result, as in self.q_proj(x).view(...)
    is_name = isinstance(chain[-1], (ast.Name, ast.Attribute)) and not any(isinstance(it, ast.Call) for it in chain)
    return node.lineno in calls and is_name


def _is_bare_call(statement: ast.stmt | ast.expr, calls: set[int]) -> bool:
    """Tell whether a statement only keeps a child call's result, under one name."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
        return False
    return isinstance(statement.value, ast.Call) and _is_child_call(statement.value, calls)


def _forms(statements: list[ast.stmt | ast.expr], foreign: set[str]) -> set[str]:
    """Return the names that only ever hold a shape, device or dtype, or are made of nothing else."""
    forms: set[str] = set()
    values: set[str] = set()
    for statement in statements:
        value = getattr(statement, "value", None)
        if value is None:
            continue
        if any(map(_is_own_value, ast.walk(value))):
            values.update(_assigned(statement))
            continue
        asks = any(map(_is_form, ast.walk(value)))
        loaded = {name for name in _loaded(value, set(), _is_form) if not name.startswith("self.")} - foreign
        (forms if loaded <= forms and (asks or loaded) else values).update(_assigned(statement))
    return forms - values


def _foreign(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names that come from outside of a function: modules, classes and other functions."""
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    own = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    own |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return {node.id for node in names} - own


def glue_lines(
    parent: Call, previous: Call | None, following: Call | None, earlier: Sequence[Call] = ()
) -> SourceRange | None:
    """Return the lines of ``parent``'s forward between two of its children's calls.

    The statements that hold the two calls belong to the range: what is added to one call's result, or computed in the
    other's arguments, stands there. So do earlier statements that feed the second call past the first (a residual that
    is kept, a projection that is reshaped). Where the second call stands above the first, they are turns of a loop,
    and the range is that loop.
    """
    before, after = _same_function(previous, following)
    site = before or after
    if site is None:
        return parent.source
    function = function_at(site)
    if function is None:
        return SourceRange(
            site.file, before.line if before else site.first_line, after.end_line if after else site.last_line
        )
    if before and after and after.line <= before.line:
        loop = innermost_loop(function.tree, after.line, before.line)
        if loop is not None:
            return SourceRange(site.file, *loop)
        before, after = after, before
    first = statement_at(function.tree, before.line)[0] if before else function.first
    last = statement_at(function.tree, after.end_line)[1] if after else function.last
    if before:
        covered = [call.inner_site or call.site for call in earlier]
        calls = {place.line for place in covered if place is not None and place.file == site.file}
        first = min(first, *function.lines_feeding(after, calls, before.end_line), last)
    return SourceRange(site.file, first, max(first, last))


def _same_function(previous: Call | None, following: Call | None) -> tuple[Site | None, Site | None]:
    """Return the two call sites in one function: the helper method that holds both, or else the forward."""
    inner = [call.inner_site or call.site for call in (previous, following) if call is not None]
    if len(inner) == 2 and inner[0] and inner[1] and _function(inner[0]) == _function(inner[1]):  # noqa: PLR2004
        return inner[0], inner[1]
    return (previous.site if previous else None), (following.site if following else None)


def _function(site: Site) -> tuple[str, int]:
    return site.file, site.first_line
