"""The hooks on the models under watch: on one that is given, or on every model that a marked test calls.

A model stays hooked between its forwards. Hooks that come and go with each forward would cost more, and torch adds a
hook in two steps: a thread that runs the same model in between calls it without its keyword arguments.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.tracing.record.outermost import intercept_outermost
from pytest_tfdebug.tracing.record.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.overflow.judge import Pass
    from pytest_tfdebug.overflow.watch import Watch
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.tracing.record.leaves import Leaf

    Keep = Callable[[torch.nn.Module, tuple[Any, ...], dict[str, Any]], None]

DATA_PARALLEL = (
    "overflow_free cannot watch torch.nn.DataParallel: it runs copies of the model in threads of its own.\n"
    "Use torch.nn.parallel.DistributedDataParallel, or watch the model without the wrapper."
)


class ModelHooks:
    """The consumer of one recorder: a :class:`Pass` for each outermost call of each thread. The watch takes it off."""

    def __init__(
        self, watch: Watch, root: torch.nn.Module, is_wanted: Callable[[ModelHooks], bool] = lambda _: True
    ) -> None:
        if any(isinstance(module, torch.nn.DataParallel) for module in root.modules()):
            raise TFDebugError(DATA_PARALLEL)
        self.recorder = Recorder(root, self, joins_threads=False)
        self._watch = watch
        self._is_wanted = is_wanted
        self._parts = {id(module) for module in root.modules()}
        self._local = threading.local()
        watch.notes.update(dict.fromkeys(self.recorder.notes))
        watch.hooks.add(self)

    def sees_all(self, module: torch.nn.Module) -> bool:
        """Tell whether every module inside a module is hooked: some models add modules to themselves."""
        return all(id(part) in self._parts for part in module.modules())

    def enter(self, call: Call, leaves: list[Leaf], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # noqa: ARG002
        """A call begins."""
        if call.depth == 0:
            is_root = call.path == self.recorder.root_name
            is_wanted = self._is_wanted(self)
            self._local.running = self._watch.begin(self.recorder.model, is_root=is_root) if is_wanted else None
        running = self._running()
        if running is not None:
            running.enter(call, leaves)

    def leave(self, call: Call, leaves: list[Leaf], output: Any) -> None:  # noqa: ANN401, ARG002
        """A call has returned."""
        running = self._running()
        if running is not None:
            running.leave(call, leaves)
            self._end(running, call, has_failed=False)

    def fail(self, call: Call) -> None:
        """An exception left a call."""
        running = self._running()
        if running is not None:
            running.fail(call)
            self._end(running, call, has_failed=True)

    def _running(self) -> Pass | None:
        running: Pass | None = getattr(self._local, "running", None)
        return running

    def _end(self, running: Pass, call: Call, *, has_failed: bool) -> None:
        if call.depth == 0:
            self._local.running = None
            self._watch.end(running, is_root=call.path == self.recorder.root_name, has_failed=has_failed)


class Roots:
    """Finds the hooks that watch an outermost call, and adds them where there are none.

    Models are held weakly: a test may build and drop as many as it likes.
    """

    def __init__(self, watch: Watch, keep: Keep | None = None) -> None:
        self._watch, self._keep = watch, keep
        self._known: weakref.WeakKeyDictionary[torch.nn.Module, weakref.ref[ModelHooks]] = weakref.WeakKeyDictionary()
        self._running = threading.local()
        self._lock = threading.Lock()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch every outermost call of the block, in any thread."""
        try:
            with intercept_outermost(self._call):
                yield
        finally:
            self._watch.close()

    def _call(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Callable[[], Any]
    ) -> Any:  # noqa: ANN401
        __tracebackhide__ = True
        if self._keep is not None and not self._watch.is_wrong:
            self._keep(module, args, kwargs)
        self._running.hooks = self._hooks(module)
        try:
            return proceed()
        finally:
            self._running.hooks = None

    def _hooks(self, module: torch.nn.Module) -> ModelHooks:
        """Return the hooks that see a module and all modules in it; hook the module if there are none."""
        with self._lock:
            known = self._known.get(module, lambda: None)()
            if known is not None and known.sees_all(module):
                return known
            hooks = ModelHooks(self._watch, module, lambda hooks: getattr(self._running, "hooks", None) is hooks)
            hooks.recorder.__enter__()
            for part in module.modules():
                self._known[part] = weakref.ref(hooks)
            return hooks
