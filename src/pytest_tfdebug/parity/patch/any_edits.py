"""Edits of a statement as mistakes are made, whatever is known of what is wrong: what fits there is taken instead.

Example: ``q / sqrt(spec.width)`` may have been meant as ``q / sqrt(spec.heads)``, ``q * sqrt(spec.width)`` or ``q``;
of names and attributes only those that held something of the same kind when the line ran are taken. Which of all is
right, only a run of it tells.
"""

from __future__ import annotations

import ast
import itertools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.parity.patch.source_edits import Edit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_tfdebug.parity.patch.lines_seen import NameHeld, Seen
    from pytest_tfdebug.parity.patch.source_edits import EditedStatement
    from pytest_tfdebug.records import ChangeKind

_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&", ast.BitOr: "|"}
_ARITHMETIC, _LOGIC = ("+", "-", "*", "/"), ("&", "|")
_COMPARED = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_BESIDE = {"<": ("<=", ">"), "<=": ("<", ">="), ">": (">=", "<"), ">=": (">", "<="), "==": ("!=",), "!=": ("==",)}
_ACTIVATIONS = (
    "torch.nn.functional.gelu({})",
    'torch.nn.functional.gelu({}, approximate="tanh")',
    "torch.nn.functional.silu({})",
    "torch.nn.functional.relu({})",
    "torch.tanh({})",
    "torch.sigmoid({})",
    "torch.nn.functional.softplus({})",
)
_NAMES_OF_ACTIVATIONS = frozenset({"gelu", "silu", "relu", "tanh", "sigmoid", "softplus"})
#: What cuts off the first or the last of a tensor, along any of three axes.
_CUTS = ("[1:]", "[:-1]", "[:, 1:]", "[:, :-1]", "[..., 1:]", "[..., :-1]")
#: What puts a tensor into another order.
_MOVES = (".transpose(1, 2)", ".transpose(0, 1)", ".flip(-1)")
#: Other views of a list.
_VIEWS = ("[::-1]", "[::2]", "[1::2]")
#: So many in a row are put into every order; of more two are exchanged.
_ORDERED = 4
#: Whole numbers up to this, or up to the one that stands there, are taken for another: more would be a huge tensor.
_LARGEST = 4096
#: What tells apart texts that may stand for each other: ``".q.weight"`` for ``".k.weight"``, and not for ``"mean"``.
_PLACES = re.compile(r"[^\W_]+(?:_+[^\W_]+)*")
#: Axes in a pattern of einops, and in an einsum without spaces.
_AXES, _LETTERS = re.compile(r"[^\W\d]\w*"), re.compile(r"[^\W\d]")
#: Arguments that calls of torch are often made without, and what is wrong then.
_FORGOTTEN = {
    "pad": (("value", "1"),),
    "var": (("correction", "0"),),
    "std": (("correction", "0"),),
    "interpolate": (("align_corners", "True"), ("antialias", "True")),
    "grid_sample": (("align_corners", "True"),),
    "scaled_dot_product_attention": (("is_causal", "True"),),
    "avg_pool1d": (("ceil_mode", "True"), ("count_include_pad", "False")),
    "avg_pool2d": (("ceil_mode", "True"), ("count_include_pad", "False")),
    "max_pool1d": (("ceil_mode", "True"),),
    "max_pool2d": (("ceil_mode", "True"),),
}
#: Kinds of what an expression may give that is not known before it runs.
_ANY = ("tensor", "number", "")


class OtherSide(NamedTuple):
    """What the other side knows."""

    numbers: Sequence[float] = ()  # that its configuration holds
    names: Sequence[str] = ()  # of its parameters


class AnyEdit(NamedTuple):
    """An edit that was not asked for by anything known."""

    edit: Edit
    kind: ChangeKind
    rank: int  # how likely such a mistake is: 0 for what is taken for another one, 2 for what is lacking altogether

    @property
    def may_be_huge(self) -> bool:
        """Whether it may be of a size: another one may make any tensor."""
        return self.kind in ("number", "operand", "order")


def any_edits(statement: EditedStatement, seen: Seen, known: OtherSide) -> Iterator[AnyEdit]:
    """Yield every edit of a statement that fits what its function held, each once."""
    told = set()
    place = _Spot(statement, seen, known)
    for node in place.nodes:
        for each in itertools.chain(*(make(place, node) for kind, make in _MAKERS if isinstance(node, kind))):
            if each.edit not in told:
                told.add(each.edit)
                yield each
    if isinstance(statement.node, (ast.AugAssign, ast.Expr)):
        yield AnyEdit(statement.instead(statement.node, "pass"), "left out", 1)
    if isinstance(statement.node, ast.If):
        yield from _negated(place, statement.node.test)


class _Spot:
    """A statement, and what can stand in it."""

    def __init__(self, statement: EditedStatement, seen: Seen, known: OtherSide) -> None:
        self.statement, self.seen, self.known = statement, seen, known
        self.nodes = list(_inside(statement.node))
        self.made = getattr(statement.node, "value", None)  # what it assigns or returns, as a whole
        compared = (each for each in self.nodes if isinstance(each, ast.Compare))
        self.compared = {id(part) for each in compared for part in ast.walk(each)}
        called = (each.func for each in self.nodes if isinstance(each, ast.Call))
        owners = (each.value for each in self.nodes if isinstance(each, ast.Attribute))
        targets = (each for each in self.nodes if isinstance(getattr(each, "ctx", None), (ast.Store, ast.Del)))
        # what is written to: with another one something would change that is not the port's own
        self._written = {id(part) for each in targets for part in ast.walk(each)}
        self._holders = {id(each) for each in (*called, *owners)}

    def text(self, node: ast.expr) -> str:
        return self.statement.source(node)

    def edit(self, node: ast.expr, text: str, kind: ChangeKind, rank: int = 0) -> AnyEdit:
        return AnyEdit(self.statement.instead(node, text), kind, rank)

    def is_read(self, node: ast.expr) -> bool:
        """Tell whether an expression is read, and no part of what is written to."""
        return isinstance(getattr(node, "ctx", None), ast.Load) and id(node) not in self._written

    def is_value(self, node: ast.expr) -> bool:
        """Tell whether an expression is taken as it is, and not called, or asked for an attribute."""
        is_loaded = isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and id(node) not in self._written
        return is_loaded and id(node) not in self._holders

    def held(self, node: ast.expr) -> NameHeld | None:
        """Return what a name or an attribute held; None for what is not known."""
        if isinstance(node, ast.Name):
            return self.seen.names.get(node.id)
        if isinstance(node, ast.Attribute):
            return self.seen.parts.get(self.text(node.value), {}).get(node.attr)
        return None

    def kind(self, node: ast.expr) -> str:
        """Return of what kind an expression is; empty where that shows in a run alone, ``global`` for other names."""
        held = self.held(node)
        if held is not None:
            return held.kind
        return "global" if isinstance(node, ast.Name) else ""

    def own(self, *kinds: str) -> Iterator[str]:
        """Yield what the class around calls what it holds of some kinds: ``self.norm``."""
        parts = self.seen.parts.get("self", {})
        return (f"self.{name}" for name, held in parts.items() if held.kind in kinds)

    def locals(self, *kinds: str) -> Iterator[str]:
        return (name for name, held in self.seen.names.items() if held.kind in kinds and name != "self")


def _inside(statement: ast.stmt) -> Iterator[Any]:
    """Yield the nodes of a statement, without those of statements in it."""
    todo: list[ast.AST] = [statement]
    while todo:
        for child in ast.iter_child_nodes(todo.pop(0)):
            if not isinstance(child, (ast.stmt, ast.ExceptHandler)):
                yield child
                todo.append(child)


def _others(place: _Spot, node: ast.expr) -> Iterator[AnyEdit]:
    """``x`` for ``residual``, ``cfg.width`` for ``cfg.heads``."""
    held = place.held(node)
    if held is None or not place.is_read(node) or place.text(node) == "self":
        return
    if isinstance(node, ast.Name):
        beside, prefix = place.seen.names, ""
    else:
        owner = place.text(node.value) if isinstance(node, ast.Attribute) else ""
        beside, prefix = place.seen.parts[owner], f"{owner}."
    own = f"{prefix}{node.id}" if isinstance(node, ast.Name) else place.text(node)
    for name, other in beside.items():
        if held.fits(other) and f"{prefix}{name}" not in (own, "self") and not _is_huge(other, held):
            yield place.edit(node, f"{prefix}{name}", "operand", 0 if held.is_like(other) else 1)


def _is_huge(new: NameHeld, old: NameHeld) -> bool:
    if not isinstance(new.value, int) or not isinstance(old.value, (int, float)):
        return False
    return new.value > max(_LARGEST, old.value)


def _constants(place: _Spot, node: ast.Constant) -> Iterator[AnyEdit]:
    """``True`` for ``False``, ``2`` for ``1``, ``1e-6`` for ``1e-5`` where the other side has it."""
    value = node.value
    if isinstance(value, bool):
        yield place.edit(node, repr(not value), "number")
    elif isinstance(value, (int, float)):
        if isinstance(value, int):
            yield from (
                place.edit(node, repr(each), "number") for each in (value + 1, value - 1, -value) if each != value
            )
        for each in place.known.numbers:
            is_fit = isinstance(value, float) or (isinstance(each, int) and each <= max(_LARGEST, value))
            if each != value and is_fit:
                yield place.edit(node, repr(each), "number", 1)


def _texts(place: _Spot, node: ast.Constant) -> Iterator[AnyEdit]:
    """``"k_proj"`` for ``"v_proj"``: what stands in the same function, or beside it in the names of parameters."""
    if not isinstance(node.value, str) or id(node) in place.compared:
        return
    quote = place.text(node)[:1]
    function = place.statement.function
    inside = (each.value for each in ast.walk(function) if isinstance(each, ast.Constant)) if function else ()
    texts = [each for each in inside if isinstance(each, str) and _PLACES.sub("", each) == _PLACES.sub("", node.value)]
    for each in dict.fromkeys((*texts, *_beside(node.value, place.known.names))):
        if each != node.value and (quote in "\"'" or not {*"{}"} & {*each}):
            yield place.edit(node, repr(each) if quote in "\"'" else each, "operand", int(each not in texts))


def _patterns(place: _Spot, node: ast.Constant) -> Iterator[AnyEdit]:
    """``"b n (d h) -> b h n d"`` for ``"b n (h d) -> b h n d"``: two axes of one tensor, of einops and of an einsum."""
    text, quote = node.value, place.text(node)[:1]
    if not isinstance(text, str) or "->" not in text or quote not in "\"'":
        return
    axes = [*(_AXES if re.search(r"\w\s+\w", text) else _LETTERS).finditer(text)]
    for one, two in itertools.combinations(axes, 2):
        between = text[one.end() : two.start()]
        if one[0] != two[0] and not re.search("->|,", between):
            other = f"{text[: one.start()]}{two[0]}{between}{one[0]}{text[two.end() :]}"
            yield place.edit(node, repr(other), "order")


def _beside(text: str, names: Sequence[str]) -> Iterator[str]:
    """Yield what else stands in dotted names where a text does: ``v_proj`` for ``k_proj``."""
    parts = [each for each in text.split(".") if each]
    if not parts:
        return
    before = set()
    split = [name.split(".") for name in names]
    for words in split:
        for at in range(len(words) - len(parts) + 1):
            if words[at : at + len(parts)] == parts:
                before.add(tuple(words[:at]))
    for words in split:
        for head in before:
            at = len(head)
            if tuple(words[:at]) == head and len(words) > at:
                yield text.replace(parts[0], words[at], 1)
                yield text.replace(".".join(parts), ".".join(words[at : at + len(parts)]))


def _operations(place: _Spot, node: ast.BinOp) -> Iterator[AnyEdit]:
    """``a - b`` for ``a + b``, ``a``, ``b - a``, and ``(a + b) * c`` for ``a + b * c``."""
    sign = _SIGNS.get(type(node.op))
    if sign is None:
        return
    left, right = place.text(node.left), place.text(node.right)
    for other in _LOGIC if sign in _LOGIC else _ARITHMETIC:
        if other != sign:
            yield place.edit(node, f"({left} {other} {right})", "call")
    yield place.edit(node, f"({left})", "left out")
    yield place.edit(node, f"({right})", "left out")
    if sign in ("-", "/"):
        yield place.edit(node, f"({right} {sign} {left})", "order")
    yield from _bracketed(place, node, sign)


def _bracketed(place: _Spot, node: ast.BinOp, sign: str) -> Iterator[AnyEdit]:
    """``f(a) + b`` as ``f(a + b)``, ``a * b + c`` as ``a * (b + c)``."""
    for part, other, is_first in ((node.left, node.right, True), (node.right, node.left, False)):
        text = place.text(other)
        if isinstance(part, ast.Call) and part.args:
            given = place.text(part.args[0])
            joined = f"{given} {sign} {text}" if is_first else f"{text} {sign} {given}"
            yield place.edit(node, _with(place, part, part.args[0], joined), "order")
        inner = _SIGNS.get(type(part.op)) if isinstance(part, ast.BinOp) else None
        if isinstance(part, ast.BinOp) and inner is not None:
            one, two = place.text(part.left), place.text(part.right)
            if is_first:
                yield place.edit(node, f"({one} {inner} ({two} {sign} {text}))", "order")
                yield place.edit(node, f"(({one} {sign} {text}) {inner} {two})", "order")
            else:
                yield place.edit(node, f"(({text} {sign} {one}) {inner} {two})", "order")


def _with(place: _Spot, node: ast.expr, part: ast.expr, text: str) -> str:
    """Return the text of an expression with another one in the place of a part of it."""
    (start, end), (first, last) = place.statement.span(node), place.statement.span(part)
    whole = place.statement.text
    return f"{whole[start:first]}{text}{whole[last:end]}"


def _signs(place: _Spot, node: ast.UnaryOp) -> Iterator[AnyEdit]:
    """``mask`` for ``~mask``."""
    yield place.edit(node, f"({place.text(node.operand)})", "left out")


def _comparisons(place: _Spot, node: ast.Compare) -> Iterator[AnyEdit]:
    """``i < j`` for ``i <= j``; what is compared with a text is a variant that was asked for."""
    is_variant = any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in ast.walk(node))
    sign = _COMPARED.get(type(node.ops[0])) if len(node.ops) == 1 and not is_variant else None
    for other in _BESIDE.get(sign or "", ()):
        yield place.edit(node, f"({place.text(node.left)} {other} {place.text(node.comparators[0])})", "call")


def _negated(place: _Spot, test: ast.expr) -> Iterator[AnyEdit]:
    """``if not causal:`` for ``if causal:``, and ``a if not tied else b``."""
    if not isinstance(test, (ast.Compare, ast.BoolOp)):  # of which the parts are edited
        yield place.edit(test, f"(not {place.text(test)})", "call")


def _choices(place: _Spot, node: ast.IfExp) -> Iterator[AnyEdit]:
    """``b if tied else a`` for ``a if tied else b``."""
    yield from _negated(place, node.test)


def _conditions(place: _Spot, node: ast.BoolOp) -> Iterator[AnyEdit]:
    """``if given:`` for ``if given and self.training:``, and ``or`` for ``and``."""
    texts = [place.text(each) for each in node.values]
    sign, other = (" and ", " or ") if isinstance(node.op, ast.And) else (" or ", " and ")
    for at in range(len(texts)):
        yield place.edit(node, f"({sign.join(texts[:at] + texts[at + 1 :])})", "left out")
    yield place.edit(node, f"({other.join(f'({each})' for each in texts)})", "call")


#: What takes the diagonal itself, if it is given no other.
_TRIANGLES = frozenset({"triu", "tril"})


def _calls(place: _Spot, node: ast.Call) -> Iterator[AnyEdit]:
    """``x`` for ``norm(x)``, ``f(b, a)`` for ``f(a, b)``, ``f(g(x))`` for ``g(f(x))``."""
    given = [place.text(each) for each in node.args]
    named = [(each.arg, place.text(each.value)) for each in node.keywords]
    called = place.text(node.func)
    if isinstance(node.func, ast.Attribute) and place.kind(node.func.value) not in ("global", "callable"):
        yield place.edit(node, f"({place.text(node.func.value)})", "left out")
    if node.args and not isinstance(node.args[0], ast.Starred):
        yield place.edit(node, f"({given[0]})", "left out")
    for order in _orders(given):
        yield place.edit(node, _called(called, order, named), "order")
    for at in range(len(named)):
        yield place.edit(node, _called(called, given, named[:at] + named[at + 1 :]), "left out")
    for order in _orders([text for _, text in named]):
        names = (name for name, _ in named)
        yield place.edit(node, _called(called, given, [*zip(names, order, strict=True)]), "order")
    inner = node.args[0] if node.args else None
    if isinstance(inner, ast.Call) and inner.args:  # the other one first
        first = _with(place, node, inner, place.text(inner.args[0]))
        yield place.edit(node, _with(place, inner, inner.args[0], first), "order")


def _of_torch(place: _Spot, node: ast.Call) -> Iterator[AnyEdit]:
    """``gelu(x)`` for ``silu(x)``, ``x.triu(1)`` for ``x.triu()``, ``x.var(-1, correction=0)`` for ``x.var(-1)``."""
    given = [place.text(each) for each in node.args]
    named = [(each.arg, place.text(each.value)) for each in node.keywords]
    called = place.text(node.func)
    function = called.rpartition(".")[2]
    if given and function in _NAMES_OF_ACTIVATIONS:
        yield from (place.edit(node, each.format(given[0]), "call") for each in _ACTIVATIONS)
    is_method = isinstance(node.func, ast.Attribute) and place.kind(node.func.value) != "global"
    if function in _TRIANGLES and not named and len(given) == (0 if is_method else 1):
        yield from (place.edit(node, _called(called, [*given, each], []), "number") for each in ("1", "-1"))
    for name, text in _FORGOTTEN.get(function, ()):
        if name not in [each for each, _ in named]:
            yield place.edit(node, _called(called, given, [*named, (name, text)]), "number", 1)


def _called(function: str, given: Sequence[str], named: Sequence[tuple[str | None, str]]) -> str:
    rest = [f"{name}={text}" if name is not None else f"**{text}" for name, text in named]
    return f"{function}({', '.join([*given, *rest])})"


def _orders(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the other orders of some texts: all of a few, those with two exchanged of more."""
    if 1 < len(texts) <= _ORDERED:
        yield from ([*order] for order in itertools.permutations(texts) if [*order] != [*texts])
    elif len(texts) > _ORDERED:
        for one, two in itertools.combinations(range(len(texts)), 2):
            other = [*texts]
            other[one], other[two] = other[two], other[one]
            yield other


def _lists(place: _Spot, node: ast.Tuple | ast.List) -> Iterator[AnyEdit]:
    """``k, q`` for ``q, k``: what a line gives, and what it is given."""
    if len(node.elts) > 1:
        start, end = place.statement.span(node.elts[0])[0], place.statement.span(node.elts[-1])[1]
        for order in _orders([place.text(each) for each in node.elts]):
            yield AnyEdit(Edit(start, end, ", ".join(order)), "order", 0)


def _slices(place: _Spot, node: ast.Slice) -> Iterator[AnyEdit]:
    """``x[: n + 1]`` for ``x[:n]``."""
    for bound in filter(None, (node.lower, node.upper)):
        yield place.edit(bound, f"{place.text(bound)} + 1", "number", 1)
        yield place.edit(bound, f"{place.text(bound)} - 1", "number", 1)


def _lacking(place: _Spot, node: ast.expr) -> Iterator[AnyEdit]:
    """What was forgotten: ``-x``, ``~x``, ``x.mT``, ``x[1:]``, ``self.norm(x)``, ``x * keep``, ``x + self.bias``."""
    kind, text = place.kind(node), place.text(node)
    whole = f"({text})" if isinstance(node, ast.BinOp) else text
    if kind == "tensor" and place.is_read(node) and not place.is_value(node):  # a method of it is called
        yield from (place.edit(node, f"{whole}{other}", "order", 1) for other in (".mT", *_MOVES))
    if not place.is_value(node) or kind not in (*_ANY, "list"):
        return
    if kind != "list":
        yield place.edit(node, f"-{whole}", "call", 1)
    if kind in ("tensor", ""):
        yield place.edit(node, f"~{whole}", "call", 1)
        yield place.edit(node, f"{whole}.mT", "order", 1)
        yield from (place.edit(node, f"{whole}{other}", "order", 2) for other in _MOVES)
        yield from (place.edit(node, f"{each}({text})", "call", 1) for each in place.own("callable"))
    if kind in ("tensor", "") and not isinstance(node, (ast.Attribute, ast.BinOp)):
        yield from (place.edit(node, f"{whole}{cut}", "operand", 2) for cut in _CUTS)
    if kind in ("list", ""):
        yield from (place.edit(node, f"{whole}{view}", "order", 1) for view in _VIEWS)
    if kind != "list" and (isinstance(node, (ast.Name, ast.Call)) or node is place.made):
        for each in (*place.locals("tensor", "number"), *place.own("tensor", "number")):
            if each != text:
                yield place.edit(node, f"({whole} * {each})", "operand", 1 if "." in each else 2)
                yield place.edit(node, f"({whole} + {each})", "operand", 1 if "." in each else 2)


_MAKERS: tuple[tuple[Any, Callable[[_Spot, Any], Iterator[AnyEdit]]], ...] = (
    ((ast.Name, ast.Attribute), _others),
    (ast.Constant, _constants),
    (ast.Constant, _texts),
    (ast.Constant, _patterns),
    (ast.BinOp, _operations),
    (ast.UnaryOp, _signs),
    (ast.Compare, _comparisons),
    (ast.IfExp, _choices),
    (ast.BoolOp, _conditions),
    (ast.Call, _calls),
    (ast.Call, _of_torch),
    ((ast.Tuple, ast.List), _lists),
    (ast.Slice, _slices),
    ((ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.BinOp), _lacking),
)
