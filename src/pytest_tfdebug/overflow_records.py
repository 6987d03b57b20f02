"""What a watch for overflow sees: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from pytest_tfdebug.records import SourceRange

#: Where a frame's tensor stands; ``probe`` is a tensor that ``detect_overflow`` was given.
FrameDirection = Literal["input", "output", "gradient", "parameter", "probe"]
#: Where the first non-finite value arose; see :class:`Fault`.
FaultKind = Literal["module", "excused", "glue", "inputs", "parameter", "gradient", "loss", "probe"]


@dataclass(slots=True)
class Extremes:
    """Smallest and largest element of one tensor; both NaN when any element is.

    Args:
        dtype: Name without the ``torch.`` prefix, ``"float16"``.
        low: Smallest element.
        high: Largest element.
        abs_min: Smallest absolute value; None where nobody asked.
        is_mask: The tensor is named as a mask or a bias: -inf in it is no fault.
        is_exempt: The tensor came out of an ignored module with values that are not finite.
        rests: The extremes without the elements that a mask hides, one for each way to read the masks; empty where no
            mask bears on the tensor.
        note: What a reader has to know beside the numbers; empty most often.
    """

    dtype: str
    low: float
    high: float
    abs_min: float | None = None
    is_mask: bool = False
    is_exempt: bool = False
    rests: list[Extremes] = field(default_factory=list)
    note: str = ""

    @property
    def abs_max(self) -> float:
        """Largest absolute value; NaN when any element is."""
        return max(abs(self.low), abs(self.high))

    @property
    def is_finite(self) -> bool:
        """Whether every element is finite."""
        return isfinite(self.low) and isfinite(self.high)

    @property
    def is_only_low(self) -> bool:
        """Whether nothing is nan or +inf: what is not finite is -inf."""
        return self.high < inf

    @property
    def unmasked(self) -> Extremes:
        """The extremes without what masks hide: the tamest reading of the masks."""
        return min((rest for rest in self.rests if rest.is_finite), key=lambda rest: rest.abs_max, default=self)


@dataclass(slots=True)
class Frame:
    """One tensor of one call, as the report lists it.

    Args:
        forward: Number of the forward, from 0.
        path: Module path; the root's class name for the root.
        class_name: The module's class.
        direction: What the tensor is to the module.
        leaf: Leaf path in the inputs or outputs; name of a parameter; text given to ``detect_overflow``.
        extremes: Its values; shared by the frames of one tensor.
    """

    forward: int
    path: str
    class_name: str
    direction: FrameDirection
    leaf: str
    extremes: Extremes


class Details(NamedTuple):
    """The culprit tensor, looked at closely.

    Args:
        nans: Number of nan elements.
        infs: Number of +inf and -inf elements.
        total: Elements in all.
        first: Index of the first element that is not finite.
        abs_min: Smallest absolute value among the finite elements; NaN when there is none.
        abs_max: Largest likewise.
    """

    nans: int
    infs: int
    total: int
    first: tuple[int, ...]
    abs_min: float
    abs_max: float


@dataclass(slots=True)
class Fault:
    """Where the first non-finite value of a forward or backward arose.

    Args:
        frame: The first tensor that is not finite.
        kind: ``module``: the output of a module with finite inputs that called no other; ``excused``: likewise, but a
            mask or ``ignore`` excused an input that is not finite; ``glue``: it arose in the code of ``owner`` between
            or after its children's calls; ``inputs``: the model was given it; ``parameter``: a weight holds it;
            ``gradient``: it arose in the backward; ``loss``: likewise, before it came to the output of any module;
            ``probe``: ``detect_overflow`` saw it first.
        owner: Module path of the module whose code is meant.
        owner_class: Its class.
        source: Lines to look at; None where there is no source.
        frames: The last frames, the culprit's at the end.
        details: The culprit tensor; None when it was gone by the time the values were read back.
        facts: Further observations, in sentences.
        hints: What may be behind it, in sentences.
        called_at: Lines of the caller that called the module; None for a root.
    """

    frame: Frame
    kind: FaultKind
    owner: str
    owner_class: str
    source: SourceRange | None = None
    frames: tuple[Frame, ...] = ()
    details: Details | None = None
    facts: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    called_at: SourceRange | None = None


class Tight(NamedTuple):
    """How close one module comes to an end of a dtype's range.

    Args:
        frame: The tensor that comes closest.
        value: Its largest absolute value, or the square of it.
        limit: Largest (or smallest normal) number of the dtype.
        dtype: The dtype's name.
        is_square: The value is a square: what a norm computes before its mean.
        source: Lines of the module, or of its caller where it has no source; None where there are none either.
    """

    frame: Frame
    value: float
    limit: float
    dtype: str
    is_square: bool = False
    source: SourceRange | None = None

    @property
    def ratio(self) -> float:
        """Limit over value: the headroom; below 1 where the value does not fit."""
        return self.limit / self.value
