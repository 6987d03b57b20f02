"""On which sides, and by how much, a sequence can be padded."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pytest_tfdebug.invariance import family

if TYPE_CHECKING:
    import torch

    from pytest_tfdebug.invariance.settings import PaddingSettings, Side
    from pytest_tfdebug.invariance.streams import Stream

#: Block size of attention kernels: a padded length of 32 fills a block, 33 begins the next (transformers#47678).
BLOCK = 32
#: Pads of the default sweep before those up to a block's boundary.
SHORT = (1, 7)
#: Pixels of a patch where the configuration does not say.
_PATCH = 32


def sides(model: torch.nn.Module, stream: Stream, settings: PaddingSettings) -> tuple[tuple[Side, ...], str]:
    """Return the sides on which a stream is padded, and why the left one is left out, empty when it is not."""
    if stream.kind.unit != "tokens":
        refusal = f"{stream.main}: {stream.kind.unit} are padded on the right only"
        return ((), refusal) if settings.side == "left" else (("right",), "")
    if settings.side != "both":
        return (cast("Side", settings.side),), ""
    refusal = left_padding_refusal(model, stream)
    return (("right",), refusal) if refusal else (("right", "left"), "")


def left_padding_refusal(model: torch.nn.Module, stream: Stream) -> str:
    """Return why ``side="both"`` does not pad a stream on the left; empty when it does.

    Left padding is what decoding needs: every sequence of a batch then ends where the next token goes. Models that
    decode, and encoders of such architectures (T5), are padded on the left unless they have absolute positions and take
    no position ids for the stream. Encoders are not: they read position 0 (a pooler's CLS token)
    and number positions from the left, and their tokenizers pad on the right. ``side="left"`` asks for it anyway.
    """
    name = type(family.unwrapped(model)).__name__
    if not family.decodes(model):
        return f"{stream.main}: {name} does not decode, so it was not padded on the left (side='left' does it anyway)"
    positions = stream.kind.positions
    takes_positions = positions is not None and positions in family.parameters(model)
    if family.has_absolute_positions(model) and not takes_positions:
        return (
            f"{stream.main}: {name} has absolute positions and takes no {positions}, so it was not padded on the left "
            "(side='left' does it anyway)"
        )
    if not stream.takes_mask:
        return f"{stream.main}: {name} takes no {stream.kind.mask}, so it was not padded on the left"
    return ""


def sweep(model: torch.nn.Module, stream: Stream, settings: PaddingSettings) -> tuple[tuple[int, ...], str]:
    """Return the numbers of pads to add, ascending, and why some are left out, empty when none is.

    The default: 1, 7, as many as make the padded length the next multiple of 32, and one more. Raw audio is padded by
    whole frames, images by whole patches.
    """
    unit = _unit(model, stream)
    wanted = settings.pads
    if stream.kind.unit == "pixels":
        wanted = wanted or (1, 2)
    if wanted is None:
        to_block = (stream.length // unit // BLOCK + 1) * BLOCK - stream.length // unit
        wanted = tuple(sorted({*SHORT, to_block, to_block + 1}))
    limit = family.position_limit(model, stream.kind.name)
    pads = tuple(number * unit for number in wanted)
    fitting = tuple(number for number in pads if limit is None or stream.length + number <= limit)
    if fitting == pads:
        return pads, ""
    left_out = ", ".join(str(number) for number in pads if number not in fitting)
    return fitting, f"{stream.main}: {left_out} pads do not fit: length {stream.length} of {limit} positions"


def _unit(model: torch.nn.Module, stream: Stream) -> int:
    """Return the least padding that adds anything: a frame of raw audio in samples, a patch in pixels."""
    if stream.main == "input_values":
        ratio = getattr(family.setting(model, "inputs_to_logits_ratio"), "__int__", lambda: 1)()
        return max(1, ratio)
    if stream.kind.unit == "pixels":
        patch = family.setting(model, "patch_size")
        return patch if isinstance(patch, int) and patch > 0 else _PATCH
    return 1
