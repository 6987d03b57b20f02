"""Which call and which tensor of the actual forward stands beside which of the expected one.

A call that one side left out of its recording is no evidence against the other side.
"""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import product, zip_longest
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pytest_tfdebug.module_path import holder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence

    from pytest_tfdebug.records import Call, TensorRecord
    from pytest_tfdebug.tracing.trace import Trace

    _One = TypeVar("_One", bound=Hashable)
    from pytest_tfdebug.records import Site, Write


class RecordedModules:
    """The modules of one side that were recorded.

    A module that this side does not have is taken to be recorded if one of those beside it is.
    """

    def __init__(
        self,
        modules: Iterable[str],
        aliases: Mapping[str, tuple[str, ...]],
        unrecorded: Collection[str],
        rename: Callable[[str], str] = str,
    ) -> None:
        self._is_whole, left_out = not unrecorded, set(unrecorded)
        names = ((path, name) for path in modules if left_out for name in (path, *aliases.get(path, ())))
        self._recorded = {rename(name): path not in left_out for path, name in names}
        self._with_recorded = {holder(path) for path, is_recorded in self._recorded.items() if is_recorded}

    def has(self, path: str) -> bool:
        """Tell whether this side would have recorded a module, by its path on the expected side."""
        return self._is_whole or self._recorded.get(path, holder(path) in self._with_recorded)

    def among(self, names: Mapping[str, str]) -> set[str]:
        """Return the modules of the other side that this one would have recorded."""
        return {path for path, name in names.items() if self.has(name)}

    def common(self, calls: list[Call], rename: Callable[[str], str] = str) -> list[Call]:
        """Return those of the other side's calls that this side would have recorded.

        The calls inside of one that is left out become its caller's, as if the other side had been recorded in the
        same way: their line is the one that called it, and the line that really called them that of a helper. What it
        wrote into caches its caller wrote.
        """
        if self._is_whole:
            return calls
        kept: list[Call] = []
        begun: dict[int | None, list[tuple[int, int]]] = {}
        moved: list[tuple[int, Write, int | None]] = []
        inside: dict[int | None, tuple[int | None, Site | None]] = {None: (None, None)}
        for call in calls:
            parent, outer_site = inside[call.parent]
            site = outer_site or call.site
            if parent is not None and not self.has(rename(call.path)):
                inside[call.index] = parent, site
                moved += [(parent, write, call.index) for write in call.writes]
                continue
            inner_site = call.inner_site or call.site if outer_site else call.inner_site
            depth = 0 if parent is None else kept[parent].depth + 1
            inside[call.index] = len(kept), None
            moved += [(len(kept), write, write.before) for write in call.writes]
            begun.setdefault(parent, []).append((call.index, len(kept)))
            kept.append(
                replace(call, index=len(kept), parent=parent, depth=depth, site=site, inner_site=inner_site, writes=())
            )
        for owner, write, since in moved:
            later = (here for there, here in begun.get(owner, ()) if since is not None and there >= since)
            kept[owner].writes += (write._replace(before=next(later, None)),)
        return kept


def likeness(one: str, other: str) -> float:
    """Return how much of two names is the same: 1 for one name."""
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def chosen(pairs: Iterable[tuple[_One, _One]], rank: Callable[[_One, _One], Any]) -> list[tuple[_One, _One]]:
    """Return the pairs of the lowest rank in which each side stands once at most."""
    taken: tuple[set[_One], set[_One]] = set(), set()
    found = []
    for one, other in sorted(pairs, key=lambda pair: rank(*pair)):
        if one not in taken[0] and other not in taken[1]:
            taken[0].add(one)
            taken[1].add(other)
            found.append((one, other))
    return found


_POSITION = re.compile(r"^\[(\d+)\]")
_Pair: TypeAlias = "tuple[TensorRecord | None, TensorRecord | None]"
#: Outputs of other names are one if their relative difference is no more.
_EQUAL = 1e-4
#: Calls of one module by one caller that are tried for one with the same inputs.
_TRIED = 4
#: The name that a leaf path of a keyword argument begins with.
_NAME = re.compile(r"^\['(\w+)'\]")
_CACHE = re.compile(r"^\w+")
#: A part of a leaf path: a key or position, or the name of an attribute.
_PART = re.compile(r"\[[^\]]*\]|\.(\w+)")


class CallPairing:
    """Finds the expected call of each actual call, in the order in which the actual calls come.

    Calls are paired by module path and call index. A module that one side shares (tied embeddings, say) and the other
    holds twice is paired within the calling module instead; of several calls by one module, those with the same
    arguments that are not tensors come first (a forward may make them in the order of a set), and of these the first
    that was given the same tensors: one side may leave one of them out, or make one more.
    """

    def __init__(
        self,
        expected: Sequence[Call],
        expected_aliases: dict[str, tuple[str, ...]],
        actual_aliases: dict[str, tuple[str, ...]],
        rename: Callable[[str], str],
        modules: Collection[str] = (),
    ) -> None:
        self._rename = rename
        self._modules = frozenset(modules)
        root = expected[0].path if expected else ""
        self._calls = {(call.path, call.call): call for call in expected if call.path != root}
        self._roots = [call for call in expected if call.path == root]
        self._children: dict[tuple[int, str], list[Call]] = {}
        for call in expected:
            if call.parent is not None:
                self._children.setdefault((call.parent, call.path), []).append(call)
        self._canonical = {other: path for path, others in expected_aliases.items() for other in others}
        self._shared = {*expected_aliases, *self._canonical}
        self._actual_aliases = actual_aliases
        self._partners: dict[int, Call] = {}
        self._used: set[int] = set()
        self._doubted: set[int] = set()

    def partner(self, call: Call, is_alike: Callable[[Call], bool] = lambda _expected: True) -> Call | None:
        """Return the expected call of an actual call, or None; each expected call is given out once."""
        found = self._candidates(call)
        free = [other for other in found if other.index not in self._used]
        doubted = [other for other in found if other.index in self._doubted]
        chosen = free[0] if free else None
        if doubted or len(free) > 1:
            chosen = next(filter(is_alike, [*free[:_TRIED], *doubted[-_TRIED:]]), chosen)
        if chosen is not None:
            self._used.add(chosen.index)
            self._doubted.discard(chosen.index)
            self._partners[call.index] = chosen
        return chosen

    def doubt(self, expected: Call) -> None:
        """Give an expected call out once more, to a call that was given the same tensors as it."""
        self._doubted.add(expected.index)

    def is_ambiguous(self, call: Call) -> bool:
        """Tell whether the expected side calls this module several times, so that the arguments matter."""
        return (self._rename(call.path), 1) in self._calls

    def _candidates(self, call: Call) -> list[Call]:
        """Return the expected calls that a call may stand beside, the likeliest first."""
        if call.parent is None and (self._rename(call.path), call.call) not in self._calls:
            return [] if call.path in self._modules else self._roots[call.call : call.call + 1]
        names = [self._rename(path) for path in (call.path, *self._actual_aliases.get(call.path, ()))]
        parent = None if call.parent is None else self._partners.get(call.parent)
        if parent is not None:
            is_shared = len(names) > 1 or names[0] in self._shared
            paths = dict.fromkeys(self._canonical.get(name, name) for name in names)
            siblings = [one for path in paths for one in self._children.get((parent.index, path), ())]
            at_hand = [one for one in siblings if one.index not in self._used or one.index in self._doubted]
            if at_hand and (is_shared or len(siblings) > 1 or call.call):
                return sorted(at_hand, key=lambda one: _plain_arguments(one) != _plain_arguments(call))
        found = self._calls.get((self._canonical.get(names[0], names[0]), call.call))
        return [] if found is None else [found]


def _plain_arguments(call: Call) -> tuple[object, object]:
    return call.skeleton.get("args"), call.skeleton.get("kwargs")


def pair_inputs(
    actual: Sequence[TensorRecord], expected: Sequence[TensorRecord], actual_call: Call, expected_call: Call
) -> Iterator[_Pair]:
    """Return the input leaves side by side: by the name of the parameter they are given to, else by leaf path."""
    return _pair(actual, expected, actual_call.parameters, expected_call.parameters)


def with_input_names(expected: Trace, names: Mapping[str, str]) -> Trace:
    """Give the root inputs of a trace the names under which the other side takes them."""
    if not names or not expected.calls:
        return expected
    root = expected.calls[0].path
    return replace(expected, calls=[_renamed(call, names) if call.path == root else call for call in expected.calls])


def _renamed(call: Call, names: Mapping[str, str]) -> Call:
    own = {_by_name(theirs, call.parameters): f"[{mine!r}]" for mine, theirs in names.items()}
    inputs = []
    for record in call.inputs:
        path = _by_name(record.leaf, call.parameters)
        first = _PART.match(path)
        old = first[0] if first else ""
        inputs.append(replace(record, leaf=own.get(old, old) + path[len(old) :]))
    return replace(call, inputs=tuple(inputs), parameters=())


def pair_outputs(
    actual: Sequence[TensorRecord],
    expected: Sequence[TensorRecord],
    apart: Callable[[TensorRecord, TensorRecord], float],
) -> Iterator[_Pair]:
    """Yield the output leaves side by side: by leaf path; where none is common, in order, past what one side alone has.

    A port may return a tensor where the reference returns a ``ModelOutput`` or a tuple that begins with it, and a dict
    with the same names in another order. One side may return the outputs of all layers and the other the last one
    alone: of those that have its shape, the first or the last stands beside it, whichever is nearer. Of several outputs
    on both sides those that are equal stand beside each other; so do those that no name pairs, and no others.
    """
    if {leaf_key(record.leaf) for record in actual} & {leaf_key(record.leaf) for record in expected}:
        pairs = list(_split_unlike(_pair(actual, expected)))
        mine = [own for own, other in pairs if own is not None and other is None]
        theirs = [other for own, other in pairs if own is None and other is not None]
        equal, _, left = equal_first(mine, theirs, apart)
        partners = {id(own): other for own, other in equal}
        yield from ((own, other or partners.get(id(own))) for own, other in pairs if own is not None)
        yield from ((None, other) for other in left)
        return
    mine, theirs = list(actual), list(expected)
    if len(mine) > len(theirs):
        mine = _in_line(mine, theirs, apart)
    else:
        theirs = _in_line(theirs, mine, lambda other, own: apart(own, other))
    yield from _by_value(mine, theirs, apart) if min(len(mine), len(theirs)) > 1 else zip_longest(mine, theirs)


def _split_unlike(pairs: Iterable[_Pair]) -> Iterator[_Pair]:
    """Yield pairs, those apart that stand in one place and are a mask and no mask."""
    for own, other in pairs:
        is_one = own is None or other is None or not _POSITION.match(own.leaf) or _is_boolean(own) == _is_boolean(other)
        yield from ((own, other),) if is_one else ((own, None), (None, other))


def equal_first(
    actual: Sequence[TensorRecord],
    expected: Sequence[TensorRecord],
    apart: Callable[[TensorRecord, TensorRecord], float],
) -> tuple[list[tuple[TensorRecord, TensorRecord]], list[TensorRecord], list[TensorRecord]]:
    """Return the records that are equal side by side, in order where it can be, and what is left of each side."""
    mine, theirs = ({id(record): record for record in side} for side in (actual, expected))
    right = []
    for own, other in (*zip(actual, expected, strict=False), *product(actual, expected)):
        is_free = id(own) in mine and id(other) in theirs
        is_of_one_form = own.shape == other.shape and _is_boolean(own) == _is_boolean(other)
        if is_free and is_of_one_form and apart(own, other) <= _EQUAL:
            right.append((mine.pop(id(own)), theirs.pop(id(other))))
    return right, list(mine.values()), list(theirs.values())


def _by_value(
    actual: Sequence[TensorRecord],
    expected: Sequence[TensorRecord],
    apart: Callable[[TensorRecord, TensorRecord], float],
) -> Iterator[_Pair]:
    """Yield records side by side: those that are equal, in order where it can be; then, of as many left, in order."""
    right, mine, theirs = equal_first(actual, expected, apart)
    yield from right
    if not right or (len(mine) == len(theirs) and all(map(_is_of_one_form, mine, theirs))):
        yield from zip_longest(mine, theirs)
    else:
        yield from ((own, None) for own in mine)
        yield from ((None, other) for other in theirs)


def _is_of_one_form(own: TensorRecord, other: TensorRecord) -> bool:
    """Tell whether two records may be one output that differs, and not a mask and hidden states."""
    is_laid_out_alike = len(own.shape) == len(other.shape) or prod(own.shape) == prod(other.shape)
    return is_laid_out_alike and _is_boolean(own) == _is_boolean(other)


def _is_boolean(record: TensorRecord) -> bool:
    return record.dtype == "bool"


def _in_line(
    many: list[TensorRecord], few: list[TensorRecord], apart: Callable[[TensorRecord, TensorRecord], float]
) -> list[TensorRecord]:
    """Return records, with those moved to the front whose shapes are those of all of some others, in their order."""
    places: list[int] = []
    for other in few:
        after = range(places[-1] + 1 if places else 0, len(many))
        alike = [place for place in after if many[place].shape == other.shape]
        if not alike:
            return many
        is_of_layers = len(few) == 1 < len(alike)
        nearest = min(alike[0], alike[-1], key=lambda at: apart(many[at], few[0])) if is_of_layers else alike[0]
        places.append(nearest)
    return [*(many[place] for place in places), *(each for place, each in enumerate(many) if place not in places)]


def in_cache(record: TensorRecord) -> str:
    """Return where in its cache a tensor stands that was written there; its leaf path begins with the cache's class."""
    return _CACHE.sub("", record.leaf)


def _pair(
    actual: Sequence[TensorRecord],
    expected: Sequence[TensorRecord],
    own_parameters: tuple[str, ...] = (),
    expected_parameters: tuple[str, ...] = (),
) -> Iterator[_Pair]:
    """Yield records side by side, in the order of the actual ones: by parameters, and what is left by leaf path."""
    partners: dict[int, TensorRecord] = {}
    waiting = list(expected)
    for own, theirs in ((own_parameters, expected_parameters), ((), ())):
        named = {_by_name(record.leaf, theirs): record for record in waiting}
        for place, record in enumerate(actual):
            if place not in partners and (partner := named.pop(_by_name(record.leaf, own), None)) is not None:
                partners[place] = partner
        waiting = list(named.values())
    yield from ((record, partners.get(place)) for place, record in enumerate(actual))
    yield from ((None, record) for record in waiting)


def has_parameter(call: Call, leaf: str, other: Call) -> bool:
    """Tell whether the forward of a call has the parameter that an input of another call was given to."""
    name = _NAME.match(_by_name(leaf, other.parameters))
    return not call.parameters or name is None or name[1] in call.parameters


@lru_cache(maxsize=4096)
def leaf_key(leaf: str) -> str:
    """Return a leaf path with attributes written as keys: ``.logits`` and ``['logits']`` are one name."""
    return _PART.sub(lambda part: f"[{part[1]!r}]" if part[1] else part[0], leaf)


def leaf_parts(leaf: str) -> list[str]:
    """Return the parts of a leaf path: keys, positions and names of attributes."""
    return [part[0] for part in _PART.finditer(leaf)]


@lru_cache(maxsize=4096)
def _by_name(leaf: str, parameters: tuple[str, ...]) -> str:
    match = _POSITION.match(leaf)
    if match and int(match[1]) < len(parameters):
        return leaf_key(f"['{parameters[int(match[1])]}']{leaf[match.end() :]}")
    return leaf_key(leaf)
