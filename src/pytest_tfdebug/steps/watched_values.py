"""The values of a forward under watch, and the gradient that each of them gets.

Two kinds of hooks tell gradients: one on each value, of all that it gets, and one on each node of the graph, of what an
operator alone sends to what it was given.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import BackwardCFunction

from pytest_tfdebug.steps.gradients import GradientSums, weighed
from pytest_tfdebug.steps.lines import lines_under_way
from pytest_tfdebug.steps.table import Graph, Switch, is_measured
from pytest_tfdebug.tensors import dtype_name, is_plain, version
from pytest_tfdebug.tracing.record.state import capture
from pytest_tfdebug.values import Fingerprint, Line, Origin, Value, Values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.records import Call

#: Nodes of the graph that one function of torch is made of, at most, from its result down to what it was given.
_DEEP = 6


class _WatchedValue:
    """A value as long as it is watched."""

    __slots__ = ("hooked", "kept", "pieces", "sums", "tensor", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.version = tensor, version(tensor)
        self.kept = capture(tensor)  # its numbers as they were
        self.hooked: object = None  # the node of the graph that its hook is on
        self.pieces: list[tuple[int, tuple[int, ...], tuple[int, ...], int]] = []  # views of it: index and geometry
        self.sums: dict[int, torch.Tensor] = {}  # its own gradient by its own index, what it sends by that of others


class WatchedValues:
    """The values that were seen, each with hooks on its gradient.

    Args:
        model: The model whose parameters and buffers give names.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.table, self.graph = Values(), list[Graph]()
        self.calls: list[Call] = []  # under way, innermost last
        self.switch: Switch | None = None  # where gradients were switched off, if they are
        self.is_in_backward = False
        self.is_over = False
        self._seen: list[_WatchedValue] = []
        self._at: dict[tuple[int, int], int] = {}
        self._latest: dict[int, int] = {}  # the value that a tensor holds since it was last written to
        self._nodes: dict[object, int] = {}  # node of the graph -> the value that it made
        self._wholes: dict[tuple[int, int], int] = {}
        self._kept: list[object] = []  # what must not give its address to others
        self._users: dict[int, int] = {}
        self._parameters: dict[int, str] = {}
        for name, parameter in model.named_parameters():
            self._parameters.setdefault(id(parameter), name)
        self._buffers = {id(buffer): name for name, buffer in model.named_buffers()}

    @property
    def call(self) -> int | None:
        """The ``index`` of the call under way."""
        return self.calls[-1].index if self.calls else None

    def is_seen(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor holds a value that has a row in the table."""
        return (id(tensor), version(tensor)) in self._at

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
                operator, lines = type(tensor.grad_fn).__name__.removesuffix("Backward"), lines or lines_under_way()
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
        made = _plain_name(operator), origin, name, self.call, lines, producers
        self.table.values.append(Value(index, *made, tuple(tensor.shape), dtype_name(tensor.dtype), found))
        self.graph.append(
            Graph(
                is_leaf=tensor.is_leaf,
                is_grad_on=torch.is_grad_enabled(),
                switch=None if torch.is_grad_enabled() else self.switch,
                is_recomputed=self.is_in_backward,
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
        is_of_function = isinstance(tensor.grad_fn, BackwardCFunction)  # its backward may change the gradient
        if base is None or is_of_function or tensor.is_complex() or base.is_complex():
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

    def finish(self) -> tuple[Values, list[Graph]]:
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
        return self.table, self.graph

    def _is_changed(self, seen: _WatchedValue, index: int) -> bool:
        """Tell whether somebody wrote to a value though torch's own count of writes says that nobody did."""
        tensor, kept = seen.tensor, seen.kept
        if kept is None or self.table.values[index].origin != "operator" or version(tensor) != seen.version:
            return False
        if not is_plain(tensor) or not tensor.numel():
            return False
        found, before = tensor.detach(), kept
        return not torch.equal(found, before) and bool(((found != before) & ~before.isnan()).any())


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


def is_watched(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is one whose gradient can be told: of floating point, its elements as they lie.

    What a transform of ``torch.func`` wraps has no elements that can be read before it ends.
    """
    is_number = tensor.is_floating_point() or tensor.is_complex()
    return is_number and is_plain(tensor) and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # noqa: SLF001 - it has no public name
