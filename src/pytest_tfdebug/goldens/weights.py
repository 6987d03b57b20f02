"""Weights that depend on the names of parameters alone, for models that have none of their own; hashes of any."""

from __future__ import annotations

from hashlib import blake2b, sha256
from inspect import unwrap
from itertools import product
from math import prod, sqrt
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.module_path import holder, last_part
from pytest_tfdebug.tensors import dtype_name, readable
from pytest_tfdebug.tracing.record.modules import named_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

_Model = TypeVar("_Model", bound=torch.nn.Module)
#: Greatest distance of a norm's weight from 1, and of a bias from 0: just enough that a check sees each of them.
_SPREAD = 0.1
#: What the weights of norms are called.
_OF_NORMS = frozenset({"weight", "gamma", "scale"})
#: What a compiled module puts before the names of its parameters.
_COMPILED = "_orig_mod."
#: Random numbers have 24 bits: each is a float32 without rounding.
_BITS = 24
#: Elements that are made at a time, for models that fill the memory.
_PART = 1 << 22


@torch.no_grad()
def fill(model: _Model, seed: int = 0) -> _Model:
    """Give every parameter values that follow from its name, its shape and the seed, and from nothing else.

    ``torch.manual_seed`` before a model is built does not do that: which random numbers a parameter gets depends on how
    many were drawn before it and on how a library draws them, and both change between versions.

    A weight of two or more dimensions is uniform with variance ``1 / fan-in``, so that activations keep their size; one
    of one dimension, a norm's, lies within 0.1 of one; a bias within 0.1 of zero. Values are made of whole numbers
    without a function that rounds differently elsewhere, as float32, and rounded to the parameter's dtype. Parameters
    that share their values (tied weights) get those of the first of their names in the alphabet. Tables of positions
    that a model computes and does not train are left alone, as are torch's own random numbers and buffers; but a saved
    buffer that is 0 or 1 throughout and is read by a method (running statistics, a correction bias of a router) lies
    within 0.1 of that, so that a check sees it.

    Args:
        model: The model; its parameters are overwritten.
        seed: Other values for another seed.

    Returns:
        The model.

    Raises:
        TFDebugError: If a parameter has no memory yet (``meta``), is not of floating point, or the seed is no number.

    Source:
        The generator is Philox 4x64, whose stream numpy keeps from version to version (NEP 19); the scale is that of
        LeCun et al., Efficient BackProp (1998), section 4.6.

    Example:
        >>> model = pytest_tfdebug.fill(LlamaForCausalLM(config)).eval()
    """
    if not isinstance(model, torch.nn.Module):
        raise TFDebugError(f"fill takes a torch.nn.Module, not {type(model).__name__}.")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TFDebugError(f"seed={seed!r} is not a whole number.")
    parameters = dict(model.named_parameters(remove_duplicate=False))
    first = {id(parameters[name]): name for name in sorted(parameters, key=_plain, reverse=True)}  # of tied weights
    named = [(name, parameters[name]) for name in sorted(first.values(), key=_plain)]
    for name, parameter in named:
        _check(name, parameter)
    is_trained = any(parameter.requires_grad for _, parameter in named)
    for name, parameter in named:
        # a table of positions, such as Whisper's sinusoids, that no training ever changes
        is_computed = not parameter.requires_grad and parameter.ndim > 1 and "pos" in name
        if not (is_trained and is_computed):
            target = torch.view_as_real(parameter.data) if parameter.is_complex() else parameter.data
            made = _drawn(f"{seed}:{_plain(name)}", target.numel(), *_range(model, name, parameter))
            target.copy_(made.view(target.shape))
    for name, buffer in _neutral_buffers(model):
        centre = float(buffer.reshape(-1)[0])
        buffer.copy_(_drawn(f"{seed}:{_plain(name)}", buffer.numel(), centre, _SPREAD).view(buffer.shape))
    return model


#: Methods in which a buffer is made and not read.
_MAKING = frozenset({"__init__", "reset_parameters", "reset_running_stats", "_init_weights"})


def _neutral_buffers(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the buffers that are saved, hold 0 or 1 throughout and are read by a method: they do nothing."""
    saved = model.state_dict(keep_vars=True)
    classes = {each for module in model.modules() for each in type(module).__mro__ if each is not torch.nn.Module}
    methods = [each for one in classes for name, each in vars(one).items() if name not in _MAKING]
    codes = (getattr(unwrap(each), "__code__", None) for each in methods if callable(each))
    read = {name for code in codes if code is not None for name in code.co_names}
    for name, buffer in sorted(model.named_buffers(), key=lambda each: _plain(each[0])):
        if name not in saved or not buffer.is_floating_point() or buffer.numel() < 2 or buffer.is_meta:  # noqa: PLR2004
            continue
        first = buffer.reshape(-1)[0]
        if last_part(name) in read and float(first) in (0, 1) and bool((buffer == first).all()):
            yield name, buffer


def _plain(name: str) -> str:
    return name.replace(_COMPILED, "")


def _check(name: str, parameter: torch.nn.Parameter) -> None:
    if is_lazy(parameter):
        raise TFDebugError(f"{name!r} has no shape yet: run the model once before fill.")
    if parameter.is_meta:
        raise TFDebugError(f"{name!r} has no memory yet (device meta): model.to_empty(device='cpu') before fill.")
    if not (parameter.is_floating_point() or parameter.is_complex()):
        raise TFDebugError(
            f"{name!r} is {dtype_name(parameter.dtype)}, whose raw values have no meaning: fill the model "
            "before you quantize it."
        )


def _range(model: torch.nn.Module, name: str, parameter: torch.nn.Parameter) -> tuple[float, float]:
    """Return the middle of a parameter's values and how far they lie from it."""
    if parameter.ndim < 2:  # noqa: PLR2004 - a vector or a number
        return float(last_part(name) in _OF_NORMS), _SPREAD
    fan_in = max(parameter.shape[-2:]) if parameter.ndim > 2 else parameter.shape[-1]  # noqa: PLR2004 - of experts
    if isinstance(model.get_submodule(holder(name)), torch.nn.modules.conv._ConvNd):  # noqa: SLF001 - the class of all convolutions
        fan_in = prod(parameter.shape[1:])
    return 0.0, sqrt(3.0 / max(fan_in, 1))  # half the width of a uniform of variance 1 / n


def _drawn(text: str, size: int, centre: float, spread: float) -> torch.Tensor:
    """Return the numbers that belong to a text, of 24 bits each."""
    numbers = np.random.Philox(key=int.from_bytes(sha256(text.encode()).digest()[:16], "little"))
    values = torch.empty(size)
    for part in torch.split(values, _PART):
        whole: npt.NDArray[np.uint64] = numbers.random_raw(part.numel()) >> np.uint64(64 - _BITS)
        between_ones = whole.astype(np.float64) * 2.0 ** (1 - _BITS) - 1.0
        part.copy_(torch.from_numpy((between_ones * spread + centre).astype(np.float32)))
    return values


def drawn_alike(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, known: str, seeds: Iterable[int]
) -> torch.Tensor | None:
    """Return the numbers that :func:`fill` gave to a parameter, told by their hash; None where it was not filled."""
    last = last_part(name)
    fans = {shape[-1], prod(shape[1:]), max(shape[-2:])} if len(shape) > 1 else ()
    ranges = [(0.0, sqrt(3.0 / max(fan, 1))) for fan in fans] or [(float(last in _OF_NORMS), _SPREAD)]
    for seed, (centre, spread) in product(seeds, ranges):
        made = _drawn(f"{seed}:{_plain(name)}", prod(shape), centre, spread).view(shape).to(dtype)
        if hash_of(made) == known:
            return made
    return None


#: 64-bit words in a row of the table whose row and column sums are hashed.
_ROW = 1024
_WORD = 8


@torch.no_grad()
def fingerprint(model: torch.nn.Module) -> dict[str, str]:
    """Return a hash of every parameter and buffer by name, tied ones under each of their names.

    A hash function would read 1 GB a second; here the bytes are summed as 64-bit integers along the rows and the
    columns of a table, at the speed of memory, and the sums are hashed. It tells changed, permuted and cast weights
    apart; it is no defence against someone who wants two models to look alike.
    """
    named = named_tensors(model)
    hashes = {key: hash_of(tensor) for key, tensor in {id(tensor): tensor for _, tensor in named}.items()}
    return {name: hashes[id(tensor)] for name, tensor in named}


def hash_of(tensor: torch.Tensor) -> str:
    """Return the hash of a tensor."""
    shape = [] if tensor.is_nested else list(tensor.shape)
    digest = blake2b(f"{tensor.dtype}{shape}".encode(), digest_size=8)
    values = None if is_lazy(tensor) else readable(tensor)
    if values is None:
        return digest.hexdigest()
    flat = values.detach().contiguous().flatten().view(torch.uint8)
    if flat.storage_offset() % _WORD:
        flat = flat.clone()
    words = flat[: flat.numel() // _WORD * _WORD].view(torch.int64)
    table = words[: words.numel() // _ROW * _ROW].view(-1, _ROW)
    rest = flat[table.numel() * _WORD :]
    for part in (table.sum(0), table.sum(1), rest):
        digest.update(part.cpu().numpy().tobytes())
    return digest.hexdigest()
