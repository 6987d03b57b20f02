"""One verdict from both views of a forward: its calls, paired by name, and its values, paired by what they are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.parity.calls.call_notes import told_adapters
from pytest_tfdebug.parity.calls.call_tree import CallTree
from pytest_tfdebug.parity.claims import Evidence
from pytest_tfdebug.parity.find.calls import Verdict, judge_calls
from pytest_tfdebug.parity.find.text import one_statement
from pytest_tfdebug.parity.settle import FINAL
from pytest_tfdebug.parity.tensors.coverage import (
    blame_uncompared,
    has_output,
    is_of_uncompared,
    outputs_fail,
    uncompared,
)
from pytest_tfdebug.records import FAILING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.find.values import Explained
    from pytest_tfdebug.parity.tensors.comparator import Compared
    from pytest_tfdebug.records import CallComparison, Culprit, Divergence

#: What becomes of a comparison in which the outputs agree and something inside does not.
Internal = Literal["warn", "fail"]


def checked_internal(value: object) -> None:
    """Refuse what is not an :data:`Internal`."""
    if value not in get_args(Internal):
        raise TFDebugError(f"internal={value!r} is not one of {', '.join(map(repr, get_args(Internal)))}.")


def tolerated(culprit: Culprit | None, divergences: Sequence[Divergence], compared: Compared) -> str:
    """Say what differs inside while the roots' outputs, and what is written to caches, agree; empty otherwise."""
    if culprit is None or culprit.kind == "inputs" or not is_equal_outside(compared):
        return ""
    count = max(1, sum(item.direction != "input" for item in divergences))
    values = "1 internal value differs" if count == 1 else f"{count} internal values differ"
    source = f", {culprit.source}" if culprit.source else ""
    ranks = f", {culprit.ranks}" if culprit.ranks else ""
    return (
        f"Outputs equal, {values}: the first at {culprit.path!r} ({culprit.class_name}){source}{ranks}. "
        'internal="fail" makes this a failure.'
    )


def is_equal_outside(compared: Compared) -> bool:
    """Tell whether the roots' outputs agree, and what was written to caches."""
    roots = [item for item in compared.calls if item.call.parent is None]
    written = (leaf for item in compared.calls for leaf, _ in item.writes)
    returned = [leaf for root in roots for leaf in root.outputs if leaf.problem not in ("", "extra")]
    return (
        bool(roots)
        and all(map(has_output, roots))
        and all(leaf.problem == "missing" and leaf.how for leaf in returned)  # left out
        and not any(leaf.problem in FAILING for leaf in written)
    )


#: Share of the expected calls that must have a partner of their name before names decide.
_NAMED = 0.5


@dataclass(frozen=True)
class Judged:
    """What the calls of two forwards say, and whether values have to say more."""

    compared: Compared  # the calls, side by side
    verdict: Verdict  # what they say
    fails: bool | None  # whether the roots' outputs differ; None if they could not be matched
    is_named: bool  # whether the two sides are the same code, under the same names
    asks: bool  # whether values have to be asked


@dataclass(frozen=True)
class Decided:
    """What is claimed of a comparison, and what it was claimed on."""

    claims: tuple[Claim, ...]  # who may be to blame
    compared: Compared  # the calls, side by side
    divergences: list[Divergence] = field(default_factory=list)  # tensors outside tolerance
    notes: list[str] = field(default_factory=list)  # differences that changed no output, in sentences
    is_compared: bool = False  # whether values were compared where no tensors matched by name and shape
    # rules for ``rename=`` under which the two sides turned out to be the same code
    rules: dict[str, str] = field(default_factory=dict)
    look: Explained | None = None  # what values say, where they were asked


def judge(compared: Compared, *, is_tolerated: bool = False) -> Judged:
    """Return what calls say: they decide where the two sides are the same code, and values everywhere else."""
    verdict, fails, has_names = judge_calls(compared), outputs_fail(compared), is_named(compared)
    is_open = (verdict.claim is not None and not is_tolerated) if has_names else fails is not False
    return Judged(compared, verdict, fails, has_names, asks=is_open and not is_plain(verdict))


def decide(
    judged: Judged,
    look: Explained | None = None,
    rules: Mapping[str, str] = MappingProxyType({}),
    renamed: Compared | None = None,
) -> Decided:
    """Return what is claimed of a comparison.

    Where names pair, under the given names or under names that were found, values say which of a culprit's lines it is.
    """
    verdict, compared, fails = judged.verdict, judged.compared, judged.fails
    if not judged.asks:
        if judged.is_named or is_plain(verdict):
            of_calls = () if verdict.claim is None else (verdict.claim,)
            return Decided(of_calls, compared, verdict.divergences, verdict.notes, verdict.is_compared)
        return Decided((), compared, notes=verdict.notes, is_compared=True)
    if judged.is_named:
        claims = _of_calls(verdict, compared, look, fails=fails)
        of_values = look if fails is None and uncompared(compared) and is_of_uncompared(verdict.claim) else None
        return Decided(claims, compared, verdict.divergences, verdict.notes, verdict.is_compared, look=of_values)
    inner = judge_calls(renamed) if renamed is not None and is_named(renamed) else Verdict()
    if renamed is not None and inner.claim is not None and not _is_given_pieces(inner.claim, look):
        claims = _of_calls(inner, renamed, look, fails=fails)
        return Decided(claims, renamed, inner.divergences, inner.notes, inner.is_compared, dict(rules))
    return _by_values(judged, look)


def _is_given_pieces(claim: Claim, look: Explained | None) -> bool:
    """Tell whether a module is blamed for what it was given, which has another shape: that of a row, say."""
    first = claim.divergence
    is_shape = first is not None and (first.direction, first.comparison.problem) == ("input", "shape")
    return is_shape and look is not None and look.claim is not None


def _by_values(judged: Judged, look: Explained | None) -> Decided:
    """Return what is claimed where names do not pair, and none that were tried do."""
    verdict, compared, fails = judged.verdict, judged.compared, judged.fails
    if fails is None and uncompared(compared) and (look is None or look.claim is None):
        return Decided((blame_uncompared(compared),), compared, notes=verdict.notes)
    notes = [*verdict.notes, *(look.notes if look is not None else ())]
    of_calls = () if verdict.claim is None else (verdict.claim,)
    if look is None or not look.is_known:
        return Decided(of_calls, compared, verdict.divergences, notes, verdict.is_compared)
    if look.claim is not None:
        return Decided(look.claims, compared, verdict.divergences, notes, is_compared=True, look=look)
    if not fails or verdict.claim is None:
        return Decided((), compared, notes=notes, is_compared=True, look=look)
    unnamed = replace(verdict.claim, evidence=Evidence.UNNAMED_CALLS)
    return Decided((unnamed,), compared, verdict.divergences, notes, verdict.is_compared, look=look)


def is_plain(verdict: Verdict) -> bool:
    """Tell whether nothing below can be blamed: the inputs or the dtype are others."""
    return verdict.claim is not None and verdict.claim.kind in FINAL


def _of_calls(verdict: Verdict, compared: Compared, look: Explained | None, *, fails: bool | None) -> tuple[Claim, ...]:
    """Return what is claimed where names pair: by calls, and by what weights, values, texts and changes single out."""
    claim = verdict.claim
    if claim is None or claim.kind == "inputs" or look is None:
        return () if claim is None else (claim,)
    if fails is None and is_of_uncompared(claim):  # what was held to nothing is in no line
        return (replace(claim, evidence=Evidence.NOT_COMPARED), *look.claims)
    item = next((item for item in compared.calls if item.call.path == claim.path and item.expected), None)
    return (claim, *_in_lines(claim, item, compared, look), *look.claims)


def _in_lines(claim: Claim, item: CallComparison | None, compared: Compared, look: Explained) -> Iterator[Claim]:
    """Yield a claim of calls with the weights or the lines that values, texts and attributes single out."""
    if item is not None and item.expected is not None and look.pair is not None:
        paths = ("", "") if item.call.parent is None else (item.call.path, item.expected.path)
        weights, wrong = look.pair.weights, look.pair.wrong_weights(*paths)
        if wrong:  # of one name, they are not the same
            is_sure = all(each not in weights.unknown or weights.is_sure(each) for each in wrong)
            evidence = Evidence.WEIGHT if is_sure else Evidence.NAMED_WEIGHT
            why = " ".join(wrong.values())
            yield replace(
                claim, kind="weights", wrong="", why=why, weights=tuple(wrong), evidence=evidence, narrows=claim
            )
            return
    if item is not None and told_adapters(CallTree(compared), item):  # the adapter is the difference, and no line is
        return
    is_left_out = look.finding is not None and look.finding.fault == "left-out"
    if claim.evidence is not Evidence.OTHER_CALL or look.claim is None or is_left_out:
        yield one_statement(claim, compared, look)


def is_named(compared: Compared) -> bool:
    """Tell whether the two sides are the same code: most modules with children have a partner of name and class."""
    above = {call.parent for call in compared.expected}
    expected = {call.index for call in compared.expected if call.index in above and call.parent is not None}
    same = [
        item for item in compared.calls if item.expected and item.expected.index in expected and item.is_of_one_class
    ]
    if not expected:
        return all(item.is_of_one_class for item in compared.calls if item.call.parent is None)
    return len(same) >= _NAMED * len(expected)
