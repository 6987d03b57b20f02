"""What may be wrong at one operator of a forward: a table of functions, each of which yields changes of one kind."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import islice, permutations
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it

from pytest_tfdebug.parity.proof.known_numbers import NONE_KNOWN, KnownNumbers, lists_of
from pytest_tfdebug.parity.proof.transforms import ACTIVATIONS, ONE, ZERO, reorderings, transforms
from pytest_tfdebug.tracing.values.tape import Ref, Target, put, results_of, written

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.proof.forward import Edit, Forward, Given, Run
    from pytest_tfdebug.parity.proof.other_steps import OtherStep
    from pytest_tfdebug.tracing.values.tape import Step

    _Path = tuple[Any, ...]

#: Constants below this are there to keep something from being 0.
_SMALL = 2e-2
_EPSILONS = (0.0, 1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
_BINARY: dict[str, Callable[..., Any]] = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
_REDUCED: dict[str, Callable[..., Any]] = {"mean": torch.mean, "sum": torch.sum, "amax": torch.amax}
_COMPARED: dict[str, Callable[..., Any]] = {"lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}
_EQUAL: dict[str, Callable[..., Any]] = {"eq": torch.eq, "ne": torch.ne}
_BOTH: dict[str, Callable[..., Any]] = {"and": torch.logical_and, "or": torch.logical_or}
_GATES: dict[str, Callable[..., Any]] = {"softmax": partial(torch.softmax, dim=-1), "sigmoid": torch.sigmoid}
#: Operators, the functions that may stand in their place, how many arguments these take, 0 for all, and how unlikely it
#: is: activations are the likeliest, and the end of a range that counts or does not.
_FAMILIES: tuple[tuple[frozenset[str], dict[str, Callable[..., Any]], int, float], ...] = (
    (frozenset({*ACTIVATIONS, "hardtanh"}), {**ACTIVATIONS}, 1, 1.0),
    (frozenset({"softmax", "sigmoid"}), _GATES, 1, 1.0),
    (frozenset({*_COMPARED, *_EQUAL}), {**_COMPARED, **_EQUAL}, 0, 1.0),
    (frozenset(_BINARY), _BINARY, 2, 2.0),
    (frozenset(_REDUCED), _REDUCED, 0, 2.0),
    (frozenset({"logical_and", "logical_or", "bitwise_and", "bitwise_or"}), _BOTH, 2, 2.0),
)
#: A step that was forgotten: one that the other side does there, and any activation.
_COST_OF_KNOWN, _COST_OF_ACTIVATION = 1.5, 2.0
#: What 0 costs more than another number.
_LESS_LIKELY = 0.1
#: What a number costs more in whose place stands one that the other side holds as well, and not the new one.
_OF_BOTH = 1.0
#: What a constant is called, by the operator or by the argument.
_CALLED = {
    "mul": "factor",
    "div": "divisor",
    "pow": "exponent",
    "add": "summand",
    "sub": "summand",
    **dict.fromkeys(_COMPARED, "bound"),
}
#: Operators whose result nothing is said about by leaving them out: they hand their operand on.
_HANDED_ON = ("view", "_unsafe_view", "clone", "_to_copy", "detach", "alias", "expand")
#: Kinds of changes that do a step more: a forward that they mend lacks it.
LENGTHENED = ("added", "scaled", "activated")
#: Kinds of changes that do a step less.
SHORTENED = ("left out", "call left out")
#: Kinds of changes that read elements in another order.
REORDERING = ("order", "order of elements", "parts", "sizes")
#: Where operators take a bias, among their arguments.
_PLACE_OF_BIAS = {"addmm": 0, "convolution": 2, "native_layer_norm": 3}
#: Operators after which a value may have been added that is missing.
_SUMMED = ("add", "mul", "addmm", "mm", "bmm", "view", "_unsafe_view", "embedding", "convolution", "native_layer_norm")
#: Operators whose lists of integers somebody chose one by one: margins and steps, no shapes and axes.
_WITH_LISTS = frozenset(
    {
        *("constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d"),
        *("convolution", "max_pool2d_with_indices", "avg_pool2d", "roll"),
    }
)
#: Flags of operators that no code chooses: how a result is computed, and how many axes it has.
_NO_CHOICES = ("half_to_float", "keepdim", "non_blocking", "copy", "pin_memory", "is_coalesced", "accumulate")
#: Values that an operand may be replaced by, and that may be added.
_OTHERS, _ADDED = 24, 16
#: Steps back to a value that a result may be left out for.
_BACK = 12


@dataclass(slots=True)
class Change:
    """A change of one operator."""

    cost: float  # how unlikely it is: the least are tried first
    text: str  # what is other then, "eps 1e-06 instead of 1e-05"
    place: int  # the step that it changes
    edit: Edit  # what the step does then
    kind: str  # what kind of change it is, "number"
    key: Hashable  # what it does, in words that hold for the same line of another layer
    instead: dict[int, torch.Tensor] | None = None  # values that are given instead, where no step is changed
    operand: int | None = None  # the value that is given in another form, or in whose place another is
    other: int | None = None  # the value that is used instead or as well
    call: int | None = None  # ``index`` of the call that is left out or made otherwise
    old: str = ""  # what is changed, as it is written or called
    new: str = ""  # what is there then; empty for nothing, or where the text says it
    more: Mapping[int, Edit] | None = None  # what other steps do then
    is_known: bool = False  # whether the new number is one that the other side holds

    @property
    def drops(self) -> bool:
        """Whether something that is computed counts for nothing then."""
        return self.kind in SHORTENED or self.new in (ZERO, ONE)

    @property
    def edits(self) -> dict[int, Edit]:
        """What each step does then."""
        return {} if self.instead else {self.place: self.edit, **(self.more or {})}


def together(changes: Iterable[Change]) -> tuple[dict[int, Edit], dict[int, torch.Tensor]]:
    """Return what each step does, and which values are given instead, if some changes are made at once."""
    edits: dict[int, Edit] = {}
    instead: dict[int, torch.Tensor] = {}
    for change in changes:
        edits |= change.edits
        instead |= change.instead or {}
    return edits, instead


class At(NamedTuple):
    """An operator that may be changed."""

    forward: Forward  # where it ran
    place: int  # its place on the tape
    step: Step
    scope: Sequence[int]  # values that it could have been given, the nearest first
    far: float = 0.0  # what is added to the cost of each change
    known: KnownNumbers = NONE_KNOWN  # the numbers that the other side has

    @property
    def operands(self) -> list[tuple[_Path, int]]:
        """Where each tensor stands among the arguments, and its value; images are no operands."""
        return [(path, int(each)) for path, each in self.step.given if isinstance(each, Ref) and each >= 0]

    @property
    def is_write(self) -> bool:
        """Whether it writes in place."""
        return any(isinstance(each, Target) for _, each in self.step.given)

    @property
    def result(self) -> torch.Tensor:
        """What it gave first."""
        return self.forward.tensor(next(out for out in self.step.outs if out is not None))

    @property
    def described(self) -> str:
        """What its result is called."""
        return self.forward.described(self.forward.outs_of(self.place)[0])

    def change(
        self,
        cost: float,
        text: str,
        edit: Edit,
        kind: str,
        *key: Hashable,
        old: str = "",
        new: str = "",
        is_known: bool = False,
    ) -> Change:
        """Return a change of it."""
        operator, cost = self.step.operator, cost + self.far
        key = (operator, kind, *key)
        return Change(cost, text, self.place, edit, kind, key, old=old or operator, new=new, is_known=is_known)


def changes_at(at: At) -> Iterator[Change]:
    """Yield every change of an operator that is worth a trial."""
    if any(out is not None for out in at.step.outs):
        for generator in GENERATORS:
            yield from generator(at)


# --- constants


def numbers(at: At) -> Iterator[Change]:
    """Another constant: an epsilon, a scale, an axis, a number of steps."""
    lengths = {size for _, ref in at.operands for size in at.forward.tensor(ref).shape if size > 1}
    for path, old in at.step.given:
        if isinstance(old, bool) or not isinstance(old, (int, float)) or isinstance(old, Ref):
            continue
        name, ends = _name_of(at.step, path, old), _ends_of(at, path)
        known = list(at.known.at(at.step.operator, old)) if isinstance(old, float) else []
        for new, told, cost in known:
            text = f"{_name_of(at.step, path, new, name)} {new:.6g}, {told}, instead of {old:.6g}"
            edit, was = partial(_with, path, new), repr(old)
            yield at.change(cost, text, edit, "number", path, new, old=was, new=repr(new), is_known=True)
        tried = {each.number for each in known}
        found = (each for each in _grid(old, lengths, at.step.operator) if each not in tried)
        for new in (each for each in found if ends is None or ends[0] <= each < ends[1]):
            text = f"{name} {new:.6g} instead of {old:.6g}"
            cost = _cost_of(at.step.operator, old) + (_LESS_LIKELY if new == 0 else 0.0)
            cost += _OF_BOTH if isinstance(old, float) and at.known.is_theirs(old) else 0.0
            yield at.change(cost, text, partial(_with, path, new), "number", path, new, old=repr(old), new=repr(new))


def lists(at: At) -> Iterator[Change]:
    """Another list of integers, that of the other side or in another order: what is padded, or stridden over."""
    for path, old in lists_of(at.step) if at.step.operator in _WITH_LISTS else ():
        theirs = sorted(each for each in at.known.lists.get(at.step.operator, ()) if len(each) == len(old))
        pairs = [*zip(old[1::2], old[::2], strict=False)]
        even = tuple(max(pair) for pair in pairs for _ in pair)
        for new in dict.fromkeys((*theirs, even, tuple(each for pair in pairs for each in pair), old[::-1])):
            if new != old:
                told, cost = (f", as {at.known.side} has,", 0.8) if new in theirs else ("", 1.1 if new == even else 1.2)
                text = f"{_argument_of(at.step, path)} {new}{told} instead of {old}"
                edit = partial(_with, path, list(new))
                yield at.change(cost, text, edit, "number", path, new, old=f"{old}", new=f"{new}")


def flags(at: At) -> Iterator[Change]:
    """A flag the other way: ``align_corners``, ``is_causal``, ``count_include_pad``."""
    for path, old in ((path, old) for path, old in at.step.given if isinstance(old, bool)):
        name, edit = _argument_of(at.step, path), partial(_with, path, not old)
        if name not in _NO_CHOICES:
            text = f"{name} {not old} instead of {old}"
            yield at.change(1.5, text, edit, "number", path, old=repr(old), new=repr(not old))


def _grid(old: float, lengths: set[int], operator: str) -> list[float]:
    if isinstance(old, int):
        found: set[float] = {old + 1, old - 1, -1, -2, 0, 1, 2, 3}
        if operator in ("mul", "div"):  # a width, of a head or of the part of it that is turned
            found |= {old * factor for factor in (2, 4)} | {old // part for part in (2, 4) if old % part == 0}
    elif 0 < old < _SMALL:
        found = set(_EPSILONS)
    else:
        root = 2**0.5
        found = {1.0, old * 2, old / 2, old * old, math.sqrt(abs(old)), 1 / (old or 1), -old, 0.0}
        found |= {old * root, old / root, *(size**-0.5 for size in lengths)}
    return sorted(new for new in found if not math.isclose(new, old, rel_tol=1e-9))


def _cost_of(operator: str, old: float) -> float:
    if isinstance(old, int):
        return 1 if operator in _COMPARED else 2
    return 1 if 0 < old < _SMALL else 1.5


def _name_of(step: Step, path: _Path, value: float, otherwise: str = "") -> str:
    """Return what a constant is called, by its size, its operator and its argument; a known name unless it is tiny."""
    operator = step.operator.rstrip("_")
    if (
        isinstance(value, float)
        and 0 < value < _SMALL
        and operator in ("add", "native_layer_norm", "native_group_norm")
    ):
        return "eps"
    if otherwise:
        return otherwise
    argument = _argument_of(step, path)
    if (operator, argument) == ("pow", "self"):
        return "base"
    return _CALLED.get(operator, argument) if argument in ("other", "exponent", "self", "value") else argument


def _argument_of(step: Step, path: _Path) -> str:
    """Return what an operator calls an argument."""
    is_first = step.func is not None and path[0] == 0 and not any(isinstance(each, Target) for _, each in step.given)
    return step.func._schema.arguments[path[1]].name if step.func and is_first else str(path[-1])  # noqa: SLF001 - public to who dispatches


def _ends_of(at: At, path: _Path) -> tuple[int, int] | None:
    """Return between what a number that counts axes, or the elements of one, can lie; None for any other."""
    argument, first = _argument_of(at.step, path), next((ref for _, ref in at.operands), None)
    if first is None or not argument.startswith(("dim", "index")):
        return None
    tensor = at.forward.tensor(first)
    if argument.startswith("dim"):
        return -max(tensor.dim(), 1), max(tensor.dim(), 1)
    axis = next((each for each in at.step.args[1:] if type(each) is int), 0)  # ``select(self, dim, index)``
    return (-tensor.shape[axis], tensor.shape[axis]) if -tensor.dim() <= axis < tensor.dim() else None


def orders(at: At) -> Iterator[Change]:
    """Axes, the parts of a split, or what is put together in another order."""
    step = at.step
    if step.operator in ("cat", "stack"):
        for order in _other_orders(len(step.args[0])):
            text = f"what it puts together in the order {order}"
            yield at.change(1.5, text, partial(_put_together, order), "order", order)
    if step.operator == "permute":
        axes = tuple(step.args[1])
        for places in _other_orders(len(axes)):
            order = tuple(axes[place] for place in places)
            text, edit = f"axes {order} instead of {axes}", partial(_with, (0, 1), list(order))
            yield at.change(2, text, edit, "order", order, old=f"{axes}", new=f"{order}")
    if step.operator in ("view", "_unsafe_view", "reshape"):
        yield from _sizes(at)
    if step.operator.startswith(("split", "chunk", "unbind")):
        for order in _other_orders(len(step.outs)):
            yield at.change(1.5, f"its parts in the order {order}", partial(_parts, order), "parts", order)


def _other_orders(count: int) -> Iterator[tuple[int, ...]]:
    """Yield every other order of some things; none of more than four, for five have 120."""
    orders_ = permutations(range(count)) if count <= 4 else iter(())  # noqa: PLR2004
    return islice(orders_, 1, None)


def _sizes(at: At) -> Iterator[Change]:
    """Two sizes of a shape exchanged, and the axes put back: ``(heads, -1)`` for ``(-1, heads)``."""
    sizes = at.result.shape
    for axis in range(len(sizes) - 1):
        if sizes[axis] > 1 and sizes[axis + 1] > 1:
            swapped = [*sizes[:axis], sizes[axis + 1], sizes[axis], *sizes[axis + 2 :]]
            text = f"sizes {tuple(swapped)}, axes {axis} and {axis + 1} exchanged"
            yield at.change(3, text, partial(_viewed, swapped, axis), "sizes", axis)


def scaled(at: At, factors: Iterable[float]) -> Iterator[Change]:
    """The result times a number: a scale that no table of usual numbers has, such as ``1 / sqrt(3 * head_size)``."""
    for factor in sorted(factors) if not at.is_write else ():
        text = f"{at.described} times {factor:.6g}"
        yield at.change(
            2.2,
            text,
            partial(_applied, partial(torch.mul, other=factor)),
            "scaled",
            factor,
            new=repr(factor),
        )


def activated(at: At, known: Iterable[OtherStep]) -> Iterator[Change]:
    """A step that was forgotten: one that the other side does to a result like this one, or any activation."""
    if at.is_write:
        return
    names = set[str]()
    for name, where, function in ((each.name, each.where, each.function) for each in known):
        names.add(name)
        text, edit = f"{name} of {at.described}, as {where} does,", partial(_applied, function)
        yield at.change(_COST_OF_KNOWN, text, edit, "activated", name, new=name)
    for name, function in {**ACTIVATIONS, **_GATES}.items():
        if name not in names:
            text = f"{name} of {at.described}"
            yield at.change(_COST_OF_ACTIVATION, text, partial(_applied, function), "activated", name, new=name)


# --- operators


def functions(at: At) -> Iterator[Change]:
    """Another function of the same operands."""
    operator, count = at.step.operator.strip("_"), len(at.operands)
    own = f"{operator}_tanh" if at.step.kwargs.get("approximate") == "tanh" else operator
    if at.is_write:
        return
    for names, functions_, needs, cost in _FAMILIES:
        if operator in names and count >= needs:
            for name, function in functions_.items():
                if name != own:
                    text, edit = f"{name} instead of {own}", partial(_computed, function, needs or None)
                    yield at.change(cost, text, edit, "function", name, old=own, new=name)
    if operator in ("sub", "div") and count == 2:  # noqa: PLR2004 - both
        yield at.change(2, f"the operands of {operator} exchanged", _other_way_round, "exchanged")
    if operator == "var":
        text, new = "mean of squares instead of var", "mean of squares"
        yield at.change(1, text, _mean_of_squares, "function", new, old=operator, new=new)
    if operator == "native_layer_norm":
        yield at.change(2, "rms norm instead of layer norm", _rms_norm, "function", "rms_norm")


def left_out(at: At) -> Iterator[Change]:
    """The operator left out, or all since a value that has its form."""
    if at.is_write:
        yield at.change(1.5, f"{at.step.operator} left out", _unwritten, "left out")
        return
    if at.step.operator in _HANDED_ON:
        return
    forward, result, operands = at.forward, at.result, [ref for _, ref in at.operands]
    before: list[int] = []
    edge = list(operands)
    while edge and len(before) < _BACK:
        index = edge.pop(0)
        before.append(index)
        edge += forward.operands_of(index)
    for depth, index in enumerate(dict.fromkeys(before)):
        tensor, is_operand = forward.tensor(index), index in operands
        if tensor.dtype != result.dtype or not _is_as_large(tensor.shape, result.shape):
            continue
        others = [each for each in operands if each != index and forward.tensor(each).dim()]
        what = f"{at.step.operator} of {forward.described(others[0])}" if others else at.step.operator
        text = f"{what} left out" if is_operand else f"all from {forward.described(index)} on left out"
        cost = 1.5 if is_operand else 2.2
        key = operands.index(index) if is_operand else ("back", depth)
        change = at.change(
            cost, text, partial(only, index), "left out", key, old=_starts(at, index, is_operand=is_operand)
        )
        change.other = None if is_operand else index
        yield change


def _starts(at: At, index: int, *, is_operand: bool) -> str:
    """Return what is called that is left out: an operator, or all from a value on."""
    return at.step.operator if is_operand else f"all from {at.forward.described(index)} on"


def _is_as_large(shape: torch.Size, other: torch.Size) -> bool:
    """Tell whether a shape is another one, or that before some axes were reduced to one element."""
    return len(shape) == len(other) and all(there in (1, here) for here, there in zip(shape, other, strict=True))


# --- operands


def operands_in_another_form(at: At) -> Iterator[Change]:
    """An operand in another dtype or order, shifted, rotated, negated, or a mask of another form."""
    for path, ref in at.operands:
        tensor = at.forward.tensor(ref)
        what = at.forward.named(ref) or ("the operand" if len(at.operands) == 1 else at.forward.described(ref))
        is_bias = path == (0, _PLACE_OF_BIAS.get(at.step.operator))
        for kind, found in (("form", transforms), ("order of elements", reorderings)):
            for cost, text, form in found(tensor, is_given=at.forward.is_given(ref)):
                edit = partial(_formed, path, form)
                if is_bias and text == ZERO:
                    yield at.change(1.5, "the bias left out", edit, "bias", old="bias")
                    continue
                change = at.change(cost, f"{what} {text}", edit, kind, path, text, old=what, new=text)
                change.operand = ref
                yield change


def other_operands(at: At) -> Iterator[Change]:
    """Another value in the place of an operand."""
    for path, ref in at.operands:
        tensor, what = at.forward.tensor(ref), at.forward.described(ref)
        for other in _alike(at, tensor, ref)[:_OTHERS]:
            new = told_apart(at.forward.described(other), what, is_before=other < ref)
            text = f"{new} instead of {what}"
            edit = partial(_with_value, path, other)
            key = "operand", path, at.forward.role_of(other)
            change = at.change(2.5, text, edit, *key, old=what, new=new)
            change.operand, change.other = ref, other
            yield change


def told_apart(name: str, other: str, *, is_before: bool) -> str:
    """Return what a value is called beside another one: on one line, which of several of an operator it is."""
    return name if name != other else f"{'an earlier' if is_before else 'a later'} {name.removeprefix('the ')}"


def added(at: At) -> Iterator[Change]:
    """A value added to the result, as a residual or a bias is that was forgotten."""
    result = at.result
    if at.is_write or at.step.operator not in _SUMMED or not result.is_floating_point() or result.dim() < 2:  # noqa: PLR2004
        return
    for other in _alike(at, result, -1)[:_ADDED]:
        text = f"{at.forward.described(other)} added"
        key = "added", at.forward.role_of(other)
        change = at.change(2.5, text, partial(_plus, other), *key, new=at.forward.described(other))
        change.other = other
        yield change


def _alike(at: At, tensor: torch.Tensor, but: int) -> list[int]:
    found = ((index, at.forward.tensor(index)) for index in at.scope if index != but)
    return [index for index, other in found if other.shape == tensor.shape and other.dtype == tensor.dtype]


#: The kinds of change, in no order: each change has a cost of its own.
GENERATORS: tuple[Callable[[At], Iterator[Change]], ...] = (
    numbers,
    lists,
    flags,
    orders,
    functions,
    left_out,
    operands_in_another_form,
    other_operands,
    added,
)


# --- what a step does then


def _at(given: Any, path: _Path) -> Any:  # noqa: ANN401 - any argument
    for part in path:
        given = given[part]
    return given


def _with(path: _Path, new: Any, _run: Run, step: Step, given: Given) -> Any:  # noqa: ANN401
    args, kwargs = put(given, path, new)
    return step.run(*args, **kwargs)


def _formed(path: _Path, form: Any, run: Run, step: Step, given: Given) -> Any:  # noqa: ANN401
    return _with(path, form(_at(given, path)), run, step, given)


def _with_value(path: _Path, other: int, run: Run, step: Step, given: Given) -> Any:  # noqa: ANN401
    return _with(path, run.now(other), run, step, given)


def with_values(others: Mapping[int, int], run: Run, step: Step, given: Given) -> Any:  # noqa: ANN401
    """Give a step other values in the place of some of its operands."""
    for path, each in step.given:
        if isinstance(each, Ref) and each in others:
            given = put(given, path, run.now(others[each]))
    return step.run(*given[0], **given[1])


def _plus(other: int, run: Run, step: Step, given: Given) -> Any:  # noqa: ANN401
    first, *rest = results_of(step.run(*given[0], **given[1]))
    return [first + run.now(other), *rest]


def _applied(function: Callable[..., Any], _run: Run, step: Step, given: Given) -> Any:  # noqa: ANN401
    first, *rest = results_of(step.run(*given[0], **given[1]))
    return [function(first), *rest]


def only(other: int, run: Run, step: Step, _given: Given, *, form: Callable[..., Any] | None = None) -> Any:  # noqa: ANN401
    """Give a value in the place of the first result of a step, as it is or in another form."""
    value = run.now(other)
    return (value if form is None else form(value), *([None] * (len(step.outs) - 1)))


def _unwritten(_run: Run, _step: Step, given: Given) -> Any:  # noqa: ANN401
    return written(lambda *_args, **_kwargs: None, *given[0])


def _parts(order: tuple[int, ...], _run: Run, step: Step, given: Given) -> Any:  # noqa: ANN401
    parts = step.run(*given[0], **given[1])
    return [parts[place] for place in order]


def _put_together(order: tuple[int, ...], _run: Run, step: Step, given: Given) -> Any:  # noqa: ANN401
    (tensors, *others), named = given
    return step.run([tensors[place] for place in order], *others, **named)


def _viewed(sizes: list[int], axis: int, _run: Run, _step: Step, given: Given) -> Any:  # noqa: ANN401
    return given[0][0].reshape(sizes).transpose(axis, axis + 1)


def _computed(function: Callable[..., Any], count: int | None, _run: Run, _step: Step, given: Given) -> Any:  # noqa: ANN401
    return function(*given[0][:count])


def _other_way_round(_run: Run, step: Step, given: Given) -> Any:  # noqa: ANN401
    (one, other, *rest), kwargs = given
    return step.run(other, one, *rest, **kwargs)


def _mean_of_squares(_run: Run, _step: Step, given: Given) -> Any:  # noqa: ANN401
    (tensor, dims, *_), kwargs = given
    return tensor.square().mean(dims, keepdim=kwargs.get("keepdim", False))


def _rms_norm(_run: Run, _step: Step, given: Given) -> Any:  # noqa: ANN401
    value, shape, weight, bias, eps = given[0]
    normed = F.rms_norm(value, shape, weight, eps)
    return normed if bias is None else normed + bias, None, None
