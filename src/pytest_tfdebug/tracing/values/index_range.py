"""Whether an operator may run with other operands than it had: what chooses elements must choose some that are there.

On a CPU an index out of range is an error like any other. On an accelerator the kernel asserts, which ends the process:
every later call fails. Which operand chooses elements, and of what, stands in the operator's schema.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only

from pytest_tfdebug.tensors import IGNORED_LABEL
from pytest_tfdebug.tracing.values.operator_mode import OperatorMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

#: Operators that take an integer operand beside others as a number.
_CONVERTING = ("copy", "copy_")


@cache
def chooses(func: torch._ops.OpOverload) -> bool:
    """Tell whether an operator may choose elements of one operand by another, so that it can fail on an accelerator."""
    if torch.Tag.pointwise in func.tags or func.overloadpacket.__name__ in _CONVERTING:
        return False
    tensors = [each for each in func._schema.arguments if "Tensor" in str(each.type)]  # noqa: SLF001 - public to who dispatches
    return len(tensors) > 1 or func.overloadpacket.__name__ == "_assert_async"


def is_told(func: torch._ops.OpOverload) -> bool:
    """Tell whether an operator's schema says what it chooses."""
    return _rule_of(func) is not None


def out_of_range(func: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Say what an operator would choose that is not there; empty where nothing is, or its schema does not tell."""
    rule = _rule_of(func)
    names = [each.name for each in func._schema.arguments]  # noqa: SLF001 - public to who dispatches
    return "" if rule is None else next(rule({**dict(zip(names, args, strict=False)), **kwargs}), "")


@cache
def _rule_of(func: torch._ops.OpOverload) -> Callable[[dict[str, Any]], Iterator[str]] | None:
    known = _OF_OPERATOR.get(func.overloadpacket.__name__.strip("_"))
    taken = {each.name: str(each.type) for each in func._schema.arguments if not each.is_out}  # noqa: SLF001 - as above
    if known is not None or not _OTHERWISE.isdisjoint(taken):
        return known
    return next((rule for names, rule in _BY_SCHEMA if names.items() <= taken.items()), None)


def is_index(given: object) -> bool:
    """Tell whether the numbers of a tensor may choose elements: they are whole."""
    kinds = (torch.bool, torch.uint8)
    return (
        isinstance(given, torch.Tensor)
        and given.dtype not in kinds
        and not (given.is_floating_point() or given.is_complex())
    )


def has_index(tensors: Sequence[torch.Tensor]) -> bool:
    """Tell whether some operands of one operator may choose among others: whole numbers beside numbers."""
    return any(map(is_index, tensors)) and any(map(torch.is_floating_point, tensors))


def _outside(index: torch.Tensor, low: int, end: int, but: int | None = None) -> Iterator[str]:
    """Say what of an index is below a number, or not below another one."""
    if index.numel():
        least, most = (
            int(each) for each in torch.aminmax(index if but is None else index.masked_fill(index == but, 0))
        )
        if least < low or most >= end:
            yield f"index {least if least < low else most} is out of range: {end} elements are there"


def _along(given: dict[str, Any]) -> Iterator[str]:
    """``gather(self, dim, index)``, ``scatter``, ``index_select``, ``index_add``."""
    tensor, dim, index = given["self"], given["dim"], given["index"]
    if not -max(tensor.dim(), 1) <= dim < max(tensor.dim(), 1):
        yield f"axis {dim} of {tensor.dim()}"
    else:
        yield from _outside(index, 0, tensor.shape[dim] if tensor.dim() else 1)


def _of_flat(given: dict[str, Any]) -> Iterator[str]:
    """``take(self, index)``, ``put``: of the elements one after another."""
    yield from _outside(given["index"], -given["self"].numel(), given["self"].numel())


def _of_each_axis(given: dict[str, Any]) -> Iterator[str]:
    """``index(self, indices)``, ``index_put``: one index for each axis; a mask stands for as many as it has."""
    tensor, indices, axis = given["self"], given["indices"], 0
    for index in indices:
        sizes = tensor.shape[axis : axis + (index.dim() if _is_boolean(index) else 1)]
        axis += max(1, len(sizes)) if _is_boolean(index) else 1
        if axis > tensor.dim():
            yield f"an index of axis {axis - 1} of {tensor.dim()}"
            return
        if _is_boolean(index) and index.shape != sizes:
            yield f"a mask {tuple(index.shape)} of axes {tuple(sizes)}"
        elif index is not None and not _is_boolean(index):
            yield from _outside(index, -sizes[0], sizes[0])
    try:
        torch.broadcast_shapes(  # type: ignore[no-untyped-call]
            *(index.shape for index in indices if index is not None and not _is_boolean(index))
        )
    except RuntimeError as error:
        yield str(error)


def _is_boolean(index: object) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


def _of_rows(given: dict[str, Any]) -> Iterator[str]:
    """``embedding(weight, indices)``."""
    yield from _outside(given["indices"], 0, given["weight"].shape[0])


def _of_classes(given: dict[str, Any]) -> Iterator[str]:
    """``nll_loss_forward(self, target, weight, reduction, ignore_index)``."""
    scores = given["self"]
    classes = scores.shape[1 if scores.dim() > 1 else 0]
    yield from _outside(given["target"], 0, classes, but=given.get("ignore_index", IGNORED_LABEL))


def _of_probabilities(given: dict[str, Any]) -> Iterator[str]:
    """``binary_cross_entropy(self, target)``."""
    if not bool(((given["self"] >= 0) & (given["self"] <= 1)).all()):
        yield "a probability is not between 0 and 1"


def _of_source(given: dict[str, Any]) -> Iterator[str]:
    """``masked_scatter(self, mask, source)``."""
    mask = given["mask"].expand_as(given["self"])
    if int(mask.sum()) > given["source"].numel():
        yield f"{int(mask.sum())} elements of {given['source'].numel()}"


def _of_condition(given: dict[str, Any]) -> Iterator[str]:
    """``_assert_async(self)``."""
    if not bool(given["self"].all()):
        yield "the model's own assertion does not hold"


#: Operators whose names tell what they choose by something else than an index.
_OF_OPERATOR: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "binary_cross_entropy": _of_probabilities,
    "masked_scatter": _of_source,
    "assert_async": _of_condition,
}
#: Arguments that say in another way what is chosen.
_OTHERWISE = frozenset({"offsets", "mask"})
#: Arguments with their types, and what an operator that has these chooses.
_BY_SCHEMA: tuple[tuple[dict[str, str], Callable[[dict[str, Any]], Iterator[str]]], ...] = (
    ({"self": "Tensor", "dim": "int", "index": "Tensor"}, _along),
    ({"self": "Tensor", "index": "Tensor"}, _of_flat),
    ({"self": "Tensor", "indices": "List[Optional[Tensor]]"}, _of_each_axis),
    ({"self": "Tensor", "indices": "List[Tensor]"}, _of_each_axis),
    ({"weight": "Tensor", "indices": "Tensor"}, _of_rows),
    ({"self": "Tensor", "target": "Tensor", "ignore_index": "int"}, _of_classes),
)


class InRange(OperatorMode):
    """Raises, in a block, what a CPU raises of an index out of range, before an accelerator is asked.

    What an operator chooses where its schema does not tell is computed on the CPU.
    """

    def on(self, func: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Run an operator, if what it chooses is there."""
        if not chooses(func):
            return func(*args, **kwargs)
        told = out_of_range(func, args, kwargs)
        if told:
            raise IndexError(f"{func.overloadpacket.__name__}: {told}")
        tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
        device = tensors[0].device if tensors else None
        if is_told(func) or func._schema.is_mutable or not has_index(tensors):  # noqa: SLF001 - as above
            return func(*args, **kwargs)
        near = tree_map_only(torch.Tensor, torch.Tensor.cpu, (args, kwargs))
        return tree_map_only(torch.Tensor, lambda each: each.to(device), func(*near[0], **near[1]))


def indices_checked(*models: object) -> AbstractContextManager[object]:
    """Return a block in which no index out of range reaches an accelerator; for models on a CPU it does nothing."""
    held = (
        each for model in models if isinstance(model, torch.nn.Module) for each in (model.parameters(), model.buffers())
    )
    is_near = all(each.device.type in ("cpu", "meta") for each in chain.from_iterable(held))
    return nullcontext() if is_near else InRange()
