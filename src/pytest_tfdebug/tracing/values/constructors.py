"""The tables that constructors make, computed anew as the first thing that a forward does.

A rotary table or a mask that ``__init__`` makes is a buffer, of which a forward shows nothing but its numbers. Where it
is known how a module was made, its constructor runs once more, each operator is noted with its line, and what a buffer
was computed from stands in the table of values before the forward. So ``exponent = torch.arange(half) / size`` is a
line like any other: it can be the first that is wrong, and a change of it can be tried.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.utils._pytree import tree_leaves

from pytest_tfdebug.constructed import arguments_of
from pytest_tfdebug.generators import put_back, states
from pytest_tfdebug.tensors import is_plain, storage_id
from pytest_tfdebug.tracing.record.sites import is_library
from pytest_tfdebug.tracing.values.operator_mode import OperatorMode
from pytest_tfdebug.tracing.values.tape import geometry_of, mapped
from pytest_tfdebug.values import Line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

logger = logging.getLogger(__name__)

#: A module with more parameters is not made again for its tables, and a table of more steps is taken as it is.
_MOST_ELEMENTS, _MOST_STEPS = 100_000_000, 400


class RanBefore(NamedTuple):
    """An operator that ran in a constructor."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[torch.Tensor]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class ConstructedTable:
    """A tensor that a constructor made, and how."""

    held: torch.Tensor  # the one that the model holds
    made: torch.Tensor  # the same, made again
    steps: tuple[RanBefore, ...]

    def run(self, on: Any) -> torch.Tensor:  # noqa: ANN401 - a function of an operator and its lines
        """Make it once more, and return it; ``on(func, args, kwargs, lines)`` runs an operator."""
        known: dict[Any, torch.Tensor] = {}

        def new(given: Any) -> Any:  # noqa: ANN401
            return known.get(_key(given), given) if isinstance(given, torch.Tensor) else given

        for step in self.steps:
            args, kwargs = mapped((step.args, step.kwargs), new)
            results = _tensors(on(step.func, args, kwargs, step.lines))
            known |= {_key(old): result for old, result in zip(step.results, results, strict=True)}
        return known[_key(self.made)]


_made: WeakKeyDictionary[torch.nn.Module, tuple[ConstructedTable, ...]] = WeakKeyDictionary()


def tables_of(model: torch.nn.Module) -> dict[int, ConstructedTable]:
    """Return how the tensors were made that constructors of a model gave to it, by the ``id`` of their storages."""
    if model not in _made:
        _made[model] = tuple(_tables(model))
    return {storage_id(table.held): table for table in _made[model] if torch.equal(table.held, table.made)}


def _tables(model: torch.nn.Module) -> Iterator[ConstructedTable]:
    for module in model.modules():
        held = {name: each for name, each in module.named_buffers(recurse=False) if is_plain(each)}
        held |= {name: each for name, each in vars(module).items() if isinstance(each, torch.Tensor)}
        given = arguments_of(module) if held else None
        size = sum(each.numel() for each in module.parameters())
        if given is None or size > _MOST_ELEMENTS:
            continue
        try:
            yield from _made_again(module, held, *given)
        except Exception:  # a constructor that cannot run twice costs no report
            logger.debug("a constructor could not be run once more", exc_info=True)


def _made_again(
    module: torch.nn.Module, held: dict[str, torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[ConstructedTable]:
    ran, random = _Constructor(), states()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            with ran:
                again = type(module)(*args, **kwargs)
        finally:
            put_back(random)
    for name, tensor in held.items():
        made = getattr(again, name, None)
        if not isinstance(made, torch.Tensor) or (made.dtype, made.device) != (tensor.dtype, tensor.device):
            continue
        steps = _steps_to(made, ran.steps)
        if 0 < len(steps) <= _MOST_STEPS and torch.equal(made, tensor):
            yield ConstructedTable(tensor.detach(), made, steps)


def _steps_to(made: torch.Tensor, ran: list[RanBefore]) -> tuple[RanBefore, ...]:
    """Return the operators that a tensor was computed by, in their order; none if one of them draws random numbers."""
    needed, found = {storage_id(made)}, list[RanBefore]()
    for step in reversed(ran):
        if needed.isdisjoint(map(storage_id, step.results)):
            continue
        if torch.Tag.nondeterministic_seeded in step.func.tags:
            return ()
        found.append(step)
        needed.update(map(storage_id, _tensors((step.args, step.kwargs))))
    return tuple(reversed(found))


class _Constructor(OperatorMode):
    """Notes each operator of a constructor; what it gave is kept, so that no storage is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[RanBefore] = []

    def on(self, func: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Run an operator, and note it."""
        result = func(*args, **kwargs)
        results = _tensors(result)
        if all(map(is_plain, results)):
            self.steps.append(RanBefore(func, args, kwargs, results, _lines()))
        return result


def _lines() -> tuple[Line, ...]:
    """Return the lines under way, innermost first, up to the constructor."""
    found: list[Line] = []
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - the documented way to the running frame
    while frame is not None and frame.f_code is not _made_again.__code__:
        if not is_library(frame.f_code.co_filename):
            found.append(Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(found)


def _tensors(values: object) -> list[torch.Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


def _key(tensor: torch.Tensor) -> tuple[Any, ...]:
    return storage_id(tensor), geometry_of(tensor)
