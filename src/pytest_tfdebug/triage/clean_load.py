"""Marker ``clean_load``: a model that loads with missing, unexpected or mismatched weights fails the test.

transformers only logs it and returns the model. Here every ``from_pretrained`` of the run is asked for its loading
info, so a silenced log hides nothing. A marked test that loads nothing fails too.
"""

from __future__ import annotations

import functools
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.check_record import CheckRecord, LoadRecord
from pytest_tfdebug.errors import CleanLoadError, TFDebugError
from pytest_tfdebug.marker_arguments import Arguments, argument, marked, several
from pytest_tfdebug.publish.note import calling_line, note, raised
from pytest_tfdebug.triage.load_text import load_text

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from pytest_tfdebug.check_record import Lines

MARKER = "clean_load"


@dataclass(frozen=True, kw_only=True)
class Allowed(Arguments):
    """What ``clean_load`` takes.

    Args:
        allow: Regular expressions that are searched in each key; a key in which one is found may be missing,
            unexpected or mismatched.
    """

    allow: tuple[str, ...] = argument((), lambda _: True, "a regular expression or several", several)

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            for pattern in self.allow:
                re.compile(pattern)
        except (re.error, TypeError) as error:
            told = f"allow={pattern!r} is not a regular expression ({error}); it is searched in each key."
            raise TFDebugError(told) from error


@dataclass(frozen=True)
class Load:
    """One call of ``from_pretrained``: what did not fit, and the line of the call."""

    record: LoadRecord
    at: Lines | None

    def without(self, allowed: tuple[str, ...]) -> Load:
        """Return the load without the keys in which one of the patterns is found."""

        def kept(keys: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(key for key in keys if not any(re.search(pattern, key) for pattern in allowed))

        missing, unexpected = kept(self.record.missing), kept(self.record.unexpected)
        mismatched = kept(self.record.mismatched)
        return Load(replace(self.record, missing=missing, unexpected=unexpected, mismatched=mismatched), self.at)

    @property
    def is_clean(self) -> bool:
        """Whether every weight of the checkpoint went into the model and every weight of the model came from it."""
        return not (self.record.missing or self.record.unexpected or self.record.mismatched)


_NOTHING = (
    "clean_load checked nothing: no transformers model was loaded with from_pretrained in this test or its fixtures.\n"
    "Load the model in the test or in a fixture (not at import), or remove the marker."
)


@contextmanager
def recorded(loads: list[Load]) -> Iterator[None]:
    """Append to a list what every ``PreTrainedModel.from_pretrained`` loads in the block."""
    cls = import_module("transformers.modeling_utils").PreTrainedModel
    original = vars(cls)["from_pretrained"]

    @functools.wraps(original.__func__)
    def from_pretrained(kind: type, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - it passes on what it gets
        __tracebackhide__ = True
        is_asked = kwargs.pop("output_loading_info", False)
        model, info = original.__func__(kind, *args, output_loading_info=True, **kwargs)
        source = args[0] if args else kwargs.get("pretrained_model_name_or_path")
        loads.append(_load(kind.__name__, str(source), info, calling_line()))
        return (model, info) if is_asked else model

    cls.from_pretrained = classmethod(from_pretrained)
    try:
        yield
    finally:
        cls.from_pretrained = original


class Hooks:
    """The hooks of one run."""

    def __init__(self) -> None:
        self._loads: list[Load] = []
        self._by_fixture: dict[tuple[str, str], list[Load]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Record the loads of all tests: a fixture of wider scope may load in a test without the marker."""
        with recorded(self._loads):
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin a test."""
        self._loads.clear()
        marked(item, MARKER, Allowed)

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
        allowed = marked(item, MARKER, Allowed)
        if allowed is not None:
            loads = [load.without(allowed.allow) for load in (*self._loads, *self._of_fixtures(item))]
            unclean = [load for load in dict.fromkeys(loads) if not load.is_clean]
            error = _error(loads, unclean)
            note(item, _record(item.nodeid, loads, "" if error is None else str(error)))
            if error is not None:
                raise raised(item, error, unclean[0].at if unclean else None)
        return result

    def _of_fixtures(self, item: pytest.Item) -> list[Load]:
        names = getattr(item, "fixturenames", ())
        return [
            load
            for (name, base), loads in self._by_fixture.items()
            if name in names and item.nodeid.startswith(base)
            for load in loads
            if load not in self._loads
        ]


def pytest_configure(config: pytest.Config) -> None:
    """Register the hooks with the state of this run."""
    config.pluginmanager.register(Hooks(), "tfdebug-clean-load")


def _error(loads: list[Load], unclean: list[Load]) -> CleanLoadError | None:
    """Return the failure of a test that loaded nothing, or weights that do not fit; None if all loads are clean."""
    if not loads:
        return CleanLoadError(_NOTHING)
    if unclean:
        return CleanLoadError(load_text([load.record for load in unclean], unclean[0].at))
    return None


def _record(test: str, loads: list[Load], failure: str) -> CheckRecord:
    """Return a check of loads as pages and files hold it."""
    kept = tuple(load.record for load in dict.fromkeys(loads))
    models = ", ".join(dict.fromkeys(load.record.model for load in loads))
    passed = f"{models} loaded clean: every weight went where it belongs."
    headline = failure.partition("\n")[0] or passed
    return CheckRecord(
        test, MARKER, "failed" if failure else "passed", headline, model=models, text=failure, loads=kept
    )


def _load(model: str, source: str, info: Mapping[str, Any], at: Lines | None) -> Load:
    mismatched = tuple(sorted(map(_mismatch, info["mismatched_keys"])))
    missing, unexpected = tuple(sorted(info["missing_keys"])), tuple(sorted(info["unexpected_keys"]))
    return Load(LoadRecord(model, source, missing, unexpected, mismatched), at)


def _mismatch(entry: str | tuple[str, Any, Any]) -> str:
    """Name a weight with both shapes; transformers 4 gives the name alone."""
    if isinstance(entry, str):
        return entry
    key, theirs, ours = entry
    return f"{key} (checkpoint {tuple(theirs)}, model {tuple(ours)})"
