"""The tables that constructors make, computed anew as the first thing that a forward does.

A rotary table or a mask that ``__init__`` makes is a buffer, of which a forward shows nothing but its numbers. Where it
is known how a module was made, its constructor runs once more, each operator is noted with its line, and what a buffer
was computed from stands in the table of values before the forward. So ``exponent = torch.arange(half) / size`` is a
line like any other: it can be the first that is wrong, and a change of it can be tried.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from pytest_tfdebug.tensors import is_plain, storage_id, tensors_in
from pytest_tfdebug.tracing.record.sites import is_library
from pytest_tfdebug.tracing.values.operator_mode import OperatorMode, unseen
from pytest_tfdebug.tracing.values.tables import made_anew
from pytest_tfdebug.tracing.values.tape import NotTriedError, geometry_of, mapped
from pytest_tfdebug.values import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

#: Elements of the parameters of a module that is made again for its tables, and of such a table: drawing the former
#: takes as long as a forward, and each step to a table is kept.
MOST_PARAMETERS, _MOST_ELEMENTS = 20_000_000, 1 << 23
#: Steps to a table, and tables of a model: more are taken as they are.
_MOST_STEPS, _MOST_TABLES = 400, 64
#: Operators that are noted, and elements that are kept of what they give: what trains a model is not done again.
_MOST_RAN, _MOST_KEPT = 100_000, 400_000_000
#: What a model may have been put into since it was made.
_LOW = (torch.bfloat16, torch.float16)


class RanBefore(NamedTuple):
    """An operator that ran in a constructor."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[torch.Tensor]
    lines: tuple[Line, ...]

    @property
    def is_written(self) -> bool:
        """Whether it writes into what it is given."""
        return bool(self.func._schema.is_mutable)  # noqa: SLF001 - it has no public name


@dataclass(frozen=True)
class Recipe:
    """How a constructor made a tensor."""

    path: str  # of the module
    class_name: str
    made: torch.Tensor  # the tensor, made again
    steps: tuple[RanBefore, ...]

    @property
    def is_written(self) -> bool:
        """Whether an operator on the way writes in place."""
        return any(step.is_written for step in self.steps)

    def run(self, on: Any, known: dict[Any, torch.Tensor]) -> torch.Tensor:  # noqa: ANN401 - a function, as told below
        """Make it once more, and return it; ``on(func, args, kwargs, lines)`` runs an operator.

        ``known`` is what steps gave, by where it lay, and by the ``id`` of each: what made another table, too, is not
        done again.
        """

        def new(given: Any) -> Any:  # noqa: ANN401
            return known.get(_key(given), given) if isinstance(given, torch.Tensor) else given

        for step in self.steps:
            if id(step) in known or not step.results:
                continue
            args, kwargs = mapped((step.args, step.kwargs), new)
            results = tensors_in(on(step.func, args, kwargs, step.lines))
            known |= {_key(old): result for old, result in zip(step.results, results, strict=True)}
            known[id(step)] = results[0]
        return known[_key(self.made)]


class ConstructedTable(NamedTuple):
    """A tensor of a model that a constructor made."""

    held: torch.Tensor  # the one that the model has
    recipe: Recipe
    rounded_to: torch.dtype | None  # in what precision it was made to be since


#: Of each module of a model, by the name of the tensor.
_recipes: WeakKeyDictionary[torch.nn.Module, dict[str, Recipe]] = WeakKeyDictionary()


def tables_of(model: torch.nn.Module) -> dict[int, ConstructedTable]:
    """Return how the tensors were made that constructors of a model gave to it, by the ``id`` of their storages."""
    found: dict[int, ConstructedTable] = {}
    for path, module in model.named_modules():
        if module not in _recipes:
            _recipes[module] = dict(_made_again(path, module))
        for name, recipe in _recipes[module].items():
            with unseen():  # of a forward in wider dtypes
                table = _as_held(getattr(module, name, None), recipe)
            if table is not None:
                found[storage_id(table.held)] = table
        if len(found) >= _MOST_TABLES:
            break
    return found


def _as_held(held: object, recipe: Recipe) -> ConstructedTable | None:
    """Return the table that a model has, as it was made or rounded since; None for what was changed otherwise."""
    made = recipe.made
    if not isinstance(held, torch.Tensor) or held.shape != made.shape or held.device != made.device:
        return None
    if held.dtype == made.dtype and torch.equal(held, made):
        return ConstructedTable(held.detach(), recipe, None)
    is_rounded = held.is_floating_point() and made.is_floating_point()
    for low in (held.dtype, *_LOW) if is_rounded else ():
        if torch.equal(made.to(low).to(held.dtype), held):
            return ConstructedTable(held.detach(), recipe, low)
    return None


def _made_again(path: str, module: torch.nn.Module) -> Iterator[tuple[str, Recipe]]:
    """Yield how the tensors were made that a module has by itself, by their names, where its constructor tells."""
    held = {**dict(module.named_buffers(recurse=False)), **vars(module)}
    names = [name for name, each in held.items() if isinstance(each, torch.Tensor) and _may_be_made(each)]
    ran = OperatorsBefore(_made_again)
    with torch.no_grad(), ran:
        again = made_anew(module, MOST_PARAMETERS) if names else None
    for name in names:
        made = getattr(again, name, None)
        steps = _steps_to(made, ran.steps) if isinstance(made, torch.Tensor) and is_plain(made) else ()
        if isinstance(made, torch.Tensor) and 0 < len(steps) <= _MOST_STEPS:
            recipe = Recipe(path, type(module).__name__, made, steps)
            if _gives_it(recipe):
                yield name, recipe


def _gives_it(recipe: Recipe) -> bool:
    """Tell whether the steps to a tensor give it: what no operator makes is not among them."""
    try:
        return torch.equal(recipe.run(lambda func, args, kwargs, _: func(*args, **kwargs), {}), recipe.made)
    except (KeyError, ValueError, RuntimeError, TypeError):
        return False


def _may_be_made(tensor: torch.Tensor) -> bool:
    return is_plain(tensor) and tensor.numel() <= _MOST_ELEMENTS


def _steps_to(made: torch.Tensor, ran: list[RanBefore]) -> tuple[RanBefore, ...]:
    """Return the operators that a tensor was computed by, in their order; none if one of them draws random numbers."""
    needed, found = {storage_id(made)}, list[RanBefore]()
    for step in reversed(ran):
        if needed.isdisjoint(map(storage_id, step.results)):
            continue
        if torch.Tag.nondeterministic_seeded in step.func.tags:
            return ()
        found.append(step)
        needed.update(map(storage_id, tensors_in((step.args, step.kwargs))))
    return tuple(reversed(found))


class OperatorsBefore(OperatorMode):
    """Notes each operator of what runs before a forward; what it gave is kept, so that no storage is used twice.

    The lines of each go up to a function that runs it all.
    """

    def __init__(self, outermost: Callable[..., Any]) -> None:
        super().__init__()
        self.steps: list[RanBefore] = []
        self._kept = 0  # elements
        self._outermost = outermost.__code__

    def on(self, func: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Run an operator, and note it."""
        result = func(*args, **kwargs)
        results = tensors_in(result)
        if all(map(is_plain, results)):
            self.steps.append(RanBefore(func, args, kwargs, results, self._lines()))
            self._kept += sum(each.numel() for each in results)
        if len(self.steps) > _MOST_RAN or self._kept > _MOST_KEPT:
            raise NotTriedError("more runs before the forward than can be kept")
        return result

    def _lines(self) -> tuple[Line, ...]:
        """Return the lines under way, innermost first."""
        found: list[Line] = []
        frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - the documented way to the running frame
        while frame is not None and frame.f_code is not self._outermost:
            if not is_library(frame.f_code.co_filename):
                found.append(Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        return tuple(found)


def _key(tensor: torch.Tensor) -> tuple[Any, ...]:
    return storage_id(tensor), geometry_of(tensor)
