"""By which lines the parameters of a model got their numbers: the functions that made it run once more.

A forward shows nothing of a parameter but its numbers; that a fused one was joined in the wrong order is a fault of the
code that ran before. Where it is known by which functions a model was made, and one gives it again, with the same
numbers, that is run once more, and each operator on the way to a parameter is noted with its line. What is looked up in
a state dict is an operator there, too.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch
from weakref import WeakKeyDictionary

import torch
from torch.utils._pytree import tree_map

from pytest_tfdebug.constructed import elements_of, makers_of
from pytest_tfdebug.errors import unheard
from pytest_tfdebug.tensors import is_plain, storage_bytes, storage_id, tensors_in
from pytest_tfdebug.tracing.record.state import random_state_kept
from pytest_tfdebug.tracing.values.constructors import MOST_PARAMETERS, OperatorsBefore
from pytest_tfdebug.tracing.values.tape import Geometry, geometry_of
from pytest_tfdebug.tracing.values.widening import HALF
from pytest_tfdebug.values import MOVES, StepBefore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

    from pytest_tfdebug.constructed import Maker
    from pytest_tfdebug.tracing.values.constructors import RanBefore

#: Operators that overwrite what was there.
_OVERWRITES = frozenset({"copy_", "fill_", "zero_", "uniform_", "normal_"})
#: Beginnings of names of operators that make numbers of nothing.
_OF_NOTHING = ("empty", "zeros", "ones", "full", "rand", "new_", "fill_", "zero_", "uniform_", "normal_")


class _LookedInto(NamedTuple):
    """What is known of how a model was made."""

    ways: dict[str, tuple[StepBefore, ...]] = {}  # noqa: RUF012 - nobody writes to it
    maker: Maker | None = None  # the outermost function that gives it again
    operators: int = 0  # how many ran in that


_known: WeakKeyDictionary[torch.nn.Module, _LookedInto] = WeakKeyDictionary()


class Conversions(Mapping[str, tuple[StepBefore, ...]]):
    """The operators by which each parameter of a model got its numbers, the last first.

    A parameter of which nothing is known is left out. The functions that made the model run when one is asked for.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    def __getitem__(self, name: str) -> tuple[StepBefore, ...]:
        return _known_of(self._model).ways[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_known_of(self._model).ways)

    def __len__(self) -> int:
        return len(_known_of(self._model).ways)


class Remaker:
    """Makes a model again, by the function that made it."""

    def __init__(self, model: torch.nn.Module, maker: Maker, operators: int) -> None:
        self._model, self._maker, self._given = model, maker, _Given(maker)
        self.operators = operators  # how many run

    @classmethod
    def of(cls, model: torch.nn.Module) -> Remaker | None:
        """Return what makes a model again; None where nothing that is known gives the same."""
        found = _known_of(model)
        return None if found.maker is None else cls(model, found.maker, found.operators)

    def make(self) -> torch.nn.Module | None:
        """Make it again, in the mode and the precision that the model is in; None where something else comes out.

        What the function raises is raised.
        """
        args, kwargs = self._given.copied()
        with random_state_kept():
            made = self._maker.function(*args, **kwargs)
        found = _model_in(made, self._model)
        if found is None:
            return None
        held = dict(self._model.named_modules())
        for path, module in found.named_modules():
            module.training = held[path].training if path in held else self._model.training
        dtypes = {name: each.dtype for name, each in self._model.named_parameters()}
        for name, each in found.named_parameters():
            each.data = each.data.to(dtypes.get(name, each.dtype))
        return found


def made_of_rounded(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return what the parameters of a model in half precision are before they are rounded, by name.

    The innermost function that made it of numbers is given these rounded to the model's dtype, as a reference in half
    precision holds them: ``scale * weight`` of what was rounded is not what is rounded after that.
    """
    dtype = next((each.dtype for each in model.parameters() if each.dtype in HALF), None)

    def rounded(given: Any) -> Any:  # noqa: ANN401 - whatever a function is given
        if isinstance(given, torch.nn.Module):
            return given._apply(rounded)  # type: ignore[no-untyped-call] # noqa: SLF001 - as ``float()`` does
        is_number = isinstance(given, torch.Tensor) and given.is_floating_point()
        return given.to(dtype).float() if is_number else given

    makers = _makers_of(model) if dtype is not None else ()
    maker = next((each for each in makers if elements_of((each.args, each.kwargs))), None)
    made = None
    with _quietly():
        if maker is not None:
            args, kwargs = tree_map(rounded, copy.deepcopy((maker.args, maker.kwargs)))
            made = _model_in(maker.function(*args, **kwargs), model)
    return {} if made is None else dict(made.named_parameters())


def _known_of(model: torch.nn.Module) -> _LookedInto:
    if model not in _known:
        is_small = sum(each.numel() for each in model.parameters()) <= MOST_PARAMETERS
        _known[model] = _looked_into(model) if is_small else _LookedInto()
    return _known[model]


def _looked_into(model: torch.nn.Module) -> _LookedInto:
    """Run the functions that made a model, from the innermost outwards as long as they give it again.

    The outermost sees the most: what loads a state dict is called by what converts one.
    """
    found = _LookedInto()
    for maker in _makers_of(model):
        ran = OperatorsBefore(_again)
        made = next((each for each in _modules_in(_again(maker, ran)) if _is_same(each, model)), None)
        if made is None:
            break
        ways = _WaysTo(ran.steps)
        each_way = {name: tuple(ways.tensor(parameter)) for name, parameter in made.named_parameters()}
        found = _LookedInto(each_way, maker, len(ran.steps))
    return found


def _makers_of(model: torch.nn.Module) -> Iterator[Maker]:
    """Yield the functions that made a model, from the innermost outwards to one that has called the check, too."""
    under_way = _under_way()
    for maker in makers_of(model):
        if getattr(inspect.unwrap(maker.function), "__code__", None) in under_way:
            return
        yield maker


def _under_way() -> set[CodeType]:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to the running frame
    found: set[CodeType] = set()
    while frame is not None:
        found.add(frame.f_code)
        frame = frame.f_back
    return found


@contextmanager
def _quietly() -> Iterator[None]:
    """Do something once more in a block that ends where it raises: what it prints or raises is not for the user."""
    try:
        with random_state_kept(), unheard():
            yield
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001, S110 - whatever it minds the second time, and what skips a test
        pass


def _again(maker: Maker, ran: OperatorsBefore) -> object:
    """Call a function as it was called; None where it raises.

    It is given copies: one that changes what it is given does that no second time.
    """
    original = torch.nn.Module.state_dict

    def looked_up(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - torch's signature
        return _noting(original(self, *args, **kwargs))

    made = None
    with _quietly():
        args, kwargs = _Given(maker).copied()
        args, kwargs = tuple(map(_noting, args)), {name: _noting(each) for name, each in kwargs.items()}
        with patch.object(torch.nn.Module, "state_dict", looked_up), ran:
            made = maker.function(*args, **kwargs)
    return made


class _Given:
    """Copies of what a function was given, made anew where one has written to them."""

    def __init__(self, maker: Maker) -> None:
        self._maker, self._counts = maker, list[int]()
        self._copies: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def copied(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return copies that are as what was given."""
        if self._copies is None or _writes(*self._copies) != self._counts:
            self._copies = copy.deepcopy((self._maker.args, self._maker.kwargs))
            self._counts = _writes(*self._copies)
        return self._copies


def _writes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    """Return how often each tensor was written to that a function was given."""
    models = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.nn.Module)]
    held = [each for model in models for each in (*model.parameters(), *model.buffers())]
    return [each._version for each in (*tensors_in((args, kwargs)), *held)]  # noqa: SLF001 - it has no other name


class _Noting(OrderedDict[str, Any]):
    """A state dict; what is looked up in it is an operator, and so has a line."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - what it holds
        held = super().__getitem__(name)
        return torch.ops.aten.alias(held) if isinstance(held, torch.Tensor) and is_plain(held) else held

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        try:
            return self[name]
        except KeyError:
            return default

    def pop(self, name: str, *default: Any) -> Any:  # noqa: ANN401
        held = self.get(name, *default)
        super().pop(name, *default)
        return held

    def items(self) -> Any:  # noqa: ANN401
        return [(name, self[name]) for name in self]

    def values(self) -> Any:  # noqa: ANN401
        return [self[name] for name in self]


def _noting(given: Any) -> Any:  # noqa: ANN401 - any argument
    is_state = isinstance(given, dict) and any(isinstance(each, torch.Tensor) for each in given.values())
    return _Noting(given) if is_state else given


def _modules_in(given: Any, depth: int = 2) -> Iterator[torch.nn.Module]:  # noqa: ANN401 - whatever a function returns
    if isinstance(given, torch.nn.Module):
        yield given
    elif isinstance(given, dict) and depth:
        given = [*given.values()]
    if isinstance(given, (list, tuple)) and depth:
        for each in given:
            yield from _modules_in(each, depth - 1)


def _model_in(given: Any, model: torch.nn.Module) -> torch.nn.Module | None:  # noqa: ANN401 - whatever a function returns
    """Return the first model of another one's class that a function returns; None for none."""
    return next((each for each in _modules_in(given) if type(each) is type(model)), None)


def _is_same(made: torch.nn.Module, model: torch.nn.Module) -> bool:
    """Tell whether a model holds the same numbers as another one; that may have been put into half since."""
    mine, theirs = dict(model.named_parameters()), dict(made.named_parameters())
    if type(made) is not type(model) or mine.keys() != theirs.keys():
        return False
    with torch.no_grad():
        return all(
            each.shape == theirs[name].shape and torch.equal(theirs[name].to(each.device, each.dtype), each)
            for name, each in mine.items()
        )


class _WaysTo:
    """The operators that ran, by what they made and by what they wrote into."""

    def __init__(self, steps: list[RanBefore]) -> None:
        self._steps = steps
        self._made: dict[int, int] = {}  # ``id`` of a tensor -> the place of what made it
        # where a tensor lies -> the last place of what made one there: a parameter is none of its own
        self._lies: dict[tuple[int, Geometry], int] = {}
        self._wrote: dict[int, list[int]] = {}  # storage -> the places of what wrote into it
        for place, step in enumerate(steps):
            for result in step.results:
                if step.is_written:
                    self._wrote.setdefault(storage_id(result), []).append(place)
                else:
                    self._made.setdefault(id(result), place)
                    self._lies[storage_id(result), geometry_of(result)] = place

    def tensor(self, made: torch.Tensor) -> Iterator[StepBefore]:
        """Yield the operators on the way to a tensor, the last first, but those that make numbers of nothing."""
        found, todo = set[int](), [(made, len(self._steps))]
        while todo:
            tensor, before = todo.pop()
            for place in self._before(tensor, before):
                if place not in found:
                    found.add(place)
                    step = self._steps[place]
                    given = tensors_in((step.args, step.kwargs))
                    todo += [(each, place) for each in given[step.is_written :]]
        for step in (self._steps[place] for place in sorted(found, reverse=True)):
            name = step.func.overloadpacket.__name__
            if step.lines and not name.startswith(_OF_NOTHING):
                yield StepBefore(name, step.lines, name in MOVES or _is_view(step))

    def _before(self, tensor: torch.Tensor, before: int) -> Iterator[int]:
        """Yield the places of what gave a tensor its numbers, before one."""
        for place in reversed(self._wrote.get(storage_id(tensor), ())):
            if place < before:
                yield place
                if self._overwrites_all(self._steps[place]):
                    return
        lies = self._lies.get((storage_id(tensor), geometry_of(tensor)), before)
        place = self._made.get(id(tensor), lies)
        if place < before:
            yield place

    def _overwrites_all(self, step: RanBefore) -> bool:
        is_whole = all(each.numel() * each.element_size() >= storage_bytes(each) for each in step.results)
        return is_whole and step.func.overloadpacket.__name__ in _OVERWRITES


def _is_view(step: RanBefore) -> bool:
    returned = (each.alias_info for each in step.func._schema.returns)  # noqa: SLF001 - it has no public name
    return any(each is not None and not each.is_write for each in returned)
