"""Keep what a forward may change: a tensor as it is now, and a model, which is left as it was.

``torch._lazy_clone`` makes both tensors share their storage until one of them is written to: capturing costs
microseconds, and a module that works in place pays for the copy itself. It is a private function of torch, called here
and nowhere else. Its limit: a write through memory that torch does not own (a numpy array that shares the storage) is
not seen; such storages refuse, and are copied. What a model owns is copied too: its memory stays where it is.
"""

from __future__ import annotations

import operator
import random
import sys
import threading
import weakref
from collections import OrderedDict
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch.nn.parameter import is_lazy

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.tensors import PLAIN, is_plain, readable, storage_id, unwrapped, version
from pytest_tfdebug.tracing.record.leaves import replaced
from pytest_tfdebug.tracing.record.modules import wrapped_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


_T = TypeVar("_T")
_lazy_clone = getattr(torch, "_lazy_clone", None)
_is_cow = getattr(torch._C, "_is_cow_tensor", None)  # noqa: SLF001 - the other half of ``_lazy_clone``
_functorch = torch._C._functorch  # noqa: SLF001 - what a tensor is inside a transform has no public test


def capture(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the values of a tensor as they are now, detached from autograd."""
    return captured(tensor)[0]


def captured(tensor: torch.Tensor, owned: Collection[int] = ()) -> tuple[torch.Tensor | None, bool]:
    """As :func:`capture`, and whether the tensor shares its storage with what was captured; never an owned storage."""
    tensor = unwrapped(tensor)
    values = readable(tensor)
    if values is not None and values.dtype == torch.uint8 != tensor.dtype:  # bytes are read where they lie
        return values.clone(), False
    if values is not tensor:
        return values, False
    detached = tensor.detach()
    if _lazy_clone is not None and type(tensor) in PLAIN:
        try:
            if not owned or storage_id(tensor) not in owned:
                return _lazy_clone(detached), True
        except RuntimeError:  # a storage that torch did not allocate: memory-mapped, shared, numpy's
            pass
    return detached.clone(), False


def storages_of(tensors: Iterable[torch.Tensor]) -> set[int]:
    """Return the identities of the storages of tensors, for ``owned`` of :func:`captured`."""
    return {storage_id(tensor) for tensor in tensors if type(tensor) in PLAIN and is_plain(tensor)}


class SeenTensors(Generic[_T]):
    """What was made of the tensors of a forward, of each as long as it lives and nobody writes to it.

    A module's input is most often its neighbour's output, so this halves what is done.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[weakref.ref[torch.Tensor], int, bool, _T]] = {}

    def of(self, tensor: torch.Tensor) -> _T | None:
        """Return what was made of a tensor; None for a new one, one that was written to, and one that cannot tell."""
        seen = self._seen.get(id(tensor))
        if seen is None or seen[0]() is not tensor or not seen[1] == version(tensor) >= 0:
            return None
        return None if seen[2] and not still_shares(tensor) else seen[3]

    def note(self, tensor: torch.Tensor, made: _T, *, shares: bool = False) -> _T:
        """Keep what was made of a tensor, and return it."""
        self._seen[id(tensor)] = weakref.ref(tensor), version(tensor), shares and still_shares(tensor), made
        return made


class Captures:
    """The tensors captured during one forward; one that is seen again unchanged is not captured again."""

    def __init__(self, owned: Iterable[torch.Tensor] = ()) -> None:
        self._owned = storages_of(owned)
        self._seen: SeenTensors[torch.Tensor | None] = SeenTensors()

    def take(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Capture a tensor, or return the earlier capture of the same tensor if nothing wrote to it since."""
        seen = self._seen.of(tensor)
        if seen is not None:
            return seen
        kept, shares = captured(tensor, self._owned)
        return self._seen.note(tensor, kept, shares=shares)


def still_shares(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor still shares its storage with a capture: a write, also one through ``.data``, ends that."""
    return _is_cow is not None and not _functorch.is_gradtrackingtensor(tensor) and bool(_is_cow(tensor))


def kept(value: Any) -> Any:  # noqa: ANN401 - any input
    """Return a copy of a nested input, caches included, whose tensors share their storage until they are written to."""
    return replaced(value, _captured)


def _captured(tensor: torch.Tensor) -> torch.Tensor:
    values = capture(tensor) if tensor.layout == torch.strided else None
    return tensor if values is None else values


#: The models that are put back when a forward of theirs has ended, and the thread that waits for it.
_KEPT: dict[int, int] = {}  # by id: a model may have an ``__eq__`` of its own


@contextmanager
def preserved(model: torch.nn.Module) -> Iterator[None]:
    """Put back, on leaving the block, what a forward may change: random numbers, buffers, attributes, hooks.

    A forward in training mode draws dropout masks and updates running statistics; traced twice, it gives the same
    answer twice.
    """
    thread, holder = threading.get_ident(), _KEPT.get(id(model))
    if holder not in (None, thread):
        raise TFDebugError(
            f"{type(model).__name__} is already traced or checked in another thread.\n"
            "Trace one after the other, or give each thread a copy of the model."
        )
    lazy = [path for path, tensor in chain(model.named_parameters(), model.named_buffers()) if is_lazy(tensor)]
    if lazy:
        raise TFDebugError(
            f"{type(model).__name__} has lazy modules: {lazy[0]} has no shape yet.\n"
            "Call the model once with its inputs, then check it."
        )
    _KEPT[id(model)] = thread
    try:
        plain = (module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule))
        attributes = [_Attributes(module) for module in plain if wrapped_name(module) is None]
        buffers = {id(tensor): tensor for kept in attributes for tensor in kept.tensors() if is_plain(tensor)}
        values = {key: buffer.detach().clone() for key, buffer in buffers.items()}  # not lazily: memory would move
        counted = tuple(buffer for buffer in buffers.values() if not buffer.is_inference())
        # A backward of an earlier forward asks for the count of writes; the values that it saved are there again.
        counts = torch.autograd._unsafe_preserve_version_counter(counted)  # type: ignore[attr-defined] # noqa: SLF001
        with random_state_kept(), float32_kept(), counts:
            try:
                yield
            finally:
                for kept in attributes:
                    kept.put_back()
                for key, buffer in buffers.items():
                    _put_back(buffer, values[key])
    finally:
        if holder is None:
            _KEPT.pop(id(model), None)


#: Settings by which torch computes float32 with fewer digits, or adds up halves in halves: object, name, and the value
#: without; of the two ways to say one thing, the one that the process does not use refuses to be read. All of a GPU.
_SHORTCUTS = (
    ("cudnn", "allow_tf32", False),
    ("cudnn.conv", "fp32_precision", "ieee"),
    ("cudnn.rnn", "fp32_precision", "ieee"),
    ("cuda.matmul", "fp32_precision", "ieee"),
    ("cuda.matmul", "allow_fp16_reduced_precision_reduction", False),
    ("cuda.matmul", "allow_bf16_reduced_precision_reduction", False),
)


@contextmanager
def float32_kept() -> Iterator[None]:
    """Compute float32 as float32 in a block, and add up products of halves in it; settings are put back.

    By torch's defaults convolutions of a GPU are computed with ten bits of mantissa (TF32), and some models set that
    for products too: a reference on one device and its port on another would differ by it.
    """
    with ExitStack() as stack:
        with suppress(RuntimeError):
            before = torch.get_float32_matmul_precision()
            if before != "highest":
                stack.callback(torch.set_float32_matmul_precision, before)
                torch.set_float32_matmul_precision("highest")
        for place, name, exact in _SHORTCUTS if torch.cuda.is_available() else ():  # compiled code is bound to them
            with suppress(RuntimeError, AttributeError):
                holder = operator.attrgetter(place)(torch.backends)
                given = getattr(holder, name)
                if given not in (exact, "none"):
                    stack.callback(setattr, holder, name, given)
                    setattr(holder, name, exact)
        yield


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Put generators of random numbers back on leaving the block; NumPy's, and those of GPUs, if they are in use."""
    python_state = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy is not None else None
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy is not None:
                numpy.random.set_state(numpy_state)


#: What a module holds that whoever shards, offloads or compiles it looks after.
_OF_OTHERS = frozenset({"_parameters", "_compiled_call_impl"})
_CONTAINERS = frozenset({list, dict, set, OrderedDict})


class _Attributes:
    """What a module holds: plain attributes, what lists, dicts and sets among them hold, buffers, children and hooks.

    BigBird's forward replaces its attention when a sequence is short, and notes in an attribute that it has; and
    transformers puts hooks into a model that is asked for attentions.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._now = vars(module)
        self._before = self._now.copy()
        held = [value for name, value in self._before.items() if type(value) in _CONTAINERS and name not in _OF_OTHERS]
        self._empty = [value for value in held if not value]  # most of them, of hooks
        self._contents = [(value, value.copy()) for value in held if value]

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield the tensors that it holds, its parameters left out."""
        held = (*self._before.values(), *self._before["_buffers"].values())
        yield from (value for value in held if isinstance(value, torch.Tensor))

    def put_back(self) -> None:
        now, before = self._now, self._before
        if not _are_same(now, before):
            for name in now.keys() - before.keys() - _OF_OTHERS:
                del now[name]
            now.update({name: value for name, value in before.items() if name not in _OF_OTHERS})
        for filled in (value for value in self._empty if value):
            filled.clear()
        for value, content in self._contents:
            if not _are_same(value, content):
                value.clear()
                (value.extend if isinstance(value, list) else value.update)(content)


def _are_same(one: Collection[Any], other: Collection[Any]) -> bool:
    """Tell whether two lists, sets or dicts hold the same objects, dicts under the same keys, in the same order."""
    is_same = len(one) == len(other) and all(map(operator.is_, one, other))
    return is_same and not (
        isinstance(one, dict) and isinstance(other, dict) and any(map(operator.is_not, one.values(), other.values()))
    )


def _put_back(buffer: torch.Tensor, values: torch.Tensor) -> None:
    """Write the old values where the buffer holds others; compared, for ``.data`` writes are not counted by torch."""
    if buffer.shape == values.shape and torch.equal(buffer, values):
        return
    with torch.inference_mode(buffer.is_inference()), torch.no_grad():
        if buffer.shape != values.shape:
            buffer.data = values.clone()
        buffer.copy_(values)


def autocast_of(model: torch.nn.Module) -> tuple[str, torch.dtype] | None:
    """Return device type and dtype of the autocast that is on where the model is; None when it is off."""
    device = next((item.device.type for item in model.parameters()), "cpu")
    return (device, torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else None
