"""What ``--tf-repro`` writes for a failed overflow check: the outermost call, under a guard with the same settings."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from pytest_tfdebug.overflow.settings import Settings
from pytest_tfdebug.repro.write import FailedCall, write_repro

if TYPE_CHECKING:
    from pytest_tfdebug.options import Repros
    from pytest_tfdebug.tracing.kept_call import KeptCall

#: Settings that tell what is printed and when to stop, and nothing of what is wrong.
_OF_THE_RUN = ("frames", "trace_batches", "abort_after_batch")


def write(repros: Repros, test: str, settings: Settings, call: KeptCall) -> str:
    """Write a repro and return the line that says how to run it, or why there is none.

    Args:
        repros: Where repros go.
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
        repros, FailedCall(test, "overflow_free", call.model, call.args, call.kwargs, check, autocast=call.autocast)
    )


def _options(settings: Settings) -> list[str]:
    return [
        f"{item.name}={getattr(settings, item.name)!r}"
        for item in fields(Settings)
        if item.name not in _OF_THE_RUN and getattr(settings, item.name) != item.default
    ]
