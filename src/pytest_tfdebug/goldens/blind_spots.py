"""What a golden cannot see: inputs and weights that do nothing in its call, and orders that any other equals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.check_record import NO_EFFECT, BlindRecord
from pytest_tfdebug.errors import listed
from pytest_tfdebug.goldens.dead import Dead, find_dead
from pytest_tfdebug.module_path import starred
from pytest_tfdebug.tensors import readable, widen
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.masks import is_mask
from pytest_tfdebug.tracing.record.signatures import method_of, parameters_of
from pytest_tfdebug.tracing.values.rerun import Rerun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import torch

    from pytest_tfdebug.goldens.port_call import PortCall


def blind_spots(model: torch.nn.Module, called: PortCall) -> Iterator[BlindRecord]:
    """Yield what a golden of a call of a model cannot see, beside fields of a configuration."""
    names = parameters_of(method_of(model, called.method))
    inputs = {**dict(zip(names, called.args, strict=False)), **called.kwargs}
    leaves = dict(_held((f"{name}{leaf.path}", leaf.tensor) for name, value in inputs.items() for leaf in walk(value)))
    is_even = not any(
        _is_uneven(row) for tensor in leaves.values() for row in (tensor if tensor.dim() > 1 else [tensor])
    )
    dead = _dead(model, called)
    for name in dead.inputs:
        yield BlindRecord(name, "", "an output that depends on it", NO_EFFECT)
    for name in dead.modules:
        yield BlindRecord(name, "", "an output that takes it", "what it computes goes nowhere")
    if dead.weights:
        told = listed(_by_module(model, dead.weights), 3)
        yield BlindRecord(told, "", "a call that uses them", "no output of this call depends on their weights")
    if leaves and is_even:
        shows, why = "a row of different numbers", "each row holds one number, so that any order gives the same"
        yield BlindRecord(f"the order of {listed([*leaves], 2)}", "", shows, why)
    leaves = {name: each for name, each in leaves.items() if name not in dead.inputs}
    alive = {name: each for name, each in _weights(model).items() if name not in dead.weights}
    inert, inert_weights = _inert(leaves.items()), _inert(_held(alive.items()))
    inexact = {name for name, each in leaves.items() if each.is_floating_point() or each.is_complex()}
    for number in (0, 1):
        flags = [name for name, each in inert.items() if each == number and (is_mask(name) or name not in inexact)]
        if flags and not is_even:
            yield BlindRecord(listed(flags, 2), str(number), "another number", "leaving it out may give the same")
        weights = [name for name, each in inert_weights.items() if each == number]
        if weights:
            shows = "pytest_tfdebug.fill(model)"
            yield BlindRecord(listed(weights, 1), str(number), shows, "leaving them out may give the same")


def _dead(model: torch.nn.Module, called: PortCall) -> Dead:
    try:
        return find_dead(Rerun(model, called.args, called.kwargs, called.method), _weights(model))
    except Exception:  # noqa: BLE001 - a golden is written whether or not its call can be looked into
        return Dead()


def _weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters of a model, and the buffers of floating point that are saved with it."""
    buffers = {name for name, _ in model.named_buffers()}
    saved = model.state_dict(keep_vars=True)
    of_buffers = {name: saved[name] for name in buffers & saved.keys() if saved[name].is_floating_point()}
    return {**dict(model.named_parameters()), **of_buffers}


def _by_module(model: torch.nn.Module, weights: Sequence[str]) -> list[str]:
    """Return weights as the outermost modules that have no others, a star for each number."""
    whole = {
        path
        for path, module in model.named_modules()
        if path and (held := dict(module.named_parameters(path))) and held.keys() <= set(weights)
    }
    found = []
    for name in weights:
        parts = name.split(".")
        paths = (".".join(parts[:end]) for end in range(1, len(parts)))
        found.append(starred(next((path for path in paths if path in whole), name)))
    return list(dict.fromkeys(found))


def _held(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in tensors:
        held = readable(tensor.detach())
        if held is not None:
            yield name, held


def _inert(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, float]:
    """Return the tensors of more than one element that hold 0 or 1 throughout, and which; most differ at once."""
    found = {}
    for name, each in ((name, each) for name, each in tensors if each.numel() > 1):
        number = float(widen(each.reshape(-1)[:1]).flatten()[0])
        if number in (0, 1) and bool((widen(each) == number).all()):
            found[name] = number
    return found


def _is_uneven(row: torch.Tensor) -> bool:
    """Tell whether a row holds different numbers; one number that is no token is a row as it is meant."""
    flat = widen(row).flatten()
    return bool((flat != flat[0]).any()) if len(flat) > 1 else row.is_floating_point()
