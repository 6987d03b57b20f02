"""A forward and its backward under watch: the functions of torch and the calls of modules, as they run.

Values are seen by a mode for torch's functions: below autograd, where :mod:`pytest_tfdebug.tracing.values.operators`
looks, a tensor has no gradient yet.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from pytest_tfdebug.steps.lines import lines_under_way
from pytest_tfdebug.steps.table import Graph, Mark, Switch
from pytest_tfdebug.steps.watched_values import WatchedValues, is_watched
from pytest_tfdebug.tracing.record.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

    from pytest_tfdebug.records import Call
    from pytest_tfdebug.steps.remedies import Remedies
    from pytest_tfdebug.tensors import Leaf
    from pytest_tfdebug.values import Values

#: What takes a value out of the graph, or out of torch.
LEAVES = frozenset({"detach", "detach_", "tolist", "item", "numpy", "data", "__deepcopy__", "__array__", "float_"})
#: The method, and the property that is set, that switch the gradient of one tensor.
_SWITCH = "requires_grad_"
#: Properties that give another value; the rest of the properties give none.
_PROPERTIES = frozenset({_SWITCH, "data", "T", "mT", "H", "mH", "real", "imag"})
#: What changes what passes through it, and gives no value.
_HOOKS = frozenset({"register_hook", "register_post_accumulate_grad_hook"})


class BackwardWatch(TorchFunctionMode):
    """Sees the functions of torch in a block, and the gradients of what they gave.

    Args:
        model: The model whose modules and parameters give names.
        changes: What is done otherwise than the code says, to try what mends a gradient.
    """

    def __init__(self, model: torch.nn.Module, changes: Remedies) -> None:
        super().__init__()
        self.marks: list[Mark] = []
        self.on_write: Callable[[torch.Tensor], object] | None = None  # told what code writes to
        self.on_gradient: Callable[..., object] | None = None  # told whose gradient code sets, and to what
        self.last: int | None = None
        self._changes, self._values = changes, WatchedValues(model)
        self._entered: list[int] = []
        self._undo = ExitStack()
        self._recorder = Recorder(model, self, runs_once=False)

    # --- the block

    def __enter__(self) -> Self:
        self._values.table.modules = tuple(self._recorder.modules.by_path)
        self._undo.enter_context(self._recorder)
        self._undo.enter_context(patch.object(torch.autograd.Function, "apply", classmethod(self._applied)))
        self._undo.enter_context(patch.object(_SavedHooks, "__init__", self._kept_under_watch()))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        self._undo.close()

    # --- the calls of modules

    def enter(self, call: Call, _leaves: list[Leaf], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        """Note a call that begins; one that a backward makes again is watched too: the engine takes modes off."""
        self._values.table.calls.append(call)
        self._values.calls.append(call)
        if self._values.is_in_backward and not self._values.is_over and not self._is_on():
            self._entered.append(len(self._values.calls))
            TorchFunctionMode.__enter__(self)  # type: ignore[no-untyped-call]

    def leave(self, call: Call, _leaves: list[Leaf], _output: Any) -> None:  # noqa: ANN401
        """Note the end of a call."""
        self.fail(call)

    def fail(self, call: Call) -> None:
        """Note the end of a call."""
        while self._values.calls:
            if self._entered and self._entered[-1] == len(self._values.calls):
                self._entered.pop()
                TorchFunctionMode.__exit__(self, None, None, None)  # type: ignore[no-untyped-call]
            if self._values.calls.pop() is call:
                return

    def _is_on(self) -> bool:
        return self in _get_current_function_mode_stack()  # type: ignore[no-untyped-call]

    # --- functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        kwargs, name = kwargs or {}, getattr(func, "__name__", str(func))
        if self.on_write is not None and args and (func == _SET_DATA or _is_write(name)):
            for each in filter(is_watched, _tensors(args[:1])):
                self.on_write(each)
        if self.on_gradient is not None and func == _SET_GRADIENT:
            self.on_gradient(*args)
        if self._values.is_over:
            return func(*args, **kwargs)
        if name == "_set_grad_enabled":
            return self._switched(func, args)
        is_property = name in {"__get__", "__set__"}
        if is_property:
            name = f"{getattr(getattr(func, '__self__', None), '__name__', name)}{'_' * (name == '__set__')}"
        if is_property and name not in _PROPERTIES:
            return func(*args, **kwargs)
        if name == "backward" or (name == "grad" and not grad_arguments(args, kwargs).get("create_graph")):
            return self._went_back(func, args, kwargs)
        return self._computed(func, name, args, kwargs)

    def _computed(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Call a function that gives values, or takes them out of the graph."""
        given = [self._values.see(tensor) for tensor in _tensors((args, kwargs)) if is_watched(tensor)]
        lines = lines_under_way()
        is_on = name == _SWITCH and args[0].requires_grad
        made, result = self._changes.instead(name, lines, args, kwargs)
        if not made:
            result = func(*args, **kwargs)
        if given and (name in _HOOKS or name in LEAVES or (is_on and not args[0].requires_grad)):
            self.marks.append(Mark(tuple(given), name, lines, self._values.call))
        outputs = [tensor for tensor in _tensors(result) if is_watched(tensor)]
        for tensor in outputs:
            if not self._values.is_seen(tensor):
                self._values.see(tensor, name, tuple(dict.fromkeys(given)), lines)
                self._changes.pass_through(tensor, name, lines)
        return result

    def _switched(self, func: Any, args: tuple[Any, ...]) -> Any:  # noqa: ANN401
        lines = lines_under_way()
        if not args[0] and self._changes.keeps_gradients(lines):
            return None
        self._values.switch = None if args[0] else self._values.switch or Switch(lines, self._values.call)
        return func(*args)

    def _went_back(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Make a backward, in which gradients are told, and what is made again is watched too."""
        losses = [tensor for tensor in _tensors((args[:1], kwargs)) if is_watched(tensor)]
        self.last = self._values.see(losses[0]) if losses else self.last
        self._values.is_in_backward = True
        try:
            return func(*args, **kwargs)
        finally:
            self._values.is_in_backward = False

    def _applied(self, function: type, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call a ``torch.autograd.Function``: it is one operator, whatever its forward does, but for a checkpoint."""
        original = partial(_APPLY.__func__, function)
        if self._values.is_over or not self._is_on():
            return original(*args, **kwargs)
        if function.__module__ == "torch.utils.checkpoint":
            runs = [partial(self._run_again, each) for each in args[:1] if callable(each)]
            return original(*runs, *args[len(runs) :], **kwargs)
        given = [self._values.see(tensor) for tensor in _tensors((args, kwargs)) if is_watched(tensor)]
        lines = lines_under_way()
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - the documented way to take all modes off
            plain = self._changes.plain_function(function, lines)
            result = plain(*args, **kwargs) if plain is not None else original(*args, **kwargs)
        for tensor in _tensors(result):
            if is_watched(tensor):
                index = self._values.see(tensor, function.__name__, tuple(dict.fromkeys(given)), lines)
                if not function.__module__.startswith("torch."):
                    self._values.graph[index].own_backward = function.__name__
                self._changes.pass_through(tensor, function.__name__, lines)
        return result

    def _kept_under_watch(self) -> Callable[[Any, Any, Any], None]:
        """Return how hooks on what is kept for a backward are made: a checkpoint computes that again in them."""

        def init(hooks: Any, pack: Any, unpack: Any) -> None:  # noqa: ANN401
            _SAVED_INIT(hooks, pack, partial(self._run_again, unpack))

        return init

    def _run_again(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call what a checkpoint runs, in its backward under watch too: the engine takes modes off."""
        with nullcontext() if self._is_on() else self._modes():
            return function(*args, **kwargs)

    @contextmanager
    def _modes(self) -> Iterator[None]:
        TorchFunctionMode.__enter__(self)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            TorchFunctionMode.__exit__(self, None, None, None)  # type: ignore[no-untyped-call]

    # --- the end

    def finish(self) -> tuple[Values, list[Graph], list[Mark]]:
        """Read the gradients back and let the tensors go."""
        return (*self._values.finish(), self.marks)


#: How another tensor is put in the place of one, ``parameter.data = average``.
_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined] # a property written in C
_SET_GRADIENT = torch.Tensor.grad.__set__  # type: ignore[union-attr] # of the class it is a property
_IN_PLACE = frozenset({"__iadd__", "__isub__", "__imul__", "__idiv__", "__itruediv__", "__ipow__", "__setitem__"})
_NO_WRITES = frozenset({"requires_grad_", "detach_", "share_memory_"})


def grad_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what ``torch.autograd.grad`` is given, by name: one that creates a graph is a part of a forward."""
    names = ("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph")
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _is_write(name: str) -> bool:
    """Tell whether a function writes to its first argument, by its name."""
    return name in _IN_PLACE or (name.endswith("_") and not name.endswith("__") and name not in _NO_WRITES)


#: What is done with tensors that are kept for a backward, and how it is made.
_SavedHooks = torch.autograd.graph.saved_tensors_hooks
_SAVED_INIT: Any = vars(_SavedHooks)["__init__"]

#: The method that every ``torch.autograd.Function`` is called by.
_APPLY: Any = vars(torch.autograd.Function)["apply"]


def _tensors(nested: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401 - any argument
    if isinstance(nested, torch.Tensor):
        yield nested
    elif isinstance(nested, (list, tuple)):
        for each in nested:
            yield from _tensors(each)
    elif isinstance(nested, dict):
        yield from _tensors(list(nested.values()))
