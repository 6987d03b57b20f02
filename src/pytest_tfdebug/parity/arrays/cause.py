"""Where arrays leave the reference: the last of its values that is there, the first that is not, and what lies between.

Nothing is known of how the arrays hang together, so the reference's graph stands in for theirs: what an array that is
there was computed from must be right as well. A change of the reference after which it gives what the arrays are is
the cause, in a port whose code is unseen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_tfdebug.parity.arrays.pairing import BY_DTYPE
from pytest_tfdebug.parity.closeness import SAME
from pytest_tfdebug.parity.find.proof import places_of
from pytest_tfdebug.parity.find.proved_changes import sentence
from pytest_tfdebug.parity.proof.budget import Budget
from pytest_tfdebug.parity.proof.forward import Forward
from pytest_tfdebug.parity.proof.matching import Matches, OpenValues, axes_of, has_same_order
from pytest_tfdebug.parity.proof.prove import PHASES, Live, Proof, Trial, seconds_of
from pytest_tfdebug.parity.proof.search import Expected, Search, WantedOutput
from pytest_tfdebug.parity.proof.value_graph import Side
from pytest_tfdebug.tracing.values.tape import Tape
from pytest_tfdebug.values import Value, Values, distance

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_tfdebug.data.arrays import Array
    from pytest_tfdebug.parity.arrays.output import Output
    from pytest_tfdebug.parity.arrays.pairing import ReferenceValues
    from pytest_tfdebug.records import Call, SourceRange
    from pytest_tfdebug.tracing.values.rerun import Rerun


#: A pair after the first array without one must be as near as those before: within this share of what is allowed, which
#: is what rounding alone comes to, or within so many times the farthest.
_ROUNDING, _AS_NEAR = 0.4, 2.0
#: How many times as far as is allowed an array in half precision may be by rounding: so far most of right ports are.
_NEARLY = 6.0
#: A wrong array is a form of a value that is no farther than this.
_SIMILAR = 0.1
#: Operators that no factor passes.
_BENDING = frozenset(
    {
        *("_softmax", "_log_softmax", "silu", "gelu", "sigmoid", "tanh", "softplus"),
        *("exp", "log", "erf", "sin", "cos", "sqrt", "rsqrt", "pow"),
    }
)
#: How closely the place is known: what only seems right, since it or its order was not seen; a statement; up to where
#: modules hand on a tensor of that size; up to the last value that the array can stand for.
Strength = Literal["before", "statement", "module", "latest"]


@dataclass
class Interval:
    """Where some arrays leave the reference."""

    first: Array | None  # the first that the reference does not have; None where what is missing has no array
    last: Array | None  # the last before it that the reference has
    bound: int  # the value of the reference that is not there
    factor: float = 0.0  # how many times the bound the first array is, where it is a multiple of it
    #: For each strength, the values that may be wrong, those of the strength before left out.
    steps: dict[Strength, list[int]] = field(default_factory=dict)


def find_interval(reference: ReferenceValues, arrays: Sequence[Array], wrong: Collection[int] = ()) -> Interval | None:
    """Return where the paired arrays leave the reference; None where nothing that its outputs need is open.

    ``wrong`` are output values that are known to differ, by their elements.
    """
    _drop_distant(reference, arrays, wrong)
    good = vouched(reference, arrays, wrong)
    is_open = (reference.live - good) & reference.made_here | set(wrong)
    if not is_open:
        return None
    # constants (masks, positions, tables) are written in many ways: among what comes of parameters they count as given
    places = [index for index in sorted(is_open) if reference.weighted[index]] or sorted(is_open)
    found = _first_open(reference, arrays, places)
    if found is None:  # no array marks the end: up to the first output that is open
        bound = next((index for index in reference.results if index in is_open), places[-1])
        found = Interval(None, next((array for array in reversed(arrays) if array.partners), None), bound)
    ends: dict[Strength, int] = {}
    multiples: dict[int, float] = {}
    if found.first is not None:
        latest = _latest(reference, places, arrays[arrays.index(found.first) :], found.bound)
        of_size = [i for i in places if found.bound <= i <= latest and reference.can_be(i, found.first)]
        multiples = reference.multiples(found.first.print, found.first.dtype)
        if multiples:
            found.bound = next((i for i in multiples if i in places), min(multiples))
            found.factor = multiples[found.bound]
        edge = next((i for i in of_size if i >= found.bound and i in reference.edges), found.bound)
        ends = {"module": edge, "latest": latest}
    seen, turned = _seen(reference, arrays)
    upto = reference.statement(reference.at(found.bound))
    is_scaled = found.factor and found.bound in is_open
    nearest = _scaling(reference, upto, seen) if is_scaled else reference.ancestors(*upto) & is_open
    nearest |= {i for i in multiples if i <= found.bound}
    unseen = _before(reference, found, nearest, good, seen)
    found.steps["before"] = sorted(unseen - turned | _passed(reference, arrays, found))
    found.steps["statement"] = sorted(unseen & turned | nearest)
    for strength, end in ends.items():
        found.steps[strength] = sorted(reference.ancestors(end) & is_open - nearest)
        nearest |= {*found.steps[strength]}
    return found


def vouched(reference: ReferenceValues, arrays: Sequence[Array], wrong: Collection[int] = ()) -> set[int]:
    """Return the values that are there: paired, computed into what is paired, or only moved from such."""
    good = {index for array in arrays for index in array.partners}
    told = {index for array in arrays if array.vouches for index in array.partners}
    good = (good | reference.ancestors(*told - set(wrong))) - set(wrong)
    for index, bases in reference.moves_of.items():
        if good.issuperset(bases) and index not in wrong:
            good.add(index)
    return good


def _drop_distant(reference: ReferenceValues, arrays: Sequence[Array], wrong: Collection[int]) -> None:
    """Take back pairs that are farther than those before the first array without one: a small fault passes on there."""
    first = next((place for place, array in enumerate(arrays) if array.is_open), None)
    if first is None:
        return
    good = vouched(reference, arrays, wrong)
    if all(index in good for index in reference.results):
        return
    before = max((array.share for array in arrays[:first] if array.partners), default=0.0)
    for array in arrays[first:]:
        if array.partners and array.share > max(_ROUNDING, _AS_NEAR * before):
            array.how, array.partners = "", ()


def _first_open(reference: ReferenceValues, arrays: Sequence[Array], places: Sequence[int]) -> Interval | None:
    """Return the first array without partner that an open value can be, and that value."""
    last: Array | None = None
    after, nearly = -1, set[int]()
    for place, array in enumerate(arrays):
        rounded = _rounded(reference, array, arrays[place + 1 :])
        nearly |= rounded
        after = min(array.partners or rounded, default=after)
        if array.partners:
            last = array
        elif array.is_open and not rounded:
            bound = next((i for i in places if i >= after and i not in nearly and reference.can_be(i, array)), None)
            source = last.partners if last is not None else ()
            if bound is not None and not _is_passed(reference, arrays[place + 1 :], source, bound):
                return Interval(array, last, bound)
    return None


def _rounded(reference: ReferenceValues, array: Array, later: Sequence[Array]) -> set[int]:
    """Return the values that an array in half precision nearly is, where a later one is clearly none."""
    if array.dtype not in BY_DTYPE or not array.is_open or not any(it.is_open and it.share > _NEARLY for it in later):
        return set()
    return set(reference.partners(array.print, array.dtype, _NEARLY)[0])


def _is_passed(reference: ReferenceValues, later: Sequence[Array], source: Sequence[int], bound: int) -> bool:
    """Tell whether a later array is right, comes from what the array comes from, and precedes the bound."""
    return any(
        index < bound and index not in source and (not source or not reference.ancestors(index).isdisjoint(source))
        for array in later
        for index in array.partners[:1]
    )


def _scaling(reference: ReferenceValues, upto: Collection[int], seen: Collection[int]) -> set[int]:
    """Return where a factor of some values may come in: from what is seen, and from functions that bend, on."""
    found, todo = set[int](), list(upto)
    while todo:
        value = reference.at(todo.pop())
        if value.index in found or value.index not in reference.made_here or "float" not in value.dtype:
            continue
        found.add(value.index)
        if value.operator not in _BENDING and value.index not in seen:
            todo += value.producers
    return found


def _latest(reference: ReferenceValues, places: Sequence[int], arrays: Sequence[Array], bound: int) -> int:
    """Return the last value that the first of some arrays can stand for, if those after it are to have values, too."""
    latest = len(reference.values)
    for array in reversed(arrays):
        if array.is_open:
            latest = next((i for i in reversed(places) if i < latest and reference.can_be(i, array)), latest)
    return max(latest, bound) if latest < len(reference.values) else bound


def _seen(reference: ReferenceValues, arrays: Sequence[Array]) -> tuple[set[int], set[int]]:
    """Return the values that arrays show to be right, and those whose array stands in another order.

    Such an order is a convention where everything computed from it matches. What only moves elements is right if its
    array has its order: a wrong layout has the same numbers.
    """
    whole = [(array, index) for array in arrays if array.how == "value" for index in array.partners]
    ordered = {index for array, index in whole if _is_in_order(array, reference, index)}
    turned = {i for array, i in whole if sorted(axes_of(array.print)) == sorted(axes_of(reference.at(i).print))}
    turned -= ordered
    direct = {index for array in arrays for index in array.partners}
    return ordered | {index for index in direct - turned if not reference.at(index).is_moved}, turned


def _before(reference: ReferenceValues, found: Interval, nearest: set[int], good: set[int], seen: set[int]) -> set[int]:
    """Return values before an interval that only seem right.

    Some are inferred from what was computed of them, and a norm hides a wrong scale; others only move elements.
    """
    last = found.last.partners if found.last is not None else ()
    todo = [made for index in nearest for made in reference.at(index).producers if made in good]
    todo += [index for index, base in reference.moved.items() if base in last]
    unseen: set[int] = set()
    while todo:
        value = reference.at(todo.pop())
        if value.index not in unseen and value.index not in seen and value.index in reference.made_here:
            unseen.add(value.index)
            todo += [made for made in value.producers if made in good]
    return unseen


def _passed(reference: ReferenceValues, arrays: Sequence[Array], found: Interval) -> set[int]:
    """Return values that arrays before an interval are a wrong form of, though what comes of these arrays is right."""
    after, forms = -1, set[int]()
    for array in arrays if found.first is None else arrays[: arrays.index(found.first)]:
        after = min(array.partners, default=after)
        if array.is_open:
            later = (i for i in sorted(reference.made_here) if i > after and reference.can_be(i, array))
            far, near = min(((distance(array.print, reference.at(i).print), i) for i in later), default=(_SIMILAR, 0))
            forms |= reference.multiples(array.print, array.dtype).keys() or ({near} if far < _SIMILAR else set())
    return forms


def _is_in_order(array: Array, reference: ReferenceValues, index: int) -> bool:
    """Tell whether an array has the axes of a value, and the same numbers along each."""
    value, rounding = reference.at(index), float(reference.within(array.dtype)[index].max())
    return axes_of(array.print) == axes_of(value.print) and has_same_order(array.print, value.print, rounding)


class ArraysProof(NamedTuple):
    """A change of the reference that was tried, and after which it gives what the arrays are."""

    told: str  # the change, in a sentence
    call: Call  # whose code does it
    lines: SourceRange | None  # the lines that are changed


class _Within(OpenValues):
    """The open values of a reference; the change may also be where a step of the interval ends.

    Few arrays tell little of what stands before these, so that the first open value is often none that is wrong.
    """

    ends: Sequence[int] = ()

    def first(self, among: Collection[int] | None = None) -> list[Value]:
        """Return the values computed from matched ones alone, and the ends."""
        found = super().first(among)
        return found if among is not None else [*found[:1], *(self._values[index] for index in self.ends)]


def prove(
    reference: ReferenceValues,
    arrays: Sequence[Array],
    outputs: Sequence[Output],
    interval: Interval,
    again: Rerun,
    *,
    seconds: float | None = None,
) -> ArraysProof | None:
    """Search for the change of one place of the reference that gives the arrays' outputs.

    ``again`` is its forward; there is no proof if it is not the one that was recorded. ``seconds`` is how long to
    search, None for as long as users wait.
    """
    held = [(output, output.array) for output in outputs if output.array is not None and not output.crop]
    tape = Tape()
    table = again.values([output.record.tensor for output in outputs], tape=tape) if held else None
    if table is None or [it.operator for it in table.values] != [it.operator for it in reference.values]:
        return None
    given = [
        Value(at, "", "input", it.label, None, (), (), it.shape, it.dtype, it.print) for at, it in enumerate(arrays)
    ]
    mine, others = Side(table), Side(Values(given))
    matches, known = Matches(mine, others), frozenset(table.parameters)
    expected = [
        Expected((output.value,), (WantedOutput(arrays[at].print, dict(output.candidates.values())[at]),))
        for output, at in held
    ]
    wrong = {output.value for output in outputs if not output.agrees}
    opened = _Within(
        *(mine, matches, SAME, [output.value for output, _ in held]),
        known=known,
        right=vouched(reference, arrays, wrong),
    )
    opened.ends = [max(step) for strength, step in interval.steps.items() if step and strength != "before"]
    forward = Forward(mine, tape)
    share = min(1.0, len(arrays) / sum(value.origin == "operator" for value in mine.values))
    search = Search(forward, matches, others.values, Matches(others, mine), opened, expected, share)
    budget = Budget(seconds_of(Trial(Live(tape, {}), Live(Tape(), {}), seconds)))
    mends = next(filter(None, (search.run(most, budget, share) for share, most in PHASES)), None)
    if mends is None:
        return None
    proof = Proof(forward, tuple(mends), is_reverse=True)
    places = places_of(proof, known, "")
    return ArraysProof(sentence(places, is_reverse=True, lacks=""), places[0].finding.call, places[0].lines)
