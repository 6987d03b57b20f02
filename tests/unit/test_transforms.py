"""Models that call their modules under transforms of ``torch.func``, or that have an ``__eq__`` of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import pytest_tfdebug

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Function = Callable[[torch.Tensor], torch.Tensor]

_TRANSFORMS: dict[str, Callable[[Function, torch.Tensor], Any]] = {
    "jacrev": lambda function, x: torch.func.jacrev(function)(x),
    "jacfwd": lambda function, x: torch.func.jacfwd(function)(x),
    "hessian": lambda function, x: torch.func.hessian(lambda y: function(y).sum())(x),
    "jvp": lambda function, x: torch.func.jvp(function, (x,), (x,))[1],
    "functionalize": lambda function, x: torch.func.functionalize(function)(x),
    "vmap": lambda function, x: torch.func.vmap(function)(x),
}


class ForceField(torch.nn.Module):
    """Calls a module under a transform."""

    def __init__(self, transform: str, scale: float = 1.0) -> None:
        super().__init__()
        self.inner, self.transform, self.scale = torch.nn.Linear(4, 4), transform, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the transform gives of a small function."""
        return _TRANSFORMS[self.transform](lambda y: torch.tanh(self.inner(y)) * self.scale, x)


def _filled(transform: str, scale: float = 1.0) -> torch.nn.Module:
    return pytest_tfdebug.fill(ForceField(transform, scale).eval(), seed=0)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # of torch, in forward mode
@pytest.mark.parametrize("transform", _TRANSFORMS)
def test_transform_in_a_forward_is_recorded_and_compared(transform: str, tmp_path: Path) -> None:
    model, x = _filled(transform), torch.linspace(-1, 1, 12).view(3, 4)
    recorded = pytest_tfdebug.trace(model, x)
    recorded.save(tmp_path / "golden.safetensors")
    expected = pytest_tfdebug.Trace.load(tmp_path / "golden.safetensors")

    assert pytest_tfdebug.compare(expected, pytest_tfdebug.trace(model, x)).ok
    assert not pytest_tfdebug.compare(expected, pytest_tfdebug.trace(_filled(transform, 2.0), x)).ok
    inner = recorded.tensor("inner", 0, "output", "")
    assert (inner is None) == (transform == "vmap")


def test_module_inside_vmap_has_a_shape_and_a_note() -> None:
    recorded = pytest_tfdebug.trace(_filled("vmap"), torch.ones(3, 4))

    assert recorded.notes == (
        "Modules called inside torch.func.vmap were not compared: of their tensors only shapes can be seen.",
    )
    assert [record.shape for call in recorded.calls if call.path == "inner" for record in call.inputs] == [(4,)]


class Incomparable(torch.nn.Linear):
    """A module whose ``==`` raises."""

    __hash__ = torch.nn.Linear.__hash__

    def __eq__(self, other: object) -> bool:
        """Refuse."""
        raise RuntimeError("compared by ==")


def test_models_are_compared_by_identity() -> None:
    model = pytest_tfdebug.fill(torch.nn.Sequential(Incomparable(4, 4), Incomparable(4, 4)), seed=0)
    x = torch.ones(2, 4)

    assert pytest_tfdebug.compare(pytest_tfdebug.trace(model, x), pytest_tfdebug.trace(model, x)).ok
    pytest_tfdebug.trace(model[0], x)
    with pytest_tfdebug.overflow_guard(model[0], dtype="float16"):
        model[0](x)
    pytest_tfdebug.assert_invariant(model[0], {"input": x}, "batch")
