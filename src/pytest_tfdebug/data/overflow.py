"""What a watch for overflow sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from pytest_tfdebug.records import SourceRange

#: Where a frame's tensor stands.
FrameDirection = Literal["input", "output", "gradient", "parameter", "product"]
#: Where the first non-finite value arose; see :class:`Fault`.
FaultKind = Literal["module", "excused", "glue", "inputs", "parameter", "gradient", "loss"]


@dataclass(slots=True)
class Extremes:
    """Smallest and largest element of one tensor; both NaN when any element is."""

    dtype: str  # name without the `torch.` prefix, `"float16"`
    low: float  # smallest element
    high: float  # largest element
    is_mask: bool = False  # the tensor is named as a mask or a bias: -inf in it is no fault
    is_exempt: bool = False  # the tensor came out of an ignored module with values that are not finite
    # the extremes without the elements that a mask hides, one for each way to read the masks; empty where no mask bears
    # on the tensor
    rests: list[Extremes] = field(default_factory=list)
    note: str = ""  # what a reader has to know beside the numbers; empty most often

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
    """One tensor of one call, as the report lists it."""

    forward: int  # number of the forward, from 0
    path: str  # module path; the root's class name for the root
    class_name: str  # the module's class
    direction: FrameDirection  # what the tensor is to the module
    leaf: str  # leaf path in the inputs or outputs; name of a parameter
    extremes: Extremes  # its values; shared by the frames of one tensor
    # the tensor, for as long as it lives
    tensor: Callable[[], torch.Tensor | None] = field(default=lambda: None, repr=False, compare=False)


class Details(NamedTuple):
    """The culprit tensor, looked at closely."""

    nans: int  # number of nan elements
    infs: int  # number of +inf and -inf elements
    total: int  # elements in all
    first: tuple[int, ...]  # index of the first element that is not finite
    abs_min: float  # smallest absolute value among the finite elements; NaN when there is none
    abs_max: float  # largest likewise


@dataclass(slots=True)
class Fault:
    """Where the first non-finite value of a forward or backward arose."""

    frame: Frame  # the first tensor that is not finite
    # `module`: the output of a module with finite inputs that called no other; `excused`: likewise, but a mask or
    # `ignore` excused an input that is not finite; `glue`: it arose in the code of `owner` between or after its
    # children's calls; `inputs`: the model was given it; `parameter`: a weight holds it; `gradient`: it arose in the
    # backward; `loss`: likewise, before it came to the output of any module
    kind: FaultKind
    owner: str  # module path of the module whose code is meant
    owner_class: str  # its class
    source: SourceRange | None = None  # lines to look at; None where there is no source
    frames: tuple[Frame, ...] = ()  # the last frames, the culprit's at the end
    details: Details | None = None  # the culprit tensor; None when it was gone by the time the values were read back
    facts: list[str] = field(default_factory=list)  # further observations, in sentences
    hints: list[str] = field(default_factory=list)  # what may be behind it, in sentences
    called_at: SourceRange | None = None  # lines of the caller that called the module; None for a root


class Tight(NamedTuple):
    """How close one module comes to the end of a dtype's range."""

    frame: Frame  # the tensor that comes closest
    value: float  # its largest absolute value, or the square of it
    limit: float  # largest number of the dtype
    dtype: str  # the dtype's name
    is_square: bool = False  # the value is a square: what a norm computes before its mean
    # lines of the module, or of its caller where it has no source; None where there are none either
    source: SourceRange | None = None

    @property
    def ratio(self) -> float:
        """Limit over value: the headroom; below 1 where the value does not fit."""
        return self.limit / self.value
