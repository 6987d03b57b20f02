"""What an expression's value is, where its source decides it."""

from __future__ import annotations

import operator
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.facts import Class, Function, Value
from pytest_tfdebug.scan.workspace import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from pytest_tfdebug.scan.classes import Linked, Question
    from pytest_tfdebug.scan.runner import Runner
    from pytest_tfdebug.scan.syntax import Expr
    from pytest_tfdebug.scan.workspace import Source, Workspace

_DEPTH = 12  # of constants defined by constants


#: Stands in a reason for the name of the class, so that classes can share what a body does to them.
CLASS_NAME = "\x02"
#: What is asked of a class whose name matters: no other class answers alike.
NAME = ("name",)
_CLASS_NAMES = (("ref", "self.__class__.__name__"), ("ref", "cls.__name__"))


class Unknown:
    """The value of an expression that the source does not decide."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        raise TypeError("an unknown value has no truth")


UNKNOWN = Unknown()
#: The value of a parameter to which a test passes itself.
SELF = object()


class Scope(NamedTuple):
    """Where an expression stands: its module, the class whose instance ``self`` is, local values, the class body.

    ``text`` is that of the function, whose other names may be local too.
    """

    source: Source
    cls: Linked | None = None
    local: Mapping[str, Any] = {}
    depth: int = 0
    body: Class | None = None
    text: str = ""


class Evaluator:
    """Evaluates expressions against the constants of a repository and the attributes of a class."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._attributes: dict[int, Any] = {}
        self._ordered: dict[frozenset[Question], tuple[Question, ...]] = {}
        self._numbers: dict[tuple[Hashable, ...], int] = {}
        self.asked: set[Question] = set()
        self.runner: Runner

    def text(self, text: str, scope: Scope) -> Any:  # noqa: ANN401 - a value is of any type
        """Return the value of an expression's source."""
        return self.value(self._workspace.parser.expression(text), scope) if text else UNKNOWN

    def value(self, expression: Expr, scope: Scope) -> Any:  # noqa: ANN401
        """Return the value of an expression, or ``UNKNOWN``."""
        evaluate = _KINDS.get(expression[0])
        return UNKNOWN if evaluate is None or scope.depth > _DEPTH else evaluate(self, expression, scope)

    def truth(self, expression: Expr, scope: Scope) -> bool | None:
        """Return whether an expression is true, or None where the source does not decide it."""
        value = self.value(expression, scope)
        return None if isinstance(value, Unknown) else bool(value)

    def words(self, expression: Expr, scope: Scope) -> str:
        """Return a reason as a string; what is not known in it stands in braces as its source."""
        if expression[0] == "join":
            return "".join(self._part(part, scope) for part in expression[1])
        value = self.value(expression, scope)
        if isinstance(value, Unknown) and expression[0] == "binary":
            left, right = (self.words(side, scope) for side in expression[2:])
            return f"{left}{right}" if expression[1] == "+" else left
        if isinstance(value, Unknown):
            return f"{{{describe(expression)}}}" if expression[0] != "const" else ""
        return "" if value is None else str(value)

    def _part(self, part: Expr, scope: Scope) -> str:
        if part[0] == "show" and part[1] in _CLASS_NAMES and scope.cls is not None:
            return CLASS_NAME
        value = self.value(part[1] if part[0] == "show" else part, scope)
        return f"{{{part[2]}}}" if isinstance(value, Unknown) else str(value)

    def attribute(self, cls: Linked, name: str) -> Any:  # noqa: ANN401
        """Return the value that a class's MRO gives an attribute of its instances, or ``UNKNOWN``."""
        self.asked.add(("value", name))
        found = cls.find(name)
        if found is None or cls.writes(name):
            return UNKNOWN
        definer, binding = found
        if not isinstance(binding, Value) or not binding.is_sure:
            return UNKNOWN
        if id(binding) not in self._attributes:
            self._attributes[id(binding)] = self.text(binding.text, Scope(definer.source, depth=1))
        return self._attributes[id(binding)]

    def answer(self, cls: Linked, questions: frozenset[Question]) -> int:
        """Return a number for how a class answers questions: classes with the same number answer alike."""
        if not questions:
            return 0
        number = cls.answers.get(questions)
        if number is None:
            answers = self.told(cls, self._ordered.setdefault(questions, tuple(questions)))
            number = cls.answers[questions] = self._numbers.setdefault(answers, len(self._numbers) + 1)
        return number

    def told(self, cls: Linked, questions: Sequence[Question]) -> tuple[Hashable, ...]:
        """Return what a class answers to each of some questions."""
        told = cls.told
        for question in questions:
            if question not in told:
                told[question] = _QUESTIONS[question[0]](self, cls, *question[1:])
        return tuple([told[question] for question in questions])

    def reference(self, dotted: str, scope: Scope) -> Any:  # noqa: PLR0911, ANN401
        """Return the value of a name."""
        first, _, rest = dotted.partition(".")
        if scope.local.get(first) is SELF:
            first, dotted = "self", f"self.{rest}"
        elif first in scope.local:
            return UNKNOWN if rest else scope.local[first]
        if first in {"self", "cls"} and scope.cls is not None:
            if ("ref", f"{first}.{rest}") in _CLASS_NAMES:
                self.asked.add(NAME)
                return scope.cls.name
            return self.attribute(scope.cls, rest) if rest and "." not in rest else UNKNOWN
        member = scope.body.members.get(dotted) if scope.body is not None else None
        if isinstance(member, Value):
            return self.text(member.text, Scope(scope.source, depth=scope.depth + 1)) if member.is_sure else UNKNOWN
        found = self._workspace.resolve(scope.source, dotted)
        if isinstance(found, Found):
            if isinstance(found.binding, Value) and found.binding.is_sure:
                if _is_assigned(first, scope.text):
                    return UNKNOWN
                return self.text(found.binding.text, Scope(found.source, depth=scope.depth + 1))
            if isinstance(found.binding, (Class, Function)):
                return found.binding  # as an object: it is true
        return UNKNOWN


@cache
def _is_assigned(name: str, text: str) -> bool:
    """Tell whether the text of a function may bind a name, which is then local in all of it."""
    if name not in text:
        return False
    targets = rf"(?:[\w*]+[ \t]*,[ \t]*)*\*?{name}[ \t]*(?:[,:][^=\n]*)?"  # also one of several, and with a type
    value = r"=(?!=)(?![^\n]*,[ \t]*(?:\n|$))"  # but no argument on a line of its own
    assignment = rf"(?:^|[\n;:])[ \t]*{targets}[-+*/%&|^@<>]*{value}"
    others = rf"\bfor\b[^:\n]*\b{name}\b[^:\n]*\bin\b|\bas\s+{name}\b|\b{name}\s*:=|\bimport\b[^\n]*\b{name}\b"
    return re.search(f"{assignment}|{others}", text) is not None


def describe(expression: Expr) -> str:
    """Return how an expression that has no value reads."""
    if expression[0] in {"ref", "code"}:
        return str(expression[1])
    if expression[0] == "call":
        return f"{describe(expression[1])}({', '.join(arg[2] for arg in expression[2])})"
    if expression[0] == "attr":
        return f"{describe(expression[1])}.{expression[2]}"
    return "..."


def _const(_: Evaluator, expression: Expr, scope: Scope) -> Any:  # noqa: ANN401, ARG001
    return expression[1]


def _ref(evaluator: Evaluator, expression: Expr, scope: Scope) -> Any:  # noqa: ANN401
    return evaluator.reference(expression[1], scope)


def _not(evaluator: Evaluator, expression: Expr, scope: Scope) -> Any:  # noqa: ANN401
    truth = evaluator.truth(expression[1], scope)
    return UNKNOWN if truth is None else not truth


def _and_or(evaluator: Evaluator, expression: Expr, scope: Scope) -> Any:  # noqa: ANN401
    """Return what decides an ``and`` (its first false value) or ``or`` (its first true one)."""
    decides = expression[0] == "or"
    unknown, value = False, UNKNOWN
    for item in expression[1]:
        value = evaluator.value(item, scope)
        if isinstance(value, Unknown):
            unknown = True
        elif bool(value) is decides:
            return value
    return UNKNOWN if unknown else value


def _items(evaluator: Evaluator, expression: Expr, scope: Scope) -> Any:  # noqa: ANN401
    items: list[Any] = []
    for item in expression[1]:
        if item[0] == "star":
            value = evaluator.value(item[1], scope)
            if not isinstance(value, (tuple, list)):
                return UNKNOWN
            items.extend(value)
        else:
            items.append(evaluator.value(item, scope))
    return tuple(items) if expression[0] == "tuple" else items


def _dict(evaluator: Evaluator, expression: Expr, scope: Scope) -> Any:  # noqa: ANN401
    if any(key[0] != "const" for key, _ in expression[1]):
        return UNKNOWN
    return {key[1]: evaluator.value(value, scope) for key, value in expression[1]}


def _item(evaluator: Evaluator, expression: Expr, scope: Scope) -> Any:  # noqa: ANN401
    holder, index = (evaluator.value(part, scope) for part in expression[1:])
    if _has_unknown([holder, index]):
        return UNKNOWN
    try:
        return holder[index]
    except (KeyError, IndexError, TypeError):
        return UNKNOWN


def _join(evaluator: Evaluator, expression: Expr, scope: Scope) -> Any:  # noqa: ANN401
    values = [evaluator.value(part[1] if part[0] == "show" else part, scope) for part in expression[1]]
    return UNKNOWN if _has_unknown(values) else "".join(map(str, values))


def _ternary(evaluator: Evaluator, expression: Expr, scope: Scope) -> Any:  # noqa: ANN401
    truth = evaluator.truth(expression[1], scope)
    if truth is not None:
        return evaluator.value(expression[2 if truth else 3], scope)
    if _differ(*expression[2:]):
        return UNKNOWN
    body, orelse = (evaluator.value(branch, scope) for branch in expression[2:])
    return body if not _has_unknown([body, orelse]) and body == orelse else UNKNOWN


def _differ(body: Expr, orelse: Expr) -> bool:
    """Tell, without a value, that two expressions are not equal: ``(A, B) if available() else ()``."""
    is_same_kind = body[0] == orelse[0] and body[0] in {"tuple", "list", "dict"}
    return is_same_kind and len(body[1]) != len(orelse[1]) and all(item[0] != "star" for item in (*body[1], *orelse[1]))


def _compare(evaluator: Evaluator, expression: Expr, scope: Scope) -> Any:  # noqa: ANN401
    left = evaluator.value(expression[1], scope)
    for symbol, expr in expression[2]:
        right = evaluator.value(expr, scope)
        looked_into = [left] if isinstance(right, dict) and symbol in {"in", "not in"} else [left, right]
        if _has_unknown([left, right]) or symbol not in _COMPARISONS or _is_nested_unknown(*looked_into):
            return UNKNOWN
        try:
            if not _COMPARISONS[symbol](left, right):
                return False
        except TypeError:
            return UNKNOWN
        left = right
    return True


def _binary(evaluator: Evaluator, expression: Expr, scope: Scope) -> Any:  # noqa: ANN401
    left, right = (evaluator.value(side, scope) for side in expression[2:])
    if _has_unknown([left, right]) or _is_nested_unknown(left, right) or expression[1] not in _ARITHMETIC:
        return UNKNOWN
    try:
        return _ARITHMETIC[expression[1]](left, right)
    except (TypeError, ValueError, KeyError):
        return UNKNOWN


def _call(evaluator: Evaluator, expression: Expr, scope: Scope) -> Any:  # noqa: PLR0911, ANN401
    function, args = expression[1], expression[2]
    if any(arg[0] for arg in args):
        return UNKNOWN
    if function[0] == "attr" and function[2] == "format":
        values = [evaluator.value(function[1], scope), *(evaluator.value(arg[1], scope) for arg in args)]
        if _has_unknown(values) or _is_nested_unknown(*values):
            return UNKNOWN
        try:
            return str(values[0]).format(*values[1:])
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return UNKNOWN
    if function in (("ref", "getattr"), ("ref", "hasattr")):
        return _lookup(evaluator, function[1], args, scope)
    if function[0] != "ref" or function[1] not in _FUNCTIONS:
        return UNKNOWN
    values = [evaluator.value(arg[1], scope) for arg in args]
    if _has_unknown(values):
        return UNKNOWN
    try:
        return _FUNCTIONS[function[1]](*values)
    except (TypeError, ValueError):
        return UNKNOWN


def _lookup(evaluator: Evaluator, name: str, args: tuple[Any, ...], scope: Scope) -> Any:  # noqa: ANN401
    """Evaluate ``getattr(self, "name", default)`` and ``hasattr(self, "name")``."""
    if len(args) < 2 or args[0][1] not in (("ref", "self"), ("ref", "cls")) or args[1][1][0] != "const":  # noqa: PLR2004
        return UNKNOWN
    if scope.cls is None:
        return UNKNOWN
    attribute = args[1][1][1]
    evaluator.asked.update((("has", attribute), ("value", attribute)))
    if scope.cls.find(attribute) is not None:
        return True if name == "hasattr" else evaluator.attribute(scope.cls, attribute)
    if not _lacks(scope.cls, attribute):
        return UNKNOWN
    if name == "hasattr":
        return False
    return evaluator.value(args[2][1], scope) if len(args) > 2 else UNKNOWN  # noqa: PLR2004


def _lacks(cls: Linked, name: str) -> bool:
    """Tell whether the instances of a class surely have no attribute of this name."""
    return cls.kin.is_closed and cls.find(name) is None and not cls.writes(name)


def _has_unknown(values: list[Any]) -> bool:
    return any(isinstance(value, Unknown) for value in values)


def _is_nested_unknown(*values: Any) -> bool:  # noqa: ANN401
    held = (list(value.values()) if isinstance(value, dict) else value for value in values)
    return any(_has_unknown(list(items)) for items in held if isinstance(items, (tuple, list)))


def _identity(found: tuple[Linked, Any] | None) -> int:
    return 0 if found is None else id(found[1])


def _frozen(value: Any) -> Hashable:  # noqa: ANN401
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return (type(value), *map(_frozen, value))
    if isinstance(value, dict):
        return (dict, *((key, _frozen(item)) for key, item in value.items()))
    return value if value is None or isinstance(value, (str, int, float, bool)) else id(value)


#: What a class can be asked -> how it answers; a definition answers with its identity.
_QUESTIONS: dict[str, Callable[..., Hashable]] = {
    "after": lambda _, cls, definer, name: _identity(cls.after(definer, name)),
    "helper": lambda evaluator, cls, name: _identity(evaluator.runner.helper(cls, name)),
    "has": lambda _, cls, name: (cls.find(name) is not None, _lacks(cls, name)),
    "name": lambda _, cls: cls.name,
    "value": lambda evaluator, cls, name: _frozen(evaluator.attribute(cls, name)),
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "is": operator.is_,
    "is not": operator.is_not,
    "in": lambda item, items: item in items,
    "not in": lambda item, items: item not in items,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "%": operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"len": len, "bool": bool, "str": str, "int": int, "tuple": tuple}
_KINDS: dict[str, Callable[[Evaluator, Expr, Scope], Any]] = {
    "and": _and_or,
    "binary": _binary,
    "call": _call,
    "compare": _compare,
    "const": _const,
    "dict": _dict,
    "if": _ternary,
    "item": _item,
    "join": _join,
    "list": _items,
    "not": _not,
    "or": _and_or,
    "ref": _ref,
    "set": _items,
    "tuple": _items,
}
