"""What a marker or an ``assert_*`` function was given, checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.parity.tolerance import Tolerance, Tolerances

if TYPE_CHECKING:
    from collections.abc import Mapping

Side = Literal["right", "left"]

#: float32: transformers' own batching and left-padding tests allow 1e-5 (``test_modeling_common.py``). float16 and
#: bfloat16 are never exactly invariant (transformers#25420): 1e-3 and 1e-2. float64: models compute norms
#: and softmax in float32 all the same, 1e-6.
#: In deep models the largest of many elements leaves these: the noise is twice that of another padded length in
#: all-MiniLM-L6-v2 and in random eight-layer models.
TOLERANCES = {
    "float64": Tolerance(1e-6, 1e-6, scaled=True, noise=1e-6),
    "float32": Tolerance(1e-5, 1e-5, scaled=True, noise=2e-6),
    "float16": Tolerance(1e-3, 1e-3, scaled=True, noise=2e-3),
    "bfloat16": Tolerance(1e-2, 1e-2, scaled=True, noise=1.6e-2),
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every check takes.

    Args:
        rtol: Relative tolerance; by dtype when None.
        atol: Absolute tolerance in the tensor's units; by dtype when None.
    """

    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self) -> None:
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0):
                raise TFDebugError(f"{name}={value!r} is not a number >= 0.")

    def tolerances(self) -> Tolerances:
        """Return the tolerance of every tensor."""
        return Tolerances(self.rtol, self.atol, tuple(TOLERANCES.items()))


@dataclass(frozen=True, kw_only=True)
class PaddingSettings(Settings):
    """What ``padding_invariant`` takes.

    Args:
        side: ``"right"``, ``"left"`` or ``"both"``. ``"both"`` leaves the left side out for models that are never
            padded there: see :func:`pytest_tfdebug.invariance.sides.left_padding_refusal`.
        lengths: Numbers of pads to add; None for 1, 7 and as many as make the padded length the next multiple of 32
            and one more.
        filler: Token at the new positions: ``"pad"``, ``"random"`` or an id.
        position_ids: ``"auto"``, ``"never"`` or ``"always"`` give the forward position ids built from the mask.
        expect: ``"same"``, or ``"varies"`` for a model that is not invariant by design.
        reason: Why it is not.
    """

    side: str = "both"
    lengths: Iterable[int] | int | None = None
    filler: str | int = "pad"
    position_ids: str = "auto"
    expect: str = "same"
    reason: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("side", self.side, ("right", "left", "both"))
        one_of("position_ids", self.position_ids, ("auto", "never", "always"))
        one_of("expect", self.expect, ("same", "varies"))
        if isinstance(self.filler, bool) or not isinstance(self.filler, int):
            one_of("filler", self.filler, ("pad", "random"), "a token id")
        elif self.filler < 0:
            raise TFDebugError(f"filler={self.filler!r} is not one of 'pad', 'random', a token id.")
        if self.lengths is not None:
            object.__setattr__(self, "lengths", _lengths(self.lengths))
        if self.reason is not None and not isinstance(self.reason, str):
            raise TFDebugError(f"reason={self.reason!r} is not a text.")
        if self.expect == "varies" and not self.reason:
            raise TFDebugError("expect='varies' needs reason=: say why the model is not invariant to padding.")

    @property
    def pads(self) -> tuple[int, ...] | None:
        """The numbers of pads to add, ascending; None for the default sweep."""
        return None if self.lengths is None else tuple(self.lengths)  # type: ignore[arg-type] # normalised above


def build(kind: type[Settings], marker: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Settings:
    """Return the settings of a marker or function.

    Raises:
        TFDebugError: If an argument is unknown, positional or of no sense; the message quotes it and lists the valid.
    """
    names = [item.name for item in fields(kind)]
    if args:
        raise TFDebugError(f"{marker} takes keyword arguments only ({', '.join(names)}) and got {args[0]!r}.")
    for name, value in kwargs.items():
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise TFDebugError(f"{marker} has no argument {name}={value!r}; it takes {', '.join(names)}.{hint}")
    try:
        return kind(**kwargs)
    except TFDebugError as error:
        raise TFDebugError(f"{marker}: {error}") from error


def one_of(name: str, value: object, valid: tuple[str, ...], other: str = "") -> None:
    """Refuse a value that is none of the valid ones."""
    if not isinstance(value, str) or value not in valid:
        listed = ", ".join([*map(repr, valid), *([other] if other else [])])
        raise TFDebugError(f"{name}={value!r} is not one of {listed}.")


def _lengths(value: object) -> tuple[int, ...]:
    given = [value] if isinstance(value, int) else value
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise TFDebugError(f"lengths={value!r} is not a number of pads or several.")
    numbers = list(given)
    if not numbers or any(isinstance(item, bool) or not isinstance(item, int) or item < 1 for item in numbers):
        raise TFDebugError(f"lengths={value!r} is not a number of pads >= 1 or several.")
    return tuple(sorted(set(numbers)))
