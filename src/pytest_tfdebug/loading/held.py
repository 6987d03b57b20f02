"""What a model holds: each of its tensors once, under all its names, and its buffers as its class makes them."""

from __future__ import annotations

import copy
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from pytest_tfdebug.module_path import holder
from pytest_tfdebug.tensors import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class HeldTensor:
    """A tensor of the model."""

    name: str  # its first name
    names: tuple[str, ...]  # all its names: more than one where it is tied
    tensor: torch.Tensor  # its values, readable element by element
    is_parameter: bool
    is_saved: bool  # whether it is in the state dict: some buffers are not
    owner: str  # class of the module that holds it

    @property
    def is_exact(self) -> bool:
        """Whether every float that a checkpoint holds fits: float32 and float64."""
        return self.tensor.dtype in (torch.float32, torch.float64) or not self.tensor.is_floating_point()

    def cast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the checkpoint as this one would hold it."""
        return tensor.to(self.tensor.device, self.tensor.dtype)


def held_by(model: torch.nn.Module) -> tuple[list[HeldTensor], list[str]]:
    """Return the tensors of a model, and the names of those whose values cannot be read (on the meta device)."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    tensors: dict[str, torch.Tensor] = {}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, tensor in chain(parameters.items(), model.named_buffers(remove_duplicate=False)):
        where = tensor.data_ptr() if tensor.numel() and not tensor.is_meta else id(tensor)
        groups.setdefault((where, tuple(tensor.shape), tensor.stride()), []).append(name)
        tensors[name] = tensor
    saved, held, unread = set(model.state_dict(keep_vars=True)), [], []
    for names in groups.values():
        plain = readable(tensors[names[0]].detach())
        if plain is None:
            unread += names
            continue
        owner = type(model.get_submodule(holder(names[0]))).__name__
        is_saved = not saved.isdisjoint(names)
        held.append(HeldTensor(names[0], tuple(names), plain.detach(), names[0] in parameters, is_saved, owner))
    return held, unread


def made_again(model: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - a model of any library
    """Return the buffers that a model's class makes from its configuration; none where that is not known.

    The model is built once more without drawing its parameters, so that their memory is never touched.
    """
    config = getattr(model, "config", None)
    if config is None:
        return {}
    try:
        with torch.random.fork_rng(devices=[]), _nothing_drawn():
            fresh = type(model)(copy.deepcopy(config))
    except Exception:  # noqa: BLE001 - it takes more than a configuration
        return {}
    return dict(fresh.named_buffers(remove_duplicate=False))


def _nothing_drawn() -> ExitStack:
    """Return a context in which parameters keep whatever their memory holds."""
    stack = ExitStack()
    for name, function in vars(torch.nn.init).items():
        if name.endswith("_") and callable(function):
            stack.enter_context(patch.object(torch.nn.init, name, _as_it_is))
    initialization = sys.modules.get("transformers.initialization")
    draws_none: Callable[[], Any] = getattr(initialization, "no_init_weights", nullcontext)
    stack.enter_context(draws_none())
    return stack


def _as_it_is(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:  # noqa: ANN401 - as torch.nn.init takes
    return tensor


def declared_ties(model: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - as above
    """Yield the pairs of names that a model of transformers declares to be one tensor."""
    declared = getattr(model, "all_tied_weights_keys", None)
    if isinstance(declared, dict):
        yield from ((str(target), str(source)) for target, source in declared.items())
