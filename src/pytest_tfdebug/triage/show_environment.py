"""``--tf-env``: the environment in the terminal, before the first test so that it is there if the run dies."""

from __future__ import annotations

from importlib import import_module, util
from typing import TYPE_CHECKING

import pytest

from pytest_tfdebug.environment import environment, lines

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

TITLE = "tfdebug environment"


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Print the environment, at every verbosity; under xdist, by the controller alone."""
    terminal: TerminalReporter | None = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or hasattr(session.config, "workerinput"):
        return
    if util.find_spec("torch") is not None:
        import_module("torch")  # its flags are part of the answer
    terminal.section(TITLE)
    for line in lines(environment(with_git=True, with_driver=True)):
        terminal.write_line(line)
