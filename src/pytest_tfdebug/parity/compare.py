"""Compare two recorded forwards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.parity.comparator import Comparator
from pytest_tfdebug.parity.coverage import Coverage
from pytest_tfdebug.parity.localize import judge
from pytest_tfdebug.parity.pairing import CallPairing
from pytest_tfdebug.parity.rename import Rename, renamer
from pytest_tfdebug.parity.result import ParityReport
from pytest_tfdebug.parity.suggest import suggest
from pytest_tfdebug.parity.tolerance import Tolerances
from pytest_tfdebug.parity.tolerance import tolerances as checked_tolerances
from pytest_tfdebug.tracing.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping


def compare(
    expected: Trace,
    actual: Trace,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    rename: Rename = None,
    tolerances: Mapping[str, tuple[float, float]] | None = None,
) -> ParityReport:
    """Compare a forward with the one it is held to and name the module that is to blame.

    Elements agree when ``|actual - expected| <= atol + rtol * |expected|``. The defaults go by dtype and are those of
    ``torch.testing.assert_close`` for float32 and float64; see :mod:`pytest_tfdebug.parity.tolerance`.

    Args:
        expected: Trace of the reference, or a loaded golden.
        actual: Trace of the implementation under test.
        rtol: Relative tolerance of every tensor.
        atol: Absolute tolerance of every tensor, in its units.
        rename: Port path -> reference path: a dict of paths or globs (``*`` is one part of a path, a rule holds for
            everything below it), or a callable.
        tolerances: ``{dtype name or module-path glob: (rtol, atol)}``, weaker than ``rtol`` and ``atol``.

    Returns:
        The report.

    Raises:
        TFDebugError: If no tensor could be compared, or an argument makes no sense.
    """
    for side, given in (("expected", expected), ("actual", actual)):
        if not isinstance(given, Trace):
            raise TFDebugError(
                f"compare needs traces and got {type(given).__name__} as {side}: make one with "
                "pytest_tfdebug.trace(model, ...), or read one with Trace.load(path)."
            )
    allowed = checked_tolerances(rtol, atol, tolerances)

    def held_under(names: Rename) -> ParityReport:
        comparator = start_comparison(
            expected, names, allowed, modules=actual.modules, aliases=actual.aliases, unrecorded=actual.unrecorded
        )
        comparator.replay(coverage_of(expected).common(actual.calls, renamer(names)))
        return conclude(comparator, (*expected.notes, *actual.notes))

    return look_inside(held_under, rename)


def look_inside(held_under: Callable[[Rename], ParityReport], rename: Rename) -> ParityReport:
    """Return the report of a comparison under some names; of one that suggests further ones, with whom these blame.

    Args:
        held_under: Makes the comparison.
        rename: Port path -> reference path.
    """
    report = held_under(rename)
    if report.suggested and not callable(rename):
        try:
            inner, outer = held_under({**(rename or {}), **report.suggested}).culprit, report.culprit
        except Exception:  # noqa: BLE001 - a forward that cannot be made again must not cost the report on the first
            return report
        if inner is not None and outer is not None and (inner.path, inner.kind) != (outer.path, outer.kind):
            report.inner = inner
    return report


def start_comparison(
    expected: Trace,
    rename: Rename,
    allowed: Tolerances,
    *,
    modules: Iterable[str],
    aliases: dict[str, tuple[str, ...]],
    unrecorded: Collection[str] = (),
) -> Comparator:
    """Return a comparator that holds a forward to a trace, to be fed by a recorder or a replay.

    Args:
        expected: Trace or golden.
        rename: Port path -> reference path.
        allowed: The tolerances.
        modules: Module paths of the model under test, called or not.
        aliases: Other paths of its shared modules.
        unrecorded: Those of its module paths that are not recorded.
    """
    to_expected = renamer(rename)
    expected = replace(expected, calls=Coverage(modules, aliases, unrecorded, to_expected).common(expected.calls))
    pairing = CallPairing(expected.calls, expected.aliases, aliases, to_expected)
    return Comparator(expected, pairing, allowed, {to_expected(path): path for path in modules})


def coverage_of(trace: Trace) -> Coverage:
    """Return which modules a trace or golden has recorded."""
    return Coverage(trace.modules, trace.aliases, trace.unrecorded)


def conclude(comparator: Comparator, notes: tuple[str, ...] = ()) -> ParityReport:
    """Return the report of a comparison whose forward has ended.

    Raises:
        TFDebugError: If no tensor was compared.
    """
    compared = comparator.finish()
    verdict = judge(compared)
    if not compared.tensors and verdict.culprit is None:
        actual, expected = len(compared.calls), len(compared.expected)
        raise TFDebugError(
            f"Nothing was compared: of {actual} calls here and {expected} expected ones no tensor could be laid side "
            "by side.\nCheck that both forwards return tensors, and give rename= if the modules have other names."
        )
    return ParityReport(
        verdict.culprit,
        verdict.divergences,
        compared.calls,
        compared.tensors,
        [*dict.fromkeys(notes), *verdict.notes],
        suggested=suggest(compared) if verdict.culprit is not None else {},
    )
