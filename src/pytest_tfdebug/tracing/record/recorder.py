"""One pass of hooks over a forward; whoever wants to know what happened is a consumer.

The recorder keeps no tensor itself. A consumer receives a call's leaves as the call begins and as it ends, while they
are alive: it can keep them (:mod:`.trace`), compare them or reduce them, and let them go.
"""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast
from unittest.mock import patch

import torch

from pytest_tfdebug.errors import TFDebugError, listed
from pytest_tfdebug.records import Call
from pytest_tfdebug.tensors import Leaf, unwrapped
from pytest_tfdebug.tracing.record.leaves import CacheWatch, caches_among, walk, walk_inputs
from pytest_tfdebug.tracing.record.modules import (
    Selection,
    adapted_paths,
    bare,
    callers_of_forward,
    class_of,
    is_compiled_in_place,
    is_opaque,
    modules_of,
    root_name,
    root_of,
)
from pytest_tfdebug.tracing.record.signatures import method_of, parameters_of, positional_parameters
from pytest_tfdebug.tracing.record.sites import codes_of, forward_source, is_inside_a_call, locate_call, source_of
from pytest_tfdebug.tracing.record.state import preserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, TracebackType

    from typing_extensions import Self

    #: Called with module, positional and keyword inputs, and a function that runs the call; returns the output.
    Interceptor = Callable[[torch.nn.Module, tuple[Any, ...], dict[str, Any], Callable[[], Any]], Any]


#: Told by ``torch.compile(fullgraph=True)`` of code that calls a model whose modules are watched.
_COMPILING = (
    "pytest-tfdebug is watching the modules of this model, and sees nothing in compiled code. "
    "Watch the model uncompiled, or compile it without fullgraph=True."
)


_functorch = torch._C._functorch  # noqa: SLF001 - what a tensor is inside a transform has no public test
#: Told of modules that are given tensors without a storage.
_MAPPED = "Modules called inside torch.func.vmap were not compared: of their tensors only shapes can be seen."


class Consumer(Protocol):
    """What receives the calls of a forward as they happen.

    One with a method ``wrote(call, leaves, before)`` is told what a call has written to the caches that it was given,
    and which of its child calls begins then, if any. The ``notes`` of one that has any become the recorder's.
    """

    def enter(self, call: Call, leaves: list[Leaf], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call begins; ``leaves`` are its input tensors."""

    def leave(self, call: Call, leaves: list[Leaf], output: Any) -> None:  # noqa: ANN401
        """A call has returned; ``leaves`` are its output tensors."""

    def fail(self, call: Call) -> None:
        """An exception left the call; ``call.error`` names it."""


class _Hooked(NamedTuple):
    """What is the same in every call of a module."""

    call: Call  # its calls, but for their numbers and where they stand
    module: torch.nn.Module
    codes: dict[int, CodeType]


class _CallUnderWay(NamedTuple):
    """A call under way: its module, the exception that was being handled as it began, and the caches it was given."""

    call: Call
    hooked: _Hooked
    handled: BaseException | None
    caches: tuple[object, ...]


class _Thread(threading.local):
    """The calls under way in one thread, outermost first, and what is known of the caches that they were given."""

    def __init__(self) -> None:
        self.stack: list[_CallUnderWay] = []
        self.watch = CacheWatch()


class Recorder:
    """Hooks on the selected modules of a model for the length of a ``with`` block.

    Modules called several times, shared modules, forwards that raise and exceptions that a parent catches are all
    told apart. Of a block that makes one forward, by :meth:`run`, what other threads call is not recorded; in any other
    block each thread has its own stack of calls.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        consumer: Consumer,
        selection: Selection | None = None,
        *,
        runs_once: bool = True,
    ) -> None:
        self._root = root_of(model)
        if isinstance(self._root, torch.jit.ScriptModule):
            raise TFDebugError(
                f"{type(self._root).__name__} is a TorchScript module: it takes no hooks and nothing can be seen.\n"
                "Trace the module that it was made from."
            )
        self.model = model
        self.root_name = root_name(model)
        self.notes: list[str] = []
        self.modules = modules_of(model)
        self._consumer, self._on_write = consumer, getattr(consumer, "wrote", None)
        self._hookable = self._pick(selection or Selection())
        self.unrecorded = tuple(path for path in self.modules.by_path if path not in self._hookable)
        self._thread = _Thread()
        self._runs_once = runs_once
        self._runner: int | None = None
        self._is_in_method = False
        self._counter: dict[str, int] = {}
        self._next_index = 0
        self._lock = threading.Lock()
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        self._runner = threading.get_ident() if self._runs_once else None
        try:
            for path, module in self._hookable.items():
                self._hook(path, module)
            for wrapper in callers_of_forward(self.model):
                self._hook(self.root_name, wrapper)
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._undo.close()
        self.notes += getattr(self._consumer, "notes", ())
        if isinstance(error, RecursionError):
            raise TFDebugError(
                f"{self.root_name} calls deeper than Python's limit of {sys.getrecursionlimit():,} frames while its "
                "modules are watched: each module called inside another takes a frame or two more.\n"
                f"Allow more: sys.setrecursionlimit({3 * sys.getrecursionlimit()})"
            ) from error

    def _pick(self, selection: Selection) -> dict[str, torch.nn.Module]:
        adapted = adapted_paths(self.model)
        if adapted:
            self.notes.append(f"Adapted by peft: {listed(adapted, 3)}. Its base has these layers without an adapter.")
        opaque = [path for path, module in self.modules.by_path.items() if is_opaque(module)]
        if is_opaque(self._root):
            self.notes.append(
                "The model is compiled: only its own inputs and outputs can be seen. "
                "Trace the model that was given to torch.compile to see its modules."
            )
        elif opaque:
            self.notes.append(f"Compiled modules cannot be looked into: {listed(opaque, 3)}.")
        return {self.root_name: self._root, **selection.pick(self.model, self.modules.by_path)}

    def _hook(self, path: str, module: torch.nn.Module) -> None:
        own = bare(module)
        call = Call(-1, path, class_of(own).__name__, -1, None, 0, source=forward_source(own), training=own.training)
        call.parameters = positional_parameters(cast("type", type(own)))
        call.has_children = next(own.children(), None) is not None
        hooked = _Hooked(call, own, codes_of(own))
        if is_compiled_in_place(module):  # torch would compile its hooks
            compiled = module.__dict__["_compiled_call_impl"]
            module.__dict__["_compiled_call_impl"] = self._around(hooked, compiled)
            self._undo.callback(module.__dict__.__setitem__, "_compiled_call_impl", compiled)
            return
        is_root = path == self.root_name

        def in_compiler() -> None:
            note = f"{path} runs in compiled code of its caller and cannot be seen there."
            if note not in self.notes:
                self.notes.append(note)
                self.unrecorded += (path,) if path in self.modules.by_path else ()

        in_compiler._dynamo_marked_constant = True  # type: ignore[attr-defined] # noqa: SLF001 - run as code is compiled

        def before(_module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not torch.compiler.is_compiling():  # a constant to the compiler; outside it a call of 50 ns
                self._begin(hooked, args, kwargs)
                return
            if is_root:
                torch._dynamo.graph_break(msg=_COMPILING)  # noqa: SLF001 - its documented name
            in_compiler()

        def after(_module: torch.nn.Module, _args: tuple[Any, ...], _kwargs: dict[str, Any], output: Any) -> None:  # noqa: ANN401
            if not torch.compiler.is_compiling():
                self._end(path, output)

        self._undo.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
        self._undo.callback(module.register_forward_hook(after, with_kwargs=True, always_call=True).remove)

    def run_alone(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Call a method of the model without gradients, record it, and leave the model as it was."""
        with preserved(self.model), torch.no_grad(), self:
            return self.run(method, args, kwargs)

    def run(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Call a method of the model; one that is not the forward is recorded as the root's call."""
        if method == "forward":
            return self.model(*args, **kwargs)
        own, function = bare(self.model), method_of(self.model, method)
        call = Call(-1, self.root_name, self.root_name, -1, None, 0, source=source_of(function), has_children=True)
        hooked = _Hooked(replace(call, parameters=parameters_of(function), training=own.training), own, codes_of(own))
        self._is_in_method = True
        try:
            return self._around(hooked, function)(*args, **kwargs)
        finally:
            self._is_in_method = False

    def _around(self, hooked: _Hooked, call: Callable[..., Any]) -> Callable[..., Any]:

        def recorded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            self._begin(hooked, args, kwargs)
            try:
                output = call(*args, **kwargs)
            except BaseException:
                self._end(hooked.call.path, None)
                raise
            self._end(hooked.call.path, output)
            return output

        return recorded

    def _begin(self, hooked: _Hooked, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._runner not in (None, threading.get_ident()):
            return
        stack, path = self._thread.stack, hooked.call.path
        if stack and path == self.root_name and not is_inside_a_call() and not self._is_in_method:
            self._abandon(stack)
        caller = stack[-1] if stack else None
        call = replace(hooked.call, skeleton={})
        if caller is None:
            self._thread.watch = CacheWatch()
        else:
            call.parent, call.depth = caller.call.index, caller.call.depth + 1
            call.site, call.inner_site = locate_call(caller.hooked.module, caller.hooked.codes)
        caches = caches_among(args, kwargs) if self._on_write is not None else ()
        stack.append(_CallUnderWay(call, hooked, sys.exc_info()[1], caches))
        leaves = self._seen(walk_inputs(args, kwargs, into_caches=len(stack) == 1))
        with self._lock:  # a consumer sees the calls of several threads one by one, in the order of their numbers
            call.index, self._next_index = self._next_index, self._next_index + 1
            call.call = self._counter.get(path, 0)
            self._counter[path] = call.call + 1
            self._look(caller, caches if caller is None else (*caller.caches, *caches), call.index)
            self._consumer.enter(call, leaves, args, kwargs)

    def _seen(self, leaves: list[Leaf]) -> list[Leaf]:
        """Return the leaves of a call without what transforms of ``torch.func`` have wrapped them in."""
        if _functorch.peek_interpreter_stack() is None:
            return leaves
        leaves = [leaf._replace(tensor=unwrapped(leaf.tensor)) for leaf in leaves]
        if any(_functorch.is_batchedtensor(leaf.tensor) for leaf in leaves) and _MAPPED not in self.notes:
            self.notes.append(_MAPPED)
        return leaves

    def _look(self, writer: _CallUnderWay | None, caches: tuple[object, ...], before: int | None) -> None:
        """Tell what the code of a call that is under way has written to caches since they were last looked at."""
        written = self._thread.watch.written(caches) if caches else []
        if written and writer is not None and self._on_write is not None:
            self._on_write(writer.call, written, before)

    def _abandon(self, stack: list[_CallUnderWay]) -> None:
        """Close the calls that Ctrl-C or ``pytest.skip`` left: torch tells hooks of an ``Exception`` alone."""
        while stack:
            call = stack.pop().call
            call.error = "interrupted"
            with self._lock:
                self._consumer.fail(call)

    def _end(self, path: str, output: Any) -> None:  # noqa: ANN401
        if self._runner not in (None, threading.get_ident()):
            return
        stack = self._thread.stack
        while stack:
            ended = stack.pop()
            call, error = ended.call, sys.exc_info()[1]
            raised = error is not None and error is not ended.handled and output is None
            if call.path == path and not raised:
                leaves = self._seen(walk(output, into_caches=not stack))
                with self._lock:
                    self._look(ended, ended.caches, None)
                    self._consumer.leave(call, leaves, output)
                return
            call.error = type(error).__name__ if error is not None else "interrupted"
            with self._lock:
                self._consumer.fail(call)
            if call.path == path:
                return


@contextmanager
def intercept_outermost(interceptor: Interceptor) -> Iterator[None]:
    """Hand every outermost module call of the block to ``interceptor``, in whichever thread it is made.

    A marked test calls whatever models it likes, and hands none of them to us. Calls that the interceptor makes itself
    are not handed to it again. Modules inside a call cost one extra Python call each.
    """
    original = torch.nn.Module.__call__
    inside = threading.local()

    def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        __tracebackhide__ = True  # a failure inside a call is shown as it would be without us
        if getattr(inside, "a_call", False) or torch.compiler.is_compiling():
            return original(module, *args, **kwargs)
        inside.a_call = True
        try:
            return interceptor(module, args, kwargs, partial(original, module, *args, **kwargs))
        finally:
            inside.a_call = False

    with patch.object(torch.nn.Module, "__call__", call):
        yield
