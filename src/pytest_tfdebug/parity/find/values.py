"""What the values of two forwards say, as the record that a report shows: who is to blame, and both sides' lines."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from math import isclose
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.errors import listed
from pytest_tfdebug.module_path import last_part
from pytest_tfdebug.parity.claims import IN_PORT, Claim, Evidence
from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.find.blame_values import CLEAR, find_fault
from pytest_tfdebug.parity.find.converted import converted_in
from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
from pytest_tfdebug.parity.proof.known_numbers import held_numbers
from pytest_tfdebug.parity.proof.weights import look_into
from pytest_tfdebug.parity.text.handed_on import chosen_before
from pytest_tfdebug.parity.text.loading import behind_loop, loaded_at, loop_around
from pytest_tfdebug.parity.text.text_differences import source_file
from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.tracing.record.sites import is_library
from pytest_tfdebug.tracing.values.slicing import statement_lines
from pytest_tfdebug.values import Line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    import torch

    from pytest_tfdebug.parity.find.counterparts import Finding
    from pytest_tfdebug.parity.proof.mended import Mended
    from pytest_tfdebug.parity.proof.value_graph import Side
    from pytest_tfdebug.records import Call, Kind, SearchEnd
    from pytest_tfdebug.tracing.values.rerun import Rerun
    from pytest_tfdebug.values import Value, Values

#: Lines that are shown where a step is lacking between two, at most.
_GAP = 3
#: Lines that are shown where several are open.
_WIDEST = 8

#: Said where the second forward is not the first.
NOT_AGAIN = (
    "No line could be singled out: a forward made once more gave something else, or could not be made "
    "(a model has changed since, or draws random numbers of its own)."
)
_IS_USED = "It is used at"
_NOT_IN_ORDER = "what it is computed from has the right numbers, and it is not known whether in the same order."
#: Kind of a fault -> what is wrong, and what else was observed.
_TOLD: dict[str, tuple[str, str]] = {
    "replaced": ("computes a value that the reference never does", "what it is computed from agrees."),
    "operand": ("uses the wrong operand here", "the port computes the right one too."),
    "left-out": ("skips a step that the reference does", ""),
    "extra": ("does a step that the reference does not", "the reference uses the input of that step instead."),
    "order": ("puts elements in another order than the reference", "what it is computed from lies as expected."),
    "proved": ("does something else here than the reference", ""),
    "unknown": ("computes values that the reference never does", "the reference does this in another way."),
}


class Faults(NamedTuple):
    """Every fault of a port."""

    claims: tuple[Claim, ...] = ()  # in the order of the forward
    summary: str = ""  # what became of all, in a sentence: ``after these 3 changes every output agrees``
    mended: Mended | None = None  # the changes, where every output agrees after them alone


@dataclass
class Explained:
    """What values say of two forwards."""

    claim: Claim | None  # who is to blame; None where every output that both return agrees, or nothing is known
    is_known: bool  # whether the outputs of the two roots could be paired
    compared: int  # calls of the reference whose outputs the port computes too
    expected: int  # calls of the reference
    notes: list[str] = field(default_factory=list)  # what else was seen, in sentences
    finding: Finding | None = None  # what the claim was made from
    pair: ForwardPair | None = field(default=None, repr=False)  # the two forwards
    search: SearchEnd = ""  # how the search for a proof ended
    search_note: str = ""  # what that means, in a sentence, where nothing was found
    # the port and the reference with their inputs, where both can be run
    again: tuple[Rerun, Rerun] | None = field(default=None, repr=False)
    unused: str = ""  # which parameters change no output, or are not there, though the reference's do, in sentences
    faults: Faults | None = None  # every fault, where no change of one place mends the port; None where one does
    proofs: tuple[Claim, ...] = ()  # whom a proof names, the likeliest first: one for each line that mends the port
    mended: Mended | None = field(default=None, repr=False)  # the changes after which every output agrees, if any do

    @property
    def seen(self) -> Claim | None:
        """What is known best of the first value that is wrong: what a proof says of it, or else what values do."""
        return self.proofs[0] if self.proofs else self.claim

    @property
    def in_port(self) -> list[Claim]:
        """The lines of the port of which a change mends it."""
        return [claim for claim in self.proofs if claim.evidence in IN_PORT]

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What is claimed by values and by a proof."""
        return (() if self.claim is None else (self.claim,)) + self.proofs

    def reference_files(self, function: str) -> set[str]:
        """Return the files in which a function of some name computed values of the reference."""
        values = self.pair.reference.values if self.pair is not None else []
        return {line.file for value in values for line in value.lines if line.function == function}


def explain(
    expected: Values,
    actual: Values,
    *,
    fails: bool | None = None,
    applied: Iterable[float] = (),
    held: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> Explained:
    """Hold the values of a forward, which applied some numbers and held some weights, to those of its reference."""
    pair = ForwardPair(actual, expected)
    look_into(pair.weights, held, expected.parameters)
    pairs = pair.pair_results(AGREE)
    outputs = _outputs(expected)
    seen, total = sum(bool(pair.back_matches.within(index, AGREE)) for index in outputs), len(outputs)
    if fails is False or (fails is None and not pairs.apart and pairs.agreeing):
        is_widened = fails is None and (expected.is_widened or actual.is_widened)
        notes = ["In float32 both give the same, so no line can be named."] if is_widened else []
        notes += pair.weights.conventions()
        return Explained(None, is_known=True, compared=seen, expected=total, notes=notes, pair=pair)
    differing = pairs.apart or (pairs.agreeing if fails else []) or pairs.leftover
    finding = find_fault(
        pair,
        [mine for mine, _ in differing if mine is not None],
        [theirs for _, theirs in differing if theirs is not None],
    )
    if finding is None:
        return Explained(None, bool(pairs.agreeing or pairs.apart), seen, total, pair=pair)
    claim = claim_of(finding, pair)
    unused = pair.weights.unused(pair.port.used, pair.reference.used, pair.computed_weights(AGREE))
    notes = [
        *_not_held(actual, expected, applied),
        *pair.weights.conventions(finding.weights),
    ]
    return Explained(
        claim,
        is_known=True,
        compared=seen,
        expected=total,
        notes=notes,
        finding=finding,
        pair=pair,
        unused=" ".join(unused),
    )


def _not_held(actual: Values, expected: Values, applied: Iterable[float]) -> Iterator[str]:
    """Say which scales, epsilons and the like the reference's modules hold and the port neither holds nor applies."""
    held = {abs(number) for _, number in held_numbers(actual)}
    own = held.union(map(abs, applied))
    own |= {1 / number for number in own if number}
    missing = [
        f"{name} {number:g}"
        for name, number in sorted(held_numbers(expected))
        if not number.is_integer() and not any(isclose(abs(number), each, rel_tol=1e-6) for each in own)
    ]
    if held and missing:
        yield f"No module here holds the reference's {listed(missing)}."


def _outputs(table: Values) -> list[int]:
    """Return the first output of each call that returned something new."""
    given = table.inputs
    found = []
    for call in table.calls:
        made = [index for _, index in table.outputs.get(call.index, ())]
        if made and made[0] not in {index for _, index in given.get(call.index, ())}:
            found.append(made[0])
    return found


def claim_of(finding: Finding, pair: ForwardPair) -> Claim:
    """Return what a finding says, as a claim."""
    call, idle = _call_with_lines(finding.call, pair.port)
    actual, site = pair.port.table, idle.called_at if idle is not None else None
    source, function, callers = (site, "", ()) if site is not None else _source(finding, call, pair)
    if finding.fault == "operand" and finding.values and len(finding.values[0].lines) > finding.depth:
        chosen = chosen_before(finding.values[0].lines[finding.depth], pair.port.lines_that_ran)
        source = chosen or source
    if finding.fault == "left-out" and source is not None and _is_last_there(finding, source, pair):
        source = behind_loop(source) or source
    reference = _reference(finding, pair)
    wrong, why = _told(finding, pair, actual)
    made = made_as_buffer(finding.values[0], pair.port) if finding.values else None
    if made is not None and made != source:
        why = f"{why} It is a part of a buffer that {made} makes.".lstrip()
        buffer = _buffer_of(finding.values[0], pair.port)
        if buffer is not None and source is not None and not pair.matches.within(buffer.index, AGREE):
            why = f"It is read at {PurePath(source.file).name}:{source.first}."
            source, function, callers = made, "", ()
    constructed = actual.constructed.get(finding.values[0].index) if finding.values else None
    path, class_name = constructed or (call.path, call.class_name)
    path = path or pair.port.root.path
    claim = Claim(
        path,
        "module" if constructed else _kind(finding, call, actual),
        _evidence(finding, pair),
        class_name,
        why,
        wrong,
        source,
        reference,
        weights=finding.weights,
        lacks_step=finding.fault == "left-out",
        function=function,
        callers=callers,
    )
    return where_loaded(claim, pair)


def since_taken(finding: Finding, lines: SourceRange | None, pair: ForwardPair | None) -> SourceRange | None:
    """Return lines where a step is lacking with the line before that gives what it takes, if that is near.

    ``centred = x - mean`` and two lines below ``centred.square()``: either may lack ``* observed``.
    """
    if finding.fault != "left-out" or lines is None or pair is None:
        return lines
    side, step = pair.port, finding.reference
    taken = {own for made in step.producers for own in pair.back_matches.within(made, AGREE)} if step else set()
    taken.update(value.index for value in finding.values[1:])
    first = lines.first
    for value in finding.values[:1]:
        here = value.lines[finding.depth :]
        bases = (base for made in value.producers for base in side.bases(made) if base.index in taken)
        for line in (base.lines[-len(here)] for base in bases if len(base.lines) >= len(here) > 0):
            if (line.file, line.function) == (here[0].file, here[0].function) and 0 < lines.last - line.line < _GAP:
                first = min(first, line.line)
    return SourceRange(lines.file, first, lines.last)


def _is_last_there(finding: Finding, lines: SourceRange, pair: ForwardPair) -> bool:
    """Tell whether lines ran several times, and a step that the reference does once is lacking after the last."""
    side, step = pair.port, finding.reference
    if not finding.values or step is None:
        return False
    there = (each for each in pair.reference.values if (each.operator, each.lines) == (step.operator, step.lines))
    if len({each.producers for each in there}) > 1:
        return False
    value = finding.values[0]
    sites = ((call, site) for call in side.calls.values() for site in (call.site, call.inner_site) if site is not None)
    calls = [call for call, site in sites if lines.holds(site.file, site.line) and call.class_name]
    inside = [call for call in calls if side.is_within(value.call, call)]
    if inside:
        alike = [call for call in calls if call.class_name == inside[-1].class_name]
        return len(alike) > 1 and alike[-1] is inside[-1]
    alike_values = [
        each
        for each in side.values
        if each.operator == value.operator and any(lines.holds(line.file, line.line) for line in each.lines)
    ]
    return len(alike_values) > 1 and alike_values[-1] is value


def where_loaded(claim: Claim, pair: ForwardPair, meant: Collection[str] = ()) -> Claim:
    """Return a claim on weights as one on the line that gives them their numbers, where that is known.

    Args:
        claim: The claim.
        pair: The two forwards.
        meant: Names of the weights of the reference whose numbers those should hold that hold none of its.
    """
    if not claim.weights:
        return claim
    port, partners = pair.port, pair.weights.partners
    expected = tuple(dict.fromkeys(each for name in claim.weights for each in partners.get(name, meant)))
    files = {call.source.file for call in port.table.calls if call.source is not None}
    names = {*port.table.parameters, *pair.reference.table.parameters}
    at = converted_in(claim.weights, pair)
    is_held = not meant or any(map(partners.get, claim.weights))
    at = at or loaded_at(files, claim.weights, expected, port.lines_that_ran, names, is_held=is_held)
    if at is None or claim.source in (at, loop_around(at)):
        return claim
    used = told_use(claim)
    why = claim.why if _IS_USED in claim.why else f"{claim.why} {used}".lstrip()
    return replace(claim, source=at, why=why, function="", callers=())


def told_use(claim: Claim) -> str:
    """Say where the lines of a claim use what was made elsewhere."""
    at = claim.source
    return "" if at is None else f"{_IS_USED} {PurePath(at.file).name}:{at.first}."


def made_as_buffer(value: Value, port: Side) -> SourceRange | None:
    """Return where a constructor makes the buffer that a value is a part of; None for any other value.

    That is in the function that it calls for it, if that is a short one.
    """
    buffer = _buffer_of(value, port)
    around = port.holder_of(buffer) if buffer is not None else None
    file = None if around is None or around.source is None else source_file(around.source.file)
    if buffer is None or around is None or file is None:
        return None
    name = last_part(buffer.name)
    body = file.function_making(around.class_name, name)
    return body if body is not None and body.last - body.first < _WIDEST else file.making(around.class_name, name)


def put_in_order(value: Value, side: Side) -> Value | None:
    """Return what put the elements of a table in their order, of which it is computed one by one; None for nothing."""
    while value.operator and value.operator not in ("cat", "stack"):
        before = [each for each in value.producers if side.values[each].print.elements == value.print.elements]
        if len(before) != 1:
            return None
        value = side.values[before[0]]
    return value if value.operator else None


def _buffer_of(value: Value, port: Side) -> Value | None:
    while value.is_moved and value.producers:
        value = port.values[value.producers[0]]
    return value if value.origin == "buffer" else None


def _call_with_lines(call: Call, side: Side) -> tuple[Call, Call | None]:
    """Return the call to blame, and the call in it that computes nothing: its caller is wrong where it is."""
    computing = {around.index for value in side.values if value.operator for around in side.around(value.call)}
    idle = None
    while call.parent is not None and call.index not in computing:
        idle, call = call, side.calls[call.parent]
    return call, idle


def _evidence(finding: Finding, pair: ForwardPair) -> Evidence:
    """Return what speaks for a finding."""
    if finding.weights:
        is_sure = all(map(pair.weights.is_sure, finding.weights))
        return Evidence.WEIGHT_OF_VALUE if is_sure else Evidence.ODD_WEIGHT
    if _is_random(finding, pair.port.table):
        return Evidence.RANDOM
    by_fault = {"proved": Evidence.PROOF, "left-out": Evidence.STEP}
    return by_fault.get(finding.fault, Evidence.VALUE if finding.growth >= CLEAR else Evidence.FAINT_VALUE)


def _kind(finding: Finding, call: Call, table: Values) -> Kind:
    if finding.fault == "weights":
        return "weights"
    if _is_random(finding, table):
        return "random"
    has_inner = any(other.parent == call.index for other in table.calls)
    return "glue" if has_inner else "module"


def _is_random(finding: Finding, table: Values) -> bool:
    """Tell whether the first value that is wrong is drawn at random, or computed from such a one in the same call.

    Dropout on a CPU draws (``bernoulli_``), divides and multiplies: what is drawn is two steps back.
    """
    todo = [value.index for value in finding.values]
    seen, calls = set(todo), {value.call for value in finding.values}
    while todo:
        value = table.values[todo.pop()]
        if value.is_random:
            return True
        near = [made for made in value.producers if made not in seen and table.values[made].call in calls]
        seen.update(near)
        todo += near
    return False


def _told(finding: Finding, pair: ForwardPair, table: Values) -> tuple[str, str]:
    """Return what is wrong, in a few words, and what else was observed, in sentences."""
    if finding.fault == "weights":
        return "", pair.weights.told(finding.weights)
    if _is_random(finding, table):
        return (
            "draws random numbers here (dropout of a model in training mode, torch.rand in a forward)",
            "Two forwards can only agree without them: call .eval(), or set the probability to 0.",
        )
    wrong, why = _TOLD[finding.fault]
    operands = finding.values[0].producers if finding.fault == "replaced" else ()
    shared = [made for made in operands if pair.matches.within(made, AGREE)]
    return wrong, why if all(pair.is_in_order(made, AGREE) for made in shared) else _NOT_IN_ORDER


def _source(finding: Finding, call: Call, pair: ForwardPair) -> tuple[SourceRange | None, str, tuple[SourceRange, ...]]:
    """Return the lines to look at, the function that holds them and the statements that lead there, if it is called."""
    lines = (_line_in(pair.port, value, call, _own_lines(value), finding.depth) for value in finding.values)
    shown = [line for line in lines if line is not None]
    if not shown:
        return call.source, "", ()
    first = shown[0]
    near = [line for line in shown if (line.file, line.function) == (first.file, first.function)]
    low, high = min(near, key=lambda line: line.line), max(near, key=lambda line: line.line)
    if high.line - low.line >= _WIDEST:
        low = high = first
    stack = _own_lines(finding.values[0])
    outer = stack[stack.index(first) + 1 :] if first in stack else []
    source = SourceRange(first.file, _statement(low)[0], _statement(high)[1])
    callers = dict.fromkeys(SourceRange(line.file, *_statement(line)) for line in outer)
    callers.pop(source, None)  # a comprehension is called where it stands
    return source, first.function if callers else "", tuple(callers)


def _reference(finding: Finding, pair: ForwardPair) -> SourceRange | None:
    value, around = finding.reference, finding.reference_call
    if value is None:
        return None
    of_one_file = [line for line in value.lines if line.file == value.lines[-1].file]  # helpers of all models tell less
    line = _line_in(pair.reference, value, around or pair.reference.call_of(value), of_one_file, 0)
    return None if line is None else lines_of(line)


def _line_in(side: Side, value: Value, call: Call, own: list[Line], depth: int) -> Line | None:
    """Return the line of a call's own forward, or of a function that it calls, by which a value came about."""
    if value.call != call.index:
        child = side.child_towards(call, value.call)
        around = side.around(child.index) if child is not None else ()  # a container of torch is called by the user
        sites = [site for each in around if (site := each.inner_site or each.site) is not None]
        site = next((site for site in sites if not is_library(site.file)), sites[0] if sites else None)
        if site is not None:
            return Line(site.file, site.line, site.function.rpartition(".")[2], site.line, site.end_line, site.code)
    return own[min(depth, len(own) - 1)] if own else None


def _own_lines(value: Value) -> list[Line]:
    """Return the lines of a value that are in one's own code, or installed with the forward that it came about in."""
    return [line for line in value.lines if _distribution(line.file) in ("", _distribution(value.lines[-1].file))]


@cache
def _distribution(file: str) -> str:
    """Return the folder of what was installed with a file; empty for code of one's own."""
    parts = PurePath(file).parts
    after = next((place for place, part in enumerate(parts) if part in ("site-packages", "dist-packages")), None)
    return "" if after is None else parts[after + 1]


def lines_of_model(value: Value) -> tuple[Line, ...]:
    """Return the lines of a value that are its model's: of an installed one those in the file of its forward.

    Helpers of all models, such as transformers' ``sdpa_attention_forward``, tell less.
    """
    lines = _own_lines(value)
    is_installed = bool(lines) and _distribution(lines[-1].file) != ""
    return tuple(line for line in lines if not is_installed or line.file == lines[-1].file)


def line_of(side: Side, value: Value, call: Call, depth: int = 0) -> Line | None:
    """Return the line of a call's own forward, or of a function that it calls, by which a value came about.

    Args:
        side: The forward.
        value: The value.
        call: The call.
        depth: Which of the value's lines, as in a finding.
    """
    return _line_in(side, value, call, _own_lines(value), depth)


def lines_of(line: Line) -> SourceRange:
    """Return the statement that a line is of."""
    return SourceRange(line.file, *_statement(line), line.text)


def _statement(line: Line) -> tuple[int, int]:
    return (line.first, line.last) if line.text else statement_lines(line.file, line.line)
