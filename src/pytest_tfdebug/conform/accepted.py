"""The file of ``--tf-conformance-known``: promises that models are known to break, read and written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_tfdebug.conformance_verdict import Verdict
from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.options import CONFORMANCE, Options
from pytest_tfdebug.publish.files import write_text

if TYPE_CHECKING:
    from pathlib import Path

    #: Promise -> class of the model -> the first line of the failure, or a reason that somebody wrote instead.
    Known = dict[str, dict[str, str]]

_KNOWN: pytest.StashKey[Known] = pytest.StashKey()


def path_of(config: pytest.Config) -> Path | None:
    """Return where the file is; None if none was named."""
    chosen = Options.of(config).conformance_known
    return config.invocation_params.dir / chosen if chosen else None


def known(config: pytest.Config) -> Known:
    """Return which promises models are known to break; empty if there is no file.

    Raises:
        TFDebugError: If the file is not what ``--tf-conformance-accept`` writes.
    """
    if _KNOWN not in config.stash:
        path = path_of(config)
        config.stash[_KNOWN] = read(path) if path is not None else {}
    return config.stash[_KNOWN]


def read(path: Path) -> Known:
    """Return what a file holds; empty if it does not exist.

    Raises:
        TFDebugError: If it cannot be read.
    """
    if not path.exists():
        return {}
    try:
        found: Known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TFDebugError(f"Cannot read {path}: {error}.\n{_ADVICE}") from error
    is_known = isinstance(found, dict) and all(
        isinstance(models, dict) and all(isinstance(reason, str) for reason in models.values())
        for models in found.values()
    )
    if not is_known:
        raise TFDebugError(f"{path} does not hold promises, models and reasons.\n{_ADVICE}")
    return found


_ADVICE = "Write it anew with --tf-conformance-accept."


def pytest_configure(config: pytest.Config) -> None:
    """Register what collects the broken promises of a run.

    Raises:
        pytest.UsageError: If no file is named.
    """
    if path_of(config) is None:
        raise pytest.UsageError("--tf-conformance-accept writes a file: name it with --tf-conformance-known=FILE.")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Acceptor(config), "tfdebug-conformance-acceptor")


class _Acceptor:
    """Collects the verdicts of a run's tests, and writes the broken promises at the end.

    Args:
        config: The run.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._found: dict[tuple[str, str], Verdict] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the verdicts of a test."""
        for key, value in report.user_properties:
            if key == CONFORMANCE:
                verdict = Verdict.from_property(str(value))
                self._found[verdict.promise, verdict.model] = verdict

    def pytest_sessionfinish(self) -> None:
        """Write which promises are broken; entries of models that did not run stay in the file."""
        path = path_of(self._config)
        if path is None or not self._found:
            return
        held = read(path)
        for (promise, model), verdict in self._found.items():
            reasons = held.setdefault(promise, {})
            reason = reasons.pop(model, verdict.text)
            if verdict.state == "accepted":
                reasons[model] = reason
        held = {promise: dict(sorted(reasons.items())) for promise, reasons in sorted(held.items()) if reasons}
        write_text(path, [json.dumps(held, indent=1, ensure_ascii=False) + "\n"])
