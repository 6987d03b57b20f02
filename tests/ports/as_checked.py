"""Hold a port to its reference as users do: ``tf_golden.check`` in a test of pytest, the golden on disk.

``compare`` of two traces goes another way: there the reference's lines have this machine's paths, its values are all at
hand, and nothing went through a file.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cases import Case

    from pytest_tfdebug import ParityReport

_TEST = """
def test_port(tf_golden, checked):
    checked(tf_golden)
"""
_QUIET = (
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-p",
    "no:randomly",
    "--no-header",
    "--import-mode=importlib",
)


#: What explains a failure: where one of these raises, users still get their report, with less in it.
_EXPLAINING = ("pytest_tfdebug.parity.find", "pytest_tfdebug.parity.patch")


class _Raised(logging.Handler):
    """Keeps what is raised and only logged."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.errors.append(record.exc_info[1])


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Raise in the end what an explanation in a block raised."""
    raised, loggers = _Raised(), [logging.getLogger(name) for name in _EXPLAINING]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(raised)
        logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(raised)
            logger.setLevel(level)
    if raised.errors:
        raise raised.errors[0]


class _Fixtures:
    """Gives the test what it checks, and keeps what came of it."""

    def __init__(self, case: Case | Callable[[], Case], settings: dict[str, Any]) -> None:
        self._case, self._settings, self.report, self.error = case, settings, None, None

    @pytest.fixture
    def checked(self) -> Any:
        return self._check

    def _check(self, tf_golden: Any) -> None:
        case = self._case() if callable(self._case) else self._case
        own = {"port_inputs": case.port_kwargs or case.port_args} if _takes_others(case) else {}
        try:
            self.report = tf_golden.check(
                case.port,
                *case.reference_args,
                reference=case.reference,
                outputs=case.outputs,
                **self._settings,
                **own,
                **case.reference_kwargs,
            )
        except ParityError as error:
            self.report = error.report
            raise
        except BaseException as error:
            self.error = error
            raise


def _takes_others(case: Case) -> bool:
    return case.port_args is not case.reference_args or case.port_kwargs is not case.reference_kwargs


def checked(
    case: Case | Callable[[], Case], *options: str, modes: Sequence[str] = ("update", "check"), **settings: Any
) -> ParityReport:
    """Record the reference of a pair of models on disk, hold the port to the file, and return the report.

    Args:
        case: The pair of models with the inputs of each; or what makes it whenever the test runs.
        *options: More options of pytest, ``-o tf_explain_seconds=0``.
        modes: How ``--tf-golden`` is run, one after the other.
        **settings: More arguments of the check, ``internal="fail"``.

    Raises:
        Exception: What the check raised, if that is no verdict, or what its explanation did.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        test = Path(folder) / "test_port.py"
        test.write_text(_TEST, encoding="utf-8")
        for mode in modes:
            fixtures = _Fixtures(case, settings)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), explained():
                pytest.main(
                    [str(test), "--rootdir", folder, f"--tf-golden={mode}", *_QUIET, *options], plugins=[fixtures]
                )
            if fixtures.error is not None:
                raise fixtures.error
    assert fixtures.report is not None, printed.getvalue()
    return fixtures.report
