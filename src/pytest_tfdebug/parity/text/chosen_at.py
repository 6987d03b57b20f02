"""Where a value was chosen that a statement only hands on: ``self.roped = plan.roped`` of a constructor, say.

Before: the statement that sets an attribute. After: ``LayerPlan(roped=i % 4 != 0)`` in the function that reads the
configuration, three names further back. Nothing is evaluated: a name is followed to the one place that gives it, and an
expression that is more than a name has chosen.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.module_path import holder, last_part
from pytest_tfdebug.parity.text.handed_on import argument_of, chosen_before, is_equal, is_literal, parameters_of
from pytest_tfdebug.parity.text.text_differences import called_name, function_around, source_file
from pytest_tfdebug.records import SourceRange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pytest_tfdebug.parity.text.text_differences import SourceFile
    from pytest_tfdebug.values import Line

#: Names that are followed, at most: no port hands a number through as many.
_STEPS = 12
#: Functions that give what they are given, in another type.
_CASTS = frozenset({"int", "float", "bool", "str", "tuple", "list"})


class _Expression(NamedTuple):
    """An expression, and the function that holds it; the empty name for what stands in none."""

    node: ast.expr
    function: str


def chosen_at(lines: SourceRange, text: str = "", name: str = "") -> SourceRange | None:
    """Return where the value is chosen that the statement on some lines hands on; None where it chooses it itself.

    Args:
        lines: The lines.
        text: The value, where it is known: one that is written out as another was changed since.
        name: What the statement binds to it, where it binds several.
    """
    file = source_file(lines.file)
    if file is None:
        return None
    statements = (node for node in ast.walk(file.tree) if isinstance(node, (ast.Assign, ast.Return, ast.AnnAssign)))
    at = next((each for each in statements if (each.lineno, each.end_lineno) == (lines.first, lines.last)), None)
    bound = [] if at is None else [(last_part(ast.unparse(target)), value) for target, value in bindings_of(at)]
    value = next((value for target, value in bound if target == name), None if at is None else at.value)
    return None if value is None else _followed(file, _Expression(value, file.around(lines)), text)


def argument_chosen_at(lines: SourceRange, called: str, name: str) -> SourceRange | None:
    """Return where an argument is chosen that a call hands on by name; None where the call chooses it itself.

    Args:
        lines: The statement with the call.
        called: Name of what is called.
        name: Name of the argument.
    """
    file = source_file(lines.file)
    given = None if file is None else _argument_named(file, lines, called, name)
    return None if file is None or given is None else _followed(file, _Expression(given, file.around(lines)))


def argument_within(lines: SourceRange, called: str, name: str) -> SourceRange | None:
    """Return the lines of an argument in a call, or where that begins if it gives none; None where there is no call.

    Args:
        lines: The line in which the call begins.
        called: Name of what is called, which may have another name there: of several the longest is taken.
        name: Name of the argument.
    """
    file = source_file(lines.file)
    calls = [] if file is None else [node for node in ast.walk(file.tree) if isinstance(node, ast.Call)]
    calls = [each for each in calls if each.lineno == lines.first]
    calls = [each for each in calls if called_name(each) == called] or calls
    call = max(calls, key=lambda each: each.end_lineno or 0, default=None)
    if call is None:
        return None
    given = next((each for each in call.keywords if each.arg == name), None)
    first, last = (call.lineno, call.lineno) if given is None else (given.lineno, given.end_lineno or given.lineno)
    return SourceRange(lines.file, first, last)


def left_none_at(lines: SourceRange, called: str, name: str) -> SourceRange | None:
    """Return the condition under which alone an argument that a call names is more than None; None for no such one.

    ``mask = None`` and ``if lengths is not None and self.training: mask = hidden(lengths)``, perhaps in a function that
    returns several. A condition that only asks for what the mask is made of is right: that was not given.
    """
    file = source_file(lines.file)
    given = None if file is None else _argument_named(file, lines, called, name)
    place = None if file is None or given is None else _Expression(given, file.around(lines))
    for _ in range(_STEPS):
        function = None if file is None or place is None else file.function(place.function)
        if file is None or place is None or function is None or not isinstance(place.node, ast.Name):
            return None
        stores = [
            each for each in bindings_of(function) if isinstance(each[0], ast.Name) and each[0].id == place.node.id
        ]
        guards = [
            node
            for node in ast.walk(function)
            if isinstance(node, ast.If)
            and isinstance(node.test, ast.BoolOp)
            and any(node.lineno <= target.lineno <= (node.end_lineno or 0) for target, _ in stores)
        ]
        is_left = any(isinstance(value, ast.Constant) and value.value is None for _, value in stores)
        if is_left and len(guards) == 1 and len(stores) == 2:  # noqa: PLR2004 - None, and what it is else
            test = guards[0].test
            return SourceRange(file.path, guards[0].lineno, test.end_lineno or test.lineno)
        place = _returned_as(file, function, place.node.id)
    return None


def _argument_named(file: SourceFile, lines: SourceRange, called: str, name: str) -> ast.expr | None:
    """Return what a call on some lines gives as an argument by name; None for several."""
    calls = (node for node in ast.walk(file.tree) if isinstance(node, ast.Call) and called_name(node) == called)
    calls = (each for each in calls if lines.holds(lines.file, each.lineno))
    given = [each.value for call in calls for each in call.keywords if each.arg == name]
    return given[0] if len(given) == 1 else None


def _returned_as(file: SourceFile, function: ast.AST, name: str) -> _Expression | None:
    """Return what a function of the file returns that ``a, b = self.make(x)`` binds to a name."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Tuple):
            names = [ast.unparse(each) for each in node.targets[0].elts]
            makes = [path for path in file.functions if last_part(path) == called_name(node.value)]
            if name in names and len(makes) == 1:
                returns = [each.value for each in ast.walk(file.functions[makes[0]]) if isinstance(each, ast.Return)]
                parts = returns[0].elts if len(returns) == 1 and isinstance(returns[0], ast.Tuple) else []
                if len(parts) == len(names):
                    return _Expression(parts[names.index(name)], makes[0])
    return None


def choice_before(line: Line, ran: Collection[tuple[str, int]]) -> SourceRange | None:
    """Return where it is chosen which tensor a line uses: the flag of ``head if tied else other``, if that is known.

    Args:
        line: The line.
        ran: The lines that have run operators, with their files.
    """
    chosen = chosen_before(line, ran)
    return chosen and (_flag_chosen_at(chosen) or chosen)


def _flag_chosen_at(lines: SourceRange) -> SourceRange | None:
    """Return where the flag is chosen that decides on some lines, ``head if tied else other``; None where none does."""
    around = function_around(lines)
    if around is None:
        return None
    file, name, function = around
    found = [
        node for node in ast.walk(function) if isinstance(node, ast.IfExp) and lines.holds(lines.file, node.lineno)
    ]
    test = found[0].test if len(found) == 1 else None
    test = test.operand if isinstance(test, ast.UnaryOp) else test
    return _followed(file, _Expression(test, name)) if isinstance(test, (ast.Name, ast.Attribute)) else None


def handed_on_at(line: SourceRange, text: str, ran: Collection[tuple[str, int]]) -> SourceRange | None:
    """Return where a number, or a list, is chosen that a line hands on to an operator; None where that is not known.

    Args:
        line: The line.
        text: The number.
        ran: The lines that have run operators, with their files: what these give is no number.
    """
    around = function_around(line)
    if around is None:
        return None
    file, name, function = around
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.expr) and line.holds(line.file, node.lineno)]
    within = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    within |= {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    handed = (
        _expression_of(file, _Expression(node, name), text)
        for node in nodes
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and id(node) not in within
    )
    known = [each for each in handed if each is not None]
    written = [each for each in known if any(is_literal(part, text) for part in ast.walk(each))]
    found = {
        each.lineno: SourceRange(file.path, each.lineno, each.end_lineno or each.lineno)
        for each in written or known
        # a name that is followed no further, or what a call makes, may be a tensor
        if not isinstance(each, (ast.Name, ast.Attribute, *(() if written else (ast.Call,))))
    }
    found = {line: place for line, place in found.items() if not any(place.holds(*each) for each in ran)}
    return next(iter(found.values())) if len(found) == 1 else None


def function_chosen_at(
    line: SourceRange, modules: Collection[str], made: Collection[SourceRange] = ()
) -> SourceRange | None:
    """Return where the function is chosen that a line calls as ``self.act(x)``; None for several, and for modules.

    Args:
        line: The line.
        modules: Names of the modules that the line's own module holds.
        made: The statements that make that module and those around it: of several calls of a class, theirs count.
    """
    around = function_around(line)
    if around is None:
        return None
    file, name, function = around
    called = {
        node.func.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and line.first <= node.lineno <= line.last
        and ast.unparse(node.func.value) == "self"
    }
    own = [each for each in called if each not in modules and file.made_at(holder(name), each)]
    if len(own) != 1:
        return None
    node = ast.Attribute(ast.Name("self", ast.Load()), own[0], ast.Load())
    return _followed(file, _Expression(node, name), made=made)


def _followed(
    file: SourceFile, place: _Expression, text: str = "", made: Collection[SourceRange] = ()
) -> SourceRange | None:
    found = _expression_of(file, place, text, made)
    return None if found is None else SourceRange(file.path, found.lineno, found.end_lineno or found.lineno)


def _expression_of(
    file: SourceFile, place: _Expression, text: str, made: Collection[SourceRange] = ()
) -> ast.expr | None:
    """Return the expression that chooses what another one hands on; None where that chooses it itself."""
    begin = place
    for _ in range(_STEPS):
        before = _NamesOf(file, place.function, text, made).before(place.node)
        if before is None:
            break
        place = before
    is_another = text and isinstance(place.node, ast.Constant) and not is_equal(ast.unparse(place.node), text)
    return None if place is begin or is_another else place.node


class _NamesOf:
    """What gives the names of a function their values."""

    def __init__(self, file: SourceFile, function: str, text: str, made: Collection[SourceRange]) -> None:
        self._file, self._name, self._function, self._text = file, function, file.function(function), text
        self._made = made

    def before(self, node: ast.expr) -> _Expression | None:
        """Return the one expression that an expression takes its value from; None where it makes a value of its own."""
        if isinstance(node, ast.Name):
            return self._of_name(node.id)
        if isinstance(node, ast.Attribute):
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
            return self._of_own(node.attr) if is_own else self._of_field(node.attr)
        if isinstance(node, ast.Subscript):  # ACTIVATIONS[name]: the name chooses
            is_named = isinstance(node.slice, (ast.Name, ast.Attribute)) and not _is_counter(self._function, node.slice)
            return _Expression(node.slice, self._name) if is_named else None
        return self._of_call(node) if isinstance(node, ast.Call) else None

    def _of_name(self, name: str) -> _Expression | None:
        function = self._function
        if function is None:
            return self._of_module(name)
        stores = [each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == name]
        stores = [each for each in stores if isinstance(each.ctx, ast.Store)]
        if stores:
            loops = (each for each in ast.walk(function) if isinstance(each, (ast.For, ast.comprehension)))
            values = [value for target, value in bindings_of(function) if target in stores]
            values += [loop.iter for loop in loops if loop.target in stores]  # one of these, as all are chosen
            always = {
                target.id
                for each in function.body
                if isinstance(each, ast.Assign)
                for target in each.targets
                if isinstance(target, ast.Name)
            }
            is_given = any(each.arg == name for each in parameters_of(function))  # and bound anew where it is None
            is_known = len(stores) == len(values) == 1 and (name in always or not is_given)
            return _Expression(values[0], self._name) if is_known else None
        parameter = next((each for each in parameters_of(function) if each.arg == name), None)
        return self._of_module(name) if parameter is None else self._of_parameter(function, parameter)

    def _of_module(self, name: str) -> _Expression | None:
        values = [
            each.value
            for each in self._file.tree.body
            if isinstance(each, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in each.targets)
        ]
        return _Expression(values[0], "") if len(values) == 1 else None

    def _of_parameter(self, function: ast.FunctionDef | ast.AsyncFunctionDef, parameter: ast.arg) -> _Expression | None:
        called = last_part(holder(self._name)) if last_part(self._name) == "__init__" else last_part(self._name)
        if (
            called != last_part(holder(self._name))
            and sum(last_part(each) == called for each in self._file.functions) > 1
        ):
            return None  # a call of one name may be of either
        given = [
            _Expression(value, inside)
            for inside, call in self._calls()
            if called_name(call) == called and (value := argument_of(call, function, parameter)) is not None
        ]
        of_made = [
            each for each in given if any(place.holds(self._file.path, each.node.lineno) for place in self._made)
        ]
        given = of_made or given
        return given[0] if len({each.node.lineno for each in given}) == 1 else None

    def _of_own(self, name: str) -> _Expression | None:
        class_name = holder(self._name)
        made = self._file.made_at(class_name, name)
        init = "" if made is None else self._file.around(made)
        function = self._file.function(init)
        if made is None or function is None or made.first == getattr(self._function, "lineno", 0):
            return None
        values = [
            value
            for target, value in bindings_of(function)
            if isinstance(target, ast.Attribute) and target.attr == name and target.lineno == made.first
        ]
        return _Expression(values[0], init) if len(values) == 1 else None

    def _of_field(self, name: str) -> _Expression | None:
        """Return what gives a field of a record, of which a file makes one alone, or what its property returns."""
        file = self._file
        given = [
            _Expression(each.value, inside)
            for inside, call in self._calls()
            for each in call.keywords
            if each.arg == name and (called_name(call) in file.own_classes or called_name(call) == "cls")
        ]
        if given:
            return given[0] if len({each.node.lineno for each in given}) == 1 else None
        methods = [path for path in file.functions if path.endswith(f".{name}")]
        return self._returned(methods[0]) if len(methods) == 1 else None

    def _of_call(self, node: ast.Call) -> _Expression | None:
        name = called_name(node)
        if name in _CASTS and len(node.args) == 1:
            return _Expression(node.args[0], self._name)
        known = [path for path in self._file.functions if last_part(path) == name]
        is_alone = len(known) == 1 and self._file.calls_of(name) == 1
        return self._returned(known[0]) if is_alone else None

    def _returned(self, path: str) -> _Expression | None:
        returns = (each for each in ast.walk(self._file.functions[path]) if isinstance(each, ast.Return))
        values = [each.value for each in returns if each.value is not None and _may_give(each.value, self._text)]
        return _Expression(values[0], path) if len(values) == 1 else None

    def _calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Yield the calls of the file, each with the innermost function around it."""
        for node in ast.walk(self._file.tree):
            if isinstance(node, ast.Call):
                yield self._file.around(SourceRange(self._file.path, node.lineno, node.lineno)), node


def bindings_of(function: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of the assignments of a function with what it is given."""
    for node in ast.walk(function):
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(target.elts, node.value.elts, strict=False)
                else:
                    yield target, node.value


def _may_give(node: ast.expr, text: str) -> bool:
    """Tell whether an expression may give a value: of a list the same names give the same numbers."""
    if not text or not isinstance(node, (ast.Tuple, ast.List)):
        return True
    try:
        numbers = list(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError):
        return True
    given = dict(zip(map(ast.unparse, node.elts), numbers, strict=False))
    return len(numbers) == len(node.elts) and [given[ast.unparse(each)] for each in node.elts] == numbers


def _is_counter(function: ast.AST | None, node: ast.expr) -> bool:
    """Tell whether a name counts the turns of a loop: what it takes was chosen by no name."""
    loops = (each for each in ast.walk(function) if isinstance(each, (ast.For, ast.comprehension))) if function else ()
    names = {part.id for each in loops for part in ast.walk(each.target) if isinstance(part, ast.Name)}
    return isinstance(node, ast.Name) and node.id in names
