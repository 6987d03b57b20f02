"""How much a search may do: counted in work, so that a busy machine gives the same answer, with time as its limit."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from pytest_tfdebug.tracing.values.tape import Step, Tape

#: How long a failed check is explained, in seconds, and in forwards: whichever is more.
SECONDS, FORWARDS = 5.0, 10
#: Seconds that may pass for each of work, on a machine that is slower or has much else to do.
WAITING = 3.0
#: Seconds of work: for an operator, for an element that it reads or gives, for a product of two; for a fingerprint, and
#: an element of one. Measured on one core of a common server: a second of work is about a second of its time.
_STEP, _ELEMENT, _PRODUCT, _PRINT, _PRINTED = 6e-5, 1e-9, 1e-10, 1e-4, 1e-8
#: How much faster an accelerator is with elements.
_FASTER = 1e3
#: Operators that multiply each row with each column.
_PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "convolution"})


class Budget:
    """Some seconds of work."""

    def __init__(self, seconds: float, begun: float | None = None) -> None:
        """Begin to count.

        Args:
            seconds: Seconds of work; the time that may pass is :data:`WAITING` times as much.
            begun: When the time began to pass, of ``time.monotonic``; None for now.
        """
        self.seconds, self._done = seconds, 0.0
        self._begun = time.monotonic() if begun is None else begun

    def take(self, work: float) -> None:
        """Take some seconds of work off it."""
        self._done += work

    def spent(self) -> float:
        """Return which share of it is spent; of nothing, all."""
        return (
            math.inf if not self.seconds else max(self._done, (time.monotonic() - self._begun) / WAITING) / self.seconds
        )


def work_of(step: Step, tape: Tape) -> float:
    """Return the seconds of work of an operator of a forward."""
    made, given = (
        [tape.tensors[each].numel() for each in some if each is not None and each in tape.tensors]
        for some in (step.outs, step.refs)
    )
    products = 0.0
    if step.operator in _PRODUCTS and made and len(given) > 1:  # n * k, k * m and n * m elements: n * k * m products
        products = math.sqrt(made[0] * math.prod(sorted(given)[-2:]))
    elements = _ELEMENT * sum(made + given) + _PRODUCT * products
    is_near = all(tape.tensors[each].is_cpu for each in step.refs if each in tape.tensors)
    return _STEP + elements / (1.0 if is_near else _FASTER)


def work_of_forward(tape: Tape) -> float:
    """Return the seconds of work of a forward."""
    return sum(work_of(step, tape) for step in tape.steps)


def work_of_print(tensor: torch.Tensor) -> float:
    """Return the seconds of work of a fingerprint."""
    return _PRINT + _PRINTED * tensor.numel() / (1.0 if tensor.is_cpu else _FASTER)
