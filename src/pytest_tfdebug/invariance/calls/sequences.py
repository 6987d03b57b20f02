"""Which inputs of a call run along a sequence that can be padded: tokens, decoder tokens, frames or pixels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import torch

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.tensors import IGNORED_LABEL
from pytest_tfdebug.tracing.record.signatures import collects_keywords

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall

Unit = Literal["tokens", "frames", "pixels"]


@dataclass(frozen=True)
class SequenceKind:
    """One way in which sequences enter a forward."""

    name: str  # `encoder` for the inputs of encoders and of decoder-only models, `decoder`, `frames`, `pixels`
    mains: tuple[str, ...]  # the inputs that carry it, in order of preference
    mask: str  # the input that says which positions are real
    positions: str | None  # the input that numbers them, or None
    unit: Unit  # what is counted along it


FRAMES = SequenceKind("frames", ("input_features", "input_values"), "attention_mask", None, "frames")
KINDS = (
    SequenceKind("encoder", ("input_ids", "inputs_embeds"), "attention_mask", "position_ids", "tokens"),
    SequenceKind(
        "decoder",
        ("decoder_input_ids", "decoder_inputs_embeds"),
        "decoder_attention_mask",
        "decoder_position_ids",
        "tokens",
    ),
    FRAMES,
    SequenceKind("pixels", ("pixel_values",), "pixel_mask", None, "pixels"),
)
#: Inputs that never run along a token sequence, even where their sizes are equal.
_APART = {
    *("audio_attention_mask", "audio_input_ids", "audio_input_ids_mask", "cross_attn_head_mask"),
    *("decoder_head_mask", "encoder_attention_mask", "encoder_hidden_states", "encoder_outputs"),
    *("feature_attention_mask", "head_mask", "image_embeds", "image_grid_thw", "image_sizes"),
    *("input_features_mask", "padding_mask", "past_key_values"),
    *(main for kind in KINDS[2:] for main in (*kind.mains, kind.mask) if main != "attention_mask"),
}
#: Inputs that point at a position of the sequence: they move with it.
POINTERS = ("start_positions", "end_positions", "mc_token_ids")
#: Input that asks for the logits of the last positions only; ``generate`` gives it.
KEEPS_END = "logits_to_keep"
#: Input that says how many tokens each row begins with, in place of a mask (XLM); a mask outranks it.
LENGTHS = "lengths"


@dataclass(frozen=True)
class InputSequence:
    """A sequence of one call."""

    kind: SequenceKind  # how it enters
    main: str  # name of the input that carries it
    axis: int  # its axis in the main input
    batch: int  # number of rows
    length: int  # its length, padding of the test's own included
    takes_mask: bool  # whether the forward takes a mask for it
    # real positions as the test gave them, `(batch, length)`, bool; None without a mask. Where a row has several
    # sequences (the choices of an answer), each is a row here
    mask: torch.Tensor | None = None
    is_mask_inferred: bool = False  # the mask was not given and follows from the pad tokens at the ends of the rows
    # every input along it, with what to put at new positions
    aligned: Mapping[str, float] = field(default_factory=dict)
    # a sequence of the same length that is padded with it: the decoder's, of a model that lays its tokens beside those
    # of the encoder
    beside: InputSequence | None = None

    @property
    def name(self) -> str:
        """Its main input, and that of the sequence beside it."""
        return self.main if self.beside is None else f"{self.main} and {self.beside.main}"

    @property
    def is_exact(self) -> bool:
        """Whether a pad adds one position to every tensor along the sequence: frames and pixels are pooled."""
        return self.kind.unit == "tokens"

    @property
    def mask_axis(self) -> int:
        """Axis of the sequence in its mask."""
        return self.axis if self.kind.unit == "tokens" else 1

    def windows(self) -> list[tuple[int, int]]:
        """Return the first real position of each row and the one after its last, by the mask."""
        if self.mask is None:
            return [(0, self.length)] * self.batch
        found = []
        for row in self.mask.tolist():
            real = [place for place, is_real in enumerate(row) if is_real]
            found.append((real[0], real[-1] + 1) if real else (0, 0))
        return found


def mask_of(inputs: Mapping[str, Any], sequence: InputSequence) -> torch.Tensor:
    """Return the mask of a sequence, 1 everywhere when the call was made without one and without lengths."""
    main: torch.Tensor = inputs[sequence.main]
    for given in (inputs.get(sequence.kind.mask), _mask_of_lengths(inputs, sequence.kind, main)):
        if isinstance(given, torch.Tensor):
            return given
    return torch.ones(_mask_shape(sequence.kind, main, sequence.axis), dtype=torch.int64, device=main.device)


def _mask_of_lengths(inputs: Mapping[str, Any], kind: SequenceKind, main: torch.Tensor) -> torch.Tensor | None:
    lengths = inputs.get(LENGTHS)
    if kind.name != "encoder" or not isinstance(lengths, torch.Tensor) or lengths.shape != main.shape[:1]:
        return None
    return (torch.arange(main.shape[1], device=main.device) < lengths[:, None]).long()


def _mask_shape(kind: SequenceKind, main: torch.Tensor, axis: int) -> tuple[int, ...]:
    shapes = {
        "tokens": main.shape[: axis + 1],
        "frames": (main.shape[0], main.shape[axis]),
        "pixels": (main.shape[0], *main.shape[-2:]),
    }
    return tuple(shapes[kind.unit])


def with_mask(inputs: Mapping[str, Any], sequence: InputSequence) -> dict[str, Any]:
    """Return the inputs of a call with its mask spelled out, where the forward takes one."""
    return {**inputs, sequence.kind.mask: mask_of(inputs, sequence)} if sequence.takes_mask else dict(inputs)


def find_sequences(call: ObservedCall) -> tuple[list[InputSequence], list[str]]:
    """Return the sequences of a call that can be padded, and why others cannot, in sentences."""
    inputs, name = call.inputs, type(call.model).__name__
    sequences, reasons = [], []
    for kind in KINDS:
        main = next((name for name in kind.mains if isinstance(inputs.get(name), torch.Tensor)), None)
        if main is None:
            continue
        found = _describe(call, kind, main)
        if isinstance(found, str):
            reasons.append(f"{main} of {name}: {found}")
        else:
            sequences.append(found)
    if not sequences and not reasons:
        names = ", ".join(main for kind in KINDS for main in kind.mains)
        given = ", ".join(inputs) or "no named input"
        own = next((key for key, value in inputs.items() if isinstance(value, torch.Tensor)), "")
        told = (
            f" (names of its own: inputs={{{own!r}: 'input_ids'}} of the marker, names= of the function)" if own else ""
        )
        reasons.append(f"{name} was given {given}: none of {names}{told}")
    return sequences, reasons


def token_sequence(call: ObservedCall) -> InputSequence | None:
    """Return the sequence that a call's output runs along: the decoder's where it has one, else the encoder's."""
    by_name = {sequence.kind.name: sequence for sequence in find_sequences(call)[0]}
    has_decoder = any(call.inputs.get(main) is not None for main in KINDS[1].mains)
    return by_name.get("decoder" if has_decoder else "encoder")


def together(one: InputSequence, other: InputSequence) -> InputSequence | None:
    """Return two sequences of tokens as one that is padded like a whole; None where their lengths differ."""
    if (one.batch, one.length, one.axis) != (other.batch, other.length, other.axis):
        return None
    masks = [mask for mask in (one.mask, other.mask) if mask is not None]
    return replace(one, mask=torch.stack(masks).all(0) if masks else None, beside=other)


def main_input(call: ObservedCall) -> tuple[str, torch.Tensor] | None:
    """Return name and tensor of the input that carries the batch; None when there is none."""
    mains = [sequence.main for sequence in find_sequences(call)[0]]
    named = [(name, call.inputs[name]) for name in (*mains, *call.inputs)]
    return next(((name, value) for name, value in named if isinstance(value, torch.Tensor) and value.dim()), None)


def _describe(call: ObservedCall, kind: SequenceKind, main: str) -> InputSequence | str:
    """Return a sequence of a call, or why it cannot be padded."""
    model, tensor, given = call.model, call.inputs[main], call.inputs.get(kind.mask)
    takes_mask = call.takes(kind.mask) or (
        kind.name == "encoder" and collects_keywords(model_traits.kind_of(model)) and model_traits.is_pretrained(model)
    )
    if kind.unit != "tokens" and not takes_mask:
        return f"its forward takes no {kind.mask}"
    if given is not None and not isinstance(given, torch.Tensor):
        return f"{kind.mask} is a {type(given).__name__}, not a tensor"
    if given is None and takes_mask:
        given = _mask_of_lengths(call.inputs, kind, tensor)
    axis = _axis(model, kind, main, tensor, given)
    if axis is None or axis >= tensor.dim() or tensor.shape[axis] == 0 or tensor.shape[0] == 0:
        return f"shape {tuple(tensor.shape)} has no sequence of tokens"
    mask_shape = _mask_shape(kind, tensor, axis)
    if given is not None and tuple(given.shape) != mask_shape:
        return f"{kind.mask} has shape {tuple(given.shape)}; only masks of shape {mask_shape} can be padded"
    mask, is_inferred = _real_positions(model, kind, main, tensor, given)
    aligned = dict(_aligned(call, kind, main, tensor.shape[: axis + 1]))
    return InputSequence(kind, main, axis, tensor.shape[0], tensor.shape[axis], takes_mask, mask, is_inferred, aligned)


def _axis(
    model: torch.nn.Module, kind: SequenceKind, main: str, tensor: torch.Tensor, mask: torch.Tensor | None
) -> int | None:
    if kind.unit == "pixels":
        return tensor.dim() - 1 if tensor.dim() >= 4 else None  # noqa: PLR2004 - (batch, channels, height, width)
    if kind.unit == "tokens":
        axis = tensor.dim() - (2 if main.endswith("embeds") else 1)
        if mask is not None and 1 < mask.dim() <= axis and mask.shape == tensor.shape[: mask.dim()]:
            axis = mask.dim() - 1  # several ids at each position, as in the codebooks of audio models
        return axis if axis >= 1 else None
    if mask is not None and mask.dim() == 2:  # noqa: PLR2004 - (batch, frames)
        return next((axis for axis in range(1, tensor.dim()) if tensor.shape[axis] == mask.shape[1]), None)
    bins = model_traits.setting(model, "num_mel_bins")
    return 2 if tensor.dim() == 3 and tensor.shape[1] == bins else 1  # noqa: PLR2004 - (batch, mel bins, frames)


def _real_positions(
    model: torch.nn.Module, kind: SequenceKind, main: str, tensor: torch.Tensor, given: torch.Tensor | None
) -> tuple[torch.Tensor | None, bool]:
    """Return the real positions, and whether they follow from pad tokens at the ends of rows."""
    if given is not None:
        return ((given != 0).flatten(0, -2), False) if kind.unit == "tokens" else (None, False)
    pad = model_traits.distinct_pad_token(model)
    if kind.name != "encoder" or main != "input_ids" or pad is None or tensor.dim() != 2:  # noqa: PLR2004
        return None, False
    real = padless(tensor, pad)
    return (None, False) if bool(real.all()) or not bool(real.any(dim=1).all()) else (real, True)


def padless(ids: torch.Tensor, pad: int) -> torch.Tensor:
    """Return which tokens are not in a run of pad tokens at either end of their row, ``(batch, length)``, bool.

    Where no row begins with two of them, a first token that is one is no pad: it begins the sequence, or happened to be
    drawn.
    """
    real = (ids != pad).int()
    is_left, is_right = real.cumsum(1) == 0, real.flip(1).cumsum(1).flip(1) == 0
    if not bool(is_left[:, 1:2].any()):
        is_left = torch.zeros_like(is_left)
    return ~(is_left | is_right)


def _aligned(call: ObservedCall, kind: SequenceKind, main: str, lead: torch.Size) -> Iterator[tuple[str, float]]:
    if kind.unit != "tokens":
        return
    has_decoder = "decoder_input_ids" in call.parameters
    for name, value in call.inputs.items():
        if name == main or not isinstance(value, torch.Tensor) or name in _APART:
            continue
        is_decoders = name.startswith("decoder_") or (has_decoder and name.endswith("labels"))
        if is_decoders != (kind.name == "decoder") or tuple(value.shape[: len(lead)]) != tuple(lead):
            if name == kind.positions and tuple(value.shape[1:]) == tuple(lead[1:]) and value.shape[0] == 1:
                yield name, 0  # one row of positions for all
            continue
        is_labels = name.endswith(("labels", "label_ids"))
        if is_labels and value.is_floating_point():
            continue  # classes of a multi-label head, as many as there are tokens
        yield name, IGNORED_LABEL if is_labels else 0
