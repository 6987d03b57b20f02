"""The operators of a forward with all that they were given, so that they can be run again one by one.

Beside the table of values (see :mod:`.operators`), which keeps fingerprints, a tape keeps the tensors, and of each
operator its arguments, with a :class:`Ref` where a tensor stood. Operators that write in place become operators that
return what they wrote: every storage that is written to has an image, a write makes the next one, and what is read
later is a view of that. So no value ever changes, and any of them can be put in the place of another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch.utils._pytree import SequenceKey, tree_flatten_with_path, tree_map

from pytest_tfdebug.tensors import storage_bytes, storage_id
from pytest_tfdebug.tracing.values.index_range import chooses, has_index, is_index, is_told, out_of_range
from pytest_tfdebug.tracing.values.operator_mode import unseen
from pytest_tfdebug.tracing.values.widening import NO_CASTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch.utils._pytree import MappingKey

#: Bytes of the tensors that a tape keeps; a forward that needs more is not kept.
_MOST = 4 << 30
#: What the names of internal operators begin with: those of one backend are called by others only.
_INTERNAL = ("_", "mkldnn_", "cudnn_", "miopen_", "mps_", "xpu_", "slow_", "thnn_")
#: Internal operators that do check what they are given.
_CHECKED = ("_softmax", "_log_softmax", "_unsafe_view", "_to_copy", "_reshape_alias", "_scaled_dot_product")


#: Operators that write to the running statistics that they are given, and whose schema does not say so.
_WITH_STATISTICS = frozenset({"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"})
#: Where these stand among the arguments; and what else has an element for each channel: weight and bias.
_STATISTICS = (3, 4)
_BY_CHANNEL = (1, 2, *_STATISTICS)
#: Where it stands whether the statistics are those of the batch.
_OF_THE_BATCH = 5


class Ref(int):
    """Where a tensor stood among arguments: the index of its value; below 0 that of the image of a storage."""

    __slots__ = ()


class NotTriedError(ValueError):
    """An operator that is not run with operands that it may not be able to take."""


class Geometry(NamedTuple):
    """How a tensor lies in its storage."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class Target(NamedTuple):
    """Where a tensor stood that the operator writes to: which of the images, and how it lies in that."""

    image: int
    geometry: Geometry


@dataclass(slots=True)
class Step:
    """An operator that ran."""

    # name of the aten operator; empty for what the tape itself does to images, ``given`` for what stands for a result
    operator: str
    run: Callable[..., Any]  # gives what it gave, from the same arguments
    args: tuple[Any, ...]
    kwargs: dict[str, Any]  # its keyword arguments
    outs: tuple[int | None, ...]  # the values and images that it gave; None for what is neither
    func: torch._ops.OpOverload | None = None  # the operator; None for what the tape itself does
    # all that stands in the arguments, with how to reach it: ``((0, 1), 2.0)`` for the second argument
    given: tuple[tuple[tuple[Any, ...], Any], ...] = field(init=False)
    refs: tuple[int, ...] = field(init=False)  # the values and images that it was given
    # which of the arguments these are; None where they stand in lists, or among the keyword arguments
    plain: tuple[int, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        self.given = tuple(_places((self.args, self.kwargs)))
        found = [(path, int(each)) for path, each in self.given if isinstance(each, Ref)]
        self.refs = tuple(each for _, each in found)
        is_plain = all(path[0] == 0 and len(path) == 2 for path, _ in found)  # noqa: PLR2004 - args, and which
        self.plain = tuple(path[1] for path, _ in found) if is_plain else None


class Tape:
    """What ran in a forward; the recorder of operators tells it."""

    def __init__(self) -> None:
        self.casts = NO_CASTS  # what operators were given in other dtypes
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.steps: list[Step] = []
        self.tensors: dict[int, torch.Tensor] = {}
        self.maker: dict[int, int] = {}
        self.is_full = False
        self._shown: dict[int, list[int]] = {}
        self._images: dict[int, int] = {}
        self._count, self._bytes = 0, 0
        self.was_read = 0  # how many steps had run when numbers of a tensor were read last

    def read(self) -> None:
        """Note that numbers of a tensor were read: what the code does with them is not on the tape."""
        self.was_read = len(self.steps)

    def numbers(self) -> set[float]:
        """Return the numbers that operators were given."""
        return {each for step in self.steps for _, each in step.given if type(each) is float}

    def has(self, index: int, tensor: torch.Tensor) -> None:
        """Note what a value shows."""
        key = storage_id(tensor)
        if key not in self._shown:
            self._bytes += storage_bytes(tensor)
            if self._bytes > _MOST:
                self.clear()
                self.is_full = True
        self._shown.setdefault(key, []).append(index)
        if not self.is_full:
            self.tensors[index] = tensor.detach()

    def views(self, index: int, tensor: torch.Tensor) -> None:
        """Note a value that shows what was written into its storage by way of other tensors."""
        if not self.is_full:
            self._add(Step("", _seen, (Ref(self._image(tensor)), geometry_of(tensor)), {}, (index,)))
        self.has(index, tensor)

    def ran(self, func: torch._ops.OpOverload, given: tuple[Any, Any], outs: Sequence[int | None]) -> None:
        """Note an operator that only reads; what draws random numbers, or gives none, is not run again."""
        name = func.overloadpacket.__name__
        is_trusting = name.startswith(_INTERNAL) and not name.startswith(_CHECKED)  # most of these check nothing
        if "empty" not in name and torch.Tag.nondeterministic_seeded not in func.tags:
            run = self._as_recorded(func, given) if is_trusting else self._checked(func, given)
            if name in _WITH_STATISTICS:
                run = partial(_on_copies, run)
            self._add(Step(name, run, *given, tuple(outs), func))

    def rounds(self, index: int, out: int, low: torch.dtype, dtype: torch.dtype) -> None:
        """Note a value that is another one in a lower precision, whatever this forward computes in."""
        self._add(Step("_to_copy", partial(_in_precision, low, dtype), (Ref(index),), {}, (out,)))

    def will_write(self, tensors: Sequence[torch.Tensor]) -> dict[int, Target]:
        """Note that an operator is about to write to some tensors; return what stands for them, by their ids."""
        if self.is_full:
            return {}
        images = list(dict.fromkeys(self._image(tensor) for tensor in tensors))
        targets = {id(each): Target(images.index(self._image(each)), geometry_of(each)) for each in tensors}
        for tensor in tensors:
            shown = self._shown[storage_id(tensor)]
            before = _flat(tensor).clone() if shown else tensor
            for index in shown:
                self.tensors[index] = _seen(before, geometry_of(self.tensors[index]))
            shown.clear()
        return targets

    def wrote(
        self, func: torch._ops.OpOverload, given: tuple[Any, Any], results: Sequence[tuple[int, torch.Tensor]]
    ) -> None:
        """Note an operator that has written."""
        if self.is_full:
            return
        storages = {self._image(tensor): tensor for _, tensor in results}
        images = tuple(map(Ref, storages))
        new = [self._new_image(tensor) for tensor in storages.values()]
        step = Step(
            func.overloadpacket.__name__,
            partial(written, self._checked(func, given)),
            (*given, images),
            {},
            (*(index for index, _ in results), *new),
            func,
        )
        self._add(step)

    def _checked(self, func: torch._ops.OpOverload, given: tuple[Any, Any]) -> Callable[..., Any]:
        """Return an operator that is run only where what it chooses is there: an accelerator would not say so."""
        run = self.casts.applied(func)
        if not chooses(func):
            return run
        if is_told(func):
            return partial(_in_range, func, run)
        tensors = [self.tensors[each] for _, each in _places(given) if isinstance(each, Ref) and each in self.tensors]
        return self._as_recorded(func, given) if has_index(tensors) else run

    def _as_recorded(self, func: torch._ops.OpOverload, given: tuple[Any, Any]) -> Callable[..., Any]:
        """Return an operator that is run only on tensors of the recorded forms, integers and numbers."""
        recorded = (self.tensors.get(each) if isinstance(each, Ref) else each for _, each in _places(given))
        return partial(_on_the_like, self.casts.applied(func), [*map(_form_of, recorded)])

    def _image(self, tensor: torch.Tensor) -> int:
        """Return the image of a tensor's storage as it is; the first is made of the first value in it."""
        key = storage_id(tensor)
        if key not in self._images:
            first = self._shown[key][0]
            base = self.tensors[first]
            image = self._new_image(base)
            size = storage_bytes(base)
            if first in self.maker or base.numel() * base.element_size() >= size:  # else a part of what was there
                laid = partial(_laid, geometry=geometry_of(base), size=size)
                self._add(Step("", laid, (Ref(first),), {}, (image,)))
        return self._images[key]

    def _new_image(self, tensor: torch.Tensor) -> int:
        self._count += 1
        key, image = storage_id(tensor), -self._count
        self._images[key] = image
        self._shown[key].append(image)
        self.tensors[image] = _flat(tensor)
        return image

    def _add(self, step: Step) -> None:
        if not self.is_full:
            self.maker |= {out: len(self.steps) for out in step.outs if out is not None}
            self.steps.append(step)


def _in_precision(low: torch.dtype, dtype: torch.dtype, tensor: torch.Tensor) -> torch.Tensor:
    with unseen():  # in a forward in wider dtypes the lower one would be another
        return tensor.to(low).to(dtype)


def _is_whole(given: object) -> bool:
    return isinstance(given, (Target, Geometry, torch.Size))


def _places(given: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:  # noqa: ANN401 - any
    for path, each in tree_flatten_with_path(given, _is_whole)[0]:
        steps = (step.idx if isinstance(step, SequenceKey) else cast("MappingKey[Any, Any]", step).key for step in path)
        yield tuple(steps), each


def put(given: Any, path: tuple[Any, ...], new: Any) -> Any:  # noqa: ANN401 - any argument
    """Return nested arguments with another in one place."""
    if not path:
        return new
    items = {**given} if isinstance(given, dict) else list(given)
    items[path[0]] = put(items[path[0]], path[1:], new)
    return items if isinstance(items, dict) else type(given)(items)


def mapped(given: Any, replacement: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - any
    """Return nested arguments with something else for each that stands in them."""
    return tree_map(replacement, given, is_leaf=_is_whole)


def _on_the_like(func: Callable[..., Any], forms: Sequence[Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any
    """Run an operator that does not check what it is given, or of which nothing says what it chooses."""
    given = [_form_of(each) for _, each in _places((args, kwargs))]
    if len(given) != len(forms) or not all(map(_is_one_form, given, forms)):
        msg = f"{func} runs on what it was recorded with alone: it checks nothing of what it is given"
        raise NotTriedError(msg)
    return func(*args, **kwargs)


def _on_copies(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any operator
    """Run an operator on copies of the running statistics: those that a tape keeps are the model's own.

    It checks nothing itself: without the statistics that it is to use, it ends the process.
    """
    given = [args[place] for place in _BY_CHANNEL]
    is_complete = args[_OF_THE_BATCH] or all(args[place] is not None for place in _STATISTICS)
    if not is_complete or any(each is not None and each.numel() != args[0].shape[1] for each in given):
        msg = "a batch norm runs only with the statistics that it uses, and with an element for each channel"
        raise NotTriedError(msg)
    own = (each.clone() if place in _STATISTICS and each is not None else each for place, each in enumerate(args))
    return run(*own, **kwargs)


def _in_range(func: torch._ops.OpOverload, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Run an operator if what it chooses is there."""
    told = out_of_range(func, args, kwargs)
    if told:
        raise NotTriedError(told)
    return run(*args, **kwargs)


def _form_of(each: Any) -> Any:  # noqa: ANN401 - any
    """Return a tensor's shape, strides and dtype, and its numbers where these may choose elements."""
    if not isinstance(each, torch.Tensor):
        return each
    return each.shape, each.stride(), each.dtype, each.clone() if is_index(each) else None


def _is_one_form(one: Any, other: Any) -> bool:  # noqa: ANN401 - any
    is_tensor = isinstance(one, tuple) and isinstance(one[-1], torch.Tensor)
    if is_tensor and isinstance(other, tuple) and isinstance(other[-1], torch.Tensor):
        return bool(one[:-1] == other[:-1]) and torch.equal(one[-1], other[-1])
    return bool(one == other) and not is_tensor


def results_of(output: Any) -> list[Any]:  # noqa: ANN401 - of any operator
    """Return what an operator gave, one after another."""
    return list(output) if isinstance(output, (list, tuple)) else [output]


def written(func: Callable[..., Any], args: Any, kwargs: Any, images: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:  # noqa: ANN401
    """Run an operator in place on copies of images, and return what it wrote to, then the copies."""
    copies = [image.clone() for image in images]
    shown: dict[Target, torch.Tensor] = {}

    def put(given: Any) -> Any:  # noqa: ANN401
        if not isinstance(given, Target):
            return given
        if given not in shown:
            shown[given] = _seen(copies[given.image], given.geometry)
        return shown[given]

    func(*mapped(args, put), **mapped(kwargs, put))
    return (*shown.values(), *copies)


def _laid(tensor: torch.Tensor, geometry: Geometry, size: int) -> torch.Tensor:
    """Return the image of a storage that holds a tensor, as flat as its storage was."""
    flat = torch.zeros(size // tensor.element_size(), dtype=tensor.dtype, device=tensor.device)
    _seen(flat, geometry).copy_(tensor)
    return flat


def _seen(flat: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    return flat.view(geometry.dtype).as_strided(geometry.shape, geometry.stride, geometry.offset)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().as_strided((storage_bytes(tensor) // tensor.element_size(),), (1,), 0)


def geometry_of(tensor: torch.Tensor) -> Geometry:
    """Return how a tensor lies in its storage."""
    return Geometry(int(tensor.storage_offset()), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
