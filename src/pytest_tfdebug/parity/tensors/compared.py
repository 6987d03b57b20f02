"""What a comparison of two forwards finds, call by call, before anybody decides who is to blame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_tfdebug.records import Call, CallComparison


@dataclass
class Compared:
    """Everything a comparison found, before a verdict."""

    # the actual calls in order, each beside its expected call
    calls: list[CallComparison] = field(default_factory=list)
    expected: list[Call] = field(default_factory=list)  # the expected calls in order
    unpaired_expected: list[Call] = field(default_factory=list)  # expected calls that the actual forward did not make
    # expected module path -> path of the actual model's module that stands for it
    own_paths: dict[str, str] = field(default_factory=dict)
    tensors: int = 0  # number of tensors that were compared by value
    # what would pass in place of outputs that agree, in sentences: a part of them that is hardly compared
    coarse: list[str] = field(default_factory=list)


def tally(found: Compared) -> Compared:
    """Fill in which expected calls were not made, and how many tensors were compared."""
    paired = {item.expected.index for item in found.calls if item.expected is not None}
    found.unpaired_expected = [call for call in found.expected if call.index not in paired]
    leaves = (leaf for item in found.calls for leaf in (*item.inputs, *item.made))
    found.tensors = sum(leaf.is_measured and leaf.problem in ("", "values") for leaf in leaves)
    return found
