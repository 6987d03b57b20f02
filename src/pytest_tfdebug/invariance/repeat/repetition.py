"""One repetition: a call made again in another way, and what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pytest_tfdebug.invariance.compare.alignment import Alignment


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
    """

    label: str
    inputs: dict[str, Any]
    alignment: Alignment
    expected_inputs: dict[str, Any]
    recorded: Literal["expected", "actual", ""] = "expected"
    pads: int = 0
    side: Literal["left", "right", ""] = ""
