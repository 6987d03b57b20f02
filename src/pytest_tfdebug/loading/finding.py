"""Where each tensor of a model is from: by its name, by its numbers, in pieces, or changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.loading.arrivals import numbers_in
from pytest_tfdebug.loading.fibres import Fibres
from pytest_tfdebug.loading.held import made_again
from pytest_tfdebug.loading.numbers import (
    correlated,
    extremes,
    how_changed,
    is_constant,
    layout_of,
    rows_that_differ,
    same_bits,
)
from pytest_tfdebug.module_path import holder, last_part
from pytest_tfdebug.tensors import dtype_name, widen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_tfdebug.data.load import Verdict
    from pytest_tfdebug.loading.arrivals import Arrivals
    from pytest_tfdebug.loading.held import HeldTensor
    from pytest_tfdebug.loading.numbers import Layout

    #: Shows how far a loop is, where it takes long.
    Progress = Callable[[Iterable[HeldTensor], str], Iterable[HeldTensor]]

#: How far a buffer may be from one made again: that of float32, and of a copy in half precision.
_MADE_AGAIN = {True: 1e-5, False: 1e-2}
#: How far rounding may take numbers that a scale was applied to.
_SCALED = 1e-2
_MATRIX = 2


def by_name(arrivals: Arrivals, progress: Progress) -> None:
    """Find what the checkpoint has under the same name."""
    for held in progress(arrivals.held.values(), "reading"):
        for name in held.names:
            if arrivals.shapes.get(name) == tuple(held.tensor.shape):
                stored = arrivals.checkpoint.tensor(name)
                if same_bits(held.tensor, held.cast(stored)):
                    is_cast = stored.dtype != held.tensor.dtype
                    told = f"from {dtype_name(stored.dtype)} to {dtype_name(held.tensor.dtype)}" if is_cast else ""
                    arrivals.take(held, "cast" if is_cast else "read", name, detail=told)
                    break


def buffers(arrivals: Arrivals, model: torch.nn.Module) -> None:
    """Find buffers that the checkpoint does not have, and that the model makes from its configuration."""
    own = [each for each in arrivals.left if not each.is_parameter and arrivals.own_name(each) is None]
    fresh: Mapping[str, torch.Tensor] = made_again(model) if own else {}
    for held in own:
        made = fresh.get(held.name)
        is_default = held.is_saved and held.tensor.is_floating_point() and is_constant(held.tensor)
        if made is not None and not is_default and _is_near(held, made):
            arrivals.take(held, "made again")
        elif made is None and not held.is_saved:
            arrivals.take(held, "not saved", detail="a buffer outside the state dict, which nothing here makes again")


def whole(arrivals: Arrivals, progress: Progress) -> None:
    """Find tensors whose numbers the checkpoint has under another name, or in another layout."""
    index: dict[tuple[torch.dtype, int], dict[tuple[int, float, float], list[str]]] = {}
    sizes: dict[int, list[str]] = {}
    for name, shape in arrivals.shapes.items():
        sizes.setdefault(torch.Size(shape).numel(), []).append(name)
    for held in progress([each for each in arrivals.left if not is_constant(each.tensor)], "matching"):
        count = held.tensor.numel()
        key = (held.tensor.dtype, count)
        if key not in index:
            index[key] = {}
            for name in sizes.get(count, ()):
                index[key].setdefault(extremes(held.cast(arrivals.checkpoint.tensor(name))), []).append(name)
        near = index[key].get(extremes(held.tensor), ())
        read = [(name, held.cast(arrivals.checkpoint.tensor(name))) for name in near]
        hits: list[tuple[str, Layout]] = [
            (name, how) for name, stored in read if (how := layout_of(held.tensor, stored)) is not None
        ]
        if hits:
            name, how = min(hits, key=lambda hit: (hit[0] in arrivals.readers, *_unlike(hit[0], held.name), hit[1]))
            arrivals.take(held, how, name)


def constants(arrivals: Arrivals) -> None:
    """Find tensors that are one number throughout: by name, or as one of the same layer that is not read."""
    for held in [each for each in arrivals.left if each.tensor.numel() and is_constant(each.tensor)]:
        value = held.tensor.reshape(-1)[0]
        if arrivals.own_name(held) is not None:
            continue
        alike = [name for name in arrivals.unread if numbers_in(name) == numbers_in(held.name)]
        equal = [name for name in alike if _is_only(held.cast(arrivals.checkpoint.tensor(name)), value)]
        if equal:
            best = min(equal, key=lambda name: (last_part(name) != last_part(held.name), *_unlike(name, held.name)))
            arrivals.take(held, "constant", best, detail=f"{value:g} throughout, in the model and in the checkpoint")


def rows(arrivals: Arrivals) -> None:
    """Find tensors that have most rows of the one of their name: a row of padding may have been set to zero."""
    for held in arrivals.left:
        name = arrivals.own_name(held)
        told = "" if name is None else rows_that_differ(held.tensor, held.cast(arrivals.checkpoint.tensor(name)))
        if name is not None and told:
            arrivals.take(held, "changed", name, detail=told)


def pieces(arrivals: Arrivals, progress: Progress) -> None:
    """Find tensors that are joined from several of the checkpoint, or cut from one."""
    left = arrivals.left
    unread = {name: arrivals.shapes[name] for name in arrivals.unread} if left else {}
    fibres = Fibres(arrivals.checkpoint, unread)
    for held in progress(left, "putting together"):
        found = fibres.pieces_of(held)
        if found is None:
            continue
        if found.share < 1:
            told = f"{found.share:.0%} of it is from the checkpoint, but not {found.missing}"
            arrivals.take(held, "partly filled", *found.sources, detail=told)
        else:
            how: Verdict = "split" if found.is_part else "fused" if len(found.sources) > 1 else "permuted"
            arrivals.take(held, how, *found.sources)


def changed(arrivals: Arrivals, progress: Progress) -> None:
    """Say of all others how they differ from what the checkpoint has, or that it has nothing of them."""
    for held in progress(arrivals.left, "looking for changes"):
        if held.tensor.is_floating_point() and not bool(held.tensor.isfinite().all()):
            arrivals.take(held, "not finite")
        elif not _takes_changed(arrivals, held):
            _take_initial(arrivals, held)


def _takes_changed(arrivals: Arrivals, held: HeldTensor) -> bool:
    own, count = arrivals.own_name(held), held.tensor.numel()
    others = [name for name in arrivals.unread if name != own and torch.Size(arrivals.shapes[name]).numel() == count]
    for name in [*([] if own is None else [own]), *others]:
        stored = arrivals.checkpoint.tensor(name)
        form = correlated(held.tensor, stored.to(held.tensor.device))
        if form is None:
            continue
        scale = _scale_of(arrivals, held, name, form) if stored.element_size() == 1 else None
        if scale is not None:
            arrivals.take(held, "scaled", name, scale)
        else:
            arrivals.take(held, "changed", name, detail=how_changed(held.tensor, form))
        return True
    return False


def _take_initial(arrivals: Arrivals, held: HeldTensor) -> None:
    own = arrivals.own_name(held)
    packed = [name for name in arrivals.unread if holder(name) == holder(held.name) and _is_packed(arrivals, name)]
    if packed and not is_constant(held.tensor):
        told = f"the checkpoint has {', '.join(packed[:2])}, packed in a form that is not read here"
        arrivals.take(held, "not judged", *packed, detail=told)
    elif not held.is_parameter and not held.is_saved:
        arrivals.take(held, "changed", detail="a buffer that is not what the configuration gives")
    else:
        value = held.tensor.reshape(-1)[:1]
        told = f"{float(value):g} throughout" if is_constant(held.tensor) and held.tensor.numel() else ""
        told = told or f"its numbers are in no tensor of the checkpoint{'' if own is None else ', which has this name'}"
        arrivals.take(held, "left at its initial values", detail=told)


def _is_near(held: HeldTensor, made: torch.Tensor) -> bool:
    if made.shape != held.tensor.shape or made.is_meta:
        return False
    is_exact = held.tensor.element_size() > 2 or not held.tensor.is_floating_point()  # noqa: PLR2004 - bytes
    mine, theirs = widen(held.tensor), widen(made.to(held.tensor.device))
    return torch.allclose(mine.double(), theirs.double(), rtol=_MADE_AGAIN[is_exact], atol=1e-8, equal_nan=True)


def _unlike(stored: str, name: str) -> tuple[bool, int]:
    """Return how far two names are from one another: other numbers first, then fewer parts in common."""
    return numbers_in(stored) != numbers_in(name), -len(set(stored.split(".")) & set(name.split(".")))


def _is_only(tensor: torch.Tensor, value: torch.Tensor) -> bool:
    return bool(tensor.numel()) and bool((tensor == value).all())


def _is_packed(arrivals: Arrivals, name: str) -> bool:
    tensor = arrivals.checkpoint.tensor(name)
    return not tensor.is_floating_point() and tensor.dtype != torch.int64 and tensor.ndim > 1


def _scale_of(arrivals: Arrivals, held: HeldTensor, name: str, form: torch.Tensor) -> str | None:
    """Return the tensor of the same module that a quantised one was multiplied with, or divided by."""
    numbers = widen(form).double()
    for other in arrivals.shapes:
        if other == name or holder(other) != holder(name):
            continue
        stored = arrivals.checkpoint.tensor(other).to(held.tensor.device)
        for scale in _spread(widen(stored).double(), held.tensor.shape):
            for scaled in (numbers * scale, numbers / scale):
                near = (scaled - widen(held.tensor).double()).abs().max()
                if float(near) <= _SCALED * float(widen(held.tensor).abs().max()):
                    return other
    return None


def _spread(scale: torch.Tensor, shape: torch.Size) -> Iterator[torch.Tensor]:
    """Yield the ways in which a scale may belong to a matrix: one number, one for each row, column or block."""
    if scale.numel() == 1:
        yield scale.reshape(())
    elif len(shape) == _MATRIX and scale.numel() in shape:
        forms = [form for form in ((-1, 1), (1, -1)) if scale.numel() == shape[form.index(-1)]]
        yield from (scale.reshape(form) for form in forms)
    elif len(shape) == scale.ndim == _MATRIX:
        sizes = [-(-size // count) for size, count in zip(shape, scale.shape, strict=True)]
        for rows, columns in (sizes, [1 << (size - 1).bit_length() for size in sizes]):  # the last may be cut off
            spread = scale.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
            yield spread[tuple(map(slice, shape))]
