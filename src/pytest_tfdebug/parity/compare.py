"""Compare two recorded forwards."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.parity.arrays.hold import hold_arrays
from pytest_tfdebug.parity.calls.call_notes import called_otherwise, other_numbers
from pytest_tfdebug.parity.calls.noise import (
    at_the_greatest_jump,
    has_value_jump,
    told_in_float32,
    told_noise,
    with_outputs_outside,
    without_jumps,
)
from pytest_tfdebug.parity.find.module_names import suggested_rules
from pytest_tfdebug.parity.find.pads import Take, at_pads, beside_pads, is_part, made, on_part
from pytest_tfdebug.parity.find.several import with_faults
from pytest_tfdebug.parity.find.values import NOT_AGAIN, Explained, explain
from pytest_tfdebug.parity.pair.pairing import RecordedModules
from pytest_tfdebug.parity.pair.rename import Rename, renamer
from pytest_tfdebug.parity.patch.patch import with_patches
from pytest_tfdebug.parity.proof.prove import Live, Trial
from pytest_tfdebug.parity.result import ParityReport
from pytest_tfdebug.parity.settle import FINAL, settle
from pytest_tfdebug.parity.tensors.comparator import Comparator, tally
from pytest_tfdebug.parity.tensors.coverage import measured_coverage, told_outputs, told_unseen, what_to_write
from pytest_tfdebug.parity.tensors.outputs import OutputRules
from pytest_tfdebug.parity.tensors.ranks import merge_ranks, on_ranks
from pytest_tfdebug.parity.tensors.tolerance import ToleranceGiven, check_rules, layered, paths_of, read_tolerance
from pytest_tfdebug.parity.tensors.tolerance import tolerances as checked_tolerances
from pytest_tfdebug.parity.verdict import (
    Internal,
    Judged,
    checked_internal,
    decide,
    is_equal_outside,
    is_named,
    judge,
    tolerated,
)
from pytest_tfdebug.records import Coverage
from pytest_tfdebug.tracing.trace import Trace
from pytest_tfdebug.tracing.values.precision import has_floors, measure_floors
from pytest_tfdebug.tracing.values.rerun import Rerun
from pytest_tfdebug.tracing.values.tape import Tape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_tfdebug.parity.arrays.given import Arrays
    from pytest_tfdebug.parity.tensors.comparator import Compared
    from pytest_tfdebug.parity.tensors.tolerance import Tolerances
    from pytest_tfdebug.records import Culprit
    from pytest_tfdebug.tracing.values.rerun import Recorded
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
    rules = OutputRules(outputs, positions)

    return _Comparison(expected, actual, allowed, rename, rules, internal).report()


@dataclass(frozen=True)
class _Comparison:
    """A forward that is held to another one."""

    expected: Trace
    actual: Trace
    allowed: Tolerances
    rename: Rename
    rules: OutputRules
    internal: Internal

    def report(self, *, is_explained: bool = True) -> ParityReport:
        """Compare both."""
        expected, actual, rename = self.expected, self.actual, self.rename
        found, mask = ended(self.under(rename), (*expected.notes, *actual.notes), internal=self.internal), ""
        if found.asks and is_explained:
            again = expected.again
            if found.fails and isinstance(again, Rerun):
                beside, mask = beside_pads(expected, lambda: again, self.rules, self.on_part)
                if beside is not None:
                    return beside
            found = found.answered(explained(expected, actual, fails=found.fails))
        tried = found.names_to_try()
        renamed = self.under({**(rename or {}), **tried}).finish() if tried and not callable(rename) else None
        report = conclude(found, tried, renamed, (actual.again, expected.again))
        return at_pads(report, mask) if mask else report

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

    def on_part(self, reference: Rerun, take: Take, rules: OutputRules) -> ParityReport | None:
        """Compare both on a part of their inputs; None where that is not the part of what both gave on the whole."""
        own = on_part(self.actual.again, take) if isinstance(self.actual.again, Rerun) else None
        theirs = on_part(reference, take)
        if own is None or theirs is None:
            return None
        expected, actual = made(theirs, self.expected), made(own, self.actual)
        if not is_part(actual, self.actual, take):
            return None
        return replace(self, expected=expected, actual=actual, rules=rules).report(is_explained=rules.positions is None)


def _is_trace(given: object) -> bool:
    return isinstance(given, Trace)


def explained(expected: Trace, actual: Trace, *, fails: bool | None) -> Explained | None:
    """Return what the values of two forwards say, each made once more; None where one cannot be made as it was."""
    tables, live, begun = [], [], time.monotonic()
    for recorded in (expected, actual):
        outputs = [record.tensor for call in recorded.calls[:1] for record in call.outputs or ()]
        tape = Tape()
        if recorded.again is None:
            return None
        values = recorded.again.values(outputs, tape=tape)
        if values is None:
            return Explained(None, is_known=False, compared=0, expected=0, notes=[NOT_AGAIN])
        _take_names(values, recorded)
        tables.append(values)
        live.append(Live(tape, outputs_of(recorded)))
    look = explain(*tables, fails=fails, applied=live[1].tape.numbers())
    theirs, own = expected.again, actual.again
    again = (own, theirs) if isinstance(own, Rerun) and isinstance(theirs, Rerun) else None
    return with_faults(look, Trial(live[1], live[0], begun=begun, again=again))


def outputs_of(trace: Trace) -> dict[str, torch.Tensor]:
    """Return the outputs of a forward that were kept whole, by their leaf paths."""
    records = [record for call in trace.calls[:1] for record in call.outputs or ()]
    return {record.leaf: record.tensor for record in records if record.tensor is not None}


def _take_names(values: Values, recorded: Trace) -> None:
    """Give a table the module paths of a trace: these may have been replaced since the forward."""
    if len(values.modules) != len(recorded.modules) or values.modules == recorded.modules:
        return
    taken = dict(zip(values.modules, recorded.modules, strict=True))

    def renamed(name: str) -> str:
        path, _, last = name.rpartition(".")
        return f"{taken[path]}.{last}" if path else name

    for call in values.calls:
        call.path = taken.get(call.path, call.path)
    values.attributes = {taken.get(path, path): held for path, held in values.attributes.items()}
    values.parameters = {renamed(name): held for name, held in values.parameters.items()}
    for value in values.values:
        if value.origin == "parameter":
            value.name = renamed(value.name)


def coverage_of(trace: Trace) -> RecordedModules:
    """Return which modules a trace or golden has recorded."""
    return RecordedModules(trace.modules, trace.aliases, trace.unrecorded)


@dataclass(frozen=True)
class Ended:
    """A comparison whose forward has ended."""

    judged: Judged  # what calls say
    # what they say if values jump where names do not pair; None where values need not be asked for that
    suspect: Judged | None = None
    notes: tuple[str, ...] = ()  # what could not be seen
    internal: Internal = "fail"  # what becomes of a difference that changes no output
    world_size: int = 1  # how many ranks made the forward
    look: Explained | None = None  # what values say, where they were asked
    in_float32: str = ""  # whether outputs that pass as rounding of half precision agree in float32, in a sentence

    @property
    def asks(self) -> bool:
        """Whether values have to be asked."""
        return self.judged.asks or self.suspect is not None

    @property
    def fails(self) -> bool | None:
        """Whether the roots' outputs differ, for who asks values; None where that is not known."""
        return self.judged.fails if self.suspect is None else True

    def answered(self, look: Explained | None) -> Ended:
        """Return the comparison with what values say; None where that cannot be had."""
        pair = look.pair if look is not None and self.suspect is not None else None
        judged = self.suspect if self.suspect is not None and pair is not None and has_value_jump(pair) else self.judged
        told = "" if pair is None else told_in_float32(pair)
        return replace(self, judged=judged, suspect=None, look=look if judged.asks else None, in_float32=told)

    def names_to_try(self) -> dict[str, str]:
        """Return rules for ``rename=`` under which the two sides may be the same code; none where nothing says any."""
        judged, look = self.judged, self.look
        if judged.is_named or judged.verdict.claim is None or look is None or look.pair is None:
            return {}
        return suggested_rules(look.pair, {own: expected for expected, own in judged.compared.own_paths.items()})


def ended(comparator: Comparator, notes: tuple[str, ...] = (), *, internal: Internal = "fail") -> Ended:
    """Return a comparison whose forward has ended; on several ranks, every one must ask."""

    def judged(found: Compared) -> Judged:
        return judge(found, is_tolerated=internal == "warn" and is_equal_outside(found))

    found, group = comparator.finish(), comparator.group
    if group is not None:
        merged = tally(merge_ranks(found, comparator.tolerances, group.exchange))
        told = tuple(note for each in group.exchange(notes) for note in each)
        return Ended(judged(merged), None, told, internal, group.world_size)
    found = at_the_greatest_jump(without_jumps(found))
    suspect = None if is_named(found) else with_outputs_outside(found)
    return Ended(judged(found), None if suspect is None or suspect is found else judged(suspect), notes, internal)


def _told_search(culprit: Culprit | None, look: Explained | None) -> list[str]:
    """Say how the search for a proof ended where it proves nothing."""
    is_open = culprit is not None and not culprit.proved and look is not None and bool(look.search_note)
    return [look.search_note] if is_open and look is not None else []


def conclude(
    found: Ended,
    tried: Mapping[str, str] = MappingProxyType({}),
    renamed: Compared | None = None,
    again: tuple[Rerun | Recorded | None, Rerun | Recorded | None] = (None, None),
) -> ParityReport:
    """Return the report of a comparison; ``again`` are the two models, which say what their modules hold."""
    look, decided = found.look, decide(found.judged, found.look, tried, renamed)
    compared, divergences, is_compared = decided.compared, decided.divergences, decided.is_compared
    claims = [on_ranks(claim, found.world_size) if found.world_size > 1 else claim for claim in decided.claims]
    culprit = next(iter(settle(claims)), None)
    inside = tolerated(culprit, divergences, compared) if found.internal == "warn" else ""
    culprit, notes = (None, [inside, *decided.notes]) if inside else (culprit, decided.notes)
    behind = () if culprit is None or look is None or look.faults is None else look.faults.beside(culprit)
    if culprit is not None and look is not None and look.pair is not None and look.again is not None:
        culprit, *others = with_patches([culprit, *behind], look.pair, *look.again)
        behind = tuple(others)
    is_final, coverage = culprit is not None and culprit.kind in FINAL, measured_coverage(compared)
    if is_compared and decided.look is not None and decided.look.expected:
        coverage = Coverage(decided.look.compared, decided.look.expected, root=coverage.root)
    if not compared.tensors and culprit is None and not is_compared:
        actual, expected = len(compared.calls), len(compared.expected)
        raise TFDebugError(
            f"Nothing was compared: no tensors of {actual} calls here and {expected} expected ones matched by name and "
            "shape.\nCheck that both forwards return tensors, and give rename= if the modules have other names."
        )
    unseen, failed, otherwise = [], [], list(called_otherwise(compared))
    if culprit is not None:
        failed = [note for each in again if each is not None for note in each.notes]
    else:
        own, theirs = again
        unseen = list(told_unseen(compared, coverage))
        if own is not None and theirs is not None and not inside:
            unseen += other_numbers(compared, own.attributes(), theirs.attributes())
    return ParityReport(
        culprit,
        divergences,
        compared.calls,
        compared.tensors,
        [*dict.fromkeys((*found.notes, *unseen, *notes, *_told_search(culprit, look), *failed, *otherwise))],
        renamed=otherwise,
        unseen=unseen,
        suggested={} if inside else decided.rules,
        internal=inside,
        coverage=coverage,
        by_values=decided.look is not None,
        unpaired=compared.unpaired_expected,
        explained=look,
        behind=behind,
        output_notes=told_outputs(compared),
        noise="" if culprit is not None else " ".join(filter(None, (told_noise(compared), found.in_float32))),
        advice="" if found.judged.fails is not None or is_final else what_to_write(compared),
    )
