"""Which parameter of a port is which of the reference: by their numbers, whatever their names and layout."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from pytest_tfdebug.errors import listed
from pytest_tfdebug.parity.closeness import CAST, ORDER, SAME_WEIGHT
from pytest_tfdebug.tracing.record.modules import NUMBER
from pytest_tfdebug.values import Fingerprint, distance, join

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

#: Siblings that a port may join into one parameter: query, key and value; gate and up.
_JOINED = 4
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
        others = self._alike(name)
        if name in self.reordered and not self.reordered.intersection(others):
            return True
        if others and name in self.transposed and not self.transposed.intersection(others):
            return True
        due = Counter(each for _, _, here in self.in_other_layers(name) for each in here)
        most = max(due.values(), default=0)
        return name in self.partners and most >= _USUAL and all(due[each] < most for each in self.partners[name])

    @cached_property
    def _by_layer(self) -> dict[tuple[str, ...], str]:
        """The parameters of the other side by what they are called in every layer, and the layer."""
        return {(self._other.starred(each), *self._other.layer(each)): each for each in self.others}

    def in_other_layers(self, name: str) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        """Yield a parameter of another layer, what it holds of the other side, and the same of this layer."""
        for other in self._alike(name):
            theirs = self.partners[other]
            here, there = (
                [self._by_layer.get((self._other.starred(each), *self._own.layer(own))) for each in theirs]
                for own in (name, other)
            )
            found = tuple(each for each in here if each is not None)
            if len(found) == len(theirs) and tuple(there) == theirs:
                yield other, theirs, found

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
        return bool(self._alike(name))

    def told(self, names: Sequence[str], expected: str = "") -> str:
        """Say in sentences what is wrong with some parameters."""
        return " ".join(self._told(name, expected) for name in names)

    def _told(self, name: str, expected: str) -> str:
        if name in self.unknown:
            if expected:
                return f"{name!r} does not hold the numbers of {expected!r}."
            return f"No parameter of the reference holds the numbers of {name!r}."
        others = " and ".join(map(repr, self.partners[name]))
        if name in self.transposed:
            return f"{name!r} holds the numbers of {others} transposed."
        if name in self.reordered or name in self.joined:
            how = "" if self.is_sure(name) else ", possibly"
            return f"{name!r} holds the numbers of {others}{how} in another order than this code expects."
        return f"{name!r} holds the numbers of {others}, which belong elsewhere."

    def conventions(self, blamed: Sequence[str] = ()) -> Iterator[str]:
        """Say in a sentence each how parameters are laid out otherwise than the reference's, in all layers alike.

        A bias that goes with its weight is not told.
        """
        told: dict[str, list[str]] = {}
        for name, partners in self.partners.items():
            theirs = list(dict.fromkeys(map(self._other.starred, partners)))
            both = {name, f"{name.removesuffix('.bias')}.weight"}
            is_told = name.endswith(".bias") and (both <= self.joined or both <= self.reordered)
            if name in blamed or is_told or self.is_misplaced(name) or len(theirs) < len(partners):
                continue
            if name in self.transposed:
                told.setdefault(f"{self._own.starred(name)!r} holds {theirs[0]!r} transposed.", []).append(name)
            elif name in self.joined:
                part = "a part of " if len(theirs) == 1 else ""
                named = " and ".join(map(repr, theirs))
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
        for name, partner in told.items():
            if name not in alike and partner in other:
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
    by_count: dict[int, list[str]] = {}
    for name, (fingerprint, _) in other.items():
        by_count.setdefault(fingerprint.elements, []).append(name)
    for name, (fingerprint, shape) in own.items():
        same = [
            each
            for each in by_count.get(fingerprint.elements, ())
            if distance(fingerprint, other[each][0]) <= tolerance
        ]
        if same:
            found.partners[name] = tuple(same)
            _compare_order(found, name, fingerprint, shape, [other[each] for each in same])
    for names, (fingerprint, _) in _siblings(other):
        for name in own.keys() - found.partners.keys():
            if distance(fingerprint, own[name][0]) <= tolerance:
                found.partners[name] = names
                found.joined.add(name)
    for names, (fingerprint, _) in _siblings({name: own[name] for name in own if name not in found.partners}):
        for name in by_count.get(fingerprint.elements, ()):
            if distance(fingerprint, other[name][0]) <= tolerance:
                found.partners.update(dict.fromkeys(names, (name,)))
                found.joined.update(names)
    found.unknown = set(own) - set(found.partners)
    return found


def is_same_weight(one: tuple[Fingerprint, tuple[int, ...]], other: tuple[Fingerprint, tuple[int, ...]]) -> bool:
    """Tell whether two parameters hold the same numbers in the same order, up to a cast to half precision."""
    if one[1] != other[1] or distance(one[0], other[0]) > CAST:
        return False
    share = ORDER if distance(one[0], other[0]) <= SAME_WEIGHT else CAST
    return _are_near([a for _, a in one[0].axes], [a for _, a in other[0].axes], share * one[0].rms)


def _compare_order(
    found: Weights,
    name: str,
    fingerprint: Fingerprint,
    shape: tuple[int, ...],
    same: Sequence[tuple[Fingerprint, tuple[int, ...]]],
) -> None:
    scale = fingerprint.rms * ORDER
    numbers = [number for _, number in fingerprint.axes]
    others = [(other, [number for _, number in each.axes]) for each, other in same]
    if any(other == shape and _are_near(numbers, theirs, scale) for other, theirs in others):
        return
    if any(other == shape[::-1] and _are_near(numbers, theirs[::-1], scale) for other, theirs in others):
        found.transposed.add(name)
    elif any(other == shape for other, _ in others):
        found.reordered.add(name)


def _are_near(mine: Sequence[float], theirs: Sequence[float], scale: float) -> bool:
    return len(mine) == len(theirs) and all(abs(a - b) <= scale for a, b in zip(mine, theirs, strict=True))


def _siblings(parameters: Parameters) -> Iterator[tuple[tuple[str, ...], tuple[Fingerprint, tuple[int, ...]]]]:
    """Yield neighbouring parameters of one module's children, joined: as a fused projection holds them."""

    def around(name: str) -> tuple[str, str]:
        module, _, kind = name.rpartition(".")
        return module.rpartition(".")[0], kind

    for _, group in groupby(sorted(parameters, key=around), key=around):
        names = list(group)
        names.sort(key=list(parameters).index)
        for length in range(2, _JOINED + 1):
            for start in range(len(names) - length + 1):
                some = tuple(names[start : start + length])
                yield some, (join([parameters[name][0] for name in some]), ())


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
        for number in reversed(_numbers(name)):
            if _before(name, number) not in self.unlike:
                name = _with_star(name, number)
        return name

    def layer(self, name: str) -> list[str]:
        """Return the numbers of the layers in a name."""
        return [number.group() for number in _numbers(name) if _before(name, number) not in self.unlike]


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
    return NUMBER.sub("*", name) if NUMBER.search(name) else _WITHIN.sub("*", name, count=1)
