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
    """A call made again in another way, and how its tensors lie beside those of the expected call."""

    label: str  # what was done, as in `input_ids padded by 7 on the right`
    inputs: dict[str, Any]  # named inputs of the repeated call
    alignment: Alignment  # where the expected tensors lie in the actual ones
    expected_inputs: dict[str, Any]  # named inputs of the expected call
    # which of the two calls the test has made, so that its output is known; empty for neither
    recorded: Literal["expected", "actual", ""] = "expected"
    pads: int = 0  # number of pads
    side: Literal["left", "right", ""] = ""  # side of the pads; empty without any
    model: torch.nn.Module | None = None  # the model of the repeated call; None for that of the expected one
    # what the model of either call is changed by: the expected one, the repeated one
    within: tuple[Within, Within] = (_as_it_is, _as_it_is)
    diagnosis: str = ""  # what is probably wrong where the answers differ
