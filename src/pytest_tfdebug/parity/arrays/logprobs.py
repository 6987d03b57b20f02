"""Tokens and log-probabilities of an engine beside the reference's logits: flips that are none of a near tie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import TFDebugError, counted
from pytest_tfdebug.parity.arrays.given import as_tensor

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class LogprobsReport:
    """What an engine's tokens and log-probabilities are worth."""

    positions: int  # how many were compared
    flip: int | None  # the first of them whose token is not the reference's, though no tie
    lead: float  # by how much the reference's choice leads over the engine's there, in nats
    ties: int  # positions where two tokens lead by less than the margin, so that either is right
    greatest: float  # greatest difference of a log-probability from the reference's of the same token
    place: int  # where that is
    margin: float  # what was allowed

    @property
    def ok(self) -> bool:
        """Whether every token is the reference's, ties apart, and every log-probability within the margin."""
        return self.flip is None and self.greatest <= self.margin

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        off = f"log-probabilities are off by up to {self.greatest:.3g}, at position {self.place}"
        counts = f"{counted(self.positions, 'position')} compared, {counted(self.ties, 'near tie')} not counted"
        if self.flip is not None:
            lead = f"the reference's token leads by {self.lead:.3g}"
            return f"Token {self.flip} is not the reference's: {lead}.\n  Its {off}.\n  {counts}."
        return f"{'Parity' if self.ok else 'The tokens agree'}: {off} ({self.margin:g} allowed).\n  {counts}."


def hold_logprobs(logits: torch.Tensor, token_ids: Any, logprobs: Any, margin: float) -> LogprobsReport:  # noqa: ANN401
    """Hold an engine's greedy tokens and their log-probabilities to logits.

    Args:
        logits: The reference's, ``(batch, tokens, vocabulary)``.
        token_ids: ``(tokens,)`` or ``(batch, tokens)``; of fewer positions, the last ones.
        logprobs: Likewise.
        margin: What a log-probability may be off by, and the lead up to which two tokens are a tie.

    Raises:
        TFDebugError: If shapes do not fit, or a token is not in the vocabulary.
    """
    ids, given = as_tensor("token_ids", token_ids).long(), as_tensor("logprobs", logprobs).double()
    ids, given = (held[None] if held.dim() == 1 else held for held in (ids, given))
    expected = logits.double().log_softmax(-1).reshape(-1, *logits.shape[-2:])
    batch, tokens, size = expected.shape
    if ids.shape != given.shape or ids.shape[:-1] != (batch,) or not 0 < ids.shape[-1] <= tokens:
        raise TFDebugError(
            f"token_ids {tuple(ids.shape)} and logprobs {tuple(given.shape)} do not fit the reference's logits "
            f"{tuple(expected.shape)}: give one of each for every position, or for the last ones."
        )
    if not 0 <= int(ids.min()) <= int(ids.max()) < size:
        raise TFDebugError(f"token_ids holds {int(ids.max())}, and the reference has {size} tokens.")
    expected = expected[:, -ids.shape[1] :]
    first, second = expected.topk(2, -1).values.unbind(-1)
    theirs = expected.gather(-1, ids[..., None])[..., 0]
    lead, off = (first - theirs).flatten(), (given - theirs).abs().flatten().nan_to_num(nan=float("inf"))
    flip = next(iter((lead > margin).nonzero().flatten().tolist()), None)
    ties, place = int((first - second <= margin).sum()), int(off.argmax())
    return LogprobsReport(
        ids.numel(), flip, 0.0 if flip is None else float(lead[flip]), ties, float(off[place]), place, margin
    )
