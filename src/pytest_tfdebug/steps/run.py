"""A run of a model under watch: its loss, the backward, and the model as it was."""

from __future__ import annotations

import copy
import inspect
import random
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.steps.lines import watched
from pytest_tfdebug.steps.remedies import Remedies, hook_lines
from pytest_tfdebug.steps.rows import ParameterRows, RowKeys
from pytest_tfdebug.steps.table import Backward
from pytest_tfdebug.steps.training import Training
from pytest_tfdebug.steps.watch import BackwardWatch
from pytest_tfdebug.steps.watch_steps import StepsWatch
from pytest_tfdebug.tracing.record.leaves import replaced
from pytest_tfdebug.tracing.record.state import kept, preserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from pytest_tfdebug.steps.remedies import Remedy

    #: ``run(model, batch)`` returns a loss, or trains by itself and returns None.
    Run = Callable[[torch.nn.Module, Any], Any]


#: Dtypes whose rounding hides what is wrong with a gradient.
_HALF = (torch.float16, torch.bfloat16)


def plain_run(model: torch.nn.Module, batch: Any) -> Any:  # noqa: ANN401 - the model's own inputs
    """Return ``model(**batch).loss``."""
    if isinstance(batch, (list, tuple)):
        raise TFDebugError(
            f"The batch is a {type(batch).__name__}: give one batch, or say what is done with them, "
            "run=lambda model, batches: ..."
        )
    output = model(**batch) if isinstance(batch, dict) else model(batch)
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if loss is None:
        raise TFDebugError(
            f"{type(model).__name__} returned no loss: give it labels in the batch, or a "
            "run=lambda model, batch: ... that returns one."
        )
    return loss


@dataclass(frozen=True)
class TrainedModel:
    """A model and how it is run, so that it can be run again in the same way.

    Args:
        model: The model; it is left as it was.
        run: Takes the model and a batch.
        batch: What it is given; kept, so that each run is given the same.
        role: ``reference`` or ``port``, for messages.
    """

    model: torch.nn.Module
    run: Run
    batch: Any
    role: str

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        try:
            inspect.signature(self.run).bind(self.model, self.batch)
        except (TypeError, ValueError) as error:
            named = getattr(self.run, "__name__", repr(self.run))
            raise TFDebugError(
                f"run of the {self.role} is a function of the model and a batch, run(model, batch); {named} is none: "
                f"{error}."
            ) from error

    def made(self, remedy: Remedy | None = None) -> Backward | Training:
        """Run under watch: a backward, or a training where the run makes the steps by itself."""
        model, batch = self._in_float32()
        frozen = tuple(name for name, each in model.named_parameters() if not each.requires_grad)
        remedies, hooks = Remedies(remedy), hook_lines(model)
        with _as_it_was(model), remedies.without_hooks(model):
            weights = {name: each.detach() for name, each in model.named_parameters()}
            keys = RowKeys()
            for name, weight in weights.items():
                keys.of(name, weight)
            watch = BackwardWatch(model, remedies)
            first: list[Backward] = []

            def ended(loss: float, gradients: Mapping[str, torch.Tensor | None]) -> None:
                values, graph, marks = watch.finish()
                rows = ParameterRows.of(weights, gradients, keys)
                first.append(Backward(values, graph, loss, watch.last, rows, marks, frozen, hooks))

            steps = StepsWatch(model, ended, keys)
            watch.on_write, watch.on_gradient = steps.wrote, steps.set_gradient
            with steps:
                loss = watched(watch, partial(self._run, model, kept(batch)))
            if loss is None and not steps.steps:
                raise TFDebugError(
                    f"run of the {self.role} returned None and moved no parameter after a backward: it returns a loss "
                    "of one number, of which the backward is made, or makes steps by itself."
                )
            if not first:
                ended(float(loss.detach()), {name: each.grad for name, each in model.named_parameters()})
            if weights and not any(value.origin == "parameter" for value in first[0].values.values):
                raise TFDebugError(
                    f"run of the {self.role} used no parameter of the model that it was given.\n"
                    "Let it call that one, run(model, batch), and no other."
                )
            return Training(first[0], steps.steps, steps.end) if steps.steps else first[0]

    def backward(self, remedy: Remedy | None = None) -> Backward:
        """Run under watch, and return the backward, or that of the first step."""
        found = self.made(remedy)
        return found.backward if isinstance(found, Training) else found

    def _in_float32(self) -> tuple[torch.nn.Module, Any]:
        """Return the model and what it is given, in float32 where the model is in half precision.

        There, rounding alone changes gradients by 2e-2, more than most wrong lines do.
        """
        low = {each.dtype for each in self.model.parameters()} & {*_HALF}
        if not low:
            return self.model, self.batch
        return copy.deepcopy(self.model).float(), replaced(self.batch, _widened)

    def _run(self, model: torch.nn.Module, batch: Any) -> torch.Tensor | None:  # noqa: ANN401
        with torch.enable_grad(), _without_autocast(), _uncompiled():
            loss = self.run(model, batch)
            if loss is None:
                return None
            if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
                shown = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else repr(loss)
                raise TFDebugError(
                    f"run of the {self.role} returned {shown[:60]}: it returns a loss of one number, of which the "
                    "backward is made, or makes steps by itself and returns None."
                )
            if not loss.requires_grad:
                raise TFDebugError(
                    f"The loss of the {self.role} has no gradient: nothing that requires one leads to it.\n"
                    "Check that its parameters require gradients, and that run= makes no torch.no_grad() around it."
                )
            loss.backward()  # type: ignore[no-untyped-call]
            return loss


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in _HALF else tensor


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Let autocast do nothing in a block, also one that was made before."""
    kind = torch.amp.autocast_mode.autocast
    entered: Any = kind.__enter__

    def enter(self: Any) -> Any:  # noqa: ANN401 - as torch's
        with patch.object(self, "_enabled", new=False):
            return entered(self)

    with torch.autocast("cpu", enabled=False), patch.object(kind, "__enter__", enter):
        yield


def _uncompiled() -> AbstractContextManager[object]:
    """Return a block in which what is compiled runs as it is written: only so can its operators be seen."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance


@contextmanager
def _as_it_was(model: torch.nn.Module) -> Iterator[None]:
    """Run with the gradients of a model taken away, and put them, its weights and random numbers back."""
    held = [(each, each.requires_grad, each.grad, each.detach().clone()) for each in model.parameters()]
    plain = (module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule))
    places = [(module, dict(module._parameters)) for module in plain]  # noqa: SLF001 - of torch's own class
    with preserved(model):
        try:
            for each, *_ in held:
                each.grad = None
            torch.manual_seed(0)
            random.seed(0)
            yield
        finally:
            for module, parameters in places:
                module._parameters.clear()  # noqa: SLF001
                module._parameters.update(parameters)  # noqa: SLF001
            for each, requires_gradient, gradient, values in held:
                each.requires_grad = requires_gradient
                if (each.shape, each.dtype, each.device) != (values.shape, values.dtype, values.device):
                    each.data = values
                elif not torch.equal(each.detach(), values):
                    with torch.no_grad():
                        each.copy_(values)
                each.grad = gradient
