"""Which parameter of a port is which of the reference: by their numbers, whatever their names and layout."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias

from pytest_tfdebug.errors import listed
from pytest_tfdebug.module_path import NUMBER, holder, last_part, starred
from pytest_tfdebug.parity.closeness import CAST, ORDER, SAME_WEIGHT
from pytest_tfdebug.parity.proof.part_order import order_within
from pytest_tfdebug.values import Fingerprint, distance, join

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import torch

#: Siblings that a port may join into one parameter: query, key and value; gate and up.
_JOINED = (2, 3, 4)
#: Layers that must agree on where a parameter belongs before one that differs is wrong.
_USUAL = 2

#: Fingerprint and shape of each parameter, by name.
Parameters: TypeAlias = "Mapping[str, tuple[Fingerprint, tuple[int, ...]]]"


@dataclass
class Weights:
    """The pairs of parameters."""

    # names of the other side's parameters with the same numbers, by own name; several for joined siblings and for equal
    # ones
    partners: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # own names that stand for several of the other side, or are a part of one
    joined: set[str] = field(default_factory=set)
    # own names whose numbers lie in another order along an axis, though the shape is the same
    reordered: set[str] = field(default_factory=set)
    transposed: set[str] = field(default_factory=set)  # own names whose shape is the other side's reversed
    # own names that stand for several of the other side -> these as they lie there one after the other, where known
    in_order: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)  # own names that the other side has no counterpart for
    others: tuple[str, ...] = ()  # names of all parameters of the other side

    @cached_property
    def _own(self) -> Numbering:
        return _numbering(self.partners)

    @cached_property
    def _other(self) -> Numbering:
        owners: dict[str, list[str]] = {}
        for name, others in self.partners.items():
            for other in others:
                owners.setdefault(other, []).append(name)
        return _numbering(owners)

    @cached_property
    def _in_layers(self) -> dict[str, list[str]]:
        """The parameters that the other side has, by what they are called in every layer."""
        found: dict[str, list[str]] = {}
        for name in self.partners:
            found.setdefault(self._own.starred(name), []).append(name)
        return found

    def _alike(self, name: str) -> list[str]:
        """Return the parameters of this name in other layers that the other side has."""
        return [each for each in self._in_layers.get(self._own.starred(name), ()) if each != name]

    def is_misplaced(self, name: str) -> bool:
        """Tell whether a parameter lies in another order than those of its name in other layers, or in another's place.

        Layouts differ between implementations; they do not differ between the layers of one. It holds what belongs
        elsewhere only if the other side has what belongs here.
        """
        if name in self.reordered and not self.reordered.intersection(self._alike(name)):
            return True
        others = self._alike(name) if name in self.transposed else []
        if others and not self.transposed.intersection(others):
            return True
        if name in self.in_order:
            orders = [self._usual_order(each) for each in self._alike(name) if each in self.in_order]
            if len(orders) >= _USUAL and len({*orders}) == 1 and orders[0] != self._usual_order(name):
                return True
        due = self._due(name)
        most = max(due.values(), default=0)
        return name in self.partners and most >= _USUAL and all(due[each] < most for each in self.partners[name])

    def _usual_order(self, name: str) -> tuple[str, ...]:
        """Return what a parameter is joined from, in order, by what it is called in every layer."""
        return tuple(map(self._other.starred, self.in_order[name]))

    @cached_property
    def _by_layer(self) -> dict[tuple[str, ...], str]:
        """The parameters of the other side by what they are called in every layer, and the layer."""
        return {(self._other.starred(each), *self._other.layer(each)): each for each in self.others}

    @cached_property
    def _held_in_layers(self) -> dict[str, Counter[tuple[str, ...]]]:
        """What the parameters of each name hold of the same layer of the other side, and in how many layers."""
        found: dict[str, Counter[tuple[str, ...]]] = {}
        for name in self.partners:
            if holding := self._holding(name):
                found.setdefault(self._own.starred(name), Counter())[holding] += 1
        return found

    def _holding(self, name: str) -> tuple[str, ...]:
        """Return what a parameter holds of its own layer of the other side, whatever the layer; () for another's."""
        theirs = self.partners[name]
        holding = tuple(map(self._other.starred, theirs))
        return holding if self._of_layer(holding, name) == theirs else ()

    def _of_layer(self, holding: Iterable[str], name: str) -> tuple[str, ...]:
        """Return what the other side has of the layer of a parameter under some names."""
        found = (self._by_layer.get((each, *self._own.layer(name))) for each in holding)
        return tuple(each for each in found if each is not None)

    def _due(self, name: str) -> Counter[str]:
        """Count in how many other layers the parameter of this name holds what is each of these in this layer."""
        due: Counter[str] = Counter()
        own = self._holding(name) if name in self.partners else ()
        for holding, count in self._held_in_layers.get(self._own.starred(name), {}).items():
            here = self._of_layer(holding, name)
            if len(here) == len(holding):
                due.update(dict.fromkeys(here, count - (holding == own)))
        return due

    def in_other_layers(self, name: str) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        """Yield a parameter of another layer, what it holds of the other side, and the same of this layer."""
        for other in self._alike(name):
            holding = self._holding(other)
            here = self._of_layer(holding, name)
            if holding and len(here) == len(holding):
                yield other, self.partners[other], here

    def is_stacked(self, name: str) -> bool:
        """Tell whether a parameter holds those of one name in all layers, one after the other."""
        return name in self.in_order and len({*map(self._other.starred, self.in_order[name])}) == 1

    def is_sure(self, name: str) -> bool:
        """Tell whether a parameter is known to be another one, or to lie otherwise than this code takes it.

        Those of its name in other layers tell: one whose numbers are in no parameter of the reference may be computed
        from some of its own, and one that holds the same of the reference in every layer is where it belongs.
        """
        if name in self.unknown:
            return self.is_known_elsewhere(name)
        return name in self.transposed or (self.is_known_elsewhere(name) and self.is_misplaced(name))

    def is_known_elsewhere(self, name: str) -> bool:
        """Tell whether the other side has the parameters of this name in other layers."""
        alike = self._in_layers.get(self._own.starred(name), [])
        return len(alike) > (name in self.partners)

    def told(self, names: Sequence[str], expected: str = "") -> str:
        """Say in sentences what is wrong with some parameters."""
        wholes = {self.partners.get(name, ()) for name in names}
        if len(names) > 1 and len(wholes) == 1 and self.joined.issuperset(names):
            return f"{listed([*map(repr, names)])} hold the numbers of {listed([*map(repr, *wholes)])}, cut otherwise."
        return " ".join(self._told(name, expected) for name in names)

    def _told(self, name: str, expected: str) -> str:
        if name in self.unknown:
            if expected:
                return f"{name!r} does not hold the numbers of {expected!r}."
            return f"No parameter of the reference holds the numbers of {name!r}."
        between = ", then those of " if name in self.in_order else " and "
        others = between.join(map(repr, self.in_order.get(name, self.partners[name])))
        if name in self.transposed:
            return f"{name!r} holds the numbers of {others} transposed."
        if name in self.reordered or name in self.joined:
            how = "" if self.is_sure(name) else ", possibly"
            return f"{name!r} holds the numbers of {others}{how} in another order than this code expects."
        return f"{name!r} holds the numbers of {others}, which belong elsewhere."

    def is_doubled(self, name: str, lacking: Collection[int], elements: int) -> bool:
        """Tell whether another parameter of the port holds the same numbers, of which the reference has one tensor.

        Then one of both is in the wrong place, if the reference has one of that size which the port does not hold.
        """
        theirs = self.partners.get(name, ())
        if len(theirs) != 1 or elements not in lacking or name in self.joined:
            return False
        return any(other != name and partners == theirs for other, partners in self.partners.items())

    def conventions(self, blamed: Sequence[str] = ()) -> Iterator[str]:
        """Say in a sentence each how parameters are laid out otherwise than the reference's, in all layers alike.

        A bias that goes with its weight is not told.
        """
        told: dict[str, list[str]] = {}
        for name, partners in self.partners.items():
            theirs = list(dict.fromkeys(map(self._other.starred, self.in_order.get(name, partners))))
            both = {name, f"{name.removesuffix('.bias')}.weight"}
            is_told = name.endswith(".bias") and (both <= self.joined or both <= self.reordered)
            if name in blamed or is_told or self.is_misplaced(name) or len(theirs) < len(partners):
                continue
            if name in self.transposed:
                told.setdefault(f"{self._own.starred(name)!r} holds {theirs[0]!r} transposed.", []).append(name)
            elif name in self.joined:
                part = "a part of " if len(theirs) == 1 else ""
                named = (", then " if name in self.in_order else " and ").join(map(repr, theirs))
                told.setdefault(
                    f"{self._own.starred(name)!r} holds {part}{named}{'' if part else ' in one'}.", []
                ).append(name)
            elif name in self.reordered:
                told.setdefault(f"{self._own.starred(name)!r} holds {theirs[0]!r} in another order.", []).append(name)
        yield from (sentence for sentence, names in told.items() if len(names) > 1 or "order" not in sentence)

    def unused(self, own: Collection[str], other: Collection[str], computed: Collection[str] = ()) -> Iterator[str]:
        """Say in a sentence each which parameters change no output, in no layer, or are not there, though theirs do.

        What this side computes of the other's parameters (a row of a longer table, a buffer) is there.
        """
        alike = set(map(self._own.starred, own))
        told = {
            self._own.starred(name): partners[0] for name, partners in self.partners.items() if name not in self.joined
        }
        here = {partner for name in own for partner in self.partners.get(name, ())}  # one of several with its numbers
        for name, partner in told.items():
            if name not in alike and partner in other and partner not in here:
                yield f"{name!r} changes no output here; {self._other.starred(partner)!r} does in the reference."
        if not self.unknown:  # each of the port's own is found, so what is left has no place in it
            held = {partner for partners in self.partners.values() for partner in partners}.union(computed)
            missing = sorted({self._other.starred(name) for name in other if name not in held})
            if missing:
                yield f"No parameter here holds the reference's {listed(missing)}, without which its outputs differ."

    @property
    def known(self) -> frozenset[str]:
        """Own names of the parameters that the other side has."""
        return frozenset(self.partners)


def pair_weights(own: Parameters, other: Parameters, *, is_cast: bool = False) -> Weights:
    """Pair parameters by their fingerprints."""
    tolerance = CAST if is_cast else SAME_WEIGHT
    found = Weights(others=tuple(other))
    theirs = _BySize({name: each for name, (each, _) in other.items()}, tolerance)
    _pair_alone(found, own, other, theirs)
    mine = _BySize({name: each for name, (each, _) in own.items() if name not in found.partners}, tolerance)
    single = {partner for partners in found.partners.values() for partner in partners}
    left = {name: each for name, each in other.items() if name not in single}
    # ``w1`` and ``w3`` of ``w1, w2, w3``, and what is stacked in all layers
    for names, (fingerprint, _) in (*_siblings(other), *_siblings(left), *_of_all_layers(other)):
        for name in mine.near(fingerprint):
            if name not in found.partners:
                found.partners[name] = names
                found.joined.add(name)
    for names, (fingerprint, _) in _siblings({name: own[name] for name in own if name not in found.partners}):
        for name in theirs.near(fingerprint):
            if other[name][0].elements == fingerprint.elements:
                found.partners.update(dict.fromkeys(names, (name,)))
                found.joined.update(names)
    found.unknown = set(own) - set(found.partners)
    return found


def look_into(found: Weights, tensors: Mapping[str, torch.Tensor], other: Parameters) -> None:
    """Find out in which order the parameters of the other side lie in each that stands for several of them.

    Args:
        found: The pairs; what is found is noted in them.
        tensors: This side's parameters by name, as many as can be read.
        other: Those of the other side.
    """
    for name in found.joined & tensors.keys():
        parts = {each: other[each][0] for each in found.partners[name]}
        order = order_within(tensors[name], parts) if len(parts) > 1 else ()
        if order:
            found.in_order[name] = order


def _pair_alone(found: Weights, own: Parameters, other: Parameters, theirs: _BySize) -> None:
    """Pair the parameters that are one on either side."""
    known: dict[tuple[Fingerprint, tuple[int, ...]], tuple[tuple[str, ...], str]] = {}
    for name, form in own.items():
        if form not in known:
            same = tuple(each for each in theirs.near(form[0]) if other[each][0].elements == form[0].elements)
            known[form] = same, _order_of(*form, [other[each] for each in same])
        same, order = known[form]
        if same:
            found.partners[name] = same
        if order:
            getattr(found, order).add(name)


class _BySize:
    """Fingerprints in the order of their sizes: those near one stand side by side, and few are compared."""

    def __init__(self, prints: Mapping[str, Fingerprint], tolerance: float) -> None:
        self._tolerance = tolerance
        self._places = {name: place for place, name in enumerate(prints)}
        self._sorted = sorted(prints.items(), key=lambda each: each[1].rms)
        self._sizes = [each.rms for _, each in self._sorted]
        self._known: dict[Fingerprint, list[str]] = {}

    def near(self, fingerprint: Fingerprint) -> list[str]:
        """Return the names of those that are no further from a fingerprint than is allowed, in their order."""
        if fingerprint not in self._known:
            low, high = fingerprint.rms * (1 - self._tolerance), fingerprint.rms / (1 - self._tolerance)
            some = self._sorted[bisect_left(self._sizes, low) : bisect_right(self._sizes, high)]
            near = [name for name, each in some if distance(fingerprint, each) <= self._tolerance]
            self._known[fingerprint] = sorted(near, key=self._places.__getitem__)
        return self._known[fingerprint]


def is_same_weight(one: tuple[Fingerprint, tuple[int, ...]], other: tuple[Fingerprint, tuple[int, ...]]) -> bool:
    """Tell whether two parameters hold the same numbers in the same order, up to a cast to half precision."""
    if one[1] != other[1] or distance(one[0], other[0]) > CAST:
        return False
    share = ORDER if distance(one[0], other[0]) <= SAME_WEIGHT else CAST
    return _are_near([a for _, a in one[0].axes], [a for _, a in other[0].axes], share * one[0].rms)


def _order_of(
    fingerprint: Fingerprint, shape: tuple[int, ...], same: Sequence[tuple[Fingerprint, tuple[int, ...]]]
) -> Literal["", "transposed", "reordered"]:
    """Return how the numbers of a parameter lie otherwise than those of each that has the same."""
    scale = fingerprint.rms * ORDER
    numbers = [number for _, number in fingerprint.axes]
    others = [(other, [number for _, number in each.axes]) for each, other in same]
    if any(other == shape and _are_near(numbers, theirs, scale) for other, theirs in others):
        return ""
    if any(other == shape[::-1] and _are_near(numbers, theirs[::-1], scale) for other, theirs in others):
        return "transposed"
    return "reordered" if any(other == shape for other, _ in others) else ""


def _are_near(mine: Sequence[float], theirs: Sequence[float], scale: float) -> bool:
    return len(mine) == len(theirs) and all(abs(a - b) <= scale for a, b in zip(mine, theirs, strict=True))


def _siblings(parameters: Parameters) -> Iterator[tuple[tuple[str, ...], tuple[Fingerprint, tuple[int, ...]]]]:
    """Yield neighbouring parameters of one module's children, joined: as a fused projection holds them.

    So are those of one module: the place of a first token, and those of all patches; and those of one shape, if others
    are between them: ``gate_w`` and ``up_w``, each with a bias behind it.
    """

    def of_children(name: str) -> tuple[str, str]:
        return holder(holder(name)), last_part(name)

    places = {name: place for place, name in enumerate(parameters)}
    for around in (of_children, holder):
        for _, group in groupby(sorted(parameters, key=around), key=around):
            names = list(group)
            names.sort(key=places.__getitem__)
            shapes = dict.fromkeys(parameters[name][1] for name in names)
            runs = [names, *([name for name in names if parameters[name][1] == shape] for shape in shapes)]
            in_turn = (
                tuple(run[start : start + length])
                for length in _JOINED
                for run in runs
                for start in range(len(run) - length + 1)
            )
            for some in dict.fromkeys(in_turn):
                yield some, (join([parameters[name][0] for name in some]), ())


def _of_all_layers(parameters: Parameters) -> Iterator[tuple[tuple[str, ...], tuple[Fingerprint, tuple[int, ...]]]]:
    """Yield the parameters of one name in all layers, joined, and such neighbours: as stacked layers hold them."""
    layers: dict[str, list[str]] = {}
    for name in parameters:
        layers.setdefault(starred(name), []).append(name)
    stacked: dict[str, tuple[Fingerprint, tuple[int, ...]]] = {
        key: (join([parameters[name][0] for name in names]), ()) for key, names in layers.items() if len(names) > 1
    }
    for some, form in (*(((key,), form) for key, form in stacked.items()), *_siblings(stacked)):
        yield tuple(name for key in some for name in layers[key]), form


#: The number of a layer in a name none of whose parts is one (``h0.attn``).
_WITHIN = re.compile(r"\d+")


@dataclass(frozen=True)
class Numbering:
    """Which numbers in the names of one side count layers, and which are the names of unlike things.

    ``attentions.0`` and ``attentions.1`` of a layer are two attentions if the other side calls them by two names.
    """

    unlike: frozenset[str]  # what stands before the number of unlike things, with a star for each number

    def starred(self, name: str) -> str:
        """Return a name with a star for the number of each layer."""
        return _split(self.unlike, name)[0]

    def layer(self, name: str) -> tuple[str, ...]:
        """Return the numbers of the layers in a name."""
        return _split(self.unlike, name)[1]


@lru_cache(maxsize=1 << 14)
def _split(unlike: frozenset[str], name: str) -> tuple[str, tuple[str, ...]]:
    """Return a name with a star for the number of each layer, and these numbers."""
    numbers = [number for number in _numbers(name) if _before(name, number) not in unlike]
    starred = name
    for number in reversed(numbers):
        starred = _with_star(starred, number)
    return starred, tuple(number.group() for number in numbers)


def _numbering(partners: Mapping[str, Collection[str]]) -> Numbering:
    """Find out which numbers count layers: most of what differs in that number alone has one name on the other side."""
    alike: dict[tuple[str, str], list[set[str]]] = {}
    for name, others in partners.items():
        for number in _numbers(name):
            alike.setdefault((_before(name, number), _with_star(name, number)), []).append(
                set(map(_all_starred, others))
            )
    usual: Counter[str] = Counter()
    for (before, _), named in alike.items():
        if len(named) > 1:
            most = Counter(name for names in named for name in names).most_common(1)[0][1]
            usual[before] += 2 * most - len(named)
    return Numbering(frozenset(before for before, surplus in usual.items() if surplus <= 0))


def _numbers(name: str) -> list[re.Match[str]]:
    return list(NUMBER.finditer(name)) or list(_WITHIN.finditer(name))[:1]


def _before(name: str, number: re.Match[str]) -> str:
    return _all_starred(name[: number.start()])


def _with_star(name: str, number: re.Match[str]) -> str:
    return f"{name[: number.start()]}*{name[number.end() :]}"


def _all_starred(name: str) -> str:
    return starred(name) if NUMBER.search(name) else _WITHIN.sub("*", name, count=1)
