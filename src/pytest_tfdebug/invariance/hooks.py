"""Run the tests that carry an invariance marker: watch their calls, repeat them once the body has passed."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.check_record import CheckRecord
from pytest_tfdebug.errors import InvarianceError, TFDebugError, counted
from pytest_tfdebug.invariance.api import CHECKS, OWN_MARKERS, asked, judge, title
from pytest_tfdebug.invariance.calls.mask_warnings import watch
from pytest_tfdebug.invariance.calls.observed_call import ObservedCall, observe
from pytest_tfdebug.invariance.checks.base import Outcome
from pytest_tfdebug.marker_arguments import usage_error
from pytest_tfdebug.options import NOTE, Options
from pytest_tfdebug.parity.record import compared, culprit_record, forward_record
from pytest_tfdebug.publish.reports import calling_line, note, raised, wants_details
from pytest_tfdebug.repro import write_repro
from pytest_tfdebug.tracing.record.recorder import intercept_outermost

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import torch

    from pytest_tfdebug.invariance.checks.base import Settings
    from pytest_tfdebug.records import SourceRange


MARKERS = ("padding_invariant", "invariant")


@dataclass
class _Observer:
    """Collects the outermost calls of a test."""

    is_repeating: bool  # whether the calls are to be made again; otherwise their masks are watched and no more
    at: SourceRange | None = None  # the line that made the first call
    calls: list[ObservedCall] = field(default_factory=list)

    def __call__(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Callable[[], Any]
    ) -> Any:  # noqa: ANN401
        """Take part in one call."""
        __tracebackhide__ = True
        watch(model, args, kwargs)
        if not self.is_repeating:
            return proceed()
        self.at = self.at or calling_line()
        call, output = observe(model, args, kwargs, proceed)
        self.calls.append(call)
        return output


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse bad marker arguments before anything runs."""
    _requests(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch the calls of a test's body, and repeat them when it has passed."""
    requests = _requests(item)
    if not requests and not Options.of(item.config).watch_masks:
        return (yield)
    observer = _Observer(bool(requests))
    with intercept_outermost(observer):
        result = yield
    if getattr(item, "_excinfo", None):  # a TestCase keeps its failure to itself until the report is made
        return result
    try:
        for name, settings in requests.items():
            _judge(item, name, settings, observer)
    except InvarianceError as error:
        raised(item, error, observer.at)
        raise
    finally:
        observer.calls.clear()
    return result


def _judge(item: pytest.Item, name: str, settings: Settings, observer: _Observer) -> None:
    record = partial(CheckRecord, item.nodeid, OWN_MARKERS.get(name, name), at=observer.at)
    try:
        outcome = judge(name, settings, observer.calls, is_marker=True)
    except InvarianceError as error:
        note(item, _failed(record, error, in_detail=wants_details(item.config)))
        call = error.call
        told = write_repro(item, title(name), call.model, (), call.inputs) if call is not None else ""
        if not told:
            raise
        text = f"{error}\n{told}" if error.text is None else error.text.with_repro(told)
        raise InvarianceError(text, error.culprit, outcome=error.outcome) from None
    classes = (call.class_name for call in observer.calls if not call.refusal)
    models, notes = ", ".join(dict.fromkeys(classes)), tuple(outcome.notes)
    told = notes[0] if notes else f"{models}: {counted(outcome.repeats, 'forward')} made again, with the same answer."
    note(item, record("passed", told, model=models, notes=notes, repeats=outcome.repeats))
    for text in outcome.notes:
        item.add_report_section("call", title(name), text)
        item.user_properties.append((NOTE, text))


def _requests(item: pytest.Item) -> dict[str, Settings]:
    """Return the checks of calls that a test asks for; of several markers for one check the closest counts."""
    found: dict[str, Settings] = {}
    wrong = []
    for marker in item.iter_markers():
        if marker.name not in MARKERS:
            continue
        names, args = (("padding",), marker.args) if marker.name == "padding_invariant" else (marker.args, ())
        try:
            found = {**asked(marker.name, names, marker.kwargs, args), **found}
        except TFDebugError as error:
            wrong.append(str(error))
    if wrong:
        raise usage_error(item, TFDebugError("\n".join(wrong)))
    return {name: settings for name, settings in found.items() if name in CHECKS}


def _failed(record: Callable[..., CheckRecord], error: InvarianceError, *, in_detail: bool) -> CheckRecord:
    outcome: Outcome = error.outcome or Outcome()
    parity = outcome.located.parity if outcome.located is not None else None
    return record(
        "failed",
        error.answer,
        model=error.call.class_name if error.call is not None else "",
        diagnosis=outcome.diagnosis,
        text=str(error) if in_detail else "",
        forward=forward_record(parity) if in_detail and parity is not None else None,
        **{**(compared(parity) if parity is not None else {}), "culprit": culprit_record(error.culprit)},
    )
