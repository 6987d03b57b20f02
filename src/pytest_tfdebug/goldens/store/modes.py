"""What ``--tf-golden`` means for a run: a CI server records only when somebody typed the flag."""

from __future__ import annotations

import os
from shlex import quote
from typing import TYPE_CHECKING

from pytest_tfdebug.goldens.store.paths import shown
from pytest_tfdebug.options import Options
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.workers import told

if TYPE_CHECKING:
    import pytest

    from pytest_tfdebug.goldens.store.place import GoldenPlace

#: Modes that write.
RECORDING = frozenset({"update", "missing"})
_FLAG = "--tf-golden"
#: Where a worker of pytest-xdist finds whether the flag was typed.
TYPED = "tfdebug_typed"
_FALSE = frozenset({"", "0", "false", "no", "off"})
#: What CI servers set: most of them CI; Jenkins, Azure Pipelines, TeamCity and CodeBuild a name of their own.
_SERVERS = ("CI", "GITHUB_ACTIONS", "JENKINS_URL", "TF_BUILD", "TEAMCITY_VERSION", "CODEBUILD_BUILD_ID")


def golden_mode(config: pytest.Config) -> str:
    """Return the mode of a run: that of the flag or the ini key; ``check`` where that would record unasked on CI.

    Nobody reads what a CI server writes because of an ini file, so a golden that is missing there would pass for ever.
    """
    mode = Options.of(config).golden
    return "check" if mode in RECORDING and is_ci() and not is_typed(config) else mode


def is_ci() -> bool:
    """Tell whether this is a CI server."""
    return _server() is not None


def _server() -> str | None:
    """Return the variable by which a CI server is known; ``CI=false`` says that it is none."""
    if "CI" in os.environ and os.environ["CI"].strip().lower() in _FALSE - {""}:
        return None
    return next((name for name in _SERVERS if os.environ.get(name, "").strip().lower() not in _FALSE), None)


def is_typed(config: pytest.Config) -> bool:
    """Tell whether the flag stands on the command line itself, not in ``addopts`` or ``PYTEST_ADDOPTS``.

    A worker of pytest-xdist is told by the process that started it.
    """
    typed: bool | None = told(config, TYPED)
    arguments = map(str, config.invocation_params.args)
    return any(it == _FLAG or it.startswith(f"{_FLAG}=") for it in arguments) if typed is None else typed


def missing(item: pytest.Item, place: GoldenPlace) -> str:
    """Say that a test has no golden yet, and what to type."""
    mode, asked = golden_mode(item.config), Options.of(item.config).golden
    told = f"{item.nodeid} has no golden yet: {shown(str(place), item.config)} does not exist.\n"
    if asked != mode:
        name = _server() or "CI"
        told += f"  On a CI server ({name}={os.environ.get(name)}) {_FLAG}={asked} counts only on the command line.\n"
    return f"{told}To record it, run: pytest {quote(item.nodeid)} {_FLAG}=missing{_places(item.config)}"


def _places(config: pytest.Config) -> str:
    """Return the flags of this run that say which golden is meant, to be typed again."""
    flags = {"--tf-golden-dir": "tf_golden_dir", "--tf-golden-variant": "tf_golden_variant"}
    given = {flag: config.getoption(dest) for flag, dest in flags.items()}
    return "".join(f" {quote(f'{flag}={redact(value)}')}" for flag, value in given.items() if value)
