"""The watch that a guard, a marked test and a Trainer share, and its hooks on one model or on all that a test calls.

A model stays hooked between its forwards. Hooks that come and go with each forward would cost more, and torch adds a
hook in two steps: a thread that runs the same model in between calls it without its keyword arguments.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import WeakIdKeyDictionary  # a model may have an ``__eq__`` of its own

from pytest_tfdebug.data.overflow import Fault, Frame
from pytest_tfdebug.errors import ActivationOverflowError, TFDebugError
from pytest_tfdebug.overflow.extremes import Headroom, Reducer, details
from pytest_tfdebug.overflow.gradients import Gradients
from pytest_tfdebug.overflow.judge import Pass, is_ignored
from pytest_tfdebug.overflow.products import Products
from pytest_tfdebug.publish.reports import calling_line
from pytest_tfdebug.report.overflow import fault_text, headroom_text, render_skipped
from pytest_tfdebug.tracing.record.masks import is_mask_name
from pytest_tfdebug.tracing.record.modules import modules_by_path, root_name
from pytest_tfdebug.tracing.record.recorder import Recorder, intercept_outermost
from pytest_tfdebug.tracing.values.rerun import Rerun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping

    from pytest_tfdebug.overflow.settings import OverflowSettings
    from pytest_tfdebug.records import Call, SourceRange
    from pytest_tfdebug.report.check_text import CheckText
    from pytest_tfdebug.tensors import Leaf

DATA_PARALLEL = (
    "overflow_free cannot watch torch.nn.DataParallel: it runs copies of the model in threads of its own.\n"
    "Use torch.nn.parallel.DistributedDataParallel, or watch the model without the wrapper."
)


class _UnderWatch(threading.local):
    """What one thread does."""

    running: Pass | None = None  # the outermost call under watch
    hooks: ModelHooks | None = None  # those that are to watch it
    products: Products | None = None  # sees matrix products in the code of that call, where headroom is asked for


class ModelHooks:
    """The consumer of one recorder: a :class:`Pass` for each outermost call of each thread. The watch takes it off."""

    def __init__(
        self, watch: Watch, root: torch.nn.Module, is_wanted: Callable[[ModelHooks], bool] = lambda _: True
    ) -> None:
        if any(isinstance(module, torch.nn.DataParallel) for module in root.modules()):
            raise TFDebugError(DATA_PARALLEL)
        self.recorder = Recorder(root, self, runs_once=False)
        self._watch = watch
        self._is_wanted = is_wanted
        self._parts = {id(module) for module in root.modules()}
        self._local = _UnderWatch()
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
            if self._local.running is not None and self._watch.settings.wants_headroom:
                self._local.products = Products(self._local.running.product)
                self._local.products.__enter__()  # type: ignore[no-untyped-call] # of torch
        if self._local.running is not None:
            self._local.running.enter(call, leaves)

    def take_off(self) -> None:
        """Watch no longer; Ctrl-C or ``pytest.skip`` may have left a call whose end nobody has told."""
        self.recorder.__exit__(None, None, None)
        self._let_products_go()

    def _let_products_go(self) -> None:
        products, self._local.products = self._local.products, None
        if products is not None:
            products.__exit__(None, None, None)  # type: ignore[no-untyped-call] # likewise

    def leave(self, call: Call, leaves: list[Leaf], output: Any) -> None:  # noqa: ANN401, ARG002
        """A call has returned."""
        self._end(call, leaves)

    def fail(self, call: Call) -> None:
        """An exception left a call."""
        self._end(call, None)

    def _end(self, call: Call, leaves: list[Leaf] | None) -> None:
        running = self._local.running
        if running is None:
            return
        if call.depth == 0:  # first of all: what is found may be raised
            self._local.running = None
            self._let_products_go()
        running.leave(call, leaves)
        if call.depth == 0:
            self._watch.end(running, has_failed=leaves is None)


class Roots:
    """Finds the hooks that watch an outermost call, and adds them where there are none.

    Models are held weakly: a test may build and drop as many as it likes.
    """

    def __init__(self, watch: Watch, *, keeps_calls: bool = False) -> None:
        self._watch, self._keeps_calls = watch, keeps_calls
        self.at: SourceRange | None = None  # the line that made the first call
        self.latest: Rerun | None = None  # the call that was made last, or in which something went wrong, if kept
        self._known: MutableMapping[torch.nn.Module, weakref.ref[ModelHooks]] = WeakIdKeyDictionary()
        self._local = _UnderWatch()
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
        self.at = self.at or calling_line()
        if self._keeps_calls and not self._watch.is_wrong:
            self.latest = Rerun(module, args, kwargs)
        self._local.hooks = self._hooks(module)
        try:
            return proceed()
        finally:
            self._local.hooks = None

    def _hooks(self, module: torch.nn.Module) -> ModelHooks:
        """Return the hooks that see a module and all modules in it; hook the module if there are none."""
        with self._lock:
            known = self._known.get(module, lambda: None)()
            if known is not None and known.sees_all(module):
                return known
            hooks = ModelHooks(self._watch, module, lambda hooks: self._local.hooks is hooks)
            hooks.recorder.__enter__()
            for part in module.modules():
                self._known[part] = weakref.ref(hooks)
            return hooks


_NO_GRADIENT = "Call backward() on an output of the watched model, or leave out gradients=True."


class Watch:
    """Follows forwards, keeps the first fault and the largest values, and says what is wrong."""

    def __init__(self, settings: OverflowSettings, *, raises: bool) -> None:
        self.settings = settings
        self.fault: Fault | None = None
        self.raised: Fault | None = None
        self.headroom = Headroom(settings)
        self.skipped: Counter[str] = Counter()
        self.notes: dict[str, None] = {}
        self.forwards = 0
        self.tensors = 0
        self._raises = raises
        self.history: deque[Frame] = deque(maxlen=settings.frames)
        self._numbers: MutableMapping[torch.nn.Module, int] = WeakIdKeyDictionary()
        self._checked: MutableMapping[torch.nn.Module, bool] = WeakIdKeyDictionary()
        self.gradients = Gradients(settings, self.headroom, self.skipped, self.conclude)
        self._lock = threading.Lock()
        #: The hooks on models; a model that is dropped takes its own with it.
        self.hooks: weakref.WeakSet[ModelHooks] = weakref.WeakSet()

    def begin(self, root: torch.nn.Module, *, is_root: bool) -> Pass | None:
        """An outermost call begins: of the root, or of a module inside it (a checkpoint that is computed again)."""
        if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call] # its documented name
            return None
        number = self._numbers.get(root, 0)
        if not is_root:
            number = max(0, number - 1)
        if self.settings.gradients:
            self.gradients.begin(root, number)
        self._check_weights(root)
        follow = self.gradients.follow if self.settings.gradients else None
        return Pass(self.settings, self.headroom, self.history, number, root, is_root=is_root, follow=follow)

    def end(self, ended: Pass, *, has_failed: bool) -> None:
        """An outermost call has ended: raise what has to be raised, unless the call raised itself."""
        ended.settle()
        with self._lock:
            self.forwards += 1
            self.tensors += ended.tensors
            self.skipped.update(ended.reducer.skipped)
            self.fault = self.fault or ended.fault
            if ended.is_root:
                self._numbers[ended.root] = ended.number + 1
            self.history = ended.history
        if not has_failed:
            self.conclude()

    def conclude(self) -> None:
        """Raise the fault, where this watch raises; the next forward is then watched afresh."""
        self.fault = self.fault or self.gradients.fault
        if self._raises and self.fault is not None:
            error = self.error(fault_text(self.fault, self._remarks()))
            self.reset()
            raise error

    def error(self, report: CheckText | str) -> ActivationOverflowError:
        """Return what is raised with a report; it carries the fault and the least headroom."""
        self.raised = self.fault
        return ActivationOverflowError(
            report,
            self.fault,
            self.headroom.tightest(),
            is_empty=isinstance(report, str),  # see emptiness
        )

    @property
    def roots(self) -> list[torch.nn.Module]:
        """The models that were called and are still there."""
        return list(self._numbers)

    @property
    def is_wrong(self) -> bool:
        """Whether what was seen so far is enough to fail; numbers that still wait on a device do not count."""
        has_fault = self.fault is not None or self.gradients.fault is not None
        return has_fault or self.headroom.first is not None

    def verdict(self) -> CheckText | None:
        """Return what is wrong with all that was seen, or None; read back the gradients that still wait on a device."""
        self.gradients.settle()
        self.fault = self.fault or self.gradients.fault
        settings, remarks = self.settings, self._remarks()
        if self.fault is not None:
            return fault_text(self.fault, remarks)
        if self.headroom.first is not None:
            return headroom_text(self.headroom.tightest(), self.headroom.first, settings.factor, remarks)
        return None

    def reset(self) -> None:
        """Forget the fault."""
        self.fault = None
        self.gradients.reset()

    def close(self) -> None:
        """Take the hooks off models and parameters."""
        for hooks in list(self.hooks):
            hooks.take_off()
        self.gradients.remove()

    def emptiness(self, subject: str, advice: str) -> str | None:
        """Return a message when nothing was checked; None otherwise."""
        if not self.tensors:
            outside = " outside ignore=" if self.settings.ignore else ""
            reason = f"no floating-point tensor with values was seen{outside}" if self.forwards else "no module ran"
            return "\n".join([f"{subject} checked nothing: {reason}.", advice, *self._remarks()])
        if self.settings.gradients and not self.gradients.has_seen:
            lines = (f"{subject}(gradients=True) checked no gradient: no backward reached the model.", _NO_GRADIENT)
            return "\n".join([*lines, *self._remarks()])
        return None

    def _remarks(self) -> list[str]:
        return [*render_skipped(self.skipped), *(f"Note: {note}" for note in self.notes)]

    def _check_weights(self, root: torch.nn.Module) -> None:
        """Look at each parameter once; buffers are looked at when their module is the culprit."""
        if root in self._checked:
            return
        self._checked[root] = True
        reducer = Reducer(self.settings)
        found = []
        for path, module in modules_by_path(root).items():
            for name, parameter in module.named_parameters(recurse=False):
                extremes = None if is_ignored(path, self.settings.ignore) else reducer.extremes(parameter, [])
                if extremes is not None:
                    owner, kind = path or root_name(root), type(module).__name__
                    found.append(Frame(0, owner, kind, "parameter", name, extremes, weakref.ref(parameter)))
        reducer.read_back()
        self.skipped.update(reducer.skipped)
        bad = [  # a mask or bias may be -inf where it hides
            frame
            for frame in found
            if not frame.extremes.is_finite and not (is_mask_name(frame.leaf) and frame.extremes.is_only_low)
        ]
        if bad and self.fault is None:
            first, weight = bad[0], bad[0].tensor()
            found_in = None if weight is None else details(weight)
            frames = tuple(bad[: self.settings.frames])
            self.fault = Fault(first, "parameter", first.path, first.class_name, frames=frames, details=found_in)
