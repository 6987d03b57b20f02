"""Parameters row by row: which row of a port is which of a reference, and numbers that are linear in what each gets.

A row is known by its bytes, so that fused, stacked, split and transposed weights pair whatever their names. Of what
belongs to a row, its gradient or the step that it makes, a few projections on fixed directions are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Keys = npt.NDArray[np.int64]

#: Projections of a row, before its size.
PROJECTIONS = 4
#: Parts into which a vector may be cut: query, key and value; gate and up.
_PARTS = (1, 2, 3)
#: A way that tells a parameter by its elements alone, wherever they lie: one row.
ELEMENTS = "elements"
#: Elements of a parameter up to which it is told so too: a bias of another shape, or one that is put together.
_FEW = 1 << 16
#: Parameters that one is put together of, at most, where only elements tell it.
_FUSED = 16
#: Rows with the same numbers, zeros say, from which on only those are looked at where a parameter would begin.
_MANY = 256
#: Share of the greatest beside which what is held for some rows is rounding.
_NOTHING = 1e-6


class RowCut(NamedTuple):
    """A way to cut a parameter into rows."""

    name: str
    keys: Keys  # what tells each row, ``(rows,)``
    numbers: Floats  # of each row its projections, then its size, ``(rows, PROJECTIONS + 1)``


@dataclass
class ParameterRows:
    """Something of every parameter (its gradient, say), row by row, in every way to cut it."""

    ways: dict[str, list[RowCut]] = field(default_factory=dict)  # by the parameter's name
    elements: dict[str, int] = field(default_factory=dict)  # number of elements of each parameter
    # the parameters most of whose elements are equal: by elements alone nothing but a sum of these would be compared
    alike: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls, weights: Mapping[str, torch.Tensor], held: Mapping[str, torch.Tensor | None], keys: RowKeys
    ) -> ParameterRows:
        """Return the rows of what is held for each parameter; None counts as zeros."""
        found = cls()
        for name, weight in weights.items():
            tensor = held.get(name)
            wide = None if tensor is None else real_parts(tensor).to(torch.float64)
            found.elements[name] = weight.numel()
            found.alike |= {name} if keys.are_alike(name, weight) else set()
            found.ways[name] = [
                RowCut(
                    way, known, _numbers(None if wide is None else _cut(wide, way), len(known), keys.signs(name, way))
                )
                for way, known in keys.of(name, weight)
            ]
        return found

    @classmethod
    def together(cls, some: Sequence[ParameterRows], factors: Sequence[float] = ()) -> ParameterRows:
        """Return the rows of a sum: projections add up; a size is that of rows that have nothing in common."""
        found, scales = cls(elements=some[0].elements, alike=some[0].alike), factors or [1.0] * len(some)
        for name, ways in some[0].ways.items():
            tables = zip(*([cut.numbers for cut in each.ways[name]] for each in some), strict=True)
            found.ways[name] = [
                way._replace(numbers=_summed([k * each for k, each in zip(scales, numbers, strict=True)]))
                for way, numbers in zip(ways, tables, strict=True)
            ]
        return found

    def sizes(self) -> dict[str, float]:
        """Return the norm of what is held for each parameter."""
        held = {name: ways[0].numbers[:, -1] for name, ways in self.ways.items() if ways}
        return {name: float(np.linalg.norm(numbers)) for name, numbers in held.items()}


def _summed(tables: Sequence[Floats]) -> Floats:
    found: Floats = np.sum(tables, axis=0)
    found[:, -1] = np.sqrt(np.square([table[:, -1] for table in tables]).sum(0))
    return found


class RowKeys:
    """What tells the rows of a model's parameters, made once."""

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[str, Keys]]] = {}
        self._signs: dict[str, torch.Tensor] = {}
        self._alike: dict[str, bool] = {}

    def of(self, name: str, weight: torch.Tensor) -> list[tuple[str, Keys]]:
        """Return the ways to cut a parameter, each with what tells its rows."""
        if name not in self._known:
            bits = _bits(weight)
            self._known[name] = [(way, _keys(_cut(bits, way))) for way in _ways(weight)]
            if 0 < weight.numel() <= _FEW:
                hashes = _hashes(bits.flatten())
                self._known[name].append((ELEMENTS, hashes.sum()[None].cpu().numpy()))
                places = torch.arange(40, 40 + PROJECTIONS, device=hashes.device)
                self._signs[name] = (hashes[:, None] >> places & 1).to(torch.int8)
        return self._known[name]

    def are_alike(self, name: str, weight: torch.Tensor) -> bool:
        """Tell whether most elements of a parameter are equal to others of it."""
        if name not in self._alike:
            self._alike[name] = 2 * len(set(_bits(weight).flatten().tolist())) <= weight.numel() <= _FEW
        return self._alike[name]

    def signs(self, name: str, way: str) -> torch.Tensor | None:
        """Return the directions for what elements alone tell: those of an element go by its number, not its place."""
        return self._signs[name].to(torch.float64) * 2 - 1 if way == ELEMENTS else None


def _ways(weight: torch.Tensor) -> Iterator[str]:
    if not weight.numel():
        return
    if weight.ndim < 2:  # noqa: PLR2004 - a vector
        yield from (f"parts{count}" for count in _PARTS if weight.numel() % count == 0 and weight.numel() >= count)
        return
    yield from ("rows", "columns", *(("flat",) if weight.ndim > 2 else ()))  # noqa: PLR2004 - a matrix


def real_parts(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without its graph, complex numbers as two real ones."""
    tensor = tensor.detach()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _cut(tensor: torch.Tensor, way: str) -> torch.Tensor:
    if way.startswith("parts"):
        return tensor.reshape(int(way.removeprefix("parts")), -1)
    if way == ELEMENTS:
        return tensor.reshape(1, -1)
    if way == "flat":
        return tensor.reshape(tensor.shape[0], -1)
    tensor = tensor.mT if way == "columns" else tensor
    return tensor.reshape(-1, tensor.shape[-1])


def _bits(weight: torch.Tensor) -> torch.Tensor:
    """Return the bytes of each element in float32 as an integer, whose low bits tell the high ones too."""
    found = (real_parts(weight).float() + 0.0).contiguous().view(torch.int32)  # + 0.0: no sign of a zero
    return (found ^ (found >> 15)).to(torch.int64)


def _keys(rows: torch.Tensor) -> Keys:
    """Return a number for each row that tells its integers; exact, in whatever order they are summed."""
    odd = _odd_numbers(rows.shape[-1]).to(rows.device)
    summed = rows.mv(odd) if rows.device.type == "cpu" else (rows * odd).sum(-1)
    found: Keys = (summed ^ rows.shape[-1]).cpu().numpy()
    return found


def _hashes(bits: torch.Tensor) -> torch.Tensor:
    """Return a number for each element that differs in all its bits from that of another element."""
    found = (bits + 0x632BE59BD9B4E019) * 0x2545F4914F6CDD1D  # odd numbers: nothing is lost
    found = (found ^ (found >> 29)) * 0x369DEA0F31A53F85
    return found ^ (found >> 32)


@lru_cache(maxsize=32)
def _odd_numbers(length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(11)
    return torch.randint(-(1 << 62), 1 << 62, (length,), generator=generator) * 2 + 1


@lru_cache(maxsize=32)
def _directions(length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(13)
    signs = torch.randint(0, 2, (length, PROJECTIONS), generator=generator).to(torch.float64) * 2 - 1
    signs[:, 0] = 1
    return signs


def _numbers(rows: torch.Tensor | None, count: int, signs: torch.Tensor | None) -> Floats:
    if rows is None:
        return np.zeros((count, PROJECTIONS + 1))
    along = rows @ (_directions(rows.shape[-1]) if signs is None else signs).to(rows.device)
    size = rows.square().sum(-1, keepdim=True).sqrt()  # faster than a norm, by columns above all
    found: Floats = torch.cat([along, size], 1).cpu().numpy()
    return found


class RowRun(NamedTuple):
    """Rows of one parameter that follow each other: of a reference, those that a port has in the same order."""

    name: str
    way: str
    start: int
    length: int

    def of(self, rows: ParameterRows) -> Floats:
        """Return the numbers of these rows."""
        numbers = next(cut.numbers for cut in rows.ways[self.name] if cut.name == self.way)
        return numbers[self.start : self.start + self.length]


class PairedRows(NamedTuple):
    """A parameter of the port beside the rows of the reference that it is made of."""

    names: tuple[str, ...]  # of the port's: several where only together they have the elements of the reference's
    others: tuple[str, ...]  # of the reference's, in the order of the rows
    way: str
    runs: tuple[RowRun, ...]  # of the reference; they add up where elements alone tell what the parameter is made of


class _MatchedRun(NamedTuple):
    """Rows of a port's parameter, and all rows of the reference with the same numbers."""

    own: RowRun
    runs: list[RowRun]


class ParameterPairs:
    """Which parameter of a port is which of a reference.

    Args:
        own: The rows of the port's parameters, with what is held for them.
        expected: Those of the reference's.
        more: More that is held for them on both sides. Of rows with the same numbers (norms of ones, a copy that
            averages the weights) what both sides hold tells which is which, the first of it before the rest; each is
            taken once, the nearest first.
    """

    def __init__(
        self, own: ParameterRows, expected: ParameterRows, more: Sequence[tuple[ParameterRows, ParameterRows]] = ()
    ) -> None:
        self._held = [(own, expected), *more]
        self._greatest = [[max(side.sizes().values(), default=0.0) or 1.0 for side in sides] for sides in self._held]
        self._rows: dict[int, list[RowRun]] = {}
        self._keys: dict[tuple[str, str], list[int]] = {}
        self._wholes: dict[bytes, list[RowRun]] = {}
        for name, ways in expected.ways.items():
            for way in ways:
                self._add(name, way)
        self._begins: dict[int, list[bytes]] = {}
        for whole in sorted(self._wholes, key=len, reverse=True):
            self._begins.setdefault(int(np.frombuffer(whole, np.int64)[0]), []).append(whole)
        self._alike = own.alike
        cut = {name: self._cut(name, ways) for name, ways in own.ways.items()}
        found = self._chosen([each for choices in cut.values() for each in choices])
        self.paired = {
            name: _pair((name,), choices[0].own.way, [found[each.own] for each in choices])
            for name, choices in cut.items()
            if choices
        }
        known = {run.name for choices in cut.values() for each in choices for run in each.runs}
        self.missing = tuple(name for name in expected.ways if name not in known)
        self._pair_summed(own, expected)
        self.unpaired = tuple(name for name in own.ways if name not in self.paired)

    def _add(self, name: str, way: RowCut) -> None:
        keys = way.keys.tolist()
        self._keys[name, way.name] = keys
        self._wholes.setdefault(way.keys.tobytes(), []).append(RowRun(name, way.name, 0, len(keys)))
        for row, key in enumerate(keys):
            self._rows.setdefault(key, []).append(RowRun(name, way.name, row, 1))

    def _cut(self, name: str, ways: list[RowCut]) -> list[_MatchedRun]:
        """Return the runs that a parameter of the port is made of; none where the reference lacks a row of it."""
        for way in ways:
            if way.name == ELEMENTS and name in self._alike:
                continue
            found, at = list[_MatchedRun](), 0
            while at < len(way.keys) and (runs := self._runs_at(way.keys, at)):
                found.append(_MatchedRun(RowRun(name, way.name, at, runs[0].length), runs))
                at += runs[0].length
            if found and at == len(way.keys):
                return found
        return []

    def _runs_at(self, keys: Keys, at: int) -> list[RowRun]:
        """Return the longest runs of the reference that a parameter goes on with: whole parameters, or parts of one."""
        for whole in self._begins.get(int(keys[at]), ()):
            count = len(whole) // keys.itemsize
            if keys[at : at + count].tobytes() == whole:
                return self._wholes[whole] if count > 1 else self._rows[int(keys[at])]
        found, count = self._rows.get(int(keys[at]), []), 1
        if len(found) > _MANY:
            found = [run for run in found if run.start % len(keys) == 0]
        while at + count < len(keys):
            onward = [run for run in found if self._row(run, count) == keys[at + count]]
            if not onward:
                break
            found, count = onward, count + 1
        return [run._replace(length=count) for run in found]

    def _row(self, run: RowRun, number: int) -> int | None:
        keys = self._keys[run.name, run.way]
        return keys[run.start + number] if run.start + number < len(keys) else None

    def _chosen(self, choices: list[_MatchedRun]) -> dict[RowRun, RowRun]:
        """Return the reference's run of each of the port's, no two the same while there are others."""
        found = {each.own: each.runs[0] for each in choices if len(each.runs) == 1}
        places: dict[
            RowRun, int
        ] = {}  # of each of those with the same numbers: the first of a port is that of a reference
        ranked = []
        for each in (each for each in choices if len(each.runs) > 1):
            place = places[each.runs[0]] = places.get(each.runs[0], -1) + 1
            for other, (run, apart) in enumerate(zip(each.runs, self._apart(each), strict=True)):
                ranked.append((apart, run.name != each.own.name, abs(place - other), place, each.own, run))
        taken: set[RowRun] = set()
        for is_again in (False, True):
            for *_, mine, run in sorted(ranked):
                if mine not in found and (is_again or run not in taken):
                    found[mine] = run
                    taken.add(run)
        return found

    def _apart(self, choice: _MatchedRun) -> list[tuple[float, ...]]:
        """Return how far what is held for a run of the port is from what is held for each that it may be, in order.

        It is taken as a share of the greatest of its side: a loss that is scaled scales every gradient.
        """
        found = []
        for (own, expected), sizes in zip(self._held, self._greatest, strict=True):
            mine = _summary(choice.own.of(own)) / sizes[0]
            theirs = np.stack([_summary(run.of(expected)) for run in choice.runs]) / sizes[1]
            size = np.maximum(np.linalg.norm(mine), np.linalg.norm(theirs, axis=1))
            found.append((np.linalg.norm(mine - theirs, axis=1) / np.maximum(size, _NOTHING)).round(2).tolist())
        return [*zip(*found, strict=True)]

    def _pair_summed(self, own: ParameterRows, expected: ParameterRows) -> None:
        """Pair a parameter with several of the other side that have its elements together: a fused bias."""
        mine = _element_keys(own, [name for name in own.ways if name not in self.paired])
        theirs = _element_keys(expected, self.missing)
        found: dict[tuple[str, ...], tuple[str, ...]] = {(name,): _summing(theirs, key) for name, key in mine.items()}
        found.update({_summing(mine, key): (name,) for name, key in theirs.items()})
        for names, others in found.items():
            if others and not own.alike.issuperset(names):
                pair = _pair(names, ELEMENTS, [RowRun(other, ELEMENTS, 0, 1) for other in others])
                self.paired.update(dict.fromkeys(names, pair))
        held = {other for pair in self.paired.values() for other in pair.others}
        self.missing = tuple(name for name in self.missing if name not in held)

    def beside(self, name: str, own: ParameterRows, expected: ParameterRows) -> tuple[Floats, Floats]:
        """Return what both sides hold for a parameter of the port, ``(rows, PROJECTIONS + 1)`` each."""
        pair = self.paired[name]
        mine = [next(cut.numbers for cut in own.ways[each] if cut.name == pair.way) for each in pair.names]
        theirs = [run.of(expected) for run in pair.runs]
        return (_summed(mine), _summed(theirs)) if pair.way == ELEMENTS else (mine[0], np.concatenate(theirs))


def _pair(names: tuple[str, ...], way: str, runs: list[RowRun]) -> PairedRows:
    return PairedRows(names, tuple(dict.fromkeys(run.name for run in runs)), way, tuple(runs))


def _summary(numbers: Floats) -> Floats:
    """Return a few numbers for some rows: the sums of their projections, and their norm."""
    found: Floats = numbers.sum(0)
    found[-1] = np.linalg.norm(numbers[:, -1])
    return found


def _element_keys(rows: ParameterRows, names: Sequence[str]) -> dict[str, int]:
    keys = ((name, cut) for name in names for cut in rows.ways[name] if cut.name == ELEMENTS)
    return {name: int(cut.keys[0]) for name, cut in keys}


def _summing(keys: Mapping[str, int], wanted: int) -> tuple[str, ...]:
    """Return which parameters, one after the other, have the elements of another together."""
    names = [*keys]
    for count, first in product(range(2, _FUSED + 1), range(len(names))):
        some = tuple(names[first : first + count])
        if (sum(keys[name] for name in some) - wanted) % (1 << 64) == 0:
            return some
    return ()
