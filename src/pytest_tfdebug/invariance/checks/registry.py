"""The checks by marker: what each takes and what it does with an observed call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import InvarianceError
from pytest_tfdebug.invariance.attention_check import AttentionSettings, check_attention
from pytest_tfdebug.invariance.batch_check import check_batch
from pytest_tfdebug.invariance.cache_check import check_cache
from pytest_tfdebug.invariance.dtype_check import DtypeSettings, check_dtype
from pytest_tfdebug.invariance.padding_report import check_padding
from pytest_tfdebug.invariance.save_check import check_save_load
from pytest_tfdebug.invariance.settings import PaddingSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_tfdebug.invariance.observed import ObservedCall
    from pytest_tfdebug.invariance.outcome import Outcome


@dataclass(frozen=True)
class Check:
    """One invariance.

    Args:
        settings: What its marker takes.
        run: Checks one call.
        needs: What a call must be like to be repeated, for the message of a test without one.
    """

    settings: type[Settings]
    run: Callable[[ObservedCall, Any], Outcome]
    needs: str


CHECKS: dict[str, Check] = {
    "padding_invariant": Check(
        PaddingSettings,
        check_padding,
        "Call a model with input_ids or inputs_embeds, or with pixels or frames and their mask",
    ),
    "batch_invariant": Check(Settings, check_batch, "Call a model with a batch"),
    "cache_invariant": Check(
        Settings, check_cache, "Call a model that decodes and takes past_key_values, with two tokens or more"
    ),
    "attention_invariant": Check(
        AttentionSettings, check_attention, "Call a transformers model with more than one attention implementation"
    ),
    "save_load_invariant": Check(Settings, check_save_load, "Call a model that has save_pretrained"),
    "dtype_close": Check(DtypeSettings, check_dtype, "Call a float32 model"),
}


@dataclass(frozen=True)
class Verdict:
    """What a check of all the calls of a test comes to.

    Args:
        repeats: Number of forwards that were repeated and compared.
        notes: What is worth saying, in sentences, each once.
    """

    repeats: int
    notes: tuple[str, ...]


def judge(
    name: str, settings: Settings, calls: Iterable[ObservedCall], refusals: Sequence[str], *, where: str = "this test"
) -> Verdict:
    """Check every call.

    Args:
        name: Key of ``CHECKS``.
        settings: What its marker was given.
        calls: The observed calls.
        refusals: Why other calls could not be made again, in sentences.
        where: Where the calls were made, for the message.

    Raises:
        InvarianceError: If the answer of a call changes, or nothing could be repeated.
    """
    check, repeats, notes, skipped = CHECKS[name], 0, [], list(refusals)
    for call in calls:
        outcome = check.run(call, settings)
        if outcome.failure:
            raise InvarianceError(outcome.failure, outcome.culprit, call)
        repeats += outcome.repeats
        notes.extend(outcome.notes)
        skipped.extend(outcome.skipped)
    if not repeats:
        raise InvarianceError("\n".join(_nothing(name, check, skipped, where)))
    return Verdict(repeats, tuple(dict.fromkeys(notes)))


def _nothing(name: str, check: Check, skipped: list[str], where: str) -> Iterable[str]:
    yield f"{name} checked nothing: no model call of {where} could be repeated."
    reasons = list(dict.fromkeys(skipped))
    yield from (f"  {reason}" for reason in reasons)
    if not reasons:
        yield f"  {where[0].upper()}{where[1:]} called no torch.nn.Module."
    yield f"{check.needs}, or remove the marker."
