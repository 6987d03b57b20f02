"""Other forms of one tensor: what a port may have made of it, or forgotten to make of it."""

from __future__ import annotations

from functools import partial
from itertools import combinations, permutations
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Form = Callable[[torch.Tensor], torch.Tensor]

#: What forms of zeros and of ones are called.
ZERO, ONE = "taken as 0", "taken as 1"
#: Activations by the names that configurations give them.
ACTIVATIONS: dict[str, Form] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "softplus": F.softplus,
}
#: Bases of rotary frequencies.
_BASES = (1e3, 1e4, 2.5e4, 1e5, 1.5e5, 5e5, 1e6, 1e7)
_HEADS = (1, 2, 3, 4, 6, 8)
_LARGEST_FREQUENCY = 1.2


class Transform(NamedTuple):
    """A change of one tensor."""

    cost: float  # how unlikely it is: the least are tried first
    text: str  # what is done to the tensor, "in bfloat16"
    form: Form


def transforms(tensor: torch.Tensor, *, is_given: bool) -> Iterator[Transform]:
    """Yield what may be done to a tensor that keeps its shape."""
    if tensor.dtype == torch.bool:
        yield from _of_masks(tensor)
    elif not tensor.is_floating_point():
        yield from (Transform(2, f"plus {k}", partial(_plus_whole, k)) for k in (1, -1, 2))
    else:
        yield from _of_numbers(tensor, is_given=is_given)


def reorderings(tensor: torch.Tensor, *, is_given: bool) -> Iterator[Transform]:
    """Yield in what other order the elements of a tensor may stand, some of them cut off."""
    axes = [axis for axis, size in enumerate(tensor.shape) if size > 1 and tensor.is_floating_point()]
    for axis in axes:
        yield from _along(axis, tensor.shape[axis], is_given=is_given)
    for i, j in combinations(axes, 2):
        yield Transform(3, f"with axes {i} and {j} read the other way", partial(_swapped, i, j))


def pairings(axis: int, size: int) -> Iterator[Transform]:
    """Yield the two orders of the numbers that are turned together, in each head: in pairs, or in halves."""
    for blocks in (n for n in _HEADS if size % (2 * n) == 0 and size // n > 2):  # noqa: PLR2004 - pairs
        many = f" in {blocks} blocks" if blocks > 1 else ""
        yield Transform(3, f"with halves as pairs{many} of axis {axis}", partial(_regrouped, axis, (blocks, 2, -1)))
        yield Transform(3, f"with pairs as halves{many} of axis {axis}", partial(_regrouped, axis, (blocks, -1, 2)))


def _of_masks(tensor: torch.Tensor) -> Iterator[Transform]:
    yield Transform(2, "inverted", torch.logical_not)
    yield Transform(2, "all true", torch.ones_like)
    yield Transform(2, "all false", torch.zeros_like)
    for k in range(-2, 3) if tensor.dim() > 1 else ():
        yield Transform(3, f"and tril({k})", partial(_and_lower, k))
        yield Transform(3, f"or tril({k})", partial(_or_lower, k))
        yield Transform(3, f"and triu({k})", partial(_and_upper, k))


def _of_numbers(tensor: torch.Tensor, *, is_given: bool) -> Iterator[Transform]:
    yield Transform(3, "in bfloat16", lambda t: t.bfloat16().to(t.dtype))
    yield Transform(3, "in float16", lambda t: t.half().to(t.dtype))
    yield Transform(2, ZERO, torch.zeros_like)
    yield Transform(2, ONE, torch.ones_like)
    yield Transform(3, "negated", torch.neg)
    if tensor.dim() != 1 or not is_given:
        return
    yield Transform(2, "plus 1", lambda t: t + 1)
    yield Transform(2, "minus 1", lambda t: t - 1)
    if _is_frequencies(tensor):
        own = float(tensor[0] / tensor[1]) ** len(tensor)
        for base in (*_BASES, own / 2, own * 2):
            yield Transform(1.5, f"of base {base:g}", partial(_frequencies, base))


def _is_frequencies(tensor: torch.Tensor) -> bool:
    if tensor.numel() < 3 or not bool((tensor > 0).all()):  # noqa: PLR2004 - fewer do not fall for sure
        return False
    return bool((tensor[1:] < tensor[:-1]).all()) and float(tensor[0]) < _LARGEST_FREQUENCY


def _along(axis: int, size: int, *, is_given: bool) -> Iterator[Transform]:
    for k in sorted({1, -1, size // 2}):
        yield Transform(3, f"rolled by {k} along axis {axis}", partial(torch.roll, shifts=k, dims=axis))
    yield Transform(3.5, f"flipped along axis {axis}", partial(torch.flip, dims=(axis,)))
    yield Transform(3.5, f"shifted by 1 along axis {axis}", partial(_shifted, axis))
    yield from pairings(axis, size)
    if size % 3 == 0 and is_given:
        for order in (each for each in permutations(range(3)) if each != (0, 1, 2)):
            yield Transform(3, f"with the thirds of axis {axis} as {order}", partial(_thirds, axis, order))


def _and_lower(k: int, mask: torch.Tensor) -> torch.Tensor:
    return mask & torch.ones_like(mask).tril(k)


def _or_lower(k: int, mask: torch.Tensor) -> torch.Tensor:
    return mask | torch.ones_like(mask).tril(k)


def _and_upper(k: int, mask: torch.Tensor) -> torch.Tensor:
    return mask & torch.ones_like(mask).triu(k)


def _plus_whole(k: int, tensor: torch.Tensor) -> torch.Tensor:
    return (tensor + k).clamp(min=0)


def _swapped(i: int, j: int, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(i, j).reshape(tensor.shape)


def _frequencies(base: float, tensor: torch.Tensor) -> torch.Tensor:
    places = torch.arange(0, 2 * len(tensor), 2, dtype=torch.float32, device=tensor.device)
    return (1.0 / base ** (places / (2 * len(tensor)))).to(tensor.dtype)


def _shifted(axis: int, tensor: torch.Tensor) -> torch.Tensor:
    nothing = torch.zeros_like(tensor.narrow(axis, 0, 1))
    return torch.cat((nothing, tensor.narrow(axis, 0, tensor.shape[axis] - 1)), axis)


def _regrouped(axis: int, sizes: tuple[int, ...], tensor: torch.Tensor) -> torch.Tensor:
    return torch.unflatten(tensor, axis, sizes).transpose(axis + 1, axis + 2).flatten(axis, axis + 2)


def _thirds(axis: int, order: tuple[int, ...], tensor: torch.Tensor) -> torch.Tensor:
    parts = tensor.chunk(3, axis)
    return torch.cat([parts[place] for place in order], axis)
