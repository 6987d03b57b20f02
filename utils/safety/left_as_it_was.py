"""What a check may not change: all that a model, and the process around it, hold before and after."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

import pytest_tfdebug
from pytest_tfdebug.goldens.golden_file import load, save

Inputs = dict[str, Any]
#: What a forward may raise.
RAISED = (ValueError, KeyboardInterrupt, pytest.skip.Exception, SystemExit)
#: What a failed check of ours raises: it is no matter here whether a check passes.
_OURS = (AssertionError, pytest_tfdebug.TFDebugError)
_INVARIANCES = ("padding", "batch", "cache", "attention", "save_load", "dtype")
_GLOBAL_HOOKS = [name for name in vars(torch.nn.modules.module) if name.startswith("_global_") and "hooks" in name]


class InThread(torch.nn.Module):
    """A model that runs in a thread."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> Any:
        """Run the model."""
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(self.model, **inputs).result()


def _golden(model: torch.nn.Module, inputs: Inputs, folder: Path) -> object:
    recorded = pytest_tfdebug.trace(model, **inputs)
    save(folder / "golden.safetensors", recorded, model, "test_it.py::test_it")
    return pytest_tfdebug.compare(load(folder / "golden.safetensors").trace, pytest_tfdebug.trace(model, **inputs))


def _overflow(model: torch.nn.Module, inputs: Inputs, _folder: Path) -> None:
    random_state = _random_state()  # the block is the user's: his forward draws random numbers
    with torch.no_grad(), pytest_tfdebug.overflow_guard(model, dtype="float16"):
        try:
            model(**inputs)
        finally:
            _set_random_state(random_state)


def _invariance(name: str, model: torch.nn.Module, inputs: Inputs, _folder: Path) -> object:
    return pytest_tfdebug.assert_invariant(model, inputs, name)


#: Name -> a check of a model with these inputs, which may write to a directory.
CHECKS: dict[str, Callable[[torch.nn.Module, Inputs, Path], object]] = {
    "trace": lambda model, inputs, _: pytest_tfdebug.trace(model, **inputs),
    "golden": _golden,
    "overflow": _overflow,
    **{name.replace("_", " "): partial(_invariance, name) for name in _INVARIANCES},
}


def play(
    check: str, model: torch.nn.Module, inputs: Inputs, folder: Path, error: type[BaseException] | None
) -> list[str]:
    """Make a check in an empty folder, its forward raising an error in the middle; return what is not as before."""
    caught = kept = None
    with _raising(model, inputs, error) if error is not None else nullcontext():
        before = _state(model)
        try:
            # as a test keeps its trace, which may share memory with the model
            kept = CHECKS[check](model, inputs, folder)
        except (*_OURS, *RAISED) as raised:
            caught = raised
        after = _state(model)
    found = [f"{name} changed" for name, value in after.items() if not _is_same(before.pop(name, None), value)]
    found += [f"{name} is gone" for name in before]
    del kept
    if error is not None and not isinstance(caught, error):
        found.append(f"{error.__name__} became {caught!r:.80}")
    return found


@contextmanager
def _raising(model: torch.nn.Module, inputs: Inputs, error: type[BaseException]) -> Iterator[None]:
    """Let the module that is called in the middle of a forward raise."""
    called: list[torch.nn.Module] = []
    leaves = [module for module in model.modules() if not list(module.children())]
    hooks = [module.register_forward_pre_hook(lambda module, _: called.append(module)) for module in leaves]
    random_state = _random_state()
    with torch.no_grad():
        model(**inputs)
    _set_random_state(random_state)
    for hook in hooks:
        hook.remove()

    def forward(*_: object, **__: object) -> None:
        raise error("in the middle")

    with patch.object(called[len(called) // 2], "forward", forward):
        yield


def _state(model: torch.nn.Module) -> dict[str, Any]:
    """Return all that may not change, by name; tensors as identity, place and a copy of what they hold."""
    found: dict[str, Any] = {"random numbers": _random_state(), "flags": _flags()}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, value in vars(module).items():
            found[f"{path}.{name}"] = _held(value)
        found[f"{path}: class"] = type(module)
    return found


def _held(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        gradient = None if value.grad is None else (id(value.grad), value.grad.clone())
        where = value.untyped_storage().data_ptr()
        return id(value), where, value._version, value.requires_grad, gradient, value.detach().clone()  # noqa: SLF001
    if isinstance(value, dict):
        return [(key, _held(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [_held(item) for item in value]
    return value if isinstance(value, (int, float, str, bytes, type(None))) else (id(value), value)


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(_is_same, one, other))
    return one is other or (type(one) in (int, float, str, bytes, bool) and bool(one == other))


def _flags() -> list[Any]:
    """Return what holds for the whole process."""
    return [
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_anomaly_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(),
        str(torch.get_default_dtype()),
        str(torch.get_default_device()),
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        str(torch._tensor_str.PRINT_OPTS),  # noqa: SLF001 - torch shows them nowhere else
        torch.nn.Module.__call__,
        torch.nn.Module.__setattr__,
        list(warnings.filters),
        sys.gettrace(),
        sys.getprofile(),
        *(_held(getattr(torch.nn.modules.module, name)) for name in _GLOBAL_HOOKS),
    ]


def _random_state() -> tuple[Any, ...]:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002 - the state that models draw from


def _set_random_state(state: tuple[Any, ...]) -> None:
    torch.set_rng_state(state[0])
    random.setstate(state[1])
    np.random.set_state(state[2])  # noqa: NPY002
