"""A forward and its backward under watch: which values there are, and which gradient each of them gets.

Values are seen by a mode for torch's functions: below autograd, where :mod:`pytest_tfdebug.tracing.values.operators`
looks, a tensor has no gradient yet. Two kinds of hooks tell gradients: one on each value, of all that it gets, and one
on each node of the graph, of what an operator alone sends to what it was given.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from pytest_tfdebug.steps.gradients import GradientSums, weighed
from pytest_tfdebug.steps.table import Graph, Mark, Switch, is_measured
from pytest_tfdebug.tensors import dtype_name, is_plain, version
from pytest_tfdebug.tracing.record.recorder import Recorder
from pytest_tfdebug.tracing.record.sites import MODULE_FILE, is_library
from pytest_tfdebug.tracing.record.state import capture
from pytest_tfdebug.values import Fingerprint, Line, Origin, Value, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Self

    from pytest_tfdebug.records import Call
    from pytest_tfdebug.steps.remedies import Remedies
    from pytest_tfdebug.tensors import Leaf

#: What takes a value out of the graph, or out of torch.
LEAVES = frozenset({"detach", "detach_", "tolist", "item", "numpy", "data", "__deepcopy__", "__array__", "float_"})
#: The method, and the property that is set, that switch the gradient of one tensor.
_SWITCH = "requires_grad_"
#: Properties that give another value; the rest of the properties give none.
_PROPERTIES = frozenset({_SWITCH, "data", "T", "mT", "H", "mH", "real", "imag"})
#: What changes what passes through it, and gives no value.
_HOOKS = frozenset({"register_hook", "register_post_accumulate_grad_hook"})
#: Nodes of the graph that one function of torch is made of, at most, from its result down to what it was given.
_DEEP = 6
#: Frames between a line of a forward and what it calls.
_MAX_FRAMES = 24


class _WatchedValue:
    """A value as long as it is watched."""

    __slots__ = ("hooked", "kept", "pieces", "sums", "tensor", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.version = tensor, version(tensor)
        self.kept = capture(tensor)  # its numbers as they were
        self.hooked: object = None  # the node of the graph that its hook is on
        self.pieces: list[tuple[int, tuple[int, ...], tuple[int, ...], int]] = []  # views of it: index and geometry
        self.sums: dict[int, torch.Tensor] = {}  # its own gradient by its own index, what it sends by that of others


class BackwardWatch(TorchFunctionMode):
    """Sees the functions of torch in a block, and the gradients of what they gave.

    Args:
        model: The model whose modules and parameters give names.
        changes: What is done otherwise than the code says, to try what mends a gradient.
    """

    def __init__(self, model: torch.nn.Module, changes: Remedies) -> None:
        super().__init__()
        self.table, self.graph, self.marks = Values(), list[Graph](), list[Mark]()
        self.is_over = False
        self.last: int | None = None
        self._changes = changes
        self._seen: list[_WatchedValue] = []
        self._at: dict[tuple[int, int], int] = {}
        self._latest: dict[int, int] = {}  # the value that a tensor holds since it was last written to
        self._nodes: dict[object, int] = {}  # node of the graph -> the value that it made
        self._wholes: dict[tuple[int, int], int] = {}
        self._kept: list[object] = []  # what must not give its address to others
        self._calls: list[Call] = []
        self._entered: list[int] = []
        self._switch: Switch | None = None
        self._in_backward = False
        self._users: dict[int, int] = {}
        self._parameters: dict[int, str] = {}
        for name, parameter in model.named_parameters():
            self._parameters.setdefault(id(parameter), name)
        self._buffers = {id(buffer): name for name, buffer in model.named_buffers()}
        self._undo = ExitStack()
        self._recorder = Recorder(model, self, runs_once=False)

    # --- the block

    def __enter__(self) -> Self:
        self.table.modules = tuple(self._recorder.modules.by_path)
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
        self.table.calls.append(call)
        self._calls.append(call)
        if self._in_backward and not self.is_over and not self._is_on():
            self._entered.append(len(self._calls))
            TorchFunctionMode.__enter__(self)  # type: ignore[no-untyped-call]

    def leave(self, call: Call, _leaves: list[Leaf], _output: Any) -> None:  # noqa: ANN401
        """Note the end of a call."""
        self.fail(call)

    def fail(self, call: Call) -> None:
        """Note the end of a call."""
        while self._calls:
            if self._entered and self._entered[-1] == len(self._calls):
                self._entered.pop()
                TorchFunctionMode.__exit__(self, None, None, None)  # type: ignore[no-untyped-call]
            if self._calls.pop() is call:
                return

    def _is_on(self) -> bool:
        return self in _get_current_function_mode_stack()  # type: ignore[no-untyped-call]

    @property
    def _call(self) -> int | None:
        return self._calls[-1].index if self._calls else None

    # --- functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        kwargs, name = kwargs or {}, getattr(func, "__name__", str(func))
        if self.is_over:
            return func(*args, **kwargs)
        if name == "_set_grad_enabled":
            return self._switched(func, args)
        is_property = name in {"__get__", "__set__"}
        if is_property:
            name = f"{getattr(getattr(func, '__self__', None), '__name__', name)}{'_' * (name == '__set__')}"
        if is_property and name not in _PROPERTIES:
            return func(*args, **kwargs)
        if name == "backward":
            return self._went_back(func, args, kwargs)
        return self._computed(func, name, args, kwargs)

    def _computed(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Call a function that gives values, or takes them out of the graph."""
        given = [self.see(tensor) for tensor in _tensors((args, kwargs)) if _counts(tensor)]
        lines = self._lines()
        is_on = name == _SWITCH and args[0].requires_grad
        made, result = self._changes.instead(name, lines, args, kwargs)
        if not made:
            result = func(*args, **kwargs)
        if given and (name in _HOOKS or name in LEAVES or (is_on and not args[0].requires_grad)):
            self.marks.append(Mark(tuple(given), name, lines, self._call))
        outputs = [tensor for tensor in _tensors(result) if _counts(tensor)]
        for tensor in outputs:
            if (id(tensor), version(tensor)) not in self._at:
                self.see(tensor, name, tuple(dict.fromkeys(given)), lines)
                self._changes.pass_through(tensor, name, lines)
        return result

    def _switched(self, func: Any, args: tuple[Any, ...]) -> Any:  # noqa: ANN401
        lines = self._lines()
        if not args[0] and self._changes.keeps_gradients(lines):
            return None
        self._switch = None if args[0] else self._switch or Switch(lines, self._call)
        return func(*args)

    def _went_back(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Make a backward, in which gradients are told, and what is made again is watched too."""
        losses = [tensor for tensor in _tensors((args[:1], kwargs)) if _counts(tensor)]
        self.last = self.see(losses[0]) if losses else self.last
        self._in_backward = True
        try:
            return func(*args, **kwargs)
        finally:
            self._in_backward = False

    def _applied(self, function: type, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call a ``torch.autograd.Function``: it is one operator, whatever its forward does, but for a checkpoint."""
        original = partial(_APPLY.__func__, function)
        if self.is_over or not self._is_on():
            return original(*args, **kwargs)
        if function.__module__ == "torch.utils.checkpoint":
            runs = [partial(self._run_again, each) for each in args[:1] if callable(each)]
            return original(*runs, *args[len(runs) :], **kwargs)
        given = [self.see(tensor) for tensor in _tensors((args, kwargs)) if _counts(tensor)]
        lines = self._lines()
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - the documented way to take all modes off
            plain = self._changes.plain_function(function, lines)
            result = plain(*args, **kwargs) if plain is not None else original(*args, **kwargs)
        for tensor in _tensors(result):
            if _counts(tensor):
                index = self.see(tensor, function.__name__, tuple(dict.fromkeys(given)), lines)
                if not function.__module__.startswith("torch."):
                    self.graph[index].own_backward = function.__name__
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

    # --- values

    def see(
        self, tensor: torch.Tensor, operator: str = "", producers: tuple[int, ...] = (), lines: tuple[Line, ...] = ()
    ) -> int:
        """Return the index of a value; a new one gets a row in the table, and hooks on its gradients."""
        key = id(tensor), version(tensor)
        index = self._at.get(key)
        if index is None:
            before = self._latest.get(id(tensor))
            if before is not None and tensor._base is not None:  # noqa: SLF001 - there is no public name
                self.graph[before].is_unheard = True  # a view is made anew from its whole: its old node gets nothing
            if not operator and tensor.grad_fn is not None:  # a function that nobody saw made it
                operator, lines = type(tensor.grad_fn).__name__.removesuffix("Backward"), lines or self._lines()
                producers = tuple(dict.fromkeys(self._found_below(tensor.grad_fn)))
            index = self._at[key] = self._latest[id(tensor)] = self._add(tensor, operator, producers, lines)
        self._hook(tensor, index)
        return index

    def _add(self, tensor: torch.Tensor, operator: str, producers: tuple[int, ...], lines: tuple[Line, ...]) -> int:
        index, name = len(self.graph), self._parameters.get(id(tensor), "")
        base = tensor._base  # noqa: SLF001 - there is no public name
        origin: Origin = "operator" if operator else "constant"
        known = None
        if name:
            origin = "parameter"
        elif not operator and id(tensor) in self._buffers:
            origin, name = "buffer", self._buffers[id(tensor)]
        elif (
            operator
            and base is not None
            and len(producers) == 1
            and base.numel() == tensor.numel()
            and version(tensor) == self._seen[producers[0]].version  # what is written in place has other numbers
        ):
            origin = origin if operator == "linear" else "view"
            before = self.table.values[producers[0]].print
            known = before if before.elements == tensor.numel() and origin == "view" else None
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            found = Fingerprint.of(tensor, known)
            seen = _WatchedValue(tensor)
        made = _plain_name(operator), origin, name, self._call, lines, producers
        self.table.values.append(Value(index, *made, tuple(tensor.shape), dtype_name(tensor.dtype), found))
        self.graph.append(
            Graph(
                is_leaf=tensor.is_leaf,
                is_grad_on=torch.is_grad_enabled(),
                switch=None if torch.is_grad_enabled() else self._switch,
                is_recomputed=self._in_backward,
            )
        )
        self._seen.append(seen)
        for made_from in producers:
            self._users[made_from] = self._users.get(made_from, 0) + 1
        return index

    def _found_below(self, node: Any) -> Iterator[int]:  # noqa: ANN401 - a node of the graph
        for _, _, index in self._below(node, None):
            yield index

    def _below(self, node: Any, among: set[int] | None) -> Iterator[tuple[Any, int, int]]:  # noqa: ANN401
        """Yield the nodes under one, with the place of what leads on to a known value, and that value."""
        todo, met = [(node, 0)], set()
        while todo:
            at, depth = todo.pop()
            if at in met or depth > _DEEP or (depth and at in self._nodes):
                continue
            met.add(at)
            for place, (to, number) in enumerate(at.next_functions):
                if to is None:
                    continue
                index = self._index_of(to, number)
                if index is not None and (among is None or index in among):
                    yield at, place, index
                elif index is None:
                    todo.append((to, depth + 1))

    def _index_of(self, node: Any, number: int) -> int | None:  # noqa: ANN401
        if hasattr(node, "variable"):
            return self._at.get((id(node.variable), version(node.variable)))
        return self._nodes.get((node, number))

    def _lines(self) -> tuple[Line, ...]:
        """Return the lines under way, innermost first, up to the forward of the nearest module that has source."""
        found: list[Line] = []
        frame = sys._getframe(2)  # noqa: SLF001 - the documented way to the running frame
        while frame is not None and len(found) < _MAX_FRAMES:
            code = frame.f_code
            if code is watched.__code__ or (found and code.co_filename == MODULE_FILE):
                break
            if not is_library(code.co_filename) and "importlib" not in code.co_filename:
                found.append(Line(code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back  # type: ignore[assignment]
        return tuple(found)

    # --- gradients

    def _hook(self, tensor: torch.Tensor, index: int) -> None:
        """Put hooks on a value that requires a gradient, once for each node of the graph that makes it."""
        seen, node = self._seen[index], tensor.grad_fn
        if not tensor.requires_grad or (seen.hooked is not None and seen.hooked in (node, "leaf")):
            return
        graph = self.graph[index]
        graph.has_graph, graph.is_leaf = True, node is None
        seen.hooked = node or "leaf"
        if node is None:
            if is_measured(self.table.values[index]):
                tensor.register_hook(partial(self._got, index))  # type: ignore[no-untyped-call]
            return
        self._nodes[node, tensor.output_nr] = index
        self._nodes[node] = index
        whole = self._whole_of(tensor, index)
        if whole is None:
            tensor.register_hook(partial(self._got, index))  # type: ignore[no-untyped-call]
        else:  # another implementation may use the whole where this one uses a piece
            graph.is_piece = True
            start = tensor.storage_offset() - self._seen[whole].tensor.storage_offset()
            self._seen[whole].pieces.append((index, tuple(tensor.size()), tensor.stride(), int(start)))
        wanted = {made for made in self.table.values[index].producers if self._seen[made].tensor.requires_grad}
        found: dict[Any, list[tuple[int, int]]] = {}
        for at, place, made in self._below(node, wanted):
            found.setdefault(at, []).append((place, made))
        for at, places in found.items():
            at.register_hook(partial(self._sent, index, places))

    def _whole_of(self, tensor: torch.Tensor, index: int) -> int | None:
        base = tensor._base  # noqa: SLF001 - there is no public name
        if base is None or tensor.is_complex() or base.is_complex():
            return None
        key = id(base), version(base)
        whole = self._at.get(key, self._wholes.get(key))
        if whole is None and tensor.numel() == base.numel():  # a result that is itself a view of what nobody sees
            self._kept.append(base)
            self._wholes[key] = index
        if whole is None or whole == index or self._seen[whole].hooked is None:
            return None
        return whole if is_measured(self.table.values[whole]) else None

    def _got(self, index: int, gradient: torch.Tensor | None) -> None:
        if gradient is None or self.is_over:
            return
        seen = self._seen[index]
        self._add_up(seen.sums, index, index, gradient)
        if seen.pieces:
            whole = seen.tensor
            laid = torch.empty_strided(whole.size(), whole.stride(), dtype=gradient.dtype, device=gradient.device)
            laid.copy_(gradient.detach())
            for piece, size, stride, start in seen.pieces:
                if self.table.values[piece].origin == "view" and not self._seen[piece].pieces:
                    self._seen[piece].sums[piece] = seen.sums[index]  # the same elements in another layout
                else:
                    self._got(piece, laid.as_strided(size, stride, start))

    def _sent(
        self,
        index: int,
        places: Sequence[tuple[int, int]],
        gradients: Sequence[torch.Tensor | None],
        _given: object,
    ) -> None:
        if self.is_over:
            return
        for place, made in places:
            if self._users.get(made, 0) < 2 and not self._seen[made].pieces:  # noqa: PLR2004 - what one user sends is all
                continue
            gradient, kept = gradients[place], self._seen[made].kept
            if gradient is not None and kept is not None and gradient.numel() == kept.numel():
                self._add_up(self._seen[index].sums, made, made, gradient)

    def _add_up(self, sums: dict[int, torch.Tensor], key: int, of: int, gradient: torch.Tensor) -> None:
        kept = self._seen[of].kept
        if kept is None or not kept.numel():
            return
        found = weighed(kept, gradient, self.table.values[of].print)
        sums[key] = sums[key] + found if key in sums else found

    # --- the end

    def finish(self) -> tuple[Values, list[Graph], list[Mark]]:
        """Read the gradients back and let the tensors go."""
        self.is_over = True
        for index, (seen, graph) in enumerate(zip(self._seen, self.graph, strict=True)):
            read = {key: GradientSums(*found.cpu().numpy()) for key, found in seen.sums.items()}
            graph.total = read.pop(index, graph.total)
            graph.sent = read
        for value in self.table.values:
            for made in value.producers:
                total = self.graph[made].total
                if self._users[made] == 1 and made not in self.graph[value.index].sent and total.size:
                    self.graph[value.index].sent[made] = total
        for index, (seen, graph) in enumerate(zip(self._seen, self.graph, strict=True)):
            graph.is_changed = self._is_changed(seen, index)
        self._seen, self._nodes, self._wholes, self._kept = [], {}, {}, []
        return self.table, self.graph, self.marks

    def _is_changed(self, seen: _WatchedValue, index: int) -> bool:
        """Tell whether somebody wrote to a value though torch's own count of writes says that nobody did."""
        tensor, kept = seen.tensor, seen.kept
        if kept is None or self.table.values[index].origin != "operator" or version(tensor) != seen.version:
            return False
        if not is_plain(tensor) or not tensor.numel():
            return False
        found, before = tensor.detach(), kept
        return not torch.equal(found, before) and bool(((found != before) & ~before.isnan()).any())


#: What is done with tensors that are kept for a backward, and how it is made.
_SavedHooks = torch.autograd.graph.saved_tensors_hooks
_SAVED_INIT: Any = vars(_SavedHooks)["__init__"]

#: The method that every ``torch.autograd.Function`` is called by.
_APPLY: Any = vars(torch.autograd.Function)["apply"]


#: Operators that Python writes with a sign: ``__iadd__`` writes in place, ``__radd__`` has its operands exchanged.
_SIGNS = frozenset({"add", "sub", "mul", "truediv", "div", "pow", "matmul", "floordiv", "mod", "and", "or", "xor"})


def _plain_name(operator: str) -> str:
    """Return the name of an operator as torch has it.

    Examples:
        >>> _plain_name("__iadd__"), _plain_name("__rsub__"), _plain_name("clamp_")
        ('add_', 'sub', 'clamp_')
    """
    if not operator.startswith("__"):
        return operator
    name = operator.strip("_")
    if name[:1] in "ir" and name[1:] in _SIGNS:
        name = f"{name[1:]}{'_' * (name[0] == 'i')}"
    return {"truediv": "div", "truediv_": "div_"}.get(name, name)


def _counts(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and is_plain(tensor)


def _tensors(nested: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401 - any argument
    if isinstance(nested, torch.Tensor):
        yield nested
    elif isinstance(nested, (list, tuple)):
        for each in nested:
            yield from _tensors(each)
    elif isinstance(nested, dict):
        yield from _tensors(list(nested.values()))


def watched(watch: BackwardWatch, run: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the run returns
    """Run a function under watch; its frame ends what is said of lines."""
    with watch:
        return run()
