"""The text of an overflow, in the form that transformers' ``DebugUnderflowOverflow`` made known."""

from __future__ import annotations

from math import inf, isinf, isnan, nan
from typing import TYPE_CHECKING

from pytest_tfdebug.report.check_text import CheckText, next_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_tfdebug.data.overflow import Details, Fault, Frame, Tight
    from pytest_tfdebug.records import SourceRange

#: Whether a tensor goes into a module, out of it, back through it, or belongs to it.
_SIGNS = {"input": ">", "output": "<", "gradient": "^", "parameter": "=", "product": "@"}
#: Kind of a fault -> where the value arose.
WHERE = {
    "module": "the module itself; its inputs are finite",
    "excused": "the module itself; what is not finite in its inputs is excused as a mask or by ignore=",
    "glue": "glue; everything before these lines is finite",
    "inputs": "its caller; the model was given these values",
    "parameter": "its weights, before any forward",
    "gradient": "its backward; every gradient before it is finite",
    "loss": "glue after it, or the loss: no module took this output",
}
_ADVICE = "Fix these lines. If such a value is meant, name the module in ignore=."
_CLOSE = "Scale the values down there, or compute that part in float32 or bfloat16; ignore= exempts a module."
_SQUARED = (
    "Cast the norm's input to float32 in its forward, or exempt it with ignore=: unless its kernel accumulates in "
    "float32, a norm whose square overflows gives finite, wrong outputs."
)


def fault_text(fault: Fault, remarks: Iterable[str] = ()) -> CheckText:
    """Return the text of a fault: the answer, what is known of the culprit, the last frames."""
    source = fault.source or fault.called_at
    what, lines = tensor_of(fault.frame), f", {fault.source}" if fault.source else ""
    if fault.frame.path != fault.owner:
        what += f" of {fault.frame.path}"
    return CheckText(
        f"{_at(source)}{fault.owner} ({fault.owner_class}): {what} {_verdict(fault)}",
        why=(
            f"Where: {fault.owner} ({fault.owner_class}){lines}: {WHERE[fault.kind]}.",
            *fault.facts,
            *(f"Hint: {hint}" for hint in fault.hints),
        ),
        advice=tuple(next_step(_ADVICE)),
        figures=tuple(_figures(fault)),
        drift=(
            f"{place(fault.frame)} {_verdict(fault)}",
            *("", "", f"last {len(fault.frames)} frames:"),
            *(frame_line(frame) for frame in fault.frames),
        ),
        circumstances=tuple(remarks),
    )


def _at(source: SourceRange | None) -> str:
    return f"{source} in " if source else ""


def _figures(fault: Fault) -> Iterator[str]:
    found = fault.details
    if found is None:
        yield "  Its elements could not be counted on this device; a run on the CPU counts them."
        return
    yield f"  Not finite: {_count(found)}."
    if not isnan(found.abs_max):
        yield f"  Finite elements: abs_min={found.abs_min:9.2e}, abs_max={found.abs_max:9.2e}."


def frame_line(frame: Frame) -> str:
    """Return the line of one tensor, ``abs_max= 1.80e+04 > [0] path: Class: input[0]``."""
    extremes = frame.extremes
    note = f" ({extremes.note})" if extremes.note else ""
    return f"abs_max={extremes.abs_max:9.2e} {place(frame)}{note}"


def place(frame: Frame) -> str:
    """Return which tensor of which module in which forward: ``< [0] lm_head: Linear: output``."""
    return f"{_SIGNS[frame.direction]} [{frame.forward}] {frame.path}: {frame.class_name}: {tensor_of(frame)}"


def headroom_text(tight: Sequence[Tight], first: Tight, wanted: float, remarks: Iterable[str] = ()) -> CheckText:
    """Return the text on modules that come too close to the end of the dtype's range."""
    closest = tight[0]
    what = "The square of its input" if closest.is_square else f"Its {tensor_of(closest.frame)}"
    why = [f"{what} reaches {closest.value:.2e}, and {closest.dtype} ends at {closest.limit:.2e}."]
    if first.frame.path != closest.frame.path:
        what = "the square of its input" if first.is_square else f"its {tensor_of(first.frame)}"
        why.append(
            f"The first to leave less than {wanted:g} was {_at(first.source)}{first.frame.path} "
            f"({first.frame.class_name}): {what} reaches {first.value:.2e}."
        )
    return CheckText(
        f"{_at(closest.source)}{closest.frame.path} ({closest.frame.class_name}): leaves a headroom of "
        f"{closest.ratio:.2g} for {closest.dtype}, less than {wanted:g}",
        why=tuple(why),
        advice=tuple(next_step(_SQUARED if any(item.is_square and item.ratio < wanted for item in tight) else _CLOSE)),
        drift=(
            f"  The {len(tight)} tightest modules:" if len(tight) > 1 else "  The tightest module:",
            *(
                f"    headroom={item.ratio:9.2e} {frame_line(item.frame)}"
                + (f", squared in the norm: {item.value:.2e}" if item.is_square else "")
                for item in tight
            ),
        ),
        circumstances=tuple(remarks),
    )


def render_skipped(skipped: Mapping[str, int]) -> Iterator[str]:
    """Yield how many tensors could not be looked at."""
    if skipped:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(skipped.items()))
        yield f"Tensors that could not be checked: {counts}."


def tensor_of(frame: Frame) -> str:
    """Return which tensor of its module a frame is."""
    if frame.direction == "gradient":
        return f"gradient of {frame.leaf}"
    if frame.direction == "parameter":
        return frame.leaf
    if frame.direction == "product":
        return f"result of {frame.leaf}, before the forward goes on with it,"
    return f"{frame.direction}{frame.leaf}"


def _verdict(fault: Fault) -> str:
    found, extremes = fault.details, fault.frame.extremes
    if found is not None:
        return f"has {_kinds(found.infs, found.nans)}"
    return f"has {_kinds(isinf(extremes.low) or isinf(extremes.high), isnan(extremes.low))}"


def told_range(text: str, found: Details) -> Iterator[str]:
    """Yield the lines of ``detect_overflow``; the maximum is nan or inf if an element is."""
    abs_max = nan if found.nans else inf if found.infs else found.abs_max
    yield f"abs_min={found.abs_min:9.2e} abs_max={abs_max:9.2e} {text}"
    if found.nans or found.infs:
        yield f"{text} has {_kinds(found.infs, found.nans)}: {_count(found)}"


def _count(found: Details) -> str:
    bad = found.nans + found.infs
    return f"{bad} / {found.total} elements ({bad / found.total:.1%}), first at index {found.first}"


def _kinds(infs: int, nans: int) -> str:
    return " and ".join(name for name, count in (("infs", infs), ("nans", nans)) if count)
