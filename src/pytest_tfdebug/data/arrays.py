"""Arrays of a runtime beside the values of a reference."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_tfdebug.data.comparison import ComparisonResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.records import LeafComparison, SourceRange
    from pytest_tfdebug.values import Fingerprint

#: How an array has its partners: it is the value, several of them, a part of one, a turn of one, a crop of an output,
#: it says nothing (constant, or of a few elements); or it has none.
How = Literal["value", "joined", "part", "turn", "crop", "says nothing", ""]


@dataclass(slots=True)
class Array:
    """An array under test."""

    label: str  # what its runtime calls it
    print: Fingerprint
    shape: tuple[int, ...]
    dtype: str
    partners: tuple[int, ...] = ()  # the values of the reference that it is, or is a part of
    distance: float = math.inf  # from the nearest
    share: float = math.inf  # of the distance that is allowed
    how: How = ""

    @property
    def is_open(self) -> bool:
        """Whether it says something that no value of the reference says."""
        return not self.how

    @property
    def vouches(self) -> bool:
        """Whether what its partners were computed from must be right: whole numbers hide too much."""
        return "float" in self.dtype

    def become(self, how: How, partners: Sequence[int], distance: float = 0.0, share: float = 0.0) -> None:
        """Give it its partners."""
        self.how, self.partners, self.distance, self.share = how, tuple(partners), distance, share


class ReferenceStatement(NamedTuple):
    """A statement of the reference, and the lines that led to it, innermost first, where it is in a helper."""

    lines: SourceRange
    via: tuple[SourceRange, ...] = ()


@dataclass(frozen=True)
class IntervalStep:
    """Lines of the reference that may be done otherwise."""

    strength: str  # how closely that is known: "proved", "before", "statement", "module" or "latest"
    statements: tuple[ReferenceStatement, ...]  # as they are computed, those of constants (masks, positions) last


@dataclass(frozen=True, repr=False)
class ArraysResult(ComparisonResult):
    """A comparison of arrays without names; see :class:`~pytest_tfdebug.data.comparison.ComparisonResult`."""

    arrays: list[Array] = field(default_factory=list)  # every one, with its partners
    #: The interval: lines of the reference that may be done otherwise, by how closely that is known.
    steps: list[IntervalStep] = field(default_factory=list)
    first: Array | None = None  # the first that the reference does not have; None where what is missing has no array
    factor: float = 0.0  # how many times that value the first array is; 0 where it is no multiple of it
    outputs: list[tuple[LeafComparison, str]] = field(default_factory=list)  # each, and what part of it was compared
    uncompared: list[str] = field(default_factory=list)  # outputs that no array could be compared with
