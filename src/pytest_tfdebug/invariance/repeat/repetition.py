"""One repetition: a call made again in another way, and what it is compared with."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch

    from pytest_tfdebug.invariance.compare.alignment import Alignment

    #: Changes a model for the length of a block.
    Within = Callable[[torch.nn.Module], AbstractContextManager[object]]


def _as_it_is(_: torch.nn.Module) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class Repetition:
    """A call made again in another way, and how its tensors lie beside those of the expected call.

    Args:
        label: What was done, as in ``input_ids padded by 7 on the right``.
        inputs: Named inputs of the repeated call.
        alignment: Where the expected tensors lie in the actual ones.
        expected_inputs: Named inputs of the expected call.
        recorded: Which of the two calls the test has made, so that its output is known; empty for neither.
        pads: Number of pads.
        side: Side of the pads; empty without any.
        model: The model of the repeated call; None for that of the expected one.
        within: What the model of either call is changed by: the expected one, the repeated one.
        diagnosis: What is probably wrong where the answers differ.
    """

    label: str
    inputs: dict[str, Any]
    alignment: Alignment
    expected_inputs: dict[str, Any]
    recorded: Literal["expected", "actual", ""] = "expected"
    pads: int = 0
    side: Literal["left", "right", ""] = ""
    model: torch.nn.Module | None = None
    within: tuple[Within, Within] = (_as_it_is, _as_it_is)
    diagnosis: str = ""
