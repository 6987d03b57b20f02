"""What is a mask, and what does it hide? Each question has one answer here, and one number where it needs one.

| question | answer | asked of |
|---|---|---|
| Is it named as a mask? | :func:`is_mask`, :func:`is_mask_input`, :func:`is_mask_name` | inputs, modules, parameters |
| May it be a mask, by its numbers? | :func:`has_two_numbers` | inputs that a second call changes |
| Do two say the same in other numbers? | :func:`is_recoded` | inputs of paired calls |
| What does it let through, if it is a mask at all? | :func:`let_through` | inputs of paired calls |
| What of these scores is hidden? | :func:`hidden` | what a softmax is given |
| Where may a mask by name hide a score? | :func:`without_hidden`, :func:`has_masked_row` | values that are not finite |

A mask of truth values or integers has two polarities in use, and only an additive one says which numbers it hides.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.module_path import last_part
from pytest_tfdebug.tensors import widen
from pytest_tfdebug.tracing.record.signatures import input_name

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A score below this is hidden: the exponential of it is 0 in every dtype, and transformers' oldest masks add -1e4.
HIDDEN = -1e3
#: What is named as a mask or a bias hides what it lowers by this much or more: -10000 is the classic value for float16,
#: others lower.
HIDES = -1e4
#: A score of any real size under such a mask stays below this.
LOWERED = -5e3
#: An additive mask above this leaves a score of ordinary size more weight than exp(-88), the smallest float32.
WEAK = -88.0
#: Numbers in a mask: one for what counts, one for what does not.
_NUMBERS = 2

#: A name that ends in mask: ``bert_for_masked_lm`` and ``mask_features`` are no masks.
_MASK = re.compile(r"(attention|attn|padding|causal)_?mask(?![a-z])|(masks?|masking)(?![a-z_]|\d[a-z])", re.IGNORECASE)
#: A name that ends in a bias that is added to attention scores.
_BIAS = re.compile(r"(alibi|(position|attn|attention|relative)\w*bias(es)?)(?![a-z_]|\d[a-z])", re.IGNORECASE)


@lru_cache(maxsize=16384)
def is_mask(name: str) -> bool:
    """Tell whether a name is one of a mask over positions; a head mask is none."""
    return _MASK.search(name) is not None and "head" not in name


@lru_cache(maxsize=16384)
def is_mask_input(leaf: str, parameters: tuple[str, ...]) -> bool:
    """Tell whether an input is named as a mask or an attention bias; see :func:`input_name`."""
    name = input_name(leaf, parameters)
    return _MASK.search(name) is not None or _BIAS.search(name) is not None


@lru_cache(maxsize=16384)
def is_mask_name(name: str) -> bool:
    """Tell whether the last part of a module path, a class or a parameter is named as a mask or an attention bias."""
    return is_mask_input(last_part(name), ())


def has_two_numbers(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has no more than two numbers: of a mask, added or multiplied, of types of tokens."""
    return tensor.dtype == torch.bool or bool(((tensor == tensor.min()) | (tensor == tensor.max())).all())


def is_recoded(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors of one shape are a mask in two codes: 1 for a real token in one, 0 in the other."""
    numbers = [torch.unique(tensor).numel() for tensor in (one, other)]
    pairs = torch.unique(torch.stack([one.double().flatten(), other.double().flatten()]), dim=1).shape[1]
    return max(numbers) <= _NUMBERS and numbers == [pairs, pairs]


def let_through(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return what a mask lets through; None for what is no mask.

    A mask is one of booleans, or one that is added to scores: 0 for what counts and hardly anything for the rest.
    """
    if tensor.dtype == torch.bool:
        return tensor
    if not tensor.is_floating_point():
        return None
    wide = widen(tensor)  # float8 cannot be compared
    shown = wide == 0
    return shown if bool((shown | hidden(wide)).all()) else None


def hidden(scores: torch.Tensor) -> torch.Tensor:
    """Return which scores are hidden, of truth values or of numbers under an additive mask."""
    return ~scores if scores.dtype is torch.bool else scores < HIDDEN


def without_hidden(tensor: torch.Tensor, masks: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield a tensor with 0 where a mask hides it: once for each mask, and each way to read it, that fits its shape.

    Only elements that are low enough to have been hidden become 0: nan and +inf stay.
    """
    for mask in masks:
        aligned = _aligned(mask, tensor)
        for hides in () if aligned is None else _readings(aligned):
            yield tensor.masked_fill(hides & (tensor < LOWERED), 0)


def has_masked_row(mask: torch.Tensor) -> bool:
    """Tell whether some query sees no key at all: the softmax over such a row is nan."""
    if mask.dim() < 2 or not mask.numel():  # noqa: PLR2004 - a row needs a batch or query axis
        return False
    hides = mask <= HIDES if mask.is_floating_point() else mask == 0
    return bool(hides.all(-1).any())


def _readings(mask: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield where a mask hides: additive masks say it; of boolean and 0/1 masks both polarities are in use.

    A mask of ones hides nothing: a reading by which it would hide everything is not taken.
    """
    if mask.is_floating_point():
        yield mask <= HIDES
    else:
        for hides in (mask == 0, mask != 0):
            yield hides & ~hides.all()


def _aligned(mask: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor | None:
    if mask.dim() == 2 and tensor.dim() > 2 and mask.shape == (tensor.shape[0], tensor.shape[-1]):  # noqa: PLR2004
        mask = mask.view(mask.shape[0], *[1] * (tensor.dim() - 2), mask.shape[1])
    if mask.device != tensor.device or mask.dim() > tensor.dim():
        return None
    sizes = zip(reversed(mask.shape), reversed(tensor.shape), strict=False)
    return mask if all(size in (1, wanted) for size, wanted in sizes) else None
