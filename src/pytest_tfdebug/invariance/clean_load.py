"""``invariant("clean_load")``: a model that loads with missing, unexpected or mismatched weights fails the test.

transformers only logs it and returns the model. Here every ``from_pretrained`` of the run is asked for its loading
info, so a silenced log hides nothing. A marked test that loads nothing fails too.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.check_record import CheckRecord
from pytest_tfdebug.errors import CleanLoadError
from pytest_tfdebug.invariance.api import CLEAN_LOAD, asked
from pytest_tfdebug.invariance.checks.save_load import recorded, told_keys, without
from pytest_tfdebug.publish.note import note, raised
from pytest_tfdebug.report.check_text import CheckText, next_step
from pytest_tfdebug.triage import text

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pytest_tfdebug.check_record import LoadRecord

_ADVICE = (
    "Load it with the class that saved it, or allow keys with @pytest.mark.invariant(\"clean_load\", allow=['regex'])."
)
_NOTHING = (
    "invariant('clean_load') checked nothing: no transformers model was loaded with from_pretrained in this test or "
    "its fixtures.\n"
    "Load the model in the test or in a fixture (not at import), or remove the marker."
)


class Hooks:
    """The hooks of one run."""

    def __init__(self) -> None:
        self._loads: list[LoadRecord] = []
        self._by_fixture: dict[tuple[str, str], list[LoadRecord]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Record the loads of all tests: a fixture of wider scope may load in a test without the marker."""
        with recorded(self._loads):
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Begin a test."""
        self._loads.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Remember what a fixture of wider scope loads, for the later tests that use it."""
        before = len(self._loads)
        result = yield
        if fixturedef.scope != "function":
            self._by_fixture[fixturedef.argname, fixturedef.baseid] = self._loads[before:]
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail a marked test that passed on an unclean load, or without any."""
        __tracebackhide__ = True
        result = yield
        allowed = _allowed(item)
        if allowed is not None:
            seen = (*self._loads, *self._of_fixtures(item))
            loads = tuple(dict.fromkeys(without(load, allowed) for load in seen))
            unclean = [load for load in loads if told_keys(load)]
            error = CleanLoadError(_NOTHING) if not loads else CleanLoadError(_text(unclean)) if unclean else None
            note(item, _record(item.nodeid, loads, "" if error is None else str(error)))
            if error is not None:
                raise raised(item, error, unclean[0].at if unclean else None)
        return result

    def _of_fixtures(self, item: pytest.Item) -> list[LoadRecord]:
        names = getattr(item, "fixturenames", ())
        return [
            load
            for (name, base), loads in self._by_fixture.items()
            if name in names and item.nodeid.startswith(base)
            for load in loads
            if load not in self._loads
        ]


def _allowed(item: pytest.Item) -> tuple[str, ...] | None:
    """Return which keys need not fit in a test; None for one that does not ask."""
    marker = next((marker for marker in item.iter_markers("invariant") if CLEAN_LOAD in marker.args), None)
    return None if marker is None else asked(marker.name, marker.args, marker.kwargs)[CLEAN_LOAD].allow


def pytest_configure(config: pytest.Config) -> None:
    """Register the hooks with the state of this run."""
    config.pluginmanager.register(Hooks(), "tfdebug-clean-load")


def _record(test: str, loads: tuple[LoadRecord, ...], failure: str) -> CheckRecord:
    """Return a check of loads as pages and files hold it."""
    models = ", ".join(dict.fromkeys(load.model for load in loads))
    passed = f"{models} loaded clean: every weight went where it belongs."
    headline = failure.partition("\n")[0] or passed
    return CheckRecord(
        test, CLEAN_LOAD, "failed" if failure else "passed", headline, model=models, text=failure, loads=loads
    )


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
    return f"{load.model} loaded from {text.value(load.source)} is not clean: {_counts(load)} weights"
