"""What the values of two forwards say about the first that is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.values import Value

#: What is wrong with the first value that nothing explains.
Fault = Literal["replaced", "operand", "left-out", "extra", "weights", "unknown", "proved"]


@dataclass
class Finding:
    """What the values of two forwards say."""

    fault: Fault  # what is wrong
    call: Call  # the port's call that is to blame
    # the port's values that are shown, the first alone if they lie too far apart; empty where it has none
    values: list[Value]
    reference: Value | None  # the first value of the reference that the port never computes
    reference_call: Call | None  # the call of the reference that holds its line
    weights: tuple[str, ...] = ()  # names of parameters that are wrong
    depth: int = 0  # which of a value's lines is meant: 0 for the innermost, 1 for its caller's
