"""A watch for overflow that has ended, as the record that pages and files are made from."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from pytest_tfdebug.check_record import CheckRecord, ForwardRecord, HeadroomRecord
from pytest_tfdebug.errors import counted
from pytest_tfdebug.overflow.records import Tight
from pytest_tfdebug.overflow.settings import largest
from pytest_tfdebug.parity.text.source_text import source_text
from pytest_tfdebug.records import CulpritRecord
from pytest_tfdebug.report.overflow import WHERE, tensor_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.errors import CheckError
    from pytest_tfdebug.overflow.records import Fault
    from pytest_tfdebug.overflow.watch import Watch
    from pytest_tfdebug.records import SourceRange


def overflow_record(
    test: str, watch: Watch, error: CheckError | None, at: SourceRange | None, *, in_detail: bool
) -> CheckRecord:
    """Return the record of a watch."""
    fault = watch.fault
    kept = watch.headroom.by_module()
    closest = min(kept, key=lambda tight: tight.ratio, default=None)
    told = f"{counted(watch.forwards, 'forward')}, {watch.tensors} tensors: every value is finite."
    if closest is not None:
        told += f" The least headroom for {closest.dtype} is {closest.ratio:.3g}, at {closest.frame.path}."
    culprit = _culprit(fault, watch.headroom.tightest()) if error is not None else None
    source = source_text(culprit.source, None) if culprit is not None else None
    return CheckRecord(
        test,
        "overflow_free",
        "failed" if error is not None else "passed",
        told if error is None else error.answer,
        model=", ".join(dict.fromkeys(type(root).__name__ for root in watch.roots)),
        at=at,
        culprit=culprit,
        tensors=watch.tensors,
        notes=tuple(watch.notes),
        text=str(error) if error is not None and in_detail else "",
        forward=ForwardRecord(sources=(source, None)) if in_detail and source is not None else None,
        headroom=_headroom(fault, kept, watch) if in_detail else (),
    )


def _culprit(fault: Fault | None, tightest: Sequence[Tight]) -> CulpritRecord | None:
    if fault is not None:
        told = f"The first value that is not finite arose in {WHERE[fault.kind]}."
        tensor = f"{tensor_of(fault.frame)} of {fault.frame.path}, forward {fault.frame.forward}"
        where = fault.owner, fault.kind, fault.source, told, fault.owner_class
        return CulpritRecord(*where, tensor=tensor, figures=_figures(fault), certain=True)
    if not tightest:
        return None
    closest = tightest[0]
    what = "The square of its input" if closest.is_square else f"Its {tensor_of(closest.frame)}"
    told = f"{what} reaches {closest.value:.3g}, and {closest.dtype} ends at {closest.limit:.3g}."
    return CulpritRecord(closest.frame.path, "headroom", closest.source, told, closest.frame.class_name, certain=True)


def _figures(fault: Fault) -> tuple[str, ...]:
    found = fault.details
    counted = [] if found is None else [f"{found.nans} nan and {found.infs} inf of {found.total} elements"]
    return (*counted, *fault.facts, *fault.hints)


def _headroom(fault: Fault | None, kept: Sequence[Tight], watch: Watch) -> tuple[HeadroomRecord, ...]:
    """Return the modules in the order in which they ran, the last one the culprit's where there is a fault."""

    def row(tight: Tight, *, is_culprit: bool) -> HeadroomRecord:
        at = tight.frame.path, tight.frame.class_name, tensor_of(tight.frame), tight.frame.forward
        return HeadroomRecord(*at, tight.value, tight.limit, tight.dtype, tight.is_square, is_culprit)

    rows = tuple(row(tight, is_culprit=fault is None and tight is watch.headroom.first) for tight in kept)
    if fault is None:
        return rows
    dtype = watch.settings.target(fault.frame.extremes.dtype)
    return (*rows, row(Tight(fault.frame, inf, largest(dtype), dtype), is_culprit=True))
