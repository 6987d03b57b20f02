"""Compare two traces at real tokens: the calls that they have in common, and the tensors of these.

The inputs of the root are left out, for they differ on purpose; so are masks that one side has no need of, and tensors
whose sizes no pad explains. What differs inside a call that gives the right answer is a convention: attention sees
distances, so the tables of positions that it is given may begin anywhere.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.invariance.compare.outputs import is_in_cache, lay
from pytest_tfdebug.parity.tensors.comparator import Comparator
from pytest_tfdebug.tensors import dtype_name
from pytest_tfdebug.tracing.record.leaves import replaced, walk, walk_inputs
from pytest_tfdebug.tracing.record.masks import is_mask_input

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_tfdebug.invariance.calls.alignment import Aligned, Alignment
    from pytest_tfdebug.parity.tensors.tolerance import Tolerances
    from pytest_tfdebug.records import Call, Direction, TensorRecord
    from pytest_tfdebug.tensors import Leaf
    from pytest_tfdebug.tracing.trace import Trace

#: What a call was given comes before what it returned.
DIRECTIONS: tuple[Direction, ...] = ("input", "output")


class Key(NamedTuple):
    """A tensor of a trace."""

    path: str  # module path
    call: int  # call index
    direction: str  # `input` or `output`
    leaf: str  # leaf path


class Pair(NamedTuple):
    """A tensor of each side, at real tokens."""

    expected: TensorRecord
    actual: TensorRecord
    axes: tuple[int, ...]  # along the sequence; none for a pooled tensor
    differs: bool
    # for a table that counts positions from the first pad: its values as the expected call has them. None otherwise
    shifted: torch.Tensor | None = None


@dataclass(frozen=True)
class ComparedTraces:
    """Two traces beside each other: the calls that they have in common, with the tensors that could be laid so."""

    expected: Trace
    actual: Trace
    partners: Sequence[tuple[Call, Call]]
    laid: Mapping[Key, Pair]
    tolerances: Tolerances

    @property
    def shifted(self) -> dict[Key, torch.Tensor]:
        """Tables that count positions from the first pad, as the expected call has them."""
        return {key: pair.shifted for key, pair in self.laid.items() if pair.shifted is not None}

    @property
    def differing(self) -> set[Key]:
        """The outputs of calls that differ, apart from such tables."""
        found = (key for key, pair in self.laid.items() if pair.differs and pair.shifted is None)
        return {key for key in found if key.direction == "output"}

    def without_conventions(self) -> ComparedTraces:
        """Leave out what differs inside a call that gives the right answer, unless nothing else differs."""
        agreeing: set[int] = set()
        for one, other in self.partners:
            if one.parent in agreeing or (one.parent is not None and self._agrees(one, other)):
                agreeing.add(one.index)
        inside = {(one.path, one.call) for one, _ in self.partners if one.parent in agreeing}
        left = {key: pair for key, pair in self.laid.items() if not pair.differs or key[:2] not in inside}
        has_others = any(pair.differs and key.direction == "output" for key, pair in left.items())
        return replace(self, laid=left) if has_others else self

    def comparator(self) -> Comparator:
        """Return the comparison of both, in the order in which they were computed."""
        theirs, own = [*self.expected], [*self.actual]
        pairs: dict[tuple[str, int, str], list[Pair]] = {}
        for key, pair in self.laid.items():
            pairs.setdefault(key[:3], []).append(pair)
        for one, other in self.partners:
            given, made = (pairs.get((one.path, one.call, direction), []) for direction in DIRECTIONS)
            theirs[one.index] = _with_tensors(one, [each.expected for each in given], [each.expected for each in made])
            own[other.index] = _with_tensors(other, [each.actual for each in given], [each.actual for each in made])
        found = Comparator(
            replace(self.expected, calls=theirs),
            None,
            self.tolerances,
            modules=self.actual.modules,
            aliases=self.actual.aliases,
        )
        found.replay(own)
        return found

    def _agrees(self, one: Call, other: Call) -> bool:
        """Tell whether every tensor that a call returned, apart from caches, is what is expected."""
        returned = [record.leaf for record in one.outputs or () if not is_in_cache(record.leaf)]
        pairs = [self.laid.get(Key(other.path, other.call, "output", leaf)) for leaf in returned]
        return bool(pairs) and all(pair is not None and not pair.differs for pair in pairs)


def call_at(calls: Iterable[Call], path: str, number: int) -> Call | None:
    """Return a call by its module path and its number among the calls of that module; None where there is none."""
    return next((each for each in calls if (each.path, each.call) == (path, number)), None)


def compare_traces(expected: Trace, actual: Trace, alignment: Alignment, tolerances: Tolerances) -> ComparedTraces:
    """Compare two traces at real tokens: the tensors that they have in common; calls of one alone stay as they are."""
    places = {(call.path, call.call): call for call in actual}
    partners = [(call, places[call.path, call.call]) for call in expected if (call.path, call.call) in places]
    laid = {
        Key(other.path, other.call, direction, pair.actual.leaf): pair
        for one, other in partners
        for direction in DIRECTIONS[one.parent is None :]
        for pair in _pairs(one.leaves(direction), other.leaves(direction), one.parameters, alignment, tolerances)
    }
    return ComparedTraces(expected, actual, partners, laid, tolerances)


def _with_tensors(call: Call, inputs: Sequence[TensorRecord], outputs: Sequence[TensorRecord]) -> Call:
    """Return a call with some tensors, and without its other arguments and its writes to caches.

    Lengths, and caches, differ on purpose.
    """
    returned = None if call.outputs is None else tuple(outputs)
    kept = {"outputs": call.skeleton.get("outputs", "None")}
    return replace(call, inputs=tuple(inputs), outputs=returned, skeleton=kept, writes=())


def _pairs(
    expected: Sequence[TensorRecord],
    actual: Sequence[TensorRecord],
    parameters: tuple[str, ...],
    alignment: Alignment,
    tolerances: Tolerances,
) -> Iterator[Pair]:
    """Yield the leaves of a call that both sides have, at real tokens."""
    others = {record.leaf: record for record in actual}
    for record in expected:
        other = others.get(record.leaf)
        if other is None or other.tensor is None or record.tensor is None or is_in_cache(record.leaf):
            continue
        is_mask = is_mask_input(record.leaf, parameters)
        are_two_forms = (record.tensor.dtype is torch.bool) != (other.tensor.dtype is torch.bool)
        if are_two_forms and is_mask:
            continue  # eager attention takes a mask of numbers, and sdpa one of truth values
        if alignment.rows is not None and not record.tensor.dim():
            continue  # of the whole batch, as a loss is
        if record.tensor.dim() == 1 and not record.tensor.is_floating_point():
            continue  # cache_position and the like: they number the padded sequence
        way, differs = _way(record.tensor, other.tensor, alignment, tolerances)
        if way is None:
            continue
        sides = record.tensor, other.tensor
        is_table = differs and not is_mask and _counts_from_the_pads(*sides, way, alignment, tolerances)
        mine, theirs = (alignment.blank(tensor, way.axes) for tensor in (record.tensor, way.tensor))
        yield Pair(
            replace(record, shape=tuple(mine.shape), tensor=mine, statistics=None),
            replace(other, shape=tuple(theirs.shape), tensor=theirs, statistics=None),
            way.axes,
            differs,
            record.tensor if is_table else None,
        )


def _way(
    expected: torch.Tensor, actual: torch.Tensor, alignment: Alignment, tolerances: Tolerances
) -> tuple[Aligned | None, bool]:
    """Return how a tensor lies beside the expected one, None where no way is likely; and whether it differs."""
    ways = list(alignment.candidates(actual, expected))
    laid = lay("", expected, actual, alignment, tolerances)
    way = laid[0] if laid is not None else ways[0] if len(ways) == 1 else None
    differs = laid is None or bool(laid[1].problem)
    is_apart = way is not None and differs and 0 in way.axes and _is_in_other_order(expected, actual, tolerances)
    return (None if is_apart else way), differs


def tells_apart(
    expected: torch.Tensor, actual: torch.Tensor, alignment: Alignment, tolerances: Tolerances
) -> bool | None:
    """Tell whether a tensor differs at real tokens, apart from tables of positions; None where it cannot be laid."""
    if (expected.dtype is torch.bool) != (actual.dtype is torch.bool):
        return None
    way, differs = _way(expected, actual, alignment, tolerances)
    if way is None:
        return None
    return differs and not _counts_from_the_pads(expected, actual, way, alignment, tolerances)


def _counts_from_the_pads(
    expected: torch.Tensor, actual: torch.Tensor, way: Aligned, alignment: Alignment, tolerances: Tolerances
) -> bool:
    """Tell whether a tensor holds at the first pad what the expected one holds at the first token, and so on."""
    if not alignment.start or len(way.axes) != 1 or way.has_others:
        return False
    laid = lay("", expected, actual, replace(alignment, start=0), tolerances)
    return laid is not None and not laid[1].problem


#: Tokens that are looked for in another order.
_SOME = 256


def _is_in_other_order(expected: torch.Tensor, actual: torch.Tensor, tolerances: Tolerances) -> bool:
    """Tell whether tokens that share an axis with the batch lie in another order, as when sorted by expert."""
    if not expected.is_floating_point() or expected.shape[1:] != actual.shape[1:]:
        return False
    tolerance = tolerances.of("", dtype_name(expected.dtype))
    rows, all_rows = (tensor.double().reshape(len(tensor), -1) for tensor in (expected[:_SOME], actual))
    nearest = torch.cdist(rows, all_rows, p=float("inf")).min(1)
    is_there = nearest.values <= tolerance.atol + tolerance.rtol * rows.abs().amax(1)
    return bool(is_there.all()) and bool((nearest.indices.diff() != 1).any())


@contextmanager
def put_back(model: torch.nn.Module, tables: Mapping[Key, torch.Tensor], alignment: Alignment) -> Iterator[None]:
    """Give real tokens their own places in tables of positions, wherever a module takes or returns one."""
    calls = Counter[str]()

    def changed(path: str, direction: str, value: Any, leaves: list[Leaf]) -> Any:  # noqa: ANN401 - of a module
        known = {leaf.path: tables.get(Key(path, calls[path], direction, leaf.path)) for leaf in leaves}
        new = {id(leaf.tensor): table for leaf in leaves if (table := known[leaf.path]) is not None}
        if not new:
            return None
        return replaced(value, lambda each: alignment.put_back(each, new[id(each)]) if id(each) in new else each)

    def before(path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - of a module
        return changed(path, "input", (args, kwargs), walk_inputs(args, kwargs))

    def after(path: str, output: Any) -> Any:  # noqa: ANN401 - of a module
        made = changed(path, "output", output, walk(output))
        calls[path] += 1
        return made

    paths = {key.path for key in tables}
    with ExitStack() as hooks:
        for path, module in model.named_modules():
            if path in paths:
                given = module.register_forward_pre_hook(
                    lambda _, args, kwargs, path=path: before(path, args, kwargs), with_kwargs=True
                )
                made = module.register_forward_hook(lambda _, __, output, path=path: after(path, output))
                hooks.callback(given.remove)
                hooks.callback(made.remove)
        yield
