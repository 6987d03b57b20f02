"""On which sides, and by how much, a sequence can be padded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from pytest_tfdebug.invariance.calls import model_traits

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.calls.sequences import InputSequence

Side = Literal["left", "right"]

#: Block size of attention kernels: a padded length of 32 fills a block, 33 begins the next (transformers#47678).
BLOCK = 32
#: Pads of the default sweep before those up to a block's boundary.
SHORT = (1, 7)
#: Pixels of a patch where the configuration does not say.
_PATCH = 32


def sides(call: ObservedCall, sequence: InputSequence, asked: str) -> tuple[tuple[Side, ...], str]:
    """Return the sides on which a sequence is padded, and why it is not padded on the left; empty when it is."""
    if sequence.kind.unit != "tokens":
        refusal = f"{sequence.main}: {sequence.kind.unit} are padded on the right only"
        return ((), refusal) if asked == "left" else (("right",), "")
    if asked != "both":
        return (cast("Side", asked),), ""
    refusal = left_padding_refusal(call, sequence)
    return (("right",), refusal) if refusal else (("right", "left"), "")


def left_padding_refusal(call: ObservedCall, sequence: InputSequence) -> str:
    """Return why ``side="both"`` does not pad a sequence on the left; empty when it does.

    Decoding needs left padding: every sequence of a batch then ends where the next token goes. Models that decode, and
    encoders of such architectures (T5), are padded on the left unless they have absolute positions and take no position
    ids. Other encoders are not: they read position 0 (a pooler's CLS token), number positions from the left, and have
    tokenizers that pad on the right. ``side="left"`` asks for it anyway.
    """
    model, name = call.model, type(model_traits.unwrapped(call.model)).__name__
    if not model_traits.decodes(model):
        return f"{sequence.main}: {name} does not decode, so it was not padded on the left (side='left' does it anyway)"
    positions = sequence.kind.positions
    takes_positions = positions is not None and positions in call.parameters
    if model_traits.has_absolute_positions(model) and not takes_positions:
        return (
            f"{sequence.main}: {name} has absolute positions and takes no {positions}, "
            "so it was not padded on the left (side='left' does it anyway)"
        )
    if not sequence.takes_mask:
        return f"{sequence.main}: {name} takes no {sequence.kind.mask}, so it was not padded on the left"
    return ""


def pad_lengths(
    model: torch.nn.Module, sequence: InputSequence, asked: Sequence[int] | None
) -> tuple[tuple[int, ...], str]:
    """Return the numbers of pads to add, ascending, and why some are left out; empty when none is.

    The default: 1, 7, as many as make the padded length the next multiple of 32, and one more. Raw audio is padded by
    whole frames, images by whole patches.
    """
    unit = _unit(model, sequence)
    if asked is not None:
        wanted = sorted(set(asked))
    elif sequence.kind.unit == "pixels":
        wanted = [1, 2]
    else:
        to_block = (sequence.length // unit // BLOCK + 1) * BLOCK - sequence.length // unit
        wanted = sorted({*SHORT, to_block, to_block + 1})
    limit = model_traits.position_limit(model, sequence.kind.name)
    if limit is not None and limit < sequence.length:  # of another sequence, such as the frames of a speech encoder
        limit = None
    pads = tuple(number * unit for number in wanted)
    fitting = tuple(number for number in pads if limit is None or sequence.length + number <= limit)
    if fitting == pads:
        return pads, ""
    left_out = ", ".join(str(number) for number in pads if number not in fitting)
    return fitting, f"{sequence.main}: {left_out} pads do not fit: length {sequence.length} of {limit} positions"


def _unit(model: torch.nn.Module, sequence: InputSequence) -> int:
    """Return the least padding that adds anything: a frame of raw audio in samples, a patch in pixels."""
    if sequence.main == "input_values":
        ratio = getattr(model_traits.setting(model, "inputs_to_logits_ratio"), "__int__", lambda: 1)()
        return max(1, ratio)
    if sequence.kind.unit == "pixels":
        patch = model_traits.setting(model, "patch_size")
        return patch if isinstance(patch, int) and patch > 0 else _PATCH
    return 1
