"""The exception tree: what this package raises on its own behalf.

Failed checks are ``AssertionError`` so that pytest shows them as failures; misuse of the Python API is a
``TFDebugError``; wrong flags and marker arguments are ``pytest.UsageError`` and live with the plugin.
"""

from __future__ import annotations

import io
import logging
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

logger = logging.getLogger(__name__)


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the first names of a list as text, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 golden``, ``2 goldens``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def a_or_an(noun: str) -> str:
    """Return a noun with its article."""
    return f"an {noun}" if noun[:1] in "aeiouAEIOU" else f"a {noun}"


class second_look:  # noqa: N801 - read as ``with second_look(notes):``
    """Explain a failure in a block: what is raised there, Ctrl-C excepted, becomes a note and changes no verdict.

    A forward that is made again may skip the test or end the process, and both are no ``Exception``.
    """

    def __init__(self, notes: list[str], failing: str = "The failure could not be explained further") -> None:
        self._notes, self._failing = notes, failing

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _tb: TracebackType | None
    ) -> bool:
        """Note what was raised."""
        if error is None or isinstance(error, KeyboardInterrupt):
            return False
        told = f"{self._failing}: {in_a_line(error)}"
        logger.debug(told, exc_info=error)
        self._notes.append(told)
        return True


@contextmanager
def second_forward() -> Iterator[None]:
    """Make a forward again in a block: one that skips the test or ends the process raises a ``SecondForwardError``."""
    try:
        yield
    except (KeyboardInterrupt, Exception):
        raise
    except BaseException as error:
        raise SecondForwardError(f"made again, the forward raised {in_a_line(error)}") from error


@contextmanager
def silenced() -> Iterator[None]:
    """Run a block in which libraries neither warn nor log: who asked for a verdict did not make what is run there."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def in_a_line(error: BaseException) -> str:
    """Return the kind of an exception and the first line of what it says."""
    from pytest_tfdebug.redaction import redact

    try:
        told = redact(str(error)).strip().partition("\n")[0]
    except Exception as unreadable:  # noqa: BLE001 - a foreign __str__ may raise anything
        told = f"its message is unreadable ({type(unreadable).__name__})"
    return f"{type(error).__name__}: {told}" if told else type(error).__name__


class _Shown:
    """An error or warning that shows names of modules, tests and files as they are, and obeys none of them."""

    def __init__(self, *args: object) -> None:
        from pytest_tfdebug.redaction import printable

        super().__init__(*(printable(arg, keep="\n\t") if isinstance(arg, str) else arg for arg in args))


class TFDebugError(_Shown, Exception):
    """Something was asked of the package that it cannot do; the message says what to do instead."""


class SecondForwardError(TFDebugError):
    """A forward that was made again would have skipped the test or ended the run."""


class GoldenError(TFDebugError):
    """A golden file cannot be read or written, or is not a golden."""


class MissingGoldenError(GoldenError, AssertionError):
    """A test has no golden yet: the check fails, and its message says what to type."""


class CheckError(_Shown, AssertionError):
    """A check failed; its message begins with the answer.

    Args:
        message: The report: text, or a ``CheckText``.
        found: What the check found: the attributes that the class declares, in their order or by name.

    Attributes:
        text: The ``CheckText``, from which pytest shows as much as is wanted; None where the message is all there is.
        answer: What is wrong, in a line.
        is_empty: Whether nothing was checked: the test is wrong then, and the model may be right.
    """

    is_empty = False

    def __init__(self, message: Any, *found: Any, **named: Any) -> None:  # noqa: ANN401 - of higher rooms
        from pytest_tfdebug.redaction import printable

        super().__init__(str(message))
        self.text = None if isinstance(message, str) else message
        self.answer = str(self).partition("\n")[0] if self.text is None else printable(self.text.answer)
        vars(self).update(zip(type(self).__annotations__, found, strict=False), **named)


class ParityError(CheckError):
    """A forward differs from what it is held to."""

    report: Any = None  # the ``ParityReport``


class SweepError(CheckError):
    """A port does not follow a field of its configuration, or follows one that is known not to be followed."""

    report: Any = None  # the ``SweepReport``


class ActivationOverflowError(CheckError):
    """A value is not finite, or too close to the end of its dtype's range, or nothing was watched."""

    fault: Any = None  # the ``Fault``: where the first value arose that is not finite; None where all are
    tightest: Any = ()  # the ``Tight`` modules, those closest to the end of the range first, if that was asked for


class InvarianceError(CheckError):
    """A model gives another answer when it is asked in another way, or nothing could be asked again."""

    culprit: Any = None  # the ``Culprit``: where the difference arises; None where that is not known
    outcome: Any = None  # all that the check found; None where nothing could be asked again


class CleanLoadError(CheckError):
    """A model was loaded with weights that do not fit it, or no model was loaded."""

    report: Any = None  # the ``LoadReport`` of ``check_loaded``


class ConformanceError(CheckError):
    """A model class breaks one of its promises, or keeps one that it is declared to break."""

    verdict: Any = None  # the ``PromiseVerdict``: model, promise, state
    finding: Any = None  # what was found, with the ``Culprit`` where one is known

    @property
    def culprit(self) -> Any:  # noqa: ANN401 - as above
        """The ``Culprit``; None where none is known."""
        return getattr(self.finding, "culprit", None)


class TFDebugWarning(_Shown, UserWarning):
    """Something that is worth knowing and does not fail a check."""


class CoverageWarning(TFDebugWarning):
    """A golden check passed that compared little, or not what the model returns."""


class NoiseWarning(TFDebugWarning):
    """A golden check passed though elements are outside tolerance: the difference is no larger than rounding makes."""


class InternalWarning(TFDebugWarning):
    """A golden check passed whose outputs agree while something inside the model does not."""


class GoldenSizeWarning(TFDebugWarning):
    """A golden was written that is too large to be committed with ease."""


class TFDebugMaskWarning(TFDebugWarning):
    """An attention mask is missing, too short, inverted, additive or under a wrong name, and nobody would say so."""


@contextmanager
def unheard() -> Iterator[None]:
    """Keep what the user's code prints and warns of, when it runs once more, from the user."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
