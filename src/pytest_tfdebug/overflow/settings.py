"""The arguments of ``overflow_free`` and of its siblings outside pytest, checked once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.tracing.globs import checked

_DTYPES = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class Settings:
    """What to watch for and how much to tell.

    Args:
        frames: Length of the report's list of frames.
        dtype: The dtype that values have to fit, ``"float16"``; None for the dtype of each tensor.
        headroom: Factor by which the largest absolute value seen must stay below the dtype's largest number. None
            checks a given ``dtype`` with factor 1, and nothing without one.
        underflow: Factor by which the largest absolute value of each tensor must stay above the dtype's smallest normal
            number: below it, with factor 1, every element of the tensor is subnormal or flushed to 0. None is off.
        gradients: Watch gradients too.
        ignore: Globs over module paths whose inputs and outputs are not judged.
        trace_batches: Numbers of the forwards whose frames are printed instead of judged.
        abort_after_batch: Number of the forward after which to stop.
    """

    frames: int = 40
    dtype: str | None = None
    headroom: float | None = None
    underflow: float | None = None
    gradients: bool = False
    ignore: tuple[str, ...] = ()
    trace_batches: tuple[int, ...] = ()
    abort_after_batch: int | None = None

    @classmethod
    def of(cls, name: str, *positional: object, **arguments: Any) -> Settings:  # noqa: ANN401 - whatever a user typed
        """Check what a user typed.

        Args:
            name: What was called, for the message.
            *positional: Its positional arguments: there is no place for them.
            **arguments: Its keyword arguments.

        Raises:
            TFDebugError: If an argument is unknown or has a value that it cannot have.
        """
        valid = ", ".join(field.name for field in fields(cls))
        if positional:
            raise TFDebugError(
                f"{name} takes keyword arguments only and got {positional[0]!r}.\nValid arguments: {valid}."
            )
        for argument, value in arguments.items():
            if argument not in _CHECKS:
                raise TFDebugError(f"{name} has no argument {argument!r}.\nValid arguments: {valid}.")
            is_valid, wanted = _CHECKS[argument]
            if not is_valid(value):
                raise TFDebugError(f"{name}({argument}={value!r}): {argument} is {wanted}.\nValid arguments: {valid}.")
        return cls(**{argument: _normal(argument, value) for argument, value in arguments.items()})

    @property
    def wants_headroom(self) -> bool:
        """Whether there is a limit to hold values to."""
        return self.headroom is not None or self.dtype is not None

    def target(self, dtype: str) -> str:
        """Return the dtype that a tensor of some dtype has to fit."""
        return self.dtype or dtype


def largest(dtype: str) -> float:
    """Return the largest number of a dtype."""
    return float(torch.finfo(getattr(torch, dtype)).max)


def smallest_normal(dtype: str) -> float:
    """Return the smallest positive normal number of a dtype; what is smaller loses bits or becomes 0."""
    return float(torch.finfo(getattr(torch, dtype)).smallest_normal)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_factor(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0)


def _is_dtype(value: object) -> bool:
    return value is None or str(value).removeprefix("torch.") in _DTYPES


def _is_several(value: object, is_item: Any) -> bool:  # noqa: ANN401 - a predicate
    return isinstance(value, Collection) and all(is_item(item) for item in value)


#: Argument -> predicate, and what a valid value is.
_CHECKS: dict[str, tuple[Any, str]] = {
    "frames": (lambda value: _is_count(value) and value > 0, "a number of lines, 1 or more"),
    "dtype": (_is_dtype, f"None or one of {', '.join(_DTYPES)}"),
    "headroom": (_is_factor, "None or a factor above 0, such as 2.0"),
    "underflow": (_is_factor, "None or a factor above 0, such as 1.0"),
    "gradients": (lambda value: isinstance(value, bool), "True or False"),
    "ignore": (
        lambda value: _is_several(value, lambda item: isinstance(item, str)),
        'a glob of module paths or several, such as "lm_head" or ("**.router", "lm_head")',
    ),
    "trace_batches": (
        lambda value: not isinstance(value, str) and _is_several(value, _is_count),
        "a list of numbers of forwards from 0, such as [1, 3]",
    ),
    "abort_after_batch": (lambda value: value is None or _is_count(value), "None or the number of a forward from 0"),
}


def _normal(argument: str, value: Any) -> Any:  # noqa: ANN401
    if argument == "dtype":
        return None if value is None else str(value).removeprefix("torch.")
    if argument == "ignore":
        return tuple(map(checked, (value,) if isinstance(value, str) else value))
    if argument == "trace_batches":
        return tuple(value)
    if argument in ("headroom", "underflow"):
        return None if value is None else float(value)
    return value
