"""Compare two recorded forwards: the public entry, and what is read off traces for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.module_path import holder, last_part, under
from pytest_tfdebug.parity.arrays.hold import hold_arrays
from pytest_tfdebug.parity.comparison import Comparison, coverage_of
from pytest_tfdebug.parity.find.pads import is_part, made, on_part
from pytest_tfdebug.parity.find.several import with_faults
from pytest_tfdebug.parity.find.values import NOT_AGAIN, Explained, explain
from pytest_tfdebug.parity.half_precision import halves_of, hold_in_half, is_wide
from pytest_tfdebug.parity.in_float64 import AS_FLOAT32, is_in_float64, to_float64
from pytest_tfdebug.parity.pair.rename import Rename, past_wrappers, renamer
from pytest_tfdebug.parity.proof.elsewhere import Ran
from pytest_tfdebug.parity.proof.prove import Live, Trial
from pytest_tfdebug.parity.tensors.comparator import Comparator
from pytest_tfdebug.parity.tensors.outputs import OutputRules
from pytest_tfdebug.parity.tensors.tolerance import ToleranceGiven, check_rules, layered, paths_of, read_tolerance
from pytest_tfdebug.parity.tensors.tolerance import tolerances as checked_tolerances
from pytest_tfdebug.parity.verdict import Internal, checked_internal
from pytest_tfdebug.tracing.trace import Trace, in_float32
from pytest_tfdebug.tracing.values.precision import has_floors, measure_floors
from pytest_tfdebug.tracing.values.rerun import Rerun
from pytest_tfdebug.tracing.values.tape import Tape
from pytest_tfdebug.tracing.values.widening import HALF

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_tfdebug.parity.arrays.given import Arrays
    from pytest_tfdebug.parity.comparison import Again
    from pytest_tfdebug.parity.find.pads import Take
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.parity.tensors.tolerance import Tolerances
    from pytest_tfdebug.values import Values


def compare(  # noqa: PLR0913 - keyword options
    expected: Trace,
    actual: Trace | Arrays,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    rename: Rename = None,
    tolerance: ToleranceGiven = "dtype",
    internal: Internal = "warn",
    outputs: Mapping[str, str] | None = None,
    positions: Any = None,  # noqa: ANN401 - a mask, or anything that a tensor is indexed with
) -> ParityReport:
    """Compare a forward with the one it is held to and name the module that is to blame.

    Elements agree when ``|actual - expected| <= atol + rtol * |expected|``. The defaults go by dtype and are those of
    ``torch.testing.assert_close`` for float32 and float64; see :mod:`pytest_tfdebug.parity.tensors.tolerance`.

    Args:
        expected: Trace of the reference, or a loaded golden.
        actual: Trace of the implementation under test; or the arrays of another runtime, which need no names:
            ``(label, array)`` pairs, a dict, an ``.npz`` or safetensors file, a directory of dumps.
        rtol: Relative tolerance of every tensor.
        atol: Absolute tolerance of every tensor, in its units.
        rename: Port path -> reference path: a dict of paths or globs (``*`` is one part of a path, ``**`` any number of
            them, a rule holds for everything below it), or a callable.
        tolerance: A pair ``(rtol, atol)``, or ``{dtype name or module-path glob: (rtol, atol)}``, weaker than ``rtol``
            and ``atol``; or ``"fp64"``, which allows eight times what arithmetic alone explains: the reference is run
            once more in float64, unless ``expected`` is a golden that was recorded so.
        internal: What becomes of a forward whose outputs, and what it writes to caches, agree while something inside
            does not: ``"warn"`` passes with a note, ``"fail"`` names the culprit.
        outputs: Path of an output of the port -> path of the reference's, as in ``{"audio": "audio_values"}``;
            ``{"": "logits"}`` for a port that returns a tensor; ``{"cls": "last_hidden_state[:, 0]", "patches":
            "last_hidden_state[:, 1:]"}`` for one that returns it in parts, which must be all of it. What it does not
            list is found by name, then by value, or left out; without it an output that is not found fails.
        positions: Which positions of the outputs count: a mask of 0s and 1s of their leading axes (an attention mask:
            real tokens), or an index, ``(slice(None), 0)``. The port may return these positions alone. An output that
            does not have them is compared whole.

    Returns:
        The report.

    Raises:
        TFDebugError: If no tensor could be compared, an argument makes no sense, a rule matches nothing, or the
            reference cannot be run in float64.
    """
    if not _is_trace(expected) or isinstance(actual, torch.nn.Module):
        side, given = ("actual", actual) if _is_trace(expected) else ("expected", expected)
        raise TFDebugError(
            f"compare needs traces and got {type(given).__name__} as {side}: make one with "
            "pytest_tfdebug.trace(model, ...), or read one with Trace.load(path)."
        )
    checked_internal(internal)
    by_place = read_tolerance(tolerance)
    allowed = layered(checked_tolerances(rtol, atol), by_place)
    if tolerance == "fp64" and not has_floors(expected):
        measure_floors(expected)
    if not isinstance(actual, Trace):
        if rename:
            raise TFDebugError("rename= maps the modules of two traces, but arrays have no modules: leave it out.")
        return hold_arrays(expected, actual, allowed)
    check_rules(rename, by_place.globs, paths_of(actual), paths_of(expected))
    rules, names = OutputRules(outputs, positions), rename or _past_wrappers(actual, expected)

    return hold_trace(TraceComparison(expected, actual, allowed, names, rules, internal))


def _past_wrappers(actual: Trace, expected: Trace) -> dict[str, str]:
    """Return the rule for a model inside of another module; none where that calls it once for each row, say."""

    def times(trace: Trace, path: str) -> int:
        return sum(call.path == path if path else call.parent is None for call in trace.calls)

    names = past_wrappers(actual.modules, expected.modules)
    return names if all(times(actual, own) == times(expected, there) for own, there in names.items()) else {}


def hold_trace(held: TraceComparison) -> ParityReport:
    """Compare two forwards; of one half precision in float32, and as they are, unless a tolerance was given."""
    expected, actual = held.expected, held.actual
    if held.allowed.are_given or not halves_of(expected) or halves_of(expected) != halves_of(actual):
        return held.report()
    theirs, own = in_float32(expected), in_float32(actual)
    if theirs is None or own is None:
        return held.report()
    found = replace(held, expected=theirs, actual=own).report()
    compared = held.under(held.rename).finish()

    def held_to(other: Trace, is_explained: bool) -> ParityReport:  # noqa: FBT001
        return hold_trace(replace(held, expected=other, is_explained=is_explained))

    again, reference = actual.again, held.reference
    return hold_in_half(found, compared, expected, again, reference, as_it_is=held.report, held_to=held_to)


@dataclass(frozen=True)
class TraceComparison(Comparison):
    """A recorded forward that is held to another one."""

    expected: Trace
    actual: Trace
    allowed: Tolerances
    rename: Rename
    rules: OutputRules
    internal: Internal
    is_explained: bool = True
    is_part: bool = False  # whether it is of some rows of the inputs

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be seen of both forwards."""
        return (*self.expected.notes, *self.actual.notes)

    @property
    def again(self) -> tuple[Again, Again]:
        """The models of both, as far as they can be run again."""
        return self.actual.again, self.expected.again

    @property
    def reference(self) -> Callable[[], Rerun] | None:
        """How the reference is run again, where it can be."""
        again = self.expected.again
        return (lambda: again) if isinstance(again, Rerun) else None

    def under(self, names: Rename) -> Comparator:
        """Compare the tensors of both, the modules of one under other names."""
        actual = self.actual
        comparator = Comparator(
            self.expected,
            names,
            self.allowed,
            modules=actual.modules,
            aliases=actual.aliases,
            unrecorded=actual.unrecorded,
            rules=self.rules,
        )
        comparator.replay(coverage_of(self.expected).common(actual.calls, renamer(names)))
        return comparator

    def explained(self, *, fails: bool | None) -> Explained | None:
        """Return what the values of both say."""
        return explained(self.expected, self.actual, fails=fails, is_part=self.is_part)

    def both(self) -> tuple[Ran, Ran] | None:
        """Run the models of both traces once more; None where one of them gives something else."""
        found = [_ran(each) for each in (self.actual, self.expected)]
        return None if found[0] is None or found[1] is None else (found[0], found[1])

    def in_float64(self, own: Rerun, reference: Rerun) -> TraceComparison | None:
        """Make both forwards once more, in float64."""
        if not self.allowed.are_defaults or is_in_float64(own) or is_in_float64(reference):
            return None
        expected, actual = made(to_float64(reference), self.expected), made(to_float64(own), self.actual)
        return replace(self, expected=expected, actual=actual, allowed=AS_FLOAT32)

    def once_more(self) -> ParityReport:
        """Make the forward once more and hold it to the expected one."""
        assert isinstance(self.actual.again, Rerun)  # noqa: S101 - who asks has it
        return replace(self, actual=made(self.actual.again, self.actual), is_explained=False).report()

    def on_part(self, reference: Rerun, take: Take, rules: OutputRules) -> ParityReport | None:
        """Compare both on a part of their inputs; None where that is not the part of what both gave on the whole."""
        own = on_part(self.actual.again, take) if isinstance(self.actual.again, Rerun) else None
        theirs = on_part(reference, take)
        if own is None or theirs is None:
            return None
        expected, actual = made(theirs, self.expected), made(own, self.actual)
        if not is_part(actual, self.actual, take):
            return None
        is_explained = rules.positions is None
        part = replace(self, expected=expected, actual=actual, rules=rules, is_explained=is_explained, is_part=True)
        return part.report()


def _is_trace(given: object) -> bool:
    return isinstance(given, Trace)


def explained(expected: Trace, actual: Trace, *, fails: bool | None, is_part: bool = False) -> Explained | None:
    """Return what the values of two forwards say, each made once more; None where one cannot be made as it was."""
    tables, live, begun = [], [], time.monotonic()
    for recorded in (expected, actual):
        if recorded.again is None:
            return None
        ran = _ran(recorded)
        if ran is None:
            return Explained(None, is_known=False, compared=0, expected=0, notes=[NOT_AGAIN])
        if ran.values.is_widened and not is_wide(recorded):
            fails = None  # of rounding, maybe
        tables.append(ran.values)
        live.append(Live(ran.tape, outputs_of(recorded)))
    theirs, own = expected.again, actual.again
    held = {} if own is None else own.weights()
    look = explain(*tables, fails=fails, applied=live[1].tape.numbers(), held=held)
    again = (own, theirs) if isinstance(own, Rerun) and isinstance(theirs, Rerun) else None
    return with_faults(look, Trial(live[1], live[0], begun=begun, again=again, is_part=is_part))


def _ran(recorded: Trace) -> Ran | None:
    """Make a recorded forward once more; None where it cannot be, or gives something else."""
    outputs = [record.tensor for call in recorded.calls[:1] for record in call.outputs or ()]
    tape = Tape()
    values = None if recorded.again is None else recorded.again.values(outputs, tape=tape)
    if values is None:
        return None
    _take_names(values, recorded)
    return Ran(values, tape)


def outputs_of(trace: Trace) -> dict[str, torch.Tensor]:
    """Return the outputs of a forward that were kept whole, by their leaf paths, but those that are rounded to half."""
    tensors = {record.leaf: record.tensor for call in trace.calls[:1] for record in call.outputs or ()}
    return {leaf: tensor for leaf, tensor in tensors.items() if tensor is not None and tensor.dtype not in HALF}


def _take_names(values: Values, recorded: Trace) -> None:
    """Give a table the module paths of a trace: these may have been replaced since the forward."""
    if len(values.modules) != len(recorded.modules) or values.modules == recorded.modules:
        return
    taken = dict(zip(values.modules, recorded.modules, strict=True))

    def renamed(name: str) -> str:
        return under(taken[holder(name)], last_part(name)) if holder(name) else name

    for call in values.calls:
        call.path = taken.get(call.path, call.path)
    values.attributes = {taken.get(path, path): held for path, held in values.attributes.items()}
    values.parameters = {renamed(name): held for name, held in values.parameters.items()}
    for value in values.values:
        if value.origin == "parameter":
            value.name = renamed(value.name)
