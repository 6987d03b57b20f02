"""What expressions and bodies mean to the scanner: small nested tuples, made from libcst trees.

An expression is a tuple whose first item is its kind:

====================================  =====================================================
``("const", value)``                  a literal
``("ref", "a.b.c")``                  a name, or attributes of a name
``("attr", value, name)``             an attribute of anything else
``("call", func, args)``              ``args``: ``(keyword, "*", "**" or "", value, source)`` each
``("not", value)``                    and ``("and", values)``, ``("or", values)``
``("compare", left, pairs)``          ``pairs``: ``(operator, right)`` each
``("if", test, body, orelse)``        a ternary
``("tuple", items)``                  and ``list``, ``set``; ``("star", value)`` is unpacked in place
``("dict", pairs)``                   ``pairs``: ``(key, value)`` each
``("join", parts)``                   an f-string or implicit concatenation
``("show", value, source)``           a placeholder of an f-string
``("binary", operator, left, right)``  arithmetic
``("item", value, index)``            a subscript
``("lambda", body)``                  a function of one expression
``("code", source)``                  anything else
====================================  =====================================================

Tuples, because they are compared, hashed and stored by the thousand.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.facts import squeeze

Expr: TypeAlias = "tuple[Any, ...]"


def parse(text: str) -> Expr:
    """Return the meaning of an expression's source.

    Raises:
        BadSourceError: If libcst cannot parse it.
    """
    import libcst

    try:
        return expression(libcst.parse_expression(f"({text}\n)"))
    except libcst.ParserSyntaxError as error:
        raise BadSourceError(f"{error.message}: {squeeze(text)!r}") from error


def expression(node: Any) -> Expr:  # noqa: ANN401 - libcst is not typed here
    """Return the meaning of a libcst expression."""
    convert = _EXPRESSIONS.get(type(node).__name__)
    return ("code", source(node)) if convert is None else convert(node)


def source(node: Any) -> str:  # noqa: ANN401
    """Return a libcst node's source on one line, without the brackets around it."""
    import libcst

    node = node.with_changes(lpar=(), rpar=()) if getattr(node, "lpar", ()) and not _is_sequence(node) else node
    return squeeze(libcst.Module([]).code_for_node(node))


def _is_sequence(node: Any) -> bool:  # noqa: ANN401
    return type(node).__name__ in {"Tuple", "GeneratorExp"}


def _name(node: Any) -> Expr:  # noqa: ANN401
    constants = {"True": True, "False": False, "None": None}
    return ("const", constants[node.value]) if node.value in constants else ("ref", node.value)


def _attribute(node: Any) -> Expr:  # noqa: ANN401
    value = expression(node.value)
    return ("ref", f"{value[1]}.{node.attr.value}") if value[0] == "ref" else ("attr", value, node.attr.value)


def _literal(node: Any) -> Expr:  # noqa: ANN401
    return ("const", node.evaluated_value)


def _concatenated(node: Any) -> Expr:  # noqa: ANN401
    parts = (*_parts(expression(node.left)), *_parts(expression(node.right)))
    return join(parts)


def _parts(value: Expr) -> tuple[Expr, ...]:
    return tuple(value[1]) if value[0] == "join" else (value,)


def join(parts: tuple[Expr, ...]) -> Expr:
    """Return an f-string or concatenation, with neighbouring literals made one."""
    joined: list[Expr] = []
    for part in parts:
        if joined and part[0] == joined[-1][0] == "const" and type(part[1]) is type(joined[-1][1]):
            joined[-1] = ("const", joined[-1][1] + part[1])
        elif part != ("const", "") or not joined:
            joined.append(part)
    if len(joined) == 1 and joined[0][0] == "const":
        return joined[0]
    return ("join", tuple(joined))


def _formatted(node: Any) -> Expr:  # noqa: ANN401
    raw = "r" in node.prefix.lower()
    parts: list[Expr] = [("const", "")]
    for part in node.parts:
        if type(part).__name__ == "FormattedStringText":
            text = part.value.replace("{{", "{").replace("}}", "}")
            parts.append(("const", text if raw or "\\" not in text else _unescaped(text)))
        else:
            parts.append(("show", expression(part.expression), source(part.expression)))
    return join(tuple(parts))


def _unescaped(text: str) -> str:
    from ast import literal_eval

    quoted = text.replace('"', '\\"') if '\\"' not in text else text
    value = literal_eval(f'"""{quoted}"""')
    return str(value)


def _call(node: Any) -> Expr:  # noqa: ANN401
    args = (
        (arg.keyword.value if arg.keyword else arg.star, expression(arg.value), source(arg.value)) for arg in node.args
    )
    return ("call", expression(node.func), tuple(args))


def _unary(node: Any) -> Expr:  # noqa: ANN401
    value = expression(node.expression)
    kind = type(node.operator).__name__
    if kind == "Not":
        return ("not", value)
    if kind == "Minus" and value[0] == "const" and isinstance(value[1], (int, float)):
        return ("const", -value[1])
    return ("code", source(node))


def _boolean(node: Any) -> Expr:  # noqa: ANN401
    kind = type(node.operator).__name__.lower()
    left, right = expression(node.left), expression(node.right)
    first = left[1] if left[0] == kind and not node.left.lpar else (left,)
    return (kind, (*first, right))


def _comparison(node: Any) -> Expr:  # noqa: ANN401
    pairs = ((squeeze(_code(target.operator)), expression(target.comparator)) for target in node.comparisons)
    return ("compare", expression(node.left), tuple(pairs))


def _binary(node: Any) -> Expr:  # noqa: ANN401
    return ("binary", squeeze(_code(node.operator)), expression(node.left), expression(node.right))


def _code(node: Any) -> str:  # noqa: ANN401
    import libcst

    return str(libcst.Module([]).code_for_node(node))


def _ternary(node: Any) -> Expr:  # noqa: ANN401
    return ("if", expression(node.test), expression(node.body), expression(node.orelse))


def _sequence(node: Any) -> Expr:  # noqa: ANN401
    items = (
        ("star", expression(item.value)) if type(item).__name__ == "StarredElement" else expression(item.value)
        for item in node.elements
    )
    return (type(node).__name__.lower(), tuple(items))


def _dict(node: Any) -> Expr:  # noqa: ANN401
    if any(type(element).__name__ != "DictElement" for element in node.elements):
        return ("code", source(node))
    return ("dict", tuple((expression(element.key), expression(element.value)) for element in node.elements))


def _subscript(node: Any) -> Expr:  # noqa: ANN401
    indices = [element.slice for element in node.slice]
    if len(indices) != 1 or type(indices[0]).__name__ != "Index":
        return ("item", expression(node.value), ("code", source(node)))
    return ("item", expression(node.value), expression(indices[0].value))


def _lambda(node: Any) -> Expr:  # noqa: ANN401
    return ("lambda", expression(node.body))


_EXPRESSIONS = {
    "Attribute": _attribute,
    "BinaryOperation": _binary,
    "BooleanOperation": _boolean,
    "Call": _call,
    "Comparison": _comparison,
    "ConcatenatedString": _concatenated,
    "Dict": _dict,
    "Ellipsis": lambda node: ("const", ...),  # noqa: ARG005 - one row of the table
    "Float": _literal,
    "FormattedString": _formatted,
    "IfExp": _ternary,
    "Integer": _literal,
    "Lambda": _lambda,
    "List": _sequence,
    "Name": _name,
    "Set": _sequence,
    "SimpleString": _literal,
    "Subscript": _subscript,
    "Tuple": _sequence,
    "UnaryOperation": _unary,
}
