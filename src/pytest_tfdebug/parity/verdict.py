"""One verdict from both views of a forward: its calls, paired by name, and its values, paired by what they are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.parity.calls.call_notes import told_adapters
from pytest_tfdebug.parity.calls.call_tree import CallTree
from pytest_tfdebug.parity.find.calls import Verdict, judge_calls
from pytest_tfdebug.parity.find.text import one_statement
from pytest_tfdebug.parity.tensors.coverage import (
    blame_uncompared,
    has_output,
    is_of_uncompared,
    outputs_fail,
    uncompared,
)
from pytest_tfdebug.records import FAILING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_tfdebug.parity.find.values import Explained
    from pytest_tfdebug.parity.tensors.comparator import Compared
    from pytest_tfdebug.records import Culprit

#: What becomes of a comparison in which the outputs agree and something inside does not.
Internal = Literal["warn", "fail"]


def checked_internal(value: object) -> None:
    """Refuse what is not an :data:`Internal`."""
    if value not in get_args(Internal):
        raise TFDebugError(f"internal={value!r} is not one of {', '.join(map(repr, get_args(Internal)))}.")


def tolerate_internal(verdict: Verdict, compared: Compared) -> tuple[Verdict, str]:
    """Let a comparison pass whose root outputs and writes to caches agree."""
    culprit = verdict.culprit
    if culprit is None or culprit.kind == "inputs" or not is_equal_outside(compared):
        return verdict, ""
    count = max(1, sum(item.direction != "input" for item in verdict.divergences))
    values = "1 internal value differs" if count == 1 else f"{count} internal values differ"
    source = f", {culprit.source}" if culprit.source else ""
    ranks = f", {culprit.ranks}" if culprit.ranks else ""
    note = (
        f"Outputs equal, {values}: the first at {culprit.path!r} ({culprit.class_name}){source}{ranks}. "
        'internal="fail" makes this a failure.'
    )
    return Verdict(verdict.divergences, None, [note, *verdict.notes], verdict.is_compared), note


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


@dataclass
class Decided:
    """A verdict, and what it was reached on."""

    verdict: Verdict  # who is to blame
    compared: Compared  # the calls, side by side
    # rules for ``rename=`` under which the two sides turned out to be the same code
    rules: dict[str, str] = field(default_factory=dict)
    look: Explained | None = None  # what values say, where they decided


def judge(compared: Compared, *, is_tolerated: bool = False) -> Judged:
    """Return what calls say: they decide where the two sides are the same code, and values everywhere else."""
    verdict, fails, has_names = judge_calls(compared), outputs_fail(compared), is_named(compared)
    is_open = (verdict.culprit is not None and not is_tolerated) if has_names else fails is not False
    return Judged(compared, verdict, fails, has_names, asks=is_open and not is_plain(verdict))


def decide(
    judged: Judged,
    look: Explained | None = None,
    rules: Mapping[str, str] = MappingProxyType({}),
    renamed: Compared | None = None,
) -> Decided:
    """Return the verdict of a comparison.

    Where names pair, under the given names or under names that were found, values say which of a culprit's lines it is.
    """
    verdict, compared, fails = judged.verdict, judged.compared, judged.fails
    if not judged.asks:
        is_told = judged.is_named or is_plain(verdict)
        return Decided(verdict if is_told else Verdict(notes=verdict.notes, is_compared=True), compared)
    if judged.is_named:
        if fails is None and uncompared(compared) and is_of_uncompared(verdict.culprit):
            seen = look.culprit if look is not None else None
            return Decided(verdict if seen is None else replace(verdict, culprit=seen), compared, look=look)
        return Decided(_in_lines(verdict, compared, look, fails=fails), compared)
    inner = judge_calls(renamed) if renamed is not None and is_named(renamed) else Verdict()
    if renamed is not None and inner.culprit is not None and not _is_given_pieces(inner.culprit, look):
        return Decided(_in_lines(inner, renamed, look, fails=fails), renamed, dict(rules))
    return _by_values(judged, look)


def _is_given_pieces(culprit: Culprit, look: Explained | None) -> bool:
    """Tell whether a module is blamed for what it was given, which has another shape: that of a row, say."""
    first = culprit.divergence
    is_shape = first is not None and (first.direction, first.comparison.problem) == ("input", "shape")
    return is_shape and look is not None and look.culprit is not None


def _by_values(judged: Judged, look: Explained | None) -> Decided:
    """Return the verdict where names do not pair, and none that were tried do."""
    verdict, compared, fails = judged.verdict, judged.compared, judged.fails
    if fails is None and uncompared(compared) and (look is None or look.culprit is None):
        return Decided(Verdict(culprit=blame_uncompared(compared), notes=verdict.notes), compared)
    notes = [*verdict.notes, *(look.notes if look is not None else ())]
    if look is None or not look.is_known:
        return Decided(replace(verdict, notes=notes), compared)
    if look.culprit is not None:
        return Decided(replace(verdict, culprit=look.culprit, notes=notes, is_compared=True), compared, look=look)
    if not fails or verdict.culprit is None:
        return Decided(Verdict(notes=notes, is_compared=True), compared, look=look)
    unsure = replace(verdict.culprit, certain=False)  # names that do not pair tell little
    return Decided(replace(verdict, culprit=unsure, notes=notes), compared, look=look)


def is_plain(verdict: Verdict) -> bool:
    """Tell whether nothing below can be blamed: the inputs or the dtype are others."""
    return verdict.culprit is not None and verdict.culprit.kind in ("inputs", "dtype")


def _in_lines(
    verdict: Verdict,
    compared: Compared,
    look: Explained | None,
    *,
    fails: bool | None,
) -> Verdict:
    """Return a verdict of calls with the weights or the lines that values single out."""
    culprit = verdict.culprit
    if culprit is None or culprit.kind == "inputs" or look is None:
        return verdict
    if fails is None and is_of_uncompared(culprit):  # what was held to nothing is in no line
        return replace(verdict, culprit=look.culprit or culprit)
    item = next((item for item in compared.calls if item.call.path == culprit.path and item.expected), None)
    if item is not None and item.expected is not None and look.pair is not None:
        paths = ("", "") if item.call.parent is None else (item.call.path, item.expected.path)
        weights, wrong = look.pair.weights, look.pair.wrong_weights(*paths)
        if wrong:  # of one name, they are not the same
            is_sure = all(each not in weights.unknown or weights.is_sure(each) for each in wrong)
            why, names = " ".join(wrong.values()), tuple(wrong)
            blamed = replace(culprit, kind="weights", wrong="", why=why, weights=names, certain=is_sure)
            return replace(verdict, culprit=blamed)
    if item is not None and told_adapters(CallTree(compared), item):  # the adapter is the difference, and no line is
        return verdict
    return replace(verdict, culprit=_of_both(culprit, look, compared))


def _of_both(named: Culprit, look: Explained, compared: Compared) -> Culprit:
    """Return the culprit of the calls as values, texts and attributes see it."""
    seen, is_left_out = look.culprit, look.finding is not None and look.finding.fault == "left-out"
    is_other = named.kind == "not-called" and named.path not in compared.own_paths.values()
    if seen is not None and is_other and not is_left_out:
        return seen  # a function does here what a module does there
    return one_statement(named, compared, look)


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
