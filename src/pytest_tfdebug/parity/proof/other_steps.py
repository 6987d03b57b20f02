"""What the other forward computes of one value alone: where that is missing, a step was forgotten.

Example: the reference clamps its time steps, ``clamp(0.02, 0.08)``; the port uses them as they are.
"""

from __future__ import annotations

from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.tracing.values.tape import Ref, put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_tfdebug.tracing.values.tape import Step, Tape
    from pytest_tfdebug.values import Value

#: Steps one after another, as of a soft cap: ``x / cap``, its ``tanh``, and that times ``cap``.
_STEPS = 3


class OtherStep(NamedTuple):
    """Something that the other side computes of one value."""

    value: int  # its value there
    name: str  # what was done, ``clamp(0.02, 0.08)``
    where: str  # the line that does it, ``modeling_mamba2.py:279``
    function: Callable[[torch.Tensor], torch.Tensor]


class OtherSteps:
    """The steps of the other forward that take one tensor, element by element."""

    def __init__(self, tape: Tape, values: Sequence[Value]) -> None:
        self._values = values
        self._of: dict[int, list[Step]] = {}
        for step in tape.steps:
            if step.func is not None and torch.Tag.pointwise in step.func.tags and len(step.refs) == 1:
                self._of.setdefault(step.refs[0], []).append(step)

    def after(self, value: int, steps: int = _STEPS) -> Iterator[OtherStep]:
        """Yield what is computed of a value of the other side, and of that."""
        for step in self._of.get(value, ()) if steps else ():
            made = next((out for out in step.outs if out is not None and out >= 0), None)
            if made is None:
                continue
            name, function, where = _named(step), partial(_done, step), _where(self._values[made])
            yield OtherStep(made, name, where, function)
            for more in self.after(made, steps - 1):
                yield OtherStep(more.value, f"{name}, {more.name}", where, partial(_both, function, more.function))


def _where(value: Value) -> str:
    return f"{PurePath(value.lines[0].file).name}:{value.lines[0].line}" if value.lines else "the reference"


def _named(step: Step) -> str:
    numbers = ", ".join(f"{each:g}" for _, each in step.given if type(each) in (int, float))
    return f"{step.operator}({numbers})" if numbers else step.operator


def _done(step: Step, tensor: torch.Tensor) -> torch.Tensor:
    path = next(path for path, each in step.given if isinstance(each, Ref))
    args, kwargs = put((step.args, step.kwargs), path, tensor)
    found: torch.Tensor = step.run(*args, **kwargs)
    return found


def _both(first: Callable[..., Any], then: Callable[..., Any], tensor: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = then(first(tensor))
    return found
