"""A port in half precision, which is held twice: in float32, where no rounding hides a fault, and :mod:`.as_it_is`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import listed
from pytest_tfdebug.parity.as_it_is import AsItIs
from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.find.pads import made
from pytest_tfdebug.parity.proof.matching import Matches
from pytest_tfdebug.parity.proof.value_graph import Side
from pytest_tfdebug.tensors import dtype_name
from pytest_tfdebug.tracing.trace import in_float32
from pytest_tfdebug.tracing.values.rerun import Rerun
from pytest_tfdebug.tracing.values.tables import as_made, rounded_tables
from pytest_tfdebug.tracing.values.widening import HALF, to_float32

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.tracing.trace import Trace
    from pytest_tfdebug.tracing.values.rerun import Recorded
    from pytest_tfdebug.values import Values

_NAMES = frozenset(map(dtype_name, HALF))


def halves_of(trace: Trace) -> frozenset[str]:
    """Return which dtypes of half precision the tensors of a forward have."""
    return _NAMES & trace.dtypes()


def is_wide(trace: Trace) -> bool:
    """Tell whether a trace is one of a forward that was made in float32 for being in half precision."""
    return isinstance(trace.again, Rerun) and bool(trace.again.wider)


def hold_in_half(
    found: ParityReport,
    compared: Compared,
    expected: Trace,
    port: Rerun | Recorded | None,
    reference: Callable[[], Rerun] | None,
    *,
    as_it_is: Callable[[], ParityReport],
    held_to: Callable[[Trace, bool], ParityReport],
    holds_alone: Callable[[], ParityReport] | None = None,
) -> ParityReport:
    """Return the report of a port in half precision, which was held in float32.

    Args:
        found: What came of that.
        compared: What its outputs are beside the reference's as it is.
        expected: The reference's forward.
        port: How the port is run again.
        reference: How the reference is, where it can be.
        as_it_is: Holds the port as it is, with all that is said of it.
        held_to: Holds the port to another forward of the reference, in float32 and as it is; explains what differs or
            not.
        holds_alone: Holds it in float32 alone once more, with what it holds now.
    """
    low = AsItIs(compared, expected.wide, halves_of(expected), to_float32, "float32", port, reference)
    if found.ok:
        held = low.hold(found)
        return as_it_is() if held is None else held
    again = None if reference is None else reference()
    if isinstance(port, Rerun) and isinstance(again, Rerun) and not rounded_tables(again.model) and holds_alone:
        with as_made(port.model) as tables:  # the reference makes them in its forward, in float32
            found = holds_alone() if tables else found
        if found.ok:  # it runs with the rounded ones
            held = low.hold(found)
            return found if held is None else held
    if _is_same_as_it_is(compared):
        return _same_as_it_is(as_it_is(), found, expected)
    held = None
    if isinstance(port, Rerun) and isinstance(again, Rerun) and rounded_tables(again.model):
        with as_made(port.model) as tables:
            held = _with_tables_as_made(expected, port, again, held_to) if tables and _runs(port) else None
        if held is not None and held.ok:
            rounded = low.hold(held)
            return held if rounded is None else rounded
    if held is None and isinstance(again, Rerun):
        held = _with_tables_as_made(expected, port, again, held_to)
    return _in_float32_alone(found, expected, again) if held is None else held


def _runs(port: Rerun) -> bool:
    """Tell whether a port runs as it is with tables in float32: where it adds one, its own dtype alone may do."""
    try:
        port.outputs()
    except Exception:  # noqa: BLE001 - the model's own
        return False
    return True


def _with_tables_as_made(
    expected: Trace, port: Rerun | Recorded | None, reference: Rerun, held_to: Callable[[Trace, bool], ParityReport]
) -> ParityReport | None:
    """Hold the port to the reference with the tables that its code makes, where ``.to()`` has rounded them.

    None where it has none, where its forward cannot be run with them, or where the port neither agrees with these nor
    computes with them: with them more of its values are the reference's.
    """
    if not rounded_tables(reference.model):
        return None
    own = None if port is None else port.values()
    shared = _shared(own, reference)
    with as_made(reference.model) as tables:
        if not tables:
            return None
        reference.seed()
        try:
            other = made(reference, expected)
        except Exception:  # noqa: BLE001 - a forward that adds a table to what it computes may take its own dtype alone
            return None
        in_float32(other)
        computes = _shared(own, reference) > shared
        report = held_to(other, computes)
        if not report.ok and not computes:
            return None
    told = (
        f"The reference's {listed([*tables], 3)} {'are' if len(tables) > 1 else 'is'} rounded to {_named(expected)} by "
        ".to(). The port was held to it with what its code makes: building or loading it with dtype= leaves that in "
        "float32."
    )
    return replace(report, notes=[told, *report.notes], unseen=[*report.unseen, told])


def _shared(own: Values | None, reference: Rerun) -> int:
    """Return how many values of a port are values of the reference as well."""
    theirs = reference.values()
    if own is None or theirs is None:
        return 0
    matches = Matches(Side(own), Side(theirs))
    return sum(value.tells and matches.distance(value.index) <= AGREE for value in own.values)


def _is_same_as_it_is(compared: Compared) -> bool:
    """Tell whether every output of a forward as it is is the reference's, bit for bit."""
    roots = [leaf for item in compared.calls if item.call.parent is None for leaf in item.outputs]
    has_all = not any(leaf.problem not in ("", "extra") and not leaf.how for leaf in roots)
    held = [leaf.metrics for leaf in roots if leaf.is_measured]  # None where they are equal
    return has_all and bool(held) and not any(each and (each.max_abs or each.mismatched) for each in held)


def _same_as_it_is(as_it_is: ParityReport, in_float32: ParityReport, expected: Trace) -> ParityReport:
    """Return the report of outputs that are equal in half precision, with what differs in float32 as a warning.

    What follows the model's dtype in the code, as ``torch.tensor(scale, dtype=x.dtype)`` does, is another number there.
    """
    dtype, first = _named(expected), str(in_float32).partition("\n")[0]
    told = (
        f"In {dtype} every output is the reference's, bit for bit; computed in float32 they differ: {first}. "
        f"Either a number there follows the model's dtype, or {dtype} hides what is wrong."
    )
    return replace(as_it_is, notes=[*as_it_is.notes, told], unseen=[*as_it_is.unseen, told])


def _in_float32_alone(report: ParityReport, expected: Trace, reference: Rerun | Recorded | None) -> ParityReport:
    """Return the report of forwards in half precision that differ in float32, which says so."""
    notes = [f"Held in float32, where rounding to {_named(expected)} hides nothing."]
    tables = [*rounded_tables(reference.model)] if isinstance(reference, Rerun) else []
    if tables:
        notes.append(
            f"The reference holds {listed(tables, 3)} in {_named(expected)}: .to() rounds tables that no checkpoint "
            "has, and building or loading it with dtype= leaves them in float32."
        )
    return replace(report, notes=[*notes, *report.notes])


def _named(trace: Trace) -> str:
    return " and ".join(sorted(halves_of(trace)))
