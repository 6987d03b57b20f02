"""Which module of a port seems to be which of the reference: the one that gives the same.

A port has names of its own, and only what ``rename=`` pairs is compared. Up to the fault both sides compute the same,
so that what a module gives tells which it is; and as a block is built like the next one, a rule with ``*`` holds for
the blocks after the fault too. A few elements of each output without a partner are enough for that.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch

from pytest_tfdebug.parity.rename import renamer
from pytest_tfdebug.records import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence

    from pytest_tfdebug.parity.comparator import Compared
    from pytest_tfdebug.records import Call, TensorRecord

#: Elements that are taken of an output.
_ELEMENTS = 64
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: Share of the largest of them by which another kernel's may differ; two modules differ by more in some of them.
_TOLERANCE = 1e-4
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")

#: Whether a module has submodules, and the shape of what it gives: only modules that share both can be the same.
_Kind: TypeAlias = "tuple[bool, tuple[int, ...]]"


class _Alike(NamedTuple):
    """Calls of one kind, and the elements of what each gave in a row."""

    calls: list[Call]
    elements: torch.Tensor


def sample(outputs: Sequence[TensorRecord]) -> Sample | None:
    """Return a sample of a call's first output; None where it holds no activations."""
    tensor = outputs[0].tensor if outputs else None
    if tensor is None or tensor.dtype not in _DTYPES or not tensor.numel():
        return None
    count = min(_ELEMENTS, tensor.numel())
    places = torch.arange(count, device=tensor.device) * tensor.numel() // count
    return Sample(outputs[0].shape, tensor.detach().take(places).float())


def suggest(compared: Compared) -> dict[str, str]:
    """Return rules for ``rename=`` that pair calls which have no partner and give the same; empty if there are none."""
    return _Search(compared).rules


class _Search:
    """Goes through the calls of a port in order, callers first; what a paired call makes is looked for inside."""

    def __init__(self, compared: Compared) -> None:
        self.rules: dict[str, str] = {}
        self._own = [item.call for item in compared.calls]
        self._expected = {call.index: call for call in compared.expected}
        self._by_path = {call.path: call for call in reversed(compared.expected)}
        self._partners = {item.call.index: item.expected for item in compared.calls if item.expected is not None}
        # what the port has under its name, and does not call, is no other module of it
        free = [call for call in compared.unpaired_expected if not call.call and call.path not in compared.own_paths]
        self._free = {call.index for call in free}
        unpaired = [(item.call, item.sample) for item in compared.calls if item.sample and not item.call.call]
        self._pair_blocks([(call, given.shape) for call, given in unpaired], free)
        waiting = _by_kind(free)
        for call, given in unpaired:
            self._look_for(call, given, waiting)
        self._pair_in_order()
        shapes = {item.call.index: item.sample.shape for item in compared.calls if item.sample}
        shapes |= {item.call.index: item.outputs[0].shape for item in compared.calls if item.outputs}
        self._pair_leaves(shapes)
        self._pair_uncalled(compared.own_paths.values())

    def _pair_uncalled(self, modules: Iterable[str]) -> None:
        """Pair the one module that a caller has and does not call with the one that its partner calls in vain."""
        called = {path for call in self._own for path in _with_holders(call.path)}
        root = self._own[0].path if self._own else ""
        for caller in self._own:
            partner = self._partners.get(caller.index)
            inside = "" if caller.path == root else f"{caller.path}."
            idle = [path for path in modules if path.startswith(inside) and path not in called]
            idle = [path for path in idle if "." not in path[len(inside) :]]
            missed = [call for call in self._expected.values() if partner and call.parent == partner.index]
            missed = [call for call in missed if call.index in self._free and not call.call]
            if len(idle) == len(missed) == 1:
                self._free.discard(missed[0].index)
                self.rules[idle[0]] = missed[0].path

    def _pair_blocks(self, own: Sequence[tuple[Call, tuple[int, ...]]], free: Sequence[Call]) -> None:
        """Pair lists of blocks of one length and kind, where there are as many of them on both sides."""
        mine, theirs = _block_lists(own), _block_lists([(call, call.outputs[0].shape) for call in free if call.outputs])
        for kind, lists in mine.items():
            if len(lists) == len(theirs.get(kind, ())):
                for calls, others in zip(lists, theirs[kind], strict=True):
                    for call, other in zip(calls, others, strict=True):
                        self._pair(call, other)

    def _look_for(self, call: Call, given: Sample, waiting: dict[_Kind, _Alike]) -> None:
        """Pair a call with the first that gives the same; what a rule names is what it says, whatever it gives."""
        known = self._by_path.get(renamer(self.rules)(call.path))
        if known is not None and any(_is_named(call.path, source) for source in self.rules):
            self._partners[call.index] = known
            return
        alike = waiting.get((call.has_children, given.shape))
        caller = self._partners.get(call.parent) if call.parent is not None else None
        found = [
            other
            for other in (_same(given, alike) if alike is not None else ())
            if other.index in self._free and (caller is None or caller in self._above(other))
        ]
        if found and known not in found:
            self._pair(call, found[0])
        elif known is not None:
            self._partners[call.index] = known

    def _pair_in_order(self) -> None:
        """Pair what two paired calls make, one by one, where both make as many calls of the same kinds."""
        mine, theirs = (_grouped(calls, lambda call: call.parent) for calls in (self._own, self._expected.values()))
        for caller in self._own:
            partner = self._partners.get(caller.index)
            calls, others = mine.get(caller.index, []), theirs.get(partner.index, []) if partner is not None else []
            if list(map(_form, calls)) == list(map(_form, others)):
                for call, other in zip(calls, others, strict=True):
                    if call.index not in self._partners and other.index in self._free:
                        self._pair(call, other)

    def _pair_leaves(self, shapes: dict[int, tuple[int, ...]]) -> None:
        """Pair modules without submodules in order, where two paired callers have as many of one class and shape.

        What is then left is paired by its shape alone, in the same way.
        """
        expected = list(self._expected.values())
        given = {call.index: call.outputs[0].shape for call in expected if call.outputs}
        for caller in self._own:
            partner = self._partners.get(caller.index)
            if partner is not None and caller.has_children:
                calls, others = _leaves(caller, self._own, shapes), _leaves(partner, expected, given)
                self._pair_groups(
                    _grouped(calls, lambda call: (call.class_name, shapes[call.index])),
                    _grouped(others, lambda call: (call.class_name, given[call.index])),
                )
                self._pair_groups(
                    _grouped(
                        [call for call in calls if call.index not in self._partners], lambda call: shapes[call.index]
                    ),
                    _grouped([call for call in others if call.index in self._free], lambda call: given[call.index]),
                )

    def _pair_groups(self, mine: dict[Hashable, list[Call]], theirs: dict[Hashable, list[Call]]) -> None:
        for key, calls in mine.items():
            others = theirs.get(key, [])
            pairs = list(zip(calls, others, strict=False))
            if len(calls) == len(others) and all(self._may_pair(call, other) for call, other in pairs):
                for call, other in pairs:
                    if call.index not in self._partners:
                        self._pair(call, other)

    def _may_pair(self, call: Call, other: Call) -> bool:
        return self._partners[call.index] is other if call.index in self._partners else other.index in self._free

    def _pair(self, call: Call, other: Call) -> None:
        self._free.discard(other.index)
        self._partners[call.index] = other
        if renamer(self.rules)(call.path) != other.path:
            source, target = _with_stars(call.path, other.path)
            if source in self.rules:
                source, target = call.path, other.path
            self.rules[source] = target

    def _above(self, call: Call) -> Iterator[Call]:
        """Yield an expected call's callers, the nearest first, as far as they were recorded."""
        above = self._expected.get(call.parent) if call.parent is not None else None
        if above is not None:
            yield above
            yield from self._above(above)


def _with_holders(path: str) -> Iterator[str]:
    """Yield a module path, and the paths of what holds the module: lists are never called."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _is_named(path: str, source: str) -> bool:
    """Tell whether a rule is about a path itself, and not only about what it is below of."""
    parts, named = path.split("."), source.split(".")
    return len(parts) == len(named) and all(name in {"*", part} for part, name in zip(parts, named, strict=True))


def _form(call: Call) -> tuple[bool, int]:
    return call.has_children, call.call


def _block_lists(calls: Sequence[tuple[Call, tuple[int, ...]]]) -> dict[tuple[int, _Kind], list[list[Call]]]:
    """Return the calls of numbered modules with submodules, in lists by what holds them, by length and kind."""
    lists: dict[tuple[str, tuple[int, ...]], list[Call]] = {}
    for call, shape in calls:
        holder, _, number = call.path.rpartition(".")
        if number.isdigit() and call.has_children:
            lists.setdefault((holder, shape), []).append(call)
    found: dict[tuple[int, _Kind], list[list[Call]]] = {}
    for (_, shape), some in lists.items():
        found.setdefault((len(some), (True, shape)), []).append(some)
    return found


def _leaves(caller: Call, calls: Sequence[Call], shapes: Collection[int]) -> list[Call]:
    """Return the first calls of modules without submodules inside of a call, of those that have a shape."""
    after = bisect_right(calls, caller.index, key=lambda call: call.index)
    inside = takewhile(lambda call: call.depth > caller.depth, islice(calls, after, None))
    return [call for call in inside if not call.has_children and not call.call and call.index in shapes]


def _grouped(calls: Iterable[Call], key: Callable[[Call], Hashable]) -> dict[Hashable, list[Call]]:
    found: dict[Hashable, list[Call]] = {}
    for call in calls:
        found.setdefault(key(call), []).append(call)
    return found


def _by_kind(calls: Sequence[Call]) -> dict[_Kind, _Alike]:
    found: dict[_Kind, list[tuple[Call, torch.Tensor]]] = {}
    for call in calls:
        given = sample(call.outputs or ())
        if given is not None:
            found.setdefault((call.has_children, given.shape), []).append((call, given.elements.cpu()))
    return {
        kind: _Alike([call for call, _ in some], torch.stack([elements for _, elements in some]))
        for kind, some in found.items()
    }


def _same(given: Sample, alike: _Alike) -> Iterator[Call]:
    """Yield the calls that gave these elements; one number throughout tells nothing, nor do inf and nan."""
    elements = given.elements.cpu()
    if elements.min() < elements.max() and elements.isfinite().all():
        matches = ((alike.elements - elements).abs() <= _TOLERANCE * elements.abs().max()).all(dim=1)
        yield from (alike.calls[row] for row in matches.nonzero().flatten().tolist())


def _with_stars(own: str, expected: str) -> tuple[str, str]:
    """Return a rule for this pair of paths and those of other numbers: a star for each number that both have first."""
    for number, other in zip(_NUMBER.findall(own), _NUMBER.findall(expected), strict=False):
        if number != other:
            break
        own, expected = (_NUMBER.sub("*", path, count=1) for path in (own, expected))
    return own, expected
