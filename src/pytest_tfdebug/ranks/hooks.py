"""The hooks behind ``@pytest.mark.tf_ranks(2)``: a test that runs in several processes, and has one report."""

from __future__ import annotations

import sys
import warnings
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.goldens.place import TYPED, is_typed
from pytest_tfdebug.goldens.session import WORKER_KEY, GoldenSession
from pytest_tfdebug.marker_arguments import is_number, is_whole_number, unknown, usage_error
from pytest_tfdebug.ranks.launch import BY_TORCHRUN, Rank, launched, start_group, started, wait
from pytest_tfdebug.running import read

if TYPE_CHECKING:
    from typing_extensions import Self


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test on its ranks; in one of these, let it run."""
    try:
        settings = RanksSettings.of(item)
    except pytest.UsageError:  # which its setup raises again
        return None
    if settings is None or launched() is not None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    task = {
        "test": item.nodeid,
        "file": str(item.path),
        "path": sys.path,
        "arguments": [str(argument) for argument in item.config.invocation_params.args],
        "input": {TYPED: is_typed(item.config)},
    }
    with started(settings.world_size, task) as ranks:
        wait(ranks, settings.timeout)
        reports = _reports(item, ranks)
    reports += _left_by_others(item, nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Join the process group before the fixtures of a marked test do anything."""
    settings, found = RanksSettings.of(item), launched()
    if settings is None or found is None:
        return  # without a marker torchrun's processes have nothing to do with each other
    if found.world_size != settings.world_size:
        pytest.skip(f"tf_ranks({settings.world_size}): torchrun started {found.world_size} processes")
    start_group(found, settings.timeout)


def pytest_unconfigure() -> None:
    """Leave the process group of torchrun."""
    found = launched()
    if found is not None and found.rendezvous == BY_TORCHRUN:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()


def _reports(item: pytest.Item, ranks: list[Rank]) -> list[pytest.TestReport]:
    """Return the reports of the one rank that tells most, and take over what it did."""
    made = item.config.hook.pytest_report_from_serializable
    found: dict[int, list[pytest.TestReport]] = {
        rank.number: [made(config=item.config, data=data) for data in (rank.result["reports"] if rank.result else ())]
        for rank in ranks
    }
    told = _telling(ranks, found)
    reports = found[told.number] or _made(item, told, ranks)
    if told.result is not None:
        part = told.result["output"].get(WORKER_KEY)
        if part is not None:
            GoldenSession.of(item.config).merge(read(part, GoldenSession))
        for warning in told.result["warnings"]:
            _warn_again(item, warning)
    states = {True: "failed", False: "ended without a failure"}
    text = "\n".join(f"rank {rank.number} {rank.lost or states[rank.has_failed]}" for rank in ranks)
    for report in filter(lambda report: report.failed, reports):
        report.sections.append(("tfdebug ranks", text))
    return reports


def _telling(ranks: list[Rank], found: dict[int, list[pytest.TestReport]]) -> Rank:
    """Return the rank whose reports stand for all: the first that failed, or rank 0 where it failed in that way."""
    failed = {number: report for number, reports in found.items() for report in reports if report.failed}
    lost = [rank for rank in ranks if rank.has_died] or [rank for rank in ranks if rank.problem]
    if lost or not failed:
        return next(iter([*lost, *(rank for rank in ranks if rank.lost), *ranks]))
    first = min(failed.values(), key=lambda report: report.stop)
    return ranks[min(number for number, report in failed.items() if _message(report) == _message(first))]


def _message(report: pytest.TestReport) -> object:
    return getattr(getattr(report.longrepr, "reprcrash", None), "message", None)


def _made(item: pytest.Item, told: Rank, ranks: list[Rank]) -> list[pytest.TestReport]:
    """Return the reports of a test none of whose ranks could make one that tells what happened."""
    which = [rank.number for rank in ranks if rank.lost and rank.lost == told.lost] or [told.number]
    who = f"rank{'s' * (len(which) > 1)} {', '.join(map(str, which))}"
    lines = [f"{item.nodeid}: {who} {told.lost or 'could not run the test'}."]
    for rank in ranks:
        where, log = rank.traceback() if rank.lost else "", rank.log() if rank is told and rank.has_died else ""
        for what, text in (("", rank.problem), (" was at", where), (" printed", log)):
            if text:
                lines += [f"Rank {rank.number}{what}:", *(f"  {line}" for line in text.splitlines())]
    made = partial(pytest.TestReport, item.nodeid, item.location, dict.fromkeys(item.keywords, 1))
    text = "\n".join(lines)
    return [made("passed", None, "setup"), made("failed", text, "call"), made("passed", None, "teardown")]


def _warn_again(item: pytest.Item, warning: dict[str, Any]) -> None:
    """Show a warning of a rank in the summary of this run."""
    module, name = warning["kind"]
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        kind = UserWarning
    message = warnings.WarningMessage(kind(warning["text"]), kind, *warning["at"])
    told = {"warning_message": message, "when": "runtest", "nodeid": warning["nodeid"], "location": None}
    item.ihook.pytest_warning_recorded.call_historic(kwargs=told)


def _left_by_others(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """End the fixtures that earlier tests of this process have left and the next one has no use for."""
    state = item.session._setupstate  # noqa: SLF001 - the hook would end what a setup of this item began
    call = pytest.CallInfo.from_call(lambda: state.teardown_exact(nextitem), when="teardown")
    if call.excinfo is None:
        return []
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
    return [report]


#: Seconds that a test on ranks may take: each rank imports torch and builds its model anew.
DEFAULT_TIMEOUT = 300.0
_FEWEST = 2


class RanksSettings(NamedTuple):
    """What the marker of a test asks for."""

    world_size: int  # number of ranks
    timeout: float  # seconds after which the test is ended

    @classmethod
    def of(cls, item: pytest.Item) -> Self | None:
        """Return what the closest marker of a test asks for; None for a test without it."""
        marker = item.get_closest_marker("tf_ranks")
        if marker is None:
            return None
        wrong = list(unknown("tf_ranks", ("timeout",), marker.args[1:], marker.kwargs))
        count, timeout = (marker.args or (None,))[0], marker.kwargs.get("timeout", DEFAULT_TIMEOUT)
        if not is_whole_number(count, _FEWEST):
            wrong.append(f"tf_ranks({count!r}) is not a number of ranks (2 or more).")
        if not is_number(timeout) or not timeout:
            wrong.append(f"tf_ranks: timeout={timeout!r} is not a number of seconds above 0.")
        if wrong:
            raise usage_error(item, TFDebugError("\n".join(wrong)))
        return cls(count, float(timeout))
