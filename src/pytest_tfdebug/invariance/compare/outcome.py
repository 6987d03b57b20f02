"""What a check of one call found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pytest_tfdebug.invariance.alignment import Alignment
    from pytest_tfdebug.records import Culprit, LeafComparison

#: Which of two calls is the one that the test made.
Recorded = Literal["expected", "actual", ""]


@dataclass(frozen=True)
class Repetition:
    """A call made again in another way, and how its tensors lie beside those of the call it is held to.

    Args:
        label: What was done, as in ``input_ids padded by 7 on the right``.
        inputs: Named inputs of the repeated call.
        alignment: Where the expected tensors lie in the actual ones.
        expected_inputs: Named inputs of the expected call.
        recorded: Which of the two is the call that the test made, so that its output is known.
        pads: Number of pads.
        side: Side of the pads; empty without any.
    """

    label: str
    inputs: dict[str, Any]
    alignment: Alignment
    expected_inputs: dict[str, Any]
    recorded: Recorded = "expected"
    pads: int = 0
    side: str = ""


@dataclass(frozen=True)
class Mismatch:
    """An output that changed.

    Args:
        leaf: The comparison; its problem is ``values``.
        is_in_cache: Everything but caches agrees.
        is_at_pads: NaN at pad positions only, where the model promises finite numbers.
        error: The exception that left the repeated call, as text; then there is no comparison.
    """

    leaf: LeafComparison | None
    is_at_pads: bool = False
    is_in_cache: bool = False
    error: str = ""


@dataclass
class Outcome:
    """What a check of one call found.

    Args:
        repeats: Number of forwards that were repeated and compared.
        failure: The failure's report; empty when everything holds.
        culprit: Where the failure arises; None where that is not known.
        skipped: What could not be repeated and why, in sentences.
        notes: What is worth saying although everything holds, in sentences.
    """

    repeats: int = 0
    failure: str = ""
    culprit: Culprit | None = None
    skipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
