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
    """A line of source under way.

    Args:
        file: Path of the file.
        line: Its number, from 1.
        function: Name of the function.
        first: First line of its statement, where that was read from a file; 0 where it can be looked up.
        last: Last line of its statement, likewise.
        text: The statement, likewise.
    """

    file: str
    line: int
    function: str
    first: int = 0
    last: int = 0
    text: str = ""


@dataclass(slots=True)
class Value:
    """A tensor that a forward computed, or started from.

    Args:
        index: Position in the table; producers have smaller ones.
        operator: Name of the aten operator, ``mul``; empty for what was there before the forward.
        origin: What it is.
        name: Of a parameter, a buffer or an input of the root.
        call: ``index`` of the innermost call that was under way; None outside of every call.
        lines: The source lines that asked for it, innermost first, up to the forward of the nearest module.
        producers: Values that it was computed from.
        shape: Shape, in elements.
        dtype: Name of the dtype.
        print: Its fingerprint.
        is_random: Whether the operator draws random numbers.
    """

    index: int
    operator: str
    origin: Origin
    name: str
    call: int | None
    lines: tuple[Line, ...]
    producers: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    print: Fingerprint = field(repr=False)
    is_random: bool = False

    @property
    def is_moved(self) -> bool:
        """Whether its elements are those of its producers, in another place or number."""
        return self.origin == "view" or self.operator in MOVES


@dataclass
class Values:
    """The table of a forward's values.

    Args:
        values: Every value, in the order of computation.
        calls: The calls of modules, without tensors, in the order in which they began.
        inputs: Values that each call was given, by its ``index`` and the leaf path.
        outputs: Values that it returned, likewise.
        parameters: Fingerprint and shape of every parameter, by name.
        is_widened: Whether the forward was made in float32, of a model in half precision.
        modules: Every module path of the model, called or not, the root left out; empty where a file was read.
        floors: Name of a dtype -> how far the moments of each value are from the same in a forward of that dtype, then
            the norm of each result's difference over its own; 0 where unknown.
        attributes: What each module holds that is no tensor, as text, by module path (empty for the root) and name.
    """

    values: list[Value] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    inputs: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    outputs: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    parameters: dict[str, tuple[Fingerprint, tuple[int, ...]]] = field(default_factory=dict)
    is_widened: bool = False
    modules: tuple[str, ...] = ()
    floors: dict[str, list[float]] = field(default_factory=dict)
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def results(self) -> list[tuple[str, int]]:
        """The root's output values, with their leaf paths."""
        return self.outputs.get(self.calls[0].index, []) if self.calls else []
