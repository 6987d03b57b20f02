"""One pass over each tensor: its smallest and largest element say whether it is finite and how large it is.

``torch.aminmax`` reads a tensor once, at the speed of memory, and hands nan on. On the CPU its results are read as they
come; on any other device they wait there until :meth:`Reducer.read_back` fetches all of them at once, so that no module
makes the host wait for the device. Of the culprit more is counted: how much of it is not finite, and where. The largest
values that were seen are kept for the headroom.
"""

from __future__ import annotations

import linecache
import re
from collections import Counter
from functools import lru_cache
from math import isfinite, isnan, nan
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.data.overflow import Details, Extremes, Frame, Tight
from pytest_tfdebug.overflow.settings import largest
from pytest_tfdebug.tensors import dtype_name
from pytest_tfdebug.tracing.record.masks import has_masked_row, without_hidden
from pytest_tfdebug.tracing.record.state import SeenTensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.data.overflow import Fault
    from pytest_tfdebug.overflow.settings import OverflowSettings
    from pytest_tfdebug.records import Call, SourceRange


_DTYPES: dict[torch.dtype, str] = {
    getattr(torch, name): name for name in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
}


def is_read_at_once(tensor: torch.Tensor) -> bool:
    """Tell whether a number of a tensor can be read without waiting for a device."""
    return tensor.device.type == "cpu"


class Reducer:
    """The extremes of the tensors of one forward; a tensor that is met again unchanged is not read again."""

    def __init__(self, settings: OverflowSettings) -> None:
        self.skipped: Counter[str] = Counter()
        self._settings = settings
        self._known: SeenTensors[Extremes] = SeenTensors()
        self._waiting: list[tuple[Extremes, str, torch.Tensor]] = []

    @property
    def is_waiting(self) -> bool:
        """Whether extremes are still on their device, their numbers NaN."""
        return bool(self._waiting)

    def extremes(self, tensor: torch.Tensor, masks: list[torch.Tensor]) -> Extremes | None:
        """Return a tensor's extremes; None for integers, empty tensors, and tensors that can only be counted."""
        name = _DTYPES.get(tensor.dtype)
        if name is None or tensor.is_meta or tensor.layout != torch.strided:
            self._skip(tensor)
            return None
        if not tensor.numel():
            return None
        known = self._known.of(tensor)
        if known is not None:
            return known
        try:
            found = self._reduce(tensor.detach(), name, masks)
        except RuntimeError:  # tensors without values: fake, functional, batched by vmap
            self.skipped[type(tensor).__name__] += 1
            return None
        return self._known.note(tensor, found)

    def read_back(self) -> None:
        """Fetch the numbers that wait on devices, one transfer for each device and dtype."""
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[Extremes, str, torch.Tensor]]] = {}
        for entry in self._waiting:
            groups.setdefault((entry[2].device, entry[2].dtype), []).append(entry)
        for entries in groups.values():
            numbers = torch.stack([value for _, _, value in entries]).tolist()
            for (extremes, field, _), number in zip(entries, numbers, strict=True):
                setattr(extremes, field, number)
        for extremes in {id(extremes): extremes for extremes, _, _ in self._waiting}.values():
            if self._is_lowest(extremes):
                extremes.rests.append(Extremes(extremes.dtype, extremes.high, extremes.high))
        self._waiting = []

    def _skip(self, tensor: torch.Tensor) -> None:
        if tensor.is_quantized:
            self.skipped["quantized"] += 1
        elif tensor.is_floating_point() or tensor.is_complex():
            kind = "meta" if tensor.is_meta else dtype_name(tensor.dtype)
            self.skipped[kind if tensor.layout == torch.strided else str(tensor.layout)] += 1

    def _reduce(self, tensor: torch.Tensor, name: str, masks: list[torch.Tensor]) -> Extremes:
        if tensor.is_complex():
            tensor, name = torch.view_as_real(tensor.resolve_conj()), dtype_name(tensor.real.dtype)
        found, is_known = self._measure(tensor, name), is_read_at_once(tensor)
        if not is_known or not found.is_finite or self._is_large(found):
            found.rests = [self._measure(rest, name) for rest in without_hidden(tensor, masks)]
        if is_known and self._is_lowest(found):
            found.rests.append(self._measure(tensor.masked_fill(tensor <= -largest(name) / 2, 0), name))
        return found

    def _measure(self, tensor: torch.Tensor, name: str) -> Extremes:
        low, high = torch.aminmax(tensor)
        if is_read_at_once(tensor):
            return Extremes(name, float(low), float(high))
        found = Extremes(name, nan, nan)
        self._waiting += [(found, "low", low), (found, "high", high)]
        return found

    def _is_large(self, found: Extremes) -> bool:
        bound = largest(self._settings.target(found.dtype))
        return self._settings.wants_headroom and found.abs_max * self._settings.factor > bound

    def _is_lowest(self, found: Extremes) -> bool:
        """Tell whether a tensor holds its dtype's lowest number as a mask, where a narrower dtype is the question."""
        end = largest(found.dtype)
        return found.is_finite and found.low <= -end / 2 and end > largest(self._settings.target(found.dtype))


#: A narrow dtype, and where to go from there.
NARROW, WIDER = "float16", "bfloat16 or float32"
#: Inputs of this size overflow a narrow dtype when they are multiplied or summed up.
_LARGE = 1e2


@torch.no_grad()
def details(tensor: torch.Tensor) -> Details:
    """Count what is not finite in a tensor, also a float8 or sparse one, and find the first such element."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.dtype.itemsize == 1:
        tensor = tensor.float()
    nans, finite = int(tensor.isnan().sum()), tensor.isfinite()
    bad = torch.nonzero(~finite)
    magnitudes = tensor[finite].abs()
    low, high = map(float, torch.aminmax(magnitudes)) if magnitudes.numel() else (nan, nan)
    return Details(nans, len(bad) - nans, finite.numel(), tuple(bad[0].tolist()) if len(bad) else (), low, high)


def weight_facts(module: torch.nn.Module) -> Iterator[str]:
    """Yield a sentence for each parameter and buffer of a module itself that is not finite."""
    own = (("parameter", module.named_parameters(recurse=False)), ("buffer", module.named_buffers(recurse=False)))
    for kind, name, tensor in ((kind, *pair) for kind, pairs in own for pair in pairs):
        if tensor.is_meta or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        try:
            found = details(tensor)
        except RuntimeError:  # dtypes without these operations, such as float4
            continue
        if found.nans or found.infs:
            bad = found.nans + found.infs
            yield f"The {kind} {name!r} of this module is not finite itself: {bad} / {found.total} elements."


def hints(fault: Fault, masks: list[torch.Tensor]) -> Iterator[str]:
    """Yield what the numbers say of what may be behind a fault."""
    found, dtype = fault.details, fault.frame.extremes.dtype
    has_nan = found.nans > 0 if found else isnan(fault.frame.extremes.low)
    if has_nan and any(map(has_masked_row, masks)):
        yield "A row of the mask hides every position: the softmax over it is nan."
    # the largest finite value among the culprit's other frames, or the frames before it
    near = [item for item in fault.frames if item.path == fault.frame.path and item is not fault.frame]
    seen = [frame.extremes.abs_max for frame in near or fault.frames[-4:]]
    before = max(filter(isfinite, seen), default=0.0)
    if dtype == NARROW and before >= _LARGE:
        yield (
            f"{dtype} ends at {largest(dtype):.2e}, and the inputs reach {before:.2e}: compute this part in {WIDER}, "
            "or scale the values down before it."
        )


_TO_FLOAT32 = re.compile(r"float32|float64|\.float\(|\.double\(")
#: Rows of the report's table.
TIGHTEST = 10


class Headroom:
    """The largest value of each module so far."""

    def __init__(self, settings: OverflowSettings) -> None:
        self._settings = settings
        self.is_complete = False
        self.first: Tight | None = None
        #: The largest value of every module, in the order in which they ran first.
        self.by_module: dict[str, Tight] = {}

    def see(self, call: Call | None, frames: list[Frame], *, is_leaf: bool = False) -> None:
        """Take in the tensors of a call."""
        settings = self._settings
        if not settings.wants_headroom and not self.is_complete:
            return
        is_norm = call is not None and is_leaf and "norm" in call.class_name.lower() and not widens(call.source)
        source = None if call is None else call.source or call.called_at
        for frame in frames:
            extremes = frame.extremes.unmasked
            if frame.extremes.is_mask or frame.extremes.is_exempt or not extremes.is_finite or not extremes.abs_max:
                continue
            dtype = settings.target(extremes.dtype)
            self._keep(Tight(frame, extremes.abs_max, largest(dtype), dtype, source=source))
            if is_norm and frame.direction == "input":
                self._keep(Tight(frame, extremes.abs_max**2, largest(dtype), dtype, is_square=True, source=source))

    def see_product(self, call: Call, frame: Frame, at: SourceRange) -> None:
        """Take in a matrix product in the code of a call, unless that says that it computes in float32."""
        extremes = frame.extremes.unmasked
        if extremes.is_finite and extremes.abs_max and not widens(call.source):
            dtype = self._settings.target(extremes.dtype)
            self._keep(Tight(frame, extremes.abs_max, largest(dtype), dtype, source=at))

    def tightest(self) -> list[Tight]:
        """Return the modules whose largest values come closest to the dtype's largest number, closest first."""
        return sorted(self.by_module.values(), key=lambda tight: tight.ratio)[:TIGHTEST]

    def _keep(self, tight: Tight) -> None:
        if self.first is None and self._settings.wants_headroom and tight.ratio < self._settings.factor:
            self.first = tight
        known = self.by_module.get(tight.frame.path)
        if known is None or tight.ratio < known.ratio:
            self.by_module[tight.frame.path] = tight


@lru_cache(maxsize=4096)
def widens(source: SourceRange | None) -> bool:
    """Tell whether a forward says itself that it computes in float32 or wider.

    A cast in the source goes wherever the model goes. That a kernel accumulates in float32, as torch's own
    ``LayerNorm`` does, is not known of the next runtime: in onnxruntime the variance of a float16 ``LayerNorm`` became
    inf and every output stayed finite (https://github.com/microsoft/onnxruntime/issues/31626).
    """
    lines = [] if source is None else linecache.getlines(source.file)[source.first - 1 : source.last]
    return any(map(_TO_FLOAT32.search, lines))
