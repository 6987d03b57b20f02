"""Run the tests that carry an invariance marker: watch their calls, repeat them once the body has passed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.check_record import CheckRecord
from pytest_tfdebug.errors import InvarianceError, counted
from pytest_tfdebug.invariance.api import CHECKS, OWN_MARKERS, judge, requested, title
from pytest_tfdebug.invariance.calls.mask_warnings import watch
from pytest_tfdebug.invariance.calls.observed_call import ObservedCall, observe
from pytest_tfdebug.invariance.checks.base import Outcome
from pytest_tfdebug.options import NOTE, Options
from pytest_tfdebug.parity.forward_record import forward_record
from pytest_tfdebug.parity.record import compared, culprit_record
from pytest_tfdebug.publish.reports import note, raised, wants_details
from pytest_tfdebug.repro import write_repro
from pytest_tfdebug.tracing.record.recorder import intercept_outermost

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import torch

    from pytest_tfdebug.invariance.checks.base import Settings


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse bad marker arguments before anything runs."""
    requested(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch the calls of a test's body, and repeat them when it has passed."""
    requests = {name: settings for name, settings in requested(item).items() if name in CHECKS}
    if not requests and not Options.of(item.config).watch_masks:
        return (yield)
    calls: list[ObservedCall] = []

    def observed(
        model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Callable[[], Any]
    ) -> Any:  # noqa: ANN401 - what the model returns
        __tracebackhide__ = True
        watch(model, args, kwargs)
        if not requests:
            return proceed()
        call, output = observe(model, args, kwargs, proceed)
        calls.append(call)
        return output

    with intercept_outermost(observed):
        result = yield
    if getattr(item, "_excinfo", None):  # a TestCase keeps its failure to itself until the report is made
        return result
    try:
        for name, settings in requests.items():
            _judge(item, name, settings, calls)
    except InvarianceError as error:
        raised(item, error, calls[0].at if calls else None)
        raise
    finally:
        calls.clear()
    return result


def _judge(item: pytest.Item, name: str, settings: Settings, calls: list[ObservedCall]) -> None:
    record = partial(CheckRecord, item.nodeid, OWN_MARKERS.get(name, name), at=calls[0].at if calls else None)
    try:
        outcome = judge(name, settings, calls, is_marker=True)
    except InvarianceError as error:
        note(item, _failed(record, error, in_detail=wants_details(item.config)))
        call = error.outcome and error.outcome.call
        told = write_repro(item, title(name), call.model, (), call.inputs) if call is not None else ""
        if not told:
            raise
        text = f"{error}\n{told}" if error.text is None else error.text.with_repro(told)
        raise InvarianceError(text, error.culprit, error.outcome) from None
    classes = (call.class_name for call in calls if not call.refusal)
    models, notes = ", ".join(dict.fromkeys(classes)), tuple(outcome.notes)
    told = notes[0] if notes else f"{models}: {counted(outcome.repeats, 'forward')} made again, with the same answer."
    note(item, record("passed", told, model=models, notes=notes, repeats=outcome.repeats))
    for text in outcome.notes:
        item.add_report_section("call", title(name), text)
        item.user_properties.append((NOTE, text))


def _failed(record: Callable[..., CheckRecord], error: InvarianceError, *, in_detail: bool) -> CheckRecord:
    outcome: Outcome = error.outcome or Outcome()
    parity = outcome.located.parity if outcome.located is not None else None
    return record(
        "failed",
        error.answer,
        model=outcome.call.class_name if outcome.call is not None else "",
        diagnosis=outcome.diagnosis,
        text=str(error) if in_detail else "",
        forward=forward_record(parity, parity.explained) if in_detail and parity is not None else None,
        **{**(compared(parity) if parity is not None else {}), "culprit": culprit_record(error.culprit)},
    )
