"""What a forward, a comparison and a verdict are made of: plain data, no behaviour beyond what it is to read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

Direction = Literal["input", "output"]
#: Where the first divergence arose; see :class:`Culprit`.
Kind = Literal["module", "glue", "not-called", "extra-call", "inputs"]


class Site(NamedTuple):
    """A place in a function's source: the expression that called a module.

    Args:
        file: Absolute path of the source file.
        line: First line of the expression, from 1.
        end_line: Last line of the expression.
        function: Qualified name of the function.
        first_line: First line of the function, its decorators included.
        last_line: Last line of the function.
    """

    file: str
    line: int
    end_line: int
    function: str
    first_line: int
    last_line: int


class SourceRange(NamedTuple):
    """Lines of a file, both ends included; prints as ``modeling_llama.py:212-219``."""

    file: str
    first: int
    last: int

    def __str__(self) -> str:
        name = self.file.replace("\\", "/").rpartition("/")[2]
        return f"{name}:{self.first}" if self.first == self.last else f"{name}:{self.first}-{self.last}"


class Statistics(NamedTuple):
    """Summary of one tensor; all NaN for an empty one.

    Args:
        min: Smallest element.
        max: Largest element.
        mean: Mean, in float64.
        std: Standard deviation with Bessel's correction, as ``torch.Tensor.std``; NaN for one element.
        non_finite: Number of inf and nan elements.
    """

    min: float
    max: float
    mean: float
    std: float
    non_finite: int


@dataclass(slots=True)
class TensorRecord:
    """One leaf of a call's inputs or outputs.

    Args:
        leaf: Leaf path: how to reach the tensor in the nested value; empty when the value is the tensor.
        shape: Shape, in elements.
        dtype: Name without the ``torch.`` prefix, ``"float32"``.
        tensor: The values as they were when they were recorded; None when they cannot be kept (meta tensors).
        statistics: Known summary, or None until :func:`pytest_tfdebug.tracing.statistics.summarize` fills it.
    """

    leaf: str
    shape: tuple[int, ...]
    dtype: str
    tensor: Tensor | None
    statistics: Statistics | None = None


@dataclass(slots=True)
class Call:
    """One invocation of a module's forward; filled in as the forward proceeds.

    Args:
        index: Position in the trace, in the order in which the calls began.
        path: Module path; the root's class name for the root.
        class_name: The module's class.
        call: Call index of this module, from 0.
        parent: ``index`` of the enclosing call, or None for a root.
        depth: Number of enclosing calls.
        site: Where the parent's forward called it, or None.
        inner_site: Where a helper method of the parent called it, when that is not the forward itself.
        source: Lines of the module's own forward, or None where there is no source.
        parameters: Names of the forward's positional parameters.
        has_children: Whether the module has submodules, called or not.
        inputs: Leaves of the positional and keyword inputs.
        outputs: Leaves of the output; None while the forward has not returned.
        skeleton: The nested inputs and outputs with leaves as ``{"leaf": n}`` and the rest as text.
        error: Class name of the exception that left the forward, or None.
    """

    index: int
    path: str
    class_name: str
    call: int
    parent: int | None
    depth: int
    site: Site | None = None
    inner_site: Site | None = None
    source: SourceRange | None = None
    parameters: tuple[str, ...] = ()
    has_children: bool = False
    inputs: tuple[TensorRecord, ...] = ()
    outputs: tuple[TensorRecord, ...] | None = None
    skeleton: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def name(self) -> str:
        """Module path, with the call index from the second call on: ``shared#1``."""
        return f"{self.path}#{self.call}" if self.call else self.path
