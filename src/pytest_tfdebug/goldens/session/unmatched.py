"""Rules of the ini file that no golden check of a whole run matched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_tfdebug.errors import TFDebugWarning
from pytest_tfdebug.tracing.record.globs import MEANING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Options that leave tests out of a run.
_NARROWING = ("keyword", "markexpr", "lf", "stepwise", "deselect", "ignore", "ignore_glob")
_ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


def warn_of_unmatched(session: pytest.Session, rules: Mapping[str, str | None]) -> Iterator[str]:
    """Warn of rules that nothing matched, where every test ran that might have; yield the warnings that are errors."""
    for glob, hint in rules.items() if is_whole(session) else ():
        if hint is not None:
            told = f"tf_golden_tolerances: {glob!r} matches no module of any golden check ({MEANING}).{hint}"
            try:
                session.config.issue_config_time_warning(TFDebugWarning(told), stacklevel=1)
            except TFDebugWarning:  # -W error
                yield told


def is_whole(session: pytest.Session) -> bool:
    """Tell whether a run has run all tests of its project: it was not narrowed, and not stopped."""
    config = session.config
    if session.shouldstop or session.shouldfail or session.exitstatus not in _ENDED:
        return False
    if any(config.getoption(name, default=None) for name in _NARROWING):
        return False
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        return True
    given = [(config.invocation_params.dir / argument).resolve() for argument in config.args]
    wanted = [config.rootpath / path for path in config.getini("testpaths")] or [config.rootpath]
    return all(any(path.resolve().is_relative_to(folder) for folder in given) for path in wanted)
