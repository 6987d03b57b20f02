"""One verdict from both views of a forward: its calls, paired by name, and its values, paired by what they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.parity.calls.noise import at_the_clearest_step
from pytest_tfdebug.parity.claims import Evidence
from pytest_tfdebug.parity.find.calls import Verdict, judge_calls
from pytest_tfdebug.parity.find.finders import View, find
from pytest_tfdebug.parity.find.lines_of_both import with_lines_of_both
from pytest_tfdebug.parity.settle import FINAL
from pytest_tfdebug.parity.tensors.coverage import (
    has_output,
    is_of_uncompared,
    outputs_fail,
    uncompared,
)
from pytest_tfdebug.records import FAILING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.find.values import Explained
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.records import Culprit, Divergence

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

    claims: list[Claim]  # who may be to blame
    compared: Compared  # the calls, side by side
    divergences: list[Divergence] = field(default_factory=list)  # tensors outside tolerance
    notes: list[str] = field(default_factory=list)  # differences that changed no output, in sentences
    is_compared: bool = False  # whether values were compared where no tensors matched by name and shape
    # rules for ``rename=`` under which the two sides turned out to be the same code
    rules: dict[str, str] = field(default_factory=dict)
    look: Explained | None = None  # what values say, where they decided


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

    Where names pair, under the given names or under names that were found, calls decide, and values say which of a
    culprit's lines it is.
    """
    verdict, compared, fails = judged.verdict, judged.compared, judged.fails
    look = with_lines_of_both(look) if judged.asks and look is not None else None
    is_found = renamed is not None and is_named(renamed)
    inner = Verdict() if renamed is None else judge_calls(renamed if is_found else at_the_clearest_step(renamed))
    if renamed is not None and is_found and inner.claim is not None and not _is_given_pieces(inner.claim, look):
        view = View(renamed, inner.claim, is_named=True, fails=fails, look=None if is_plain(inner) else look)
        return Decided(find(view), renamed, inner.divergences, inner.notes, inner.is_compared, dict(rules))
    has_names = judged.is_named or is_plain(verdict)
    claims = (
        find(View(compared, verdict.claim, has_names, fails, look, inner.claim)) if judged.asks or has_names else []
    )
    if has_names:
        of_values = look if fails is None and uncompared(compared) and is_of_uncompared(verdict.claim) else None
        return Decided(claims, compared, verdict.divergences, verdict.notes, verdict.is_compared, look=of_values)
    if any(claim.evidence is Evidence.NOT_COMPARED for claim in claims):
        return Decided(claims, compared, notes=verdict.notes)
    notes = [*verdict.notes, *(look.notes if look is not None else ())]
    is_known = look is not None and look.is_known
    is_compared = not judged.asks or (is_known and (not fails or bool(look and look.claim)))
    divergences = verdict.divergences if claims else []
    return Decided(claims, compared, divergences, notes, is_compared, look=look if is_known else None)


def _is_given_pieces(claim: Claim, look: Explained | None) -> bool:
    """Tell whether a module is blamed for what it was given, which has another shape: that of a row, say."""
    first = claim.divergence
    is_shape = first is not None and (first.direction, first.comparison.problem) == ("input", "shape")
    return is_shape and look is not None and look.claim is not None


def is_plain(verdict: Verdict) -> bool:
    """Tell whether nothing below can be blamed: the inputs or the dtype are others."""
    return verdict.claim is not None and verdict.claim.kind in FINAL


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
