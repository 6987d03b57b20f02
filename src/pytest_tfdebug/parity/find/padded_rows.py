"""Rows with padding behind faults that show without: both forwards on the whole batch, mended as the others are.

Example: after two changes every output of the rows without padding agrees. After the same two the whole batch still
differs, in row 1: there a query sees its pads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.claims import Evidence
from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.find.several import with_faults
from pytest_tfdebug.parity.find.values import explain
from pytest_tfdebug.parity.proof.prove import Live, Trial, held_values
from pytest_tfdebug.values import Fingerprint, distance

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import torch

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.find.values import Explained
    from pytest_tfdebug.parity.proof.elsewhere import Elsewhere, Ran
    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair

_WHERE = ", in rows with padding"


def look_behind_pads(
    found: Explained, both: tuple[Ran, Ran], masks: Collection[torch.Tensor], seconds: float | None
) -> Explained | None:
    """Return what values say of the whole batch, once what mends the rows without padding is made.

    Args:
        found: What values say of the rows without padding, and what mends them.
        both: The port and the reference on the whole batch.
        masks: Masks of the batch, 1 at real tokens.
        seconds: How long to search for proofs; None for as long as users wait.

    Returns:
        What they say: no claim where every real token agrees. None where the changes cannot be made there, or are
        others there: heads of one row that come into another order are those of all rows in a batch.
    """
    changed = None if found.mended is None else found.mended.on(*both)
    if changed is None or found.pair is None:
        return None
    tokens = [mask.bool() for mask in masks]
    rows = [mask & mask.all(-1, keepdim=True) for mask in tokens]
    try:
        if not all(_agree_at_tokens(found.pair, *changed, rows)):
            return None
        agrees = all(_agree_at_tokens(found.pair, *changed, tokens))
    except KeyError:  # what an output is held to was not found there
        return None
    if agrees:
        return replace(found, claim=None, proofs=(), faults=None)
    port, reference = changed[0].ran, changed[1].ran
    numbers = port.tape.numbers()
    look = explain(reference.values, port.values, fails=True, applied=numbers, held=port.weights)
    return with_faults(look, Trial(Live(port.tape, port.outputs), Live(reference.tape, reference.outputs), seconds))


def claims_behind_pads(look: Explained) -> tuple[Claim, ...]:
    """Return who is to blame in rows with padding: another fault than those of the rows without."""
    several = look.faults.claims if look.faults is not None else ()
    seen = several or (() if look.seen is None else (look.seen,))
    return tuple(
        replace(
            claim,
            wrong=f"{claim.wrong}{_WHERE}",
            evidence=Evidence.ONE_OF_SEVERAL if claim.proved else claim.evidence,
        )
        for claim in seen
    )


def _agree_at_tokens(
    pair: ForwardPair, port: Elsewhere, reference: Elsewhere, masks: Sequence[torch.Tensor]
) -> Iterator[bool]:
    """Tell of the outputs that are held to each other on a part whether they agree on the whole at real tokens."""

    def prints(side: Elsewhere, indices: Sequence[int]) -> list[Fingerprint]:
        tensors = (side.ran.tape.tensors[side.indices[index]] for index in indices)
        return [Fingerprint.of(_at_tokens(tensor, masks)) for tensor in tensors]

    for own, other, count in held_values(pair):
        here, there = prints(port, own), prints(reference, other)
        yield sum(any(distance(one, each) <= AGREE for each in here) for one in there) >= count


def _at_tokens(tensor: torch.Tensor, masks: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return what of an output belongs to real tokens; all where it has no axes of the batch and its tokens."""
    for mask in (mask.to(tensor.device) for mask in masks):
        if tensor.shape[:2] == mask.shape:
            return tensor[mask]
        if tensor.dim() and len(tensor) == mask.numel():  # before it is viewed as rows of tokens
            return tensor[mask.flatten()]
    return tensor
