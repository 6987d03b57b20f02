"""Parameters row by row: which row of a port is which of a reference, and numbers that are linear in what each gets.

A row is known by its bytes, so that fused, stacked, split and transposed weights pair whatever their names. Of what
belongs to a row, its gradient or the step that it makes, a few projections on fixed directions are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
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

    @classmethod
    def of(
        cls, weights: Mapping[str, torch.Tensor], held: Mapping[str, torch.Tensor | None], keys: RowKeys
    ) -> ParameterRows:
        """Return the rows of what is held for each parameter; None counts as zeros."""
        found = cls()
        for name, weight in weights.items():
            tensor = held.get(name)
            wide = None if tensor is None else _real(tensor).to(torch.float64)
            found.elements[name] = weight.numel()
            found.ways[name] = [
                RowCut(way, known, _numbers(None if wide is None else _cut(wide, way), len(known)))
                for way, known in keys.of(name, weight)
            ]
        return found

    @classmethod
    def together(cls, some: Sequence[ParameterRows], factors: Sequence[float] = ()) -> ParameterRows:
        """Return the rows of a sum: projections add up; a size is that of rows that have nothing in common."""
        found, scales = cls(elements=some[0].elements), factors or [1.0] * len(some)
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

    def of(self, name: str, weight: torch.Tensor) -> list[tuple[str, Keys]]:
        """Return the ways to cut a parameter, each with what tells its rows."""
        if name not in self._known:
            bits = _bits(weight)
            self._known[name] = [(way, _keys(_cut(bits, way))) for way in _ways(weight)]
        return self._known[name]


def _ways(weight: torch.Tensor) -> Iterator[str]:
    if weight.ndim < 2:  # noqa: PLR2004 - a vector
        yield from (f"parts{count}" for count in _PARTS if weight.numel() % count == 0 and weight.numel() >= count)
        return
    yield from ("rows", "columns", *(("flat",) if weight.ndim > 2 else ()))  # noqa: PLR2004 - a matrix


def _real(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _cut(tensor: torch.Tensor, way: str) -> torch.Tensor:
    if way.startswith("parts"):
        return tensor.reshape(int(way.removeprefix("parts")), -1)
    if way == "flat":
        return tensor.reshape(tensor.shape[0], -1)
    tensor = tensor.mT if way == "columns" else tensor
    return tensor.reshape(-1, tensor.shape[-1])


def _bits(weight: torch.Tensor) -> torch.Tensor:
    """Return the bytes of each element in float32 as an integer, whose low bits tell the high ones too."""
    found = (_real(weight).float() + 0.0).contiguous().view(torch.int32)  # + 0.0: no sign of a zero
    return (found ^ (found >> 15)).to(torch.int64)


def _keys(rows: torch.Tensor) -> Keys:
    """Return a number for each row that tells its integers; exact, in whatever order they are summed."""
    odd = _odd_numbers(rows.shape[-1]).to(rows.device)
    summed = rows.mv(odd) if rows.device.type == "cpu" else (rows * odd).sum(-1)
    found: Keys = (summed ^ rows.shape[-1]).cpu().numpy()
    return found


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


def _numbers(rows: torch.Tensor | None, count: int) -> Floats:
    if rows is None:
        return np.zeros((count, PROJECTIONS + 1))
    along = rows @ _directions(rows.shape[-1]).to(rows.device)
    size = rows.square().sum(-1, keepdim=True).sqrt()  # faster than a norm, by columns above all
    found: Floats = torch.cat([along, size], 1).cpu().numpy()
    return found


#: A row of a reference: parameter, way and number.
Place = tuple[str, str, int]


class PairedRows(NamedTuple):
    """A parameter of the port beside the rows of the reference that it is made of."""

    name: str  # of the port's parameter
    others: tuple[str, ...]  # of the reference's, in the order of the rows
    way: str
    places: tuple[Place, ...]  # of each row
    alike: tuple[tuple[Place, ...], ...] = ()  # all places whose rows hold the same numbers, where it is one whole


class ParameterPairs:
    """Which parameter of a port is which of a reference."""

    def __init__(self, own: ParameterRows, expected: ParameterRows) -> None:
        self._rows: dict[int, list[Place]] = {}
        self._wholes: dict[bytes, list[tuple[Place, ...]]] = {}
        self._taken: dict[int, int] = {}  # rows that are equal to each other belong together in their order
        for name, ways in expected.ways.items():
            for way in ways:
                places = tuple((name, way.name, row) for row in range(len(way.keys)))
                self._wholes.setdefault(way.keys.tobytes(), []).append(places)
                for place, key in zip(places, way.keys.tolist(), strict=True):
                    self._rows.setdefault(key, []).append(place)
        found = ((name, self._paired(name, ways)) for name, ways in own.ways.items())
        self.paired = {name: pair for name, pair in found if pair is not None}
        self.unpaired = tuple(name for name in own.ways if name not in self.paired)
        held = {place[0] for pair in self.paired.values() for places in (pair.places, *pair.alike) for place in places}
        self.missing = tuple(name for name in expected.ways if name not in held)

    def _paired(self, name: str, ways: list[RowCut]) -> PairedRows | None:
        for way in ways:
            keys = way.keys.tolist()
            if not keys or any(key not in self._rows for key in keys):
                continue
            one = [(place,) for place in self._rows[keys[0]]] if len(keys) == 1 else []
            alike = tuple(one or self._wholes.get(way.keys.tobytes(), ()))
            places = tuple(self._next(key) for key in keys)
            places = next((each for each in alike if each[0][0] == name), alike[0] if len(alike) == 1 else places)
            return PairedRows(name, tuple(dict.fromkeys(place[0] for place in places)), way.name, places, alike)
        return None

    def _next(self, key: int) -> Place:
        at = self._taken.get(key, 0)
        self._taken[key] = at + 1
        return self._rows[key][min(at, len(self._rows[key]) - 1)]

    def beside(self, name: str, own: ParameterRows, expected: ParameterRows) -> tuple[Floats, Floats]:
        """Return what both sides hold for a parameter of the port, ``(rows, PROJECTIONS + 1)`` each.

        Of those with the same numbers (norms of ones) nobody knows which is which: the nearest is taken.
        """
        pair = self.paired[name]
        mine = next(way.numbers for way in own.ways[name] if way.name == pair.way)
        choices = pair.alike if len(pair.alike) > 1 else (pair.places,)
        tables = {place[0]: expected.ways[place[0]] for places in choices for place in places}
        numbers = {(other, way.name): way.numbers for other, ways in tables.items() for way in ways}
        found = (np.stack([numbers[other, way][row] for other, way, row in places]) for places in choices)
        return mine, min(found, key=lambda each: float(np.abs(each - mine)[:, :PROJECTIONS].max()))
