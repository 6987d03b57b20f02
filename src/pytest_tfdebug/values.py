"""The values of a forward: what its operators computed, from what, and which lines asked for it. No tensors.

:mod:`pytest_tfdebug.tracing.values.operators` records them, :mod:`pytest_tfdebug.parity.values` compares two tables.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from pytest_tfdebug.fingerprints import Fingerprint
    from pytest_tfdebug.records import Call

#: What a value is: computed, another view of what was computed, or there before the forward.
Origin = Literal["operator", "view", "parameter", "buffer", "input", "constant"]
#: Operators that hand their elements on unchanged, in another place, number or dtype.
MOVES = frozenset(
    {
        *("cat", "stack", "repeat", "repeat_interleave", "roll", "flip", "constant_pad_nd", "tril", "triu"),
        *("clone", "contiguous", "_to_copy", "copy_", "lift_fresh_copy", "_unsafe_view"),
        *("index", "index_select", "gather", "select_backward"),
    }
)


class Line(NamedTuple):
    """A line of source under way."""

    file: str  # path of the file
    line: int  # its number, from 1
    function: str  # name of the function
    first: int = 0  # first line of its statement, where that was read from a file; 0 where it can be looked up
    last: int = 0  # last line of its statement, likewise
    text: str = ""  # the statement, likewise


@dataclass(slots=True)
class Value:
    """A tensor that a forward computed, or started from."""

    index: int  # position in the table; producers have smaller ones
    operator: str  # name of the aten operator, ``mul``; empty for what was there before the forward
    origin: Origin  # what it is
    name: str  # of a parameter, a buffer or an input of the root
    call: int | None  # ``index`` of the innermost call that was under way; None outside of every call
    # the source lines that asked for it, innermost first, up to the forward of the nearest module
    lines: tuple[Line, ...]
    producers: tuple[int, ...]  # values that it was computed from
    shape: tuple[int, ...]  # shape, in elements
    dtype: str  # name of the dtype
    print: Fingerprint = field(repr=False)
    is_random: bool = False  # whether the operator draws random numbers

    @property
    def is_moved(self) -> bool:
        """Whether its elements are those of its producers, in another place or number."""
        return self.origin == "view" or self.operator in MOVES

    @property
    def tells(self) -> bool:
        """Whether its numbers tell which value it is: those of a mask, of indices and of a constant do not."""
        return "float" in self.dtype and not self.print.is_mask


@dataclass
class Values:
    """The table of a forward's values."""

    values: list[Value] = field(default_factory=list)  # every value, in the order of computation
    # the calls of modules, without tensors, in the order in which they began
    calls: list[Call] = field(default_factory=list)
    # values that each call was given, by its ``index`` and the leaf path
    inputs: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    outputs: dict[int, list[tuple[str, int]]] = field(default_factory=dict)  # values that it returned, likewise
    # fingerprint and shape of every parameter, by name
    parameters: dict[str, tuple[Fingerprint, tuple[int, ...]]] = field(default_factory=dict)
    is_widened: bool = False  # whether the forward was made in float32, of a model in half precision
    # every module path of the model, called or not, the root left out; empty where a file was read
    modules: tuple[str, ...] = ()
    # name of a dtype -> how far the moments of each value are from the same in a forward of that dtype, then the norm
    # of each result's difference over its own; 0 where unknown
    floors: dict[str, list[float]] = field(default_factory=dict)
    # what each module holds that is no tensor, as text, by module path (empty for the root) and name
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def results(self) -> list[tuple[str, int]]:
        """The root's output values, with their leaf paths."""
        return self.outputs.get(self.calls[0].index, []) if self.calls else []
