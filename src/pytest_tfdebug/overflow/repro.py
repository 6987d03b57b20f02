"""What ``--tf-repro`` writes for a failed overflow check: the outermost call, under a guard with the same settings."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.overflow.settings import Settings
from pytest_tfdebug.repro.write import FailedCall, write_repro
from pytest_tfdebug.tracing.capture import capture
from pytest_tfdebug.tracing.state import autocast_of

if TYPE_CHECKING:
    from pathlib import Path

#: Settings that tell what is printed and when to stop, and nothing of what is wrong.
_OF_THE_RUN = ("frames", "trace_batches", "abort_after_batch")


@dataclass(frozen=True)
class OutermostCall:
    """A call of a marked test, its inputs as they were.

    Args:
        model: The module that was called.
        args: Its positional inputs.
        kwargs: Its keyword inputs.
        autocast: Device type and dtype of the autocast that was on; None when it was off.
    """

    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    autocast: tuple[str, torch.dtype] | None

    @classmethod
    def of(cls, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OutermostCall:
        """Keep a call that is about to be made."""
        kept = {name: _kept(value) for name, value in kwargs.items()}
        return cls(model, tuple(map(_kept, args)), kept, autocast_of(model))


def write(root: Path, test: str, settings: Settings, call: OutermostCall) -> str:
    """Write a repro and return the line that says how to run it, or why there is none.

    Args:
        root: Directory of all repros.
        test: Node id of the test.
        settings: The marker's arguments.
        call: The call in which the first fault arose; with gradients, the last one before it.
    """
    if settings.gradients and call.kwargs.get("labels") is None:
        return "No repro: the loss of the backward is computed in the test, not by the model (it was given no labels=)."
    check = (
        "try:",
        f"    with pytest_tfdebug.overflow_guard({', '.join(['model', *_options(settings)])}):",
        "        output = model(*args, **kwargs)",
        *(("        output.loss.backward()",) if settings.gradients else ()),
        "except pytest_tfdebug.ActivationOverflowError as error:",
        "    print(error)",
        "    sys.exit(1)",
    )
    return write_repro(
        root, FailedCall(test, "overflow_free", call.model, call.args, call.kwargs, check, autocast=call.autocast)
    )


def _options(settings: Settings) -> list[str]:
    return [
        f"{item.name}={getattr(settings, item.name)!r}"
        for item in fields(Settings)
        if item.name not in _OF_THE_RUN and getattr(settings, item.name) != item.default
    ]


def _kept(value: Any) -> Any:  # noqa: ANN401 - any input
    kept = capture(value) if isinstance(value, torch.Tensor) else None
    return value if kept is None else kept
