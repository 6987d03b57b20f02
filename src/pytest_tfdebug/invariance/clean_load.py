"""``invariant("clean_load")``: a model that loads with missing, unexpected or mismatched weights fails the test.

transformers only logs it and returns the model. Here every ``from_pretrained`` of the run is asked for its loading
info, so a silenced log hides nothing. A marked test that loads nothing fails too.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

import pytest

from pytest_tfdebug.check_record import CheckRecord, LoadRecord
from pytest_tfdebug.errors import CleanLoadError
from pytest_tfdebug.frames import Owner, running_owner
from pytest_tfdebug.invariance.api import CLEAN_LOAD, requested
from pytest_tfdebug.invariance.checks.same_call import recorded, told_keys, without
from pytest_tfdebug.publish.reports import note, raised
from pytest_tfdebug.report.check_text import CheckText, next_step
from pytest_tfdebug.triage.rules import shown

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

_ADVICE = (
    "Load it with the class that saved it, or allow keys with @pytest.mark.invariant(\"clean_load\", allow=['regex'])."
)
_NOTHING = (
    "invariant('clean_load') checked nothing: no transformers model was loaded with from_pretrained in this test or "
    "its fixtures.\n"
    "Load the model in the test or in a fixture (not at import), or remove the marker.\n"
    "What load_state_dict loads is held to its checkpoint by tf_golden.check_loaded(model, checkpoint)."
)


#: Each load of a run, and for whom it was.
LOADS = pytest.StashKey[list[tuple[Owner, LoadRecord]]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Record the loads of all tests: a fixture of wider scope may load in a test without the marker."""
    loads = session.config.stash.setdefault(LOADS, [])
    with recorded(lambda load: loads.append((running_owner(), load))):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a marked test that passed on an unclean load, or without any."""
    __tracebackhide__ = True
    result = yield
    settings = requested(item).get(CLEAN_LOAD)
    if settings is not None:
        own = [load for owner, load in item.config.stash[LOADS] if owner.is_for(item)]
        loads = tuple(dict.fromkeys(without(load, settings.allow) for load in own))
        unclean = [load for load in loads if told_keys(load)]
        error = None if loads else CleanLoadError(_NOTHING, is_empty=True)
        if unclean:
            error = CleanLoadError(_text(unclean))
        models, failure = ", ".join(dict.fromkeys(load.model for load in loads)), "" if error is None else str(error)
        told = failure.partition("\n")[0] or f"{models} loaded clean: every weight went where it belongs."
        state: Literal["passed", "failed"] = "failed" if error is not None else "passed"
        note(item, CheckRecord(item.nodeid, CLEAN_LOAD, state, told, model=models, text=failure, loads=loads))
        if error is not None:
            raise raised(item, error, unclean[0].at if unclean else None)
    return result


def _text(unclean: Sequence[LoadRecord]) -> CheckText:
    """Return the text on loads that are not clean; its first line names the first load."""
    first, *others = unclean
    where = f"{PurePath(first.at.file).name}:{first.at.first} in " if first.at is not None else ""
    return CheckText(
        f"{where}{first.model}: is not clean: {_counts(first)} weights",
        why=(f"{_sentence(first)}.",),
        advice=tuple(next_step(_ADVICE)),
        figures=(*told_keys(first), *(line for load in others for line in (f"{_sentence(load)}:", *told_keys(load)))),
    )


def _counts(load: LoadRecord) -> str:
    return f"{len(load.missing)} missing, {len(load.unexpected)} unexpected, {len(load.mismatched)} mismatched"


def _sentence(load: LoadRecord) -> str:
    return f"{load.model} loaded from {shown(load.source)} is not clean: {_counts(load)} weights"
