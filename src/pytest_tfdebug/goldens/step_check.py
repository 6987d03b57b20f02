"""A train step held to the golden of a test."""

from __future__ import annotations

from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import GoldenError, MissingGoldenError, ParityError, TFDebugError
from pytest_tfdebug.goldens.golden_file import provenance
from pytest_tfdebug.goldens.place import missing, shown
from pytest_tfdebug.goldens.session import GoldenOutcome, GoldenSession
from pytest_tfdebug.goldens.weights import hash_of
from pytest_tfdebug.parity.record import parity_record
from pytest_tfdebug.publish.reports import calling_line, note, wants_details
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.steps.api import held
from pytest_tfdebug.steps.file import read_step, write_step
from pytest_tfdebug.tracing.record.leaves import walk

if TYPE_CHECKING:
    import pytest

    from pytest_tfdebug.goldens.place import GoldenPlace
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.steps.run import TrainedModel


def record_step(item: pytest.Item, place: GoldenPlace, reference: TrainedModel) -> None:
    """Record the step of a reference as a golden; a file that already says the same is left alone."""
    __tracebackhide__ = True
    made = reference.made()
    existed = place.exists()
    status, size = "changed" if existed else "new", 0
    given = _batch_of(reference)
    with place.staged() as file:
        if existed and _says(file, made, given):
            status, size = "unchanged", file.stat().st_size
        else:
            extra = {"test": redact(item.nodeid), "provenance": provenance(reference.model), "batch": given}
            size = write_step(file, made, extra)
    outcome = GoldenOutcome(str(place), item.nodeid, status, (), size=size)
    GoldenSession.of(item.config).outcomes.append(outcome)


def _says(file: Any, made: Any, given: list[str]) -> bool:  # noqa: ANN401 - a path, a recorded step
    try:
        expected, extra = read_step(file)
        return extra.get("batch") == given and bool(held(expected, made))
    except (GoldenError, TFDebugError):
        return False


def _batch_of(model: TrainedModel) -> list[str]:
    """Return a hash of each tensor that a model is run with."""
    return [hash_of(leaf.tensor) for leaf in walk(model.batch)]


def check_step(item: pytest.Item, place: GoldenPlace, port: TrainedModel, name: str | None) -> ParityReport:
    """Hold the step of a port to a golden, and fail where it differs."""
    __tracebackhide__ = True
    config, golden = item.config, shown(str(place), item.config)
    if not place.exists():
        raise MissingGoldenError(missing(item, place))
    try:
        expected, extra = place.read(read_step)
    except GoldenError as error:
        again = f"To record it again, run: pytest {quote(item.nodeid)} --tf-golden=update"
        raise GoldenError(f"{error}\n{again}") from error
    report = held(expected, port.made(), port.backward)
    if not report and "batch" in extra and extra["batch"] != _batch_of(port):
        raise TFDebugError(
            f"The batch is another than the one that {golden} was recorded with, so nothing can be said of the port.\n"
            f"To record the step of this one, run: pytest {quote(item.nodeid)} --tf-golden=update"
        )
    if not report:
        report = replace(report, facts=[*report.facts, f"Golden: {golden}"])
    outcome = GoldenOutcome(str(place), item.nodeid, "checked" if report else "failed", (), "", report.coverage)
    GoldenSession.of(config).outcomes.append(outcome)
    model = type(port.model).__name__
    given = {"name": name or "", "model": model, "at": calling_line(), "golden": golden}
    record = parity_record(item.nodeid, report, in_detail=False, **given)
    note(item, replace(record, text=str(report) if wants_details(config) else ""))
    if not report:
        raise ParityError(report.check_text(), report)
    return report
