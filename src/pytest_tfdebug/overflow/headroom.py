"""How close each module comes to the ends of a dtype's range, from a run in any dtype."""

from __future__ import annotations

import linecache
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_tfdebug.overflow.records import Frame, Tight
from pytest_tfdebug.overflow.settings import largest, smallest_normal

if TYPE_CHECKING:
    from pytest_tfdebug.overflow.settings import OverflowSettings
    from pytest_tfdebug.records import Call, SourceRange

_TO_FLOAT32 = re.compile(r"float32|float64|\.float\(|\.double\(")
#: Rows of the report's table.
TIGHTEST = 10


class Headroom:
    """The largest value of each module so far, and the tensor of each that is nearest to 0 as a whole."""

    def __init__(self, settings: OverflowSettings) -> None:
        self._settings = settings
        self.is_complete = False
        self.first: Tight | None = None
        self._tight: dict[str, Tight] = {}
        self._faint: dict[str, Tight] = {}

    def see(self, call: Call | None, frames: list[Frame], *, is_leaf: bool = False) -> None:
        """Take in the tensors of a call."""
        settings = self._settings
        if not settings.wants_headroom and settings.underflow is None and not self.is_complete:
            return
        is_norm = call is not None and is_leaf and "norm" in call.class_name.lower() and not widens(call.source)
        source = None if call is None else call.source or call.called_at
        for frame in frames:
            extremes = frame.extremes.unmasked
            if frame.extremes.is_mask or frame.extremes.is_exempt or not extremes.is_finite or not extremes.abs_max:
                continue
            dtype = settings.target(extremes.dtype)
            if settings.wants_headroom or self.is_complete:
                self._keep(Tight(frame, extremes.abs_max, largest(dtype), dtype, source=source))
                if is_norm and frame.direction == "input":
                    self._keep(Tight(frame, extremes.abs_max**2, largest(dtype), dtype, is_square=True, source=source))
            if settings.underflow is not None:
                tight = Tight(frame, extremes.abs_max, smallest_normal(dtype), dtype, source=source)
                if frame.path not in self._faint or tight.ratio > self._faint[frame.path].ratio:
                    self._faint[frame.path] = tight

    def tightest(self) -> list[Tight]:
        """Return the modules whose largest values come closest to the dtype's largest number, closest first."""
        return sorted(self._tight.values(), key=lambda tight: tight.ratio)[:TIGHTEST]

    def by_module(self) -> list[Tight]:
        """Return the largest value of every module, in the order in which they ran first."""
        return list(self._tight.values())

    def faintest(self) -> list[Tight]:
        """Return the modules with a tensor that lies closest to 0 as a whole, closest first."""
        return sorted(self._faint.values(), key=lambda tight: -tight.ratio)[:TIGHTEST]

    @property
    def is_faint(self) -> bool:
        """Whether some tensor lies below the smallest normal number times the factor asked for."""
        factor = self._settings.underflow
        return factor is not None and any(tight.ratio * factor > 1 for tight in self._faint.values())

    def _keep(self, tight: Tight) -> None:
        if self.first is None and self._settings.wants_headroom and tight.ratio < (self._settings.headroom or 1.0):
            self.first = tight
        known = self._tight.get(tight.frame.path)
        if known is None or tight.ratio < known.ratio:
            self._tight[tight.frame.path] = tight


def widens(source: SourceRange | None) -> bool:
    """Tell whether a forward says itself that it computes in float32 or wider.

    A cast in the source goes wherever the model goes. That a kernel accumulates in float32, as torch's own
    ``LayerNorm`` does, is not known of the next runtime: in onnxruntime the variance of a float16 ``LayerNorm`` became
    inf and every output stayed finite (https://github.com/microsoft/onnxruntime/issues/31626).
    """
    return source is not None and _mentions_float32(source.file, source.first, source.last)


@lru_cache(maxsize=4096)
def _mentions_float32(file: str, first: int, last: int) -> bool:
    return any(_TO_FLOAT32.search(line) for line in linecache.getlines(file)[first - 1 : last])
