"""A port in half precision, which is held twice: in float32, where no rounding hides a fault, and as it is.

As it is its outputs may be some floors of the reference's away: a floor is how far the reference in half precision is
from itself in float32. What is right in float32 and further off than that rounds more than the reference does, and the
first module that does is named.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.errors import listed
from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.find.pads import made
from pytest_tfdebug.parity.proof.matching import Matches
from pytest_tfdebug.parity.proof.value_graph import Side
from pytest_tfdebug.parity.settle import settle
from pytest_tfdebug.parity.tensors.metrics import compare_leaf, relative_l2
from pytest_tfdebug.parity.tensors.tolerance import Tolerance
from pytest_tfdebug.tensors import dtype_name
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.modules import class_of, modules_of, uncompiled
from pytest_tfdebug.tracing.record.signatures import method_of
from pytest_tfdebug.tracing.record.sites import forward_source
from pytest_tfdebug.tracing.record.state import kept, preserved
from pytest_tfdebug.tracing.trace import in_float32
from pytest_tfdebug.tracing.values.rerun import Rerun
from pytest_tfdebug.tracing.values.tables import as_made, rounded_tables
from pytest_tfdebug.tracing.values.widening import HALF, to_float32, widened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.records import LeafComparison
    from pytest_tfdebug.tracing.trace import Trace
    from pytest_tfdebug.tracing.values.rerun import Recorded
    from pytest_tfdebug.tracing.values.widening import Wider
    from pytest_tfdebug.values import Values

#: Floors that an output may be away from the reference's in half precision. A right Llama of 8 or 24 layers with an
#: order of operations of its own is 1.4 away, a right model asked another way up to 1.1.
MOST_FLOORS = 4.0
#: Share of the dtype's epsilon that a floor is at least taken for: one rounding, where none was seen by luck.
_ONE_ROUNDING = 0.25
#: How many times as much as the reference's a module has to round to be told.
_MUCH = 3.0
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
    """
    if found.ok:
        held = _as_it_is(found, compared, expected, port, reference)
        return as_it_is() if held is None else held
    if _is_same_as_it_is(compared):
        return _same_as_it_is(as_it_is(), found, expected)
    again = None if reference is None else reference()
    held = _with_tables_as_made(expected, port, again, held_to) if isinstance(again, Rerun) else None
    return _in_float32_alone(found, expected, again) if held is None else held


def _with_tables_as_made(
    expected: Trace, port: Rerun | Recorded | None, reference: Rerun, held_to: Callable[[Trace, bool], ParityReport]
) -> ParityReport | None:
    """Hold the port to the reference with the tables that its code makes, where ``.to()`` has rounded them.

    None where it has none, or where the port neither agrees with these nor computes with them: with them more of its
    values are the reference's.
    """
    if not rounded_tables(reference.model):
        return None
    own = None if port is None else port.values()
    shared = _shared(own, reference)
    with as_made(reference.model) as tables:
        if not tables:
            return None
        reference.seed()
        other = made(reference, expected)
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


def _as_it_is(
    in_float32: ParityReport,
    compared: Compared,
    expected: Trace,
    port: Rerun | Recorded | None,
    reference: Callable[[], Rerun | Recorded | None] | None,
) -> ParityReport | None:
    """Hold what agrees in float32 to the reference in half precision; None where more than values differ there."""
    roots = [leaf for item in compared.calls if item.call.parent is None for leaf in item.outputs]
    if any(leaf.problem not in ("", "values", "extra") and not leaf.how for leaf in roots):
        return None
    away = dict(_floors_away(roots, expected))
    leaf, times = max(away.items(), key=lambda each: each[1], default=("", 0.0))
    dtype = _named(expected)
    if times <= MOST_FLOORS:
        told = f"In float32 every output agrees; in {dtype} they are up to {times:.1f} floors of the reference away."
        return replace(in_float32, notes=[*in_float32.notes, told])
    far = f"{times:.1f} floors of the reference away; up to {MOST_FLOORS:g} are allowed."
    why = f"In {dtype} {leaf or 'the output'} is {far}"
    claim = _blamed(why, dtype, port, reference and reference())
    return replace(in_float32, culprit=settle([claim])[0], internal="", noise="")


def _named(trace: Trace) -> str:
    return " and ".join(sorted(halves_of(trace)))


def _floors_away(roots: list[LeafComparison], expected: Trace) -> Iterator[tuple[str, float]]:
    """Yield how far each output of floating point is from the reference's, in floors."""
    wide = {record.leaf: record for record in (expected.wide.calls[0].outputs or ())} if expected.wide else {}
    for leaf in roots:
        other = leaf.expected and wide.get(leaf.expected.leaf)
        if leaf.expected is None or not other or leaf.dtype not in _NAMES or leaf.metrics is None:
            continue
        beside = compare_leaf("output", leaf.expected, other, Tolerance(0.0, 0.0)).metrics
        least = _ONE_ROUNDING * torch.finfo(getattr(torch, leaf.dtype)).eps
        floor = max(least, beside.relative_l2 if beside is not None else 0.0)
        is_gone = leaf.metrics.non_finite_actual > leaf.metrics.non_finite_expected
        yield leaf.leaf, math.inf if is_gone else leaf.metrics.relative_l2 / floor


class _Own(NamedTuple):
    """What a module's call rounds by itself."""

    path: str
    module: torch.nn.Module
    error: float  # relative L2 of what it returns to what it returns in float32, of the same inputs


def _blamed(why: str, dtype: str, port: Rerun | Recorded | None, reference: Rerun | Recorded | None) -> Claim:
    """Claim the first module that rounds several times as much as the reference's do."""
    own = own_roundings(port) if isinstance(port, Rerun) else []
    theirs = own_roundings(reference) if isinstance(reference, Rerun) else []
    known = {each.path: each.error for each in theirs}
    least = torch.finfo(getattr(torch, dtype.partition(" ")[0])).eps * _ONE_ROUNDING
    usual = max([*known.values(), least]) if known else max(median(each.error for each in own) if own else 0.0, least)
    beyond = [each for each in own if each.error > _MUCH * max(known.get(each.path, usual), least)]
    first = next(iter(beyond), None) or max(own, key=lambda each: each.error, default=None)
    if first is None:
        return Claim("", "module", Evidence.ROUNDS_MOST, "", why, f"is right in float32, and too far off in {dtype}")
    name, share = class_of(first.module).__name__, first.error / max(known.get(first.path, usual), least)
    told = f"By itself it is {first.error:.1e} away from float32, {share:.1f} times as much as the reference. {why}"
    wrong = f"is right in float32, and too far off in {dtype}"
    evidence = Evidence.ROUNDS if known and beyond else Evidence.ROUNDS_MOST
    return Claim(first.path, "module", evidence, name, told, wrong, forward_source(first.module))


def own_roundings(forward: Rerun) -> list[_Own]:
    """Return what each module of a forward rounds by itself, in the order in which their calls end.

    Every call is made once more in float32 of what it was given: what its inputs are off by does not count.
    """
    looker = _Looker(to_float32(forward.model))
    args, kwargs = forward.inputs()
    with ExitStack() as stack:
        stack.enter_context(preserved(forward.model))
        stack.enter_context(torch.no_grad())
        stack.enter_context(uncompiled(forward.model))
        for path, module in modules_of(forward.model).by_path.items():
            stack.callback(module.register_forward_pre_hook(looker.begin, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(partial(looker.end, path), with_kwargs=True).remove)
        forward.seed()
        run = forward.model if forward.method == "forward" else method_of(forward.model, forward.method)
        run(*args, **kwargs)
    return looker.found


class _Looker:
    """Makes each call of a module again in float32."""

    def __init__(self, wider: Wider) -> None:
        self.found: list[_Own] = []
        self._wider, self._given, self._is_again = wider, list[Any](), False

    def begin(self, _module: torch.nn.Module, args: Any, kwargs: Any) -> None:  # noqa: ANN401 - of any forward
        """Keep what a call is given: it may write to that."""
        if not self._is_again:
            self._given.append(kept((args, kwargs)))

    def end(self, path: str, module: torch.nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:  # noqa: ANN401
        """Make a call again."""
        if self._is_again:
            return
        self._is_again = True
        try:
            with widened(module, self._given.pop(), self._wider) as ((args, kwargs), _):
                wide = walk(module(*args, **kwargs))
        finally:
            self._is_again = False
        pairs = [(own.tensor, other.tensor) for own, other in zip(walk(output), wide, strict=False)]
        errors = [
            relative_l2(*pair) for pair in pairs if pair[0].is_floating_point() and pair[0].shape == pair[1].shape
        ]
        self.found.append(_Own(path, module, max(errors, default=0.0)))
