"""All checks by marker, and the verdict on all calls of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.errors import InvarianceError
from pytest_tfdebug.invariance.checks.attention import AttentionCheck
from pytest_tfdebug.invariance.checks.batch import BatchCheck
from pytest_tfdebug.invariance.checks.cache import CacheCheck
from pytest_tfdebug.invariance.checks.dtype import DtypeCheck
from pytest_tfdebug.invariance.checks.padding import PaddingCheck
from pytest_tfdebug.invariance.checks.save_load import SaveLoadCheck

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.checks.base import Check
    from pytest_tfdebug.invariance.checks.settings import Settings

CHECKS: dict[str, type[Check[Any]]] = {
    "padding_invariant": PaddingCheck,
    "batch_invariant": BatchCheck,
    "cache_invariant": CacheCheck,
    "attention_invariant": AttentionCheck,
    "save_load_invariant": SaveLoadCheck,
    "dtype_close": DtypeCheck,
}


class Verdict(NamedTuple):
    """What a check of all the calls of a test comes to.

    Args:
        repeats: Number of forwards that were repeated and compared.
        notes: What is worth saying although everything holds, in sentences, each once.
    """

    repeats: int
    notes: tuple[str, ...]


def judge(
    name: str, settings: Settings, calls: Sequence[ObservedCall], refusals: Sequence[str], *, is_marker: bool
) -> Verdict:
    """Check every call.

    Args:
        name: Key of ``CHECKS``.
        settings: What its marker was given.
        calls: The observed calls.
        refusals: Why other calls could not be made again, in sentences.
        is_marker: Whether a test asks by its marker, and not somebody who called the function.

    Raises:
        InvarianceError: If the answer of a call changes, nothing could be repeated, or ``inputs=`` names an input that
            no call takes.
    """
    names = settings.inputs or {}
    unknown = _unknown(names, calls)
    if unknown:
        raise InvarianceError(f"{name}: {unknown}")
    repeats, notes, skipped = 0, [], list(refusals)
    for call in calls:
        outcome = CHECKS[name].run(call.under_names(names), settings)
        if outcome.failure:
            raise InvarianceError(outcome.text or outcome.failure, outcome.culprit, call, outcome)
        repeats += outcome.repeats
        notes.extend(outcome.notes)
        skipped.extend(outcome.skipped)
    if not repeats:
        raise InvarianceError("\n".join(_nothing(name, skipped, is_marker=is_marker)))
    return Verdict(repeats, tuple(dict.fromkeys(notes)))


def _unknown(names: Mapping[str, str], calls: Sequence[ObservedCall]) -> str:
    """Return which name no forward takes, and which they take; empty when all are known."""
    taken = {each: None for call in calls for each in (*call.parameters, *call.inputs)}
    own = next((each for each in names if each not in taken), None)
    if own is None or not taken:
        return ""
    return f"inputs= names {own!r}, which the forward does not take; it takes {', '.join(taken)}."


def _nothing(name: str, skipped: list[str], *, is_marker: bool) -> Iterator[str]:
    place = "this test" if is_marker else "the function"
    yield f"{name} checked nothing: no model call of {place} could be repeated."
    reasons = list(dict.fromkeys(skipped))
    yield from (f"  {reason}" for reason in reasons)
    if not reasons:
        yield f"  {place.capitalize()} called no torch.nn.Module."
    yield f"{CHECKS[name].needs}{', or remove the marker' if is_marker else ''}."
