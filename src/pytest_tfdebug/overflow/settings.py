"""What a watch for overflow is asked for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.marker_arguments import Arguments, argument, is_number, is_whole_number, several
from pytest_tfdebug.tracing.record.modules import checked

_DTYPES = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")


def _wrong_glob(glob: str) -> str:
    try:
        checked(glob)
    except TFDebugError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class OverflowSettings(Arguments):
    """What to watch for and how much to tell: the arguments of :func:`pytest_tfdebug.overflow_guard`."""

    frames: int = argument(40, lambda value: is_whole_number(value, 1), "a number of lines, 1 or more")
    dtype: str | None = argument(
        None,
        lambda value: value in _DTYPES,
        f"None or one of {', '.join(_DTYPES)}",
        lambda value: str(value).removeprefix("torch."),
    )
    headroom: float | None = argument(
        None,
        lambda value: is_number(value) and value > 0,
        "None or a factor above 0, such as 2.0",
        lambda value: float(value) if is_number(value) else value,
    )
    gradients: bool = argument(False, lambda value: isinstance(value, bool), "True or False")  # noqa: FBT003 - the default
    ignore: tuple[str, ...] = argument(
        (),
        lambda value: all(isinstance(item, str) for item in value),
        'a glob of module paths or several, such as "lm_head" or ("**.router", "lm_head")',
        several,
    )

    def contradictions(self) -> list[str]:
        """Return which globs cannot be read."""
        return [told for told in map(_wrong_glob, self.ignore) if told]

    @property
    def wants_headroom(self) -> bool:
        """Whether there is a limit to hold values to."""
        return self.headroom is not None or self.dtype is not None

    @property
    def factor(self) -> float:
        """By how much a value must stay below the limit."""
        return self.headroom or 1.0

    def target(self, dtype: str) -> str:
        """Return the dtype that a tensor of some dtype has to fit."""
        return self.dtype or dtype


def largest(dtype: str) -> float:
    """Return the largest number of a dtype."""
    return float(torch.finfo(getattr(torch, dtype)).max)
