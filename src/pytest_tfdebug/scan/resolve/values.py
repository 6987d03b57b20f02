"""What an expression's value is, where its source decides it."""

from __future__ import annotations

import operator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import libcst as cst

from pytest_tfdebug.scan.read import syntax
from pytest_tfdebug.scan.read.bindings import BoundFunction, BoundValue, Class
from pytest_tfdebug.scan.read.syntax import UNKNOWN, Unknown
from pytest_tfdebug.scan.resolve.workspace import File, Found, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from pytest_tfdebug.scan.resolve.classes import Dependency, Linked

_DEPTH = 12  # of constants defined by constants
_LONGEST = 10_000  # items of a value, at most
#: Stands in a reason for the name of the class, so that classes can share what a body does to them.
CLASS_NAME = "\x02"
#: The dependency on the name of a class, which no other class has.
NAME = ("name",)
_SELVES = frozenset({"self", "cls"})
_CLASS_NAMES = frozenset({"self.__class__.__name__", "cls.__name__"})
#: The value of a parameter to which a test passes itself.
SELF = object()


class Scope(NamedTuple):
    """Where an expression stands: its module, the class whose instance ``self`` is, local values, the class body.

    ``function`` is the one that it stands in, whose other names may be local too.
    """

    file: File
    cls: Linked | None = None
    local: Mapping[str, Any] = {}
    depth: int = 0
    body: Class | None = None
    function: BoundFunction | None = None


class Evaluator:
    """Evaluates expressions against the constants of a repository and the attributes of a class.

    Attributes:
        dependencies: What of classes was looked up since this was last emptied.
        skipping_helper: Returns the method that a class has under a name, if it could skip.
        resolve: Returns what a class has for a dependency; for a definition, its identity.
        resolved: Returns that for some dependencies; classes for which it is the same share an outcome.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.dependencies: set[Dependency] = set()
        self.skipping_helper: Callable[[Linked, str], tuple[Linked, BoundFunction] | None] = lambda *_: None
        self.resolve = cache(self._resolve)
        # without an order: two equal sets may have their items in different ones
        self.resolved = cache(lambda cls, dependencies: frozenset([(it, self.resolve(cls, it)) for it in dependencies]))

    def bound(self, file: File, value: BoundValue, depth: int = 0) -> Any:
        """Return the value that a name of a module is bound to."""
        return self.value(self._workspace.node(file, value), Scope(file, depth=depth))

    def value(self, node: Any, scope: Scope) -> Any:
        """Return the value of an expression, or ``UNKNOWN``."""
        if scope.depth > _DEPTH:
            return UNKNOWN
        evaluate = _KINDS.get(type(node))
        return evaluate(self, node, scope) if evaluate is not None else syntax.constant(node)

    def bind(self, params: Sequence[str], args: Sequence[syntax.Argument], scope: Scope) -> dict[str, Any]:
        """Return what the parameters of a function are, but for ``self``, in a call of it."""
        local: dict[str, Any] = {name: UNKNOWN for name in params if name not in _SELVES}
        positional = iter(params)
        for keyword, value in args:
            name = keyword or next(positional, "")
            if name in local:
                is_self = scope.cls is not None and syntax.dotted(value) in _SELVES
                local[name] = SELF if is_self else self.value(value, scope)
        return local

    def truth(self, node: Any, scope: Scope) -> bool | None:
        """Return whether an expression is true, or None where the source does not decide it."""
        value = self.value(node, scope)
        return None if isinstance(value, Unknown) else bool(value)

    def words(self, node: Any, scope: Scope) -> str:
        """Return a reason as a string; what is not known in it stands in braces as its source."""
        if isinstance(node, (cst.FormattedString, cst.ConcatenatedString)) and syntax.constant(node) is UNKNOWN:
            return "".join(self._part(part, scope) for part in syntax.text_parts(node))
        value = self.value(node, scope)
        if isinstance(value, Unknown) and isinstance(node, cst.BinaryOperation):
            left = self.words(node.left, scope)
            return f"{left}{self.words(node.right, scope)}" if isinstance(node.operator, cst.Add) else left
        if not _has_words(value):
            return f"{{{syntax.describe(node)}}}" if node is not None else ""
        return "" if value is None else _shown(value)

    def _part(self, part: Any, scope: Scope) -> str:
        if not isinstance(part, cst.FormattedStringExpression):
            return str(part)
        if scope.cls is not None and syntax.dotted(part.expression) in _CLASS_NAMES:
            return CLASS_NAME
        value = self.value(part.expression, scope)
        return _shown(value) if _has_words(value) else f"{{{syntax.source(part.expression)}}}"

    def attribute(self, cls: Linked, name: str) -> Any:
        """Return the value that a class's MRO gives an attribute of its instances, or ``UNKNOWN``."""
        self.dependencies.add(("value", name))
        definer, binding = cls.find(name) or (cls, None)
        is_sure = isinstance(binding, BoundValue) and binding.is_sure and not cls.writes(name)
        return self.bound(definer.file, binding, depth=1) if is_sure and isinstance(binding, BoundValue) else UNKNOWN

    def _resolve(self, cls: Linked, dependency: Dependency) -> Hashable:
        return _DEPENDENCIES[dependency[0]](self, cls, *dependency[1:])

    def reference(self, dotted: str, scope: Scope) -> Any:
        """Return the value of a name; a class or function stands for itself, as it is true."""
        first, _, rest = dotted.partition(".")
        if scope.local.get(first) is SELF:
            first, dotted = "self", f"self.{rest}"
        elif first in scope.local:
            return UNKNOWN if rest else scope.local[first]
        if first in _SELVES and scope.cls is not None:
            if dotted in _CLASS_NAMES:
                self.dependencies.add(NAME)
                return scope.cls.name
            return self.attribute(scope.cls, rest) if rest and "." not in rest else UNKNOWN
        member = scope.body.members.get(dotted) if scope.body is not None else None
        own = Found(scope.file, member) if isinstance(member, BoundValue) else None
        found = own or self._workspace.resolve(scope.file, dotted)
        if not isinstance(found, Found) or not isinstance(found.binding, BoundValue):
            return found.binding if isinstance(found, Found) else UNKNOWN
        is_local = own is None and scope.function is not None and scope.function.is_local(first)
        if not found.binding.is_sure or is_local:
            return UNKNOWN
        return self.bound(found.file, found.binding, scope.depth + 1)


def _has_words(value: Any) -> bool:
    """Tell whether a value reads in a reason as it does in the run: it is known, and no class, function or instance."""
    return not isinstance(value, (Unknown, Class, BoundFunction)) and value is not SELF


def _shown(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # a number of more digits than Python writes
        return "..."


def _name(evaluator: Evaluator, node: Any, scope: Scope) -> Any:
    dotted = syntax.dotted(node)
    return evaluator.reference(dotted, scope) if dotted else syntax.constant(node)


def _unary(evaluator: Evaluator, node: Any, scope: Scope) -> Any:
    if not isinstance(node.operator, cst.Not):
        return syntax.constant(node)
    truth = evaluator.truth(node.expression, scope)
    return UNKNOWN if truth is None else not truth


def _and_or(evaluator: Evaluator, node: Any, scope: Scope) -> Any:
    """Return what decides an ``and`` (its first false value) or ``or`` (its first true one)."""
    decides = isinstance(node.operator, cst.Or)
    unknown, value = False, UNKNOWN
    for item in syntax.operands(node):
        value = evaluator.value(item, scope)
        if isinstance(value, Unknown):
            unknown = True
        elif bool(value) is decides:
            return value
    return UNKNOWN if unknown else value


def _items(evaluator: Evaluator, node: Any, scope: Scope) -> Any:
    items: list[Any] = []
    for element in node.elements:
        value = evaluator.value(element.value, scope)
        if not isinstance(element, cst.StarredElement):
            items.append(value)
        elif isinstance(value, (tuple, list)) and len(value) <= _LONGEST:
            items.extend(value)
        else:
            return UNKNOWN
    return tuple(items) if isinstance(node, cst.Tuple) else items


def _dict(evaluator: Evaluator, node: Any, scope: Scope) -> Any:
    keys = [syntax.constant(each.key) if isinstance(each, cst.DictElement) else UNKNOWN for each in node.elements]
    if _has_unknown(keys):
        return UNKNOWN
    return {key: evaluator.value(each.value, scope) for key, each in zip(keys, node.elements, strict=True)}


def _item(evaluator: Evaluator, node: Any, scope: Scope) -> Any:
    indices = [element.slice for element in node.slice]
    if len(indices) != 1 or not isinstance(indices[0], cst.Index):
        return UNKNOWN
    return _computed(operator.getitem, evaluator.value(node.value, scope), evaluator.value(indices[0].value, scope))


def _computed(function: Callable[..., Any], *values: Any) -> Any:
    """Return what a function makes of some values; ``UNKNOWN`` if one is unknown or the function refuses them."""
    try:
        return UNKNOWN if _has_unknown(values) else function(*values)
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError):
        return UNKNOWN


def _text(evaluator: Evaluator, node: Any, scope: Scope) -> Any:
    parts = [
        evaluator.value(part.expression, scope) if isinstance(part, cst.FormattedStringExpression) else part
        for part in syntax.text_parts(node)
    ]
    if len(parts) == 1 and isinstance(parts[0], (str, bytes)):
        return parts[0]
    return "".join(map(_shown, parts)) if all(map(_has_words, parts)) else UNKNOWN


def _ternary(evaluator: Evaluator, node: Any, scope: Scope) -> Any:
    truth = evaluator.truth(node.test, scope)
    if truth is not None:
        return evaluator.value(node.body if truth else node.orelse, scope)
    body, orelse = evaluator.value(node.body, scope), evaluator.value(node.orelse, scope)
    return body if not _has_unknown([body, orelse]) and body == orelse else UNKNOWN


def _compare(evaluator: Evaluator, node: Any, scope: Scope) -> Any:
    left = evaluator.value(node.left, scope)
    for target in node.comparisons:
        kind = type(target.operator)
        right = evaluator.value(target.comparator, scope)
        looked_into = [left] if isinstance(right, dict) and kind in {cst.In, cst.NotIn} else [left, right]
        holds = UNKNOWN if _is_nested_unknown(*looked_into) else _computed(_COMPARISONS[kind], left, right)
        if holds is not True:
            return holds
        left = right
    return True


def _binary(evaluator: Evaluator, node: Any, scope: Scope) -> Any:
    left, right = evaluator.value(node.left, scope), evaluator.value(node.right, scope)
    if not isinstance(node.operator, cst.Add) or _is_nested_unknown(left, right):
        return UNKNOWN
    return _computed(operator.add, left, right)


def _call(evaluator: Evaluator, node: Any, scope: Scope) -> Any:
    args, function = syntax.arguments(node), syntax.dotted(node.func)
    if any(arg.keyword for arg in args):
        return UNKNOWN
    if function in {"getattr", "hasattr"}:
        return _lookup(evaluator, function, args, scope)
    if function in _FUNCTIONS:
        return _computed(_FUNCTIONS[function], *(evaluator.value(arg.value, scope) for arg in args))
    return UNKNOWN


def _lookup(evaluator: Evaluator, name: str, args: Sequence[syntax.Argument], scope: Scope) -> Any:
    """Evaluate ``getattr(self, "name", default)`` and ``hasattr(self, "name")``."""
    holder, attribute, *default = [*(arg.value for arg in args), None, None]
    text = syntax.constant(attribute)
    if syntax.dotted(holder) not in _SELVES or scope.cls is None or not isinstance(text, str):
        return UNKNOWN
    evaluator.dependencies.update((("has", text), ("value", text)))
    if scope.cls.find(text) is not None:
        return True if name == "hasattr" else evaluator.attribute(scope.cls, text)
    if not _lacks(scope.cls, text):
        return UNKNOWN
    return False if name == "hasattr" else evaluator.value(default[0], scope)


def _lacks(cls: Linked, name: str) -> bool:
    """Tell whether the instances of a class surely have no attribute of this name."""
    return cls.is_closed and cls.find(name) is None and not cls.writes(name)


def _has_unknown(values: Iterable[Any]) -> bool:
    return any(isinstance(value, Unknown) for value in values)


def _is_nested_unknown(*values: Any) -> bool:
    held = (list(value.values()) if isinstance(value, dict) else value for value in values)
    return any(_has_unknown(items) for items in held if isinstance(items, (tuple, list)))


def _identity(found: tuple[Linked, Any] | None) -> int:
    return 0 if found is None else id(found[1])


def _frozen(value: Any) -> Hashable:
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return (type(value), *map(_frozen, value))
    if isinstance(value, dict):
        return (dict, *((key, _frozen(item)) for key, item in value.items()))
    return value if value is None or isinstance(value, (str, int, float, bool)) else id(value)


#: Kind of a dependency -> what a class has for it; for a definition, its identity.
_DEPENDENCIES: dict[str, Callable[..., Hashable]] = {
    "after": lambda _, cls, definer, name: _identity(cls.after(definer, name)),
    "helper": lambda evaluator, cls, name: _identity(evaluator.skipping_helper(cls, name)),
    "has": lambda _, cls, name: (cls.find(name) is not None, _lacks(cls, name)),
    "name": lambda _, cls: cls.name,
    "value": lambda evaluator, cls, name: _frozen(evaluator.attribute(cls, name)),
}
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    cst.Equal: operator.eq, cst.NotEqual: operator.ne, cst.LessThan: operator.lt, cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt, cst.GreaterThanEqual: operator.ge, cst.Is: operator.is_, cst.IsNot: operator.is_not,
    cst.In: lambda item, items: item in items, cst.NotIn: lambda item, items: item not in items,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {"len": len, "bool": bool, "str": str, "int": int, "tuple": tuple}
_KINDS: dict[type, Callable[[Evaluator, Any, Scope], Any]] = {
    cst.Attribute: _name, cst.BinaryOperation: _binary, cst.BooleanOperation: _and_or, cst.Call: _call,
    cst.Comparison: _compare, cst.ConcatenatedString: _text, cst.Dict: _dict, cst.FormattedString: _text,
    cst.IfExp: _ternary, cst.List: _items, cst.Name: _name, cst.Set: _items, cst.Subscript: _item, cst.Tuple: _items,
    cst.UnaryOperation: _unary,
}  # fmt: skip
