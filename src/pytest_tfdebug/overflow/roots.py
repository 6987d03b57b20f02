"""The models that a marked test calls: hooked when first met, watched when outermost, unhooked at the end.

A model stays hooked between its forwards. Hooks that come and go with each forward would cost more, and torch adds a
hook in two steps: a thread that runs the same model in between calls it without its keyword arguments.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.tracing.record.outermost import intercept_outermost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from pytest_tfdebug.overflow.watch import Eyes, Watch

    Keep = Callable[[torch.nn.Module, tuple[Any, ...], dict[str, Any]], None]


class Roots:
    """Finds the hooks that watch an outermost call, and adds them where there are none.

    Models are held weakly: a test may build and drop as many as it likes.

    Args:
        watch: The watch that is told of the calls.
        keep: Is given each outermost call before it is made, until something is wrong.
    """

    def __init__(self, watch: Watch, keep: Keep | None = None) -> None:
        self._watch, self._keep = watch, keep
        self._eyes_of: weakref.WeakKeyDictionary[torch.nn.Module, weakref.ref[Eyes]] = weakref.WeakKeyDictionary()
        self._all: weakref.WeakSet[Eyes] = weakref.WeakSet()
        self._running = threading.local()
        self._lock = threading.Lock()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch every outermost call of the block, in any thread."""
        try:
            with intercept_outermost(self._call):
                yield
        finally:
            for eyes in list(self._all):
                eyes.recorder.__exit__(None, None, None)

    def _call(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Callable[[], Any]
    ) -> Any:  # noqa: ANN401
        __tracebackhide__ = True
        if self._keep is not None and not self._watch.is_wrong:
            self._keep(module, args, kwargs)
        self._running.eyes = self._eyes(module)
        try:
            return proceed()
        finally:
            self._running.eyes = None

    def _eyes(self, module: torch.nn.Module) -> Eyes:
        """Return the eyes that see a module and all modules in it; hook the module if there are none."""
        with self._lock:
            known = self._eyes_of.get(module, lambda: None)()
            if known is not None and known.sees_all(module):
                return known
            eyes = self._watch.eyes(module, lambda eyes: getattr(self._running, "eyes", None) is eyes)
            eyes.recorder.__enter__()
            self._all.add(eyes)
            for part in module.modules():
                self._eyes_of[part] = weakref.ref(eyes)
            return eyes
