"""``@pytest.mark.overflow_free``: the hooks of a run that has such a test, and the record of each."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import pytest

from pytest_tfdebug.check_record import CheckRecord, ForwardRecord, HeadroomRecord
from pytest_tfdebug.data.overflow import Tight
from pytest_tfdebug.errors import counted
from pytest_tfdebug.marker_arguments import marked
from pytest_tfdebug.options import Options
from pytest_tfdebug.overflow.settings import OverflowSettings, largest
from pytest_tfdebug.overflow.watch import Roots, Watch
from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.record import culprit_record
from pytest_tfdebug.parity.settle import settled
from pytest_tfdebug.parity.text.text_differences import source_text
from pytest_tfdebug.publish.reports import note, raised, wants_details
from pytest_tfdebug.report.overflow import WHERE, tensor_of
from pytest_tfdebug.repro import write_repro

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pytest_tfdebug.data.overflow import Fault
    from pytest_tfdebug.errors import CheckError
    from pytest_tfdebug.records import CulpritRecord, SourceRange


_NAME = "overflow_free"
_ADVICE = (
    "Call the model in the test itself: what fixtures, subprocesses and compiled code run is not seen. "
    "Or remove the marker."
)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse bad marker arguments before the test runs."""
    marked(item, _NAME, OverflowSettings)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch the modules that run inside a marked test."""
    settings = marked(item, _NAME, OverflowSettings)
    if settings is None:
        return (yield)
    watch, has_failed = Watch(settings, raises=False), True
    roots = Roots(watch, keeps_calls=bool(Options.of(item.config).repro))
    watch.headroom.is_complete = wants_details(item.config)
    try:
        with roots.watching():
            result = yield
        has_failed = bool(
            getattr(item, "_excinfo", None)
        )  # a unittest.TestCase keeps its failure instead of raising it
    finally:
        report, call = watch.verdict(), roots.latest
        if report is not None and call is not None:
            report = report.with_repro(write_repro(item, _NAME, call.model, *call.inputs()))
        if has_failed and report is not None:  # beside a failure of the test's own
            item.add_report_section("call", _NAME, str(report))
    if has_failed:
        return result
    message = report or watch.emptiness(_NAME, _ADVICE)
    error = None if message is None else watch.error(message)
    note(item, _record(item, watch, error, roots.at))
    if error is not None:
        raise raised(item, error, roots.at)
    return result


def _record(item: pytest.Item, watch: Watch, error: CheckError | None, at: SourceRange | None) -> CheckRecord:
    fault, in_detail = watch.fault, wants_details(item.config)
    kept = list(watch.headroom.by_module.values())
    closest = min(kept, key=lambda tight: tight.ratio, default=None)
    told = f"{counted(watch.forwards, 'forward')}, {watch.tensors} tensors: every value is finite."
    if closest is not None:
        told += f" The least headroom for {closest.dtype} is {closest.ratio:.3g}, at {closest.frame.path}."
    culprit = _culprit(fault, watch.headroom.tightest()) if error is not None else None
    source = source_text(culprit.source, None) if culprit is not None else None
    return CheckRecord(
        item.nodeid,
        _NAME,
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
        told = f"The first value that is not finite came from {WHERE[fault.kind]}."
        claim = Claim(fault.owner, fault.kind, Evidence.NOT_FINITE, fault.owner_class, told, source=fault.source)
        tensor = f"{tensor_of(fault.frame)} of {fault.frame.path}, forward {fault.frame.forward}"
        found = fault.details
        counts = [] if found is None else [f"{found.nans} nan and {found.infs} inf of {found.total} elements"]
        return _settled(claim, tensor, (*counts, *fault.facts, *fault.hints))
    if not tightest:
        return None
    closest = tightest[0]
    what = "The square of its input" if closest.is_square else f"Its {tensor_of(closest.frame)}"
    told = f"{what} reaches {closest.value:.3g}, and {closest.dtype} ends at {closest.limit:.3g}."
    path, name = closest.frame.path, closest.frame.class_name
    return _settled(Claim(path, "headroom", Evidence.HEADROOM, name, told, source=closest.source))


def _settled(claim: Claim, tensor: str = "", figures: tuple[str, ...] = ()) -> CulpritRecord | None:
    found = culprit_record(settled(claim))
    return None if found is None else replace(found, tensor=tensor, figures=figures)


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
