"""One verdict from both views of a forward: its calls, paired by name, and its values, paired by what they are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.calls.blame_calls import Verdict, judge_calls
from pytest_tfdebug.parity.calls.call_notes import told_adapters
from pytest_tfdebug.parity.calls.call_tree import CallTree
from pytest_tfdebug.parity.tensors.uncompared import blame_uncompared, is_of_uncompared, outputs_fail, uncompared
from pytest_tfdebug.parity.text.one_statement import one_statement
from pytest_tfdebug.parity.values.module_names import suggested_rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.parity.tensors.comparator import Compared
    from pytest_tfdebug.parity.values.value_culprit import Explained
    from pytest_tfdebug.records import Culprit

#: Share of the expected calls that must have a partner of their name before names decide.
_NAMED = 0.5


@dataclass
class Decided:
    """A verdict, and what it was reached on.

    Args:
        verdict: Who is to blame.
        compared: The calls, side by side.
        rules: Rules for ``rename=`` under which the two sides turned out to be the same code.
        look: What values say, where they decided.
    """

    verdict: Verdict
    compared: Compared
    rules: dict[str, str] = field(default_factory=dict)
    look: Explained | None = None


def decide(
    compared: Compared,
    second_look: Callable[[bool | None], Explained | None],
    held_under: Callable[[dict[str, str]], Compared | None] = lambda _rules: None,
    *,
    is_tolerated: bool = False,
) -> Decided:
    """Return the verdict of a comparison.

    Calls decide where the two sides are the same code, under the same names or under names that can be found: values
    then say which of a culprit's lines. Everywhere else values decide.

    Args:
        compared: The calls, side by side.
        second_look: What values say; given whether the roots' outputs differ, None where that is not known.
        held_under: Makes the comparison under further names; None where that cannot be done.
        is_tolerated: Whether what differs is a note anyway: no forward is made again for its line.
    """
    verdict = judge_calls(compared)
    if verdict.culprit is not None and verdict.culprit.kind in ("inputs", "dtype"):
        return Decided(verdict, compared)
    fails = outputs_fail(compared)
    if is_named(compared):
        if not is_tolerated and fails is None and uncompared(compared) and is_of_uncompared(verdict.culprit):
            look = second_look(None)
            seen = look.culprit if look is not None else None
            return Decided(verdict if seen is None else replace(verdict, culprit=seen), compared, look=look)
        told = verdict if is_tolerated else _in_lines(verdict, compared, second_look, fails=fails)
        return Decided(told, compared)
    if fails is False:
        return Decided(Verdict(notes=verdict.notes, is_compared=True), compared)
    return _by_values(verdict, compared, second_look(fails), held_under, fails=fails)


def _by_values(
    verdict: Verdict,
    compared: Compared,
    look: Explained | None,
    held_under: Callable[[dict[str, str]], Compared | None],
    *,
    fails: bool | None,
) -> Decided:
    """Return the verdict where names do not pair.

    Args:
        verdict: What calls say, as far as they have a partner.
        compared: The calls, side by side.
        look: What values say.
        held_under: Makes the comparison under further names.
        fails: Whether the outputs differ.
    """
    named = {own: expected for expected, own in compared.own_paths.items()}
    rules = suggested_rules(look.pair, named) if verdict.culprit and look is not None and look.pair is not None else {}
    renamed = held_under(rules) if rules else None
    if renamed is not None and is_named(renamed):
        inner = judge_calls(renamed)
        if inner.culprit is not None:
            return Decided(_in_lines(inner, renamed, lambda _fails: look, fails=fails), renamed, rules)
    if fails is None and uncompared(compared) and (look is None or look.culprit is None):
        return Decided(Verdict(culprit=blame_uncompared(compared), notes=verdict.notes), compared)
    if look is None or not look.is_known:
        return Decided(replace(verdict, notes=[*verdict.notes, *(look.notes if look is not None else ())]), compared)
    verdict.notes += look.notes
    if look.culprit is None:
        return Decided(verdict if fails else Verdict(notes=verdict.notes, is_compared=True), compared, look=look)
    return Decided(replace(verdict, culprit=look.culprit, is_compared=True), compared, look=look)


def _in_lines(
    verdict: Verdict,
    compared: Compared,
    second_look: Callable[[bool | None], Explained | None],
    *,
    fails: bool | None,
) -> Verdict:
    """Return a verdict of calls with the weights or the lines that values single out."""
    culprit = verdict.culprit
    if culprit is None or culprit.kind == "inputs":
        return verdict
    look = second_look(fails)
    if look is None:
        return verdict
    if fails is None and is_of_uncompared(culprit):  # what was held to nothing is in no line
        return replace(verdict, culprit=look.culprit or culprit)
    item = next((item for item in compared.calls if item.call.path == culprit.path and item.expected), None)
    if item is not None and item.expected is not None:
        is_root = item.call.parent is None
        wrong = look.wrong_weights(*(("", "") if is_root else (item.call.path, item.expected.path)))
        if wrong:
            told = " ".join(wrong.values())
            is_sure = look.pair is not None and all(map(look.pair.weights.is_sure, wrong))
            blamed = replace(culprit, kind="weights", wrong="", why=told, weights=tuple(wrong), certain=is_sure)
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
