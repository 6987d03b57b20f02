"""What a golden of any model cannot see: weights that do nothing, and inputs that are alike everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.check_record import BlindRecord
from pytest_tfdebug.errors import listed
from pytest_tfdebug.tensors import readable, widen
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.signatures import is_mask, method_of, parameters_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch

    from pytest_tfdebug.goldens.check.port_call import PortCall


def blind_spots(model: torch.nn.Module, called: PortCall) -> Iterator[BlindRecord]:
    """Yield what a golden of a call of a model cannot see, beside fields of a configuration."""
    names = parameters_of(method_of(model, called.method))
    inputs = {**dict(zip(names, called.args, strict=False)), **called.kwargs}
    leaves = dict(_read((f"{name}{leaf.path}", leaf.tensor) for name, value in inputs.items() for leaf in walk(value)))
    is_even = not any(
        _is_uneven(row) for tensor in leaves.values() for row in (tensor if tensor.dim() > 1 else [tensor])
    )
    if leaves and is_even:
        shows, why = "a row of different numbers", "each row holds one number, so that any order gives the same"
        yield BlindRecord(f"the order of {listed([*leaves], 2)}", "", shows, why)
    inert, inert_weights = _inert(leaves.items()), _inert(_read(model.named_parameters()))
    inexact = {name for name, each in leaves.items() if each.is_floating_point() or each.is_complex()}
    for number in (0, 1):
        flags = [name for name, each in inert.items() if each == number and (is_mask(name) or name not in inexact)]
        if flags and not is_even:
            yield BlindRecord(listed(flags, 2), str(number), "another number", "leaving it out may give the same")
        weights = [name for name, each in inert_weights.items() if each == number]
        if weights:
            shows = "pytest_tfdebug.fill(model)"
            yield BlindRecord(listed(weights, 1), str(number), shows, "leaving them out may give the same")


def _read(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
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
