"""A forward in another dtype than its weights have, without a copy of the model.

Every operator is given other operands as it runs: a weight is cast where it is used, and let go of again, so that one
layer at most is held twice, and a large matrix a piece at a time. It does not matter who uses a weight, under how many
names, or how often; parameters are never written to, and so are the same, bit for bit, whatever ends the forward.
Buffers, which a forward may write to, stand aside for others while the block lasts.

Where a forward asks for a dtype that is widened, it is given the wider one. What has no kernel for that is computed as
it is, and noted.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from pytest_tfdebug.tensors import dtype_name, is_plain, storage_id
from pytest_tfdebug.tracing.record.leaves import replaced
from pytest_tfdebug.tracing.record.modules import uncompiled
from pytest_tfdebug.tracing.record.state import preserved, storages_of
from pytest_tfdebug.tracing.values.operator_mode import OperatorMode, unseen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pytest_tfdebug.records import Call
    from pytest_tfdebug.tensors import Leaf

    Inputs = tuple[tuple[Any, ...], dict[str, Any]]
    #: A dtype, and the one that stands for it.
    Wider = Mapping[torch.dtype, torch.dtype]

#: Dtypes of half precision, and the one in which what they compute can be seen.
HALF = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
#: What everything is computed in without rounding that counts.
TO_FLOAT64 = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
#: Operators whose result is widened in place of their operand: it is the same, and smaller.
_PICKING = frozenset({"embedding", "index_select", "index", "gather", "clone"})
#: Elements of a matrix above which a product with it is made of pieces: the head of a model is its largest weight.
_LARGE = 2**24
#: Products of the rows of each expert with its weights; torch has no float64 for it.
_GROUPED = getattr(torch.ops.aten, "_grouped_mm", None) and torch.ops.aten._grouped_mm.default  # noqa: SLF001
#: What operators raise of operands in a dtype that they do not know.
_REFUSALS = (RuntimeError, TypeError, ValueError, NotImplementedError)


def to_float32(model: torch.nn.Module) -> Wider:
    """Return the dtypes of half precision that a model has weights of, each with the one that it is seen in.

    A cast to another one is the forward's own, and stays.
    """
    held = {tensor.dtype for tensor in chain(model.parameters(), model.buffers())}
    return {low: wide for low, wide in HALF.items() if low in held}


def all_to_float64(model: torch.nn.Module) -> Wider:
    """Return float32 and the dtypes of half precision that a model has weights of, each with float64.

    A cast to half precision that is the forward's own stays.
    """
    return {torch.float32: torch.float64, torch.complex64: torch.complex128} | {
        low: TO_FLOAT64[low] for low in to_float32(model)
    }


@contextmanager
def widened(model: torch.nn.Module, inputs: Inputs, wider: Wider) -> Iterator[tuple[Inputs, Casts]]:
    """Yield the inputs of a model in wider dtypes, inside of a block in which its operators compute in these.

    The model is left as it was, and the forward is made without gradients.
    """
    with _cast(model, inputs, Casts(wider)) as given:
        yield given


class Onlooker:
    """Shows the calls of a forward that is computed in wider dtypes to a consumer that sees nothing of that."""

    def __init__(self, consumer: Any, casts: Casts) -> None:  # noqa: ANN401 - of a recorder
        self._consumer, self._casts = consumer, casts

    @property
    def notes(self) -> list[str]:
        """What was computed as it is, in a sentence."""
        return self._casts.notes

    def enter(self, call: Call, leaves: list[Leaf], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call begins."""
        with self._casts.paused():
            self._consumer.enter(call, self._widened(leaves), args, kwargs)

    def leave(self, call: Call, leaves: list[Leaf], output: Any) -> None:  # noqa: ANN401
        """A call has returned."""
        with self._casts.paused():
            self._consumer.leave(call, self._widened(leaves), output)

    def wrote(self, call: Call, leaves: list[Leaf], before: int | None) -> None:
        """A call has written to caches."""
        with self._casts.paused():
            self._consumer.wrote(call, self._widened(leaves), before)

    def fail(self, call: Call) -> None:
        """An exception left the call."""
        self._consumer.fail(call)

    def _widened(self, leaves: list[Leaf]) -> list[Leaf]:
        return [leaf._replace(tensor=self._casts.of(leaf.tensor)) for leaf in leaves]


@contextmanager
def computing(
    model: torch.nn.Module,
    inputs: Inputs,
    wider: Wider,
    consumer: Any,  # noqa: ANN401 - of a recorder
) -> Iterator[tuple[Inputs, Any]]:
    """Yield inputs and the consumer of a recorder for one forward, in wider dtypes where there are any.

    The model is left as it was, and the forward is made without gradients.
    """
    if wider:
        with widened(model, inputs, wider) as (given, casts):
            yield given, Onlooker(consumer, casts)
    else:
        with preserved(model), torch.no_grad():
            yield inputs, consumer


@contextmanager
def narrowed(model: torch.nn.Module, inputs: Inputs, dtype: torch.dtype) -> Iterator[tuple[Inputs, Casts]]:
    """Yield the inputs of a model in float32 in half precision, in a block in which its weights are.

    What the forward computes in float32 by itself stays.
    """
    owned = storages_of(chain(model.parameters(), model.buffers()))
    with _cast(model, inputs, Casts({torch.float32: dtype}, owned)) as given:
        yield given


@contextmanager
def changed(model: torch.nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Let the parameters of a model be seen as something makes of them, in a block; their dtypes stay."""
    held = [parameter for parameter in model.parameters() if is_plain(parameter)]
    casts = Casts({each.dtype: each.dtype for each in held}, storages_of(held), change)
    with _cast(model, ((), {}), casts):
        yield


@contextmanager
def _cast(model: torch.nn.Module, inputs: Inputs, casts: Casts) -> Iterator[tuple[Inputs, Casts]]:
    buffers = [
        (module._buffers, name, tensor)  # noqa: SLF001 - as nn.Module itself holds them
        for module in model.modules()
        if not isinstance(module, torch.jit.ScriptModule)
        for name, tensor in module._buffers.items()  # noqa: SLF001
        if tensor is not None and is_plain(tensor) and casts.takes(tensor)
    ]
    default = torch.get_default_dtype()
    with preserved(model), torch.no_grad(), uncompiled(model):
        try:
            torch.set_default_dtype(casts.dtype(default))  # what whole numbers become where they are divided
            others = {id(tensor): casts.of(tensor) for _, _, tensor in buffers}  # one of each that has two names
            for held, name, tensor in buffers:
                held[name] = others[id(tensor)]
            with casts.block():
                yield replaced(inputs, casts.of_input), casts
        finally:
            torch.set_default_dtype(default)
            for held, name, tensor in buffers:
                held[name] = tensor


class Casts:
    """What is cast to what; its block can be entered again, to run operators of a forward once more."""

    def __init__(
        self,
        table: Wider,
        owned: Collection[int] | None = None,
        change: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self._table, self._change = table, change
        self._widens = change is None and all(wide.itemsize > low.itemsize for low, wide in table.items())
        self._owned = owned  # storages of the tensors that are cast; None for those of every tensor
        self.as_they_are: dict[str, None] = {}  # operators that do not know the other dtype
        self.is_paused = False  # whether what looks on sees everything as it is

    @contextmanager
    def block(self) -> Iterator[None]:
        """Compute in the other dtypes in a block."""
        if not self._table:
            yield
            return
        with _WideOperators(self), _Functions(self):
            yield

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Look on in a block: tensors have their own dtypes there, and operators compute in these."""
        before, self.is_paused = self.is_paused, True
        try:
            with unseen():
                yield
        finally:
            self.is_paused = before

    def applied(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return an operator that computes in the other dtypes wherever it is run."""
        return partial(self._run, func) if self._table else func

    def _run(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any operator
        with self.block():
            return func(*args, **kwargs)

    def takes(self, value: object) -> bool:
        """Tell whether a value is a tensor that is cast."""
        is_low = isinstance(value, torch.Tensor) and value.dtype in self._table
        return is_low and (self._owned is None or (is_plain(value) and storage_id(value) in self._owned))  # type: ignore[arg-type] # a tensor, as was just asked

    def is_large(self, matrix: torch.Tensor) -> bool:
        """Tell whether a matrix that is cast is better cast a piece at a time."""
        return matrix.numel() > _LARGE and self._change is None and self.takes(matrix)

    def of(self, value: Any) -> Any:  # noqa: ANN401 - an argument of an operator
        """Return a tensor in the other dtype; anything else as it is."""
        return self.cast(value) if self.takes(value) else value

    def cast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor that is cast, in the other dtype."""
        return tensor.to(self._table[tensor.dtype]) if self._change is None else self._change(tensor)

    def numbers(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor with the numbers that are computed with; a wider dtype holds the same, and is not needed."""
        return tensor if self._widens else self.of(tensor)

    def dtype_of(self, tensor: torch.Tensor) -> torch.dtype:
        """Return the dtype in which a tensor is computed with."""
        return self._table[tensor.dtype] if self.takes(tensor) else tensor.dtype

    def of_input(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an input of the model in the other dtype."""
        return tensor.to(self._table.get(tensor.dtype, tensor.dtype))

    def dtype(self, dtype: Any) -> Any:  # noqa: ANN401 - whatever is given for a dtype
        """Return what is computed in where a dtype is asked for."""
        return self._table.get(dtype, dtype) if self._owned is None else dtype

    def of_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype that a tensor of a dtype is cast to."""
        return self._table[dtype]

    def known(self, given: Any) -> dict[torch.dtype, torch.dtype]:  # noqa: ANN401 - arguments
        """Return the dtypes that arguments have after a cast, and those that an operator of them surely knows."""
        low = next((each.dtype for each in tree_leaves(given) if self.takes(each)), next(iter(self._table)))
        return {self._table[low]: low}

    @property
    def notes(self) -> list[str]:
        """What was computed as it is, in a sentence."""
        names, wide = ", ".join(self.as_they_are), dtype_name(next(iter(self._table.values()), torch.float32))
        return [f"Computed as it is, for it knows no {wide}: {names}."] if names else []


#: Nothing is cast.
NO_CASTS = Casts({})


class _WideOperators(OperatorMode):
    """Gives every operator wider operands in place of those that it is given."""

    def __init__(self, casts: Casts) -> None:
        super().__init__()
        self._casts = casts

    def on(self, func: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Run an operator in wider dtypes."""
        free, of = _read_only(func), self._casts.of
        if self._casts.is_paused:
            return func(*args, **kwargs)
        if func.overloadpacket.__name__ in _PICKING and self._casts.takes(args[0]):
            return self._casts.cast(func(*args, **kwargs))
        if func is torch.ops.aten.mm.default and self._casts.is_large(args[1]):
            return self._in_pieces(*args)
        wide = [tree_map(of, arg) if place in free else arg for place, arg in enumerate(args)]
        named = {name: tree_map(of, value) if name in free else value for name, value in kwargs.items()}
        if named.get("dtype") is not None:
            named["dtype"] = self._casts.dtype(named["dtype"])
        try:
            return (_grouped_mm if func is _GROUPED else func)(*wide, **named)
        except _REFUSALS:
            return self._as_it_is(func, free, args, kwargs)

    def above(self, func: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Run an operator that runs others, of wider operands."""
        if self._casts.is_paused:
            return func(*args, **kwargs)
        return func(*tree_map(self._casts.of, args), **tree_map(self._casts.of, kwargs))

    def _in_pieces(self, rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        """Return a product with some columns of a matrix after the others, each piece cast as it is used."""
        wide, columns = self._casts.of(rows), max(_LARGE // len(matrix), 1)
        return torch.cat([wide @ self._casts.cast(piece) for piece in torch.split(matrix, columns, dim=1)], dim=1)

    def _as_it_is(self, func: Any, free: frozenset[int | str], args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Compute something that does not know the other dtype in the one that it knows, and cast what it gives."""
        known = self._casts.known((args, kwargs))

        def narrow(value: Any) -> Any:  # noqa: ANN401
            return value.to(known.get(value.dtype, value.dtype)) if isinstance(value, torch.Tensor) else value

        args = [tree_map(narrow, arg) if place in free else arg for place, arg in enumerate(args)]
        kwargs = {name: tree_map(narrow, value) if name in free else value for name, value in kwargs.items()}
        found = func(*args, **kwargs)
        self._casts.as_they_are[func.overloadpacket.__name__] = None
        return found if func._schema.is_mutable else tree_map(self._casts.of, found)  # noqa: SLF001


#: Functions that warn where their operands have two dtypes.
_ALIKE = frozenset(getattr(place, "rms_norm", None) for place in (torch, torch.nn.functional))
#: What a tensor is asked for its dtype by.
_DTYPE = torch.Tensor.dtype.__get__  # type: ignore[attr-defined] # a property written in C


class _Functions(TorchFunctionMode):
    """Lets code see one dtype: that of a weight is said to be the wider one.

    Functions that refuse operands of two dtypes before any operator runs, such as ``torch.lstm``, are given wider ones.
    """

    def __init__(self, casts: Casts) -> None:
        super().__init__()
        self._casts = casts

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        if func in _ALIKE and not self._casts.is_paused:
            args, kwargs = tree_map(self._casts.of, (args, kwargs))
        if func == _DTYPE and not self._casts.is_paused:
            is_cast = self._casts.takes(args[0])
            return self._casts.of_dtype(func(*args)) if is_cast else func(*args)
        try:
            return func(*args, **kwargs)
        except _REFUSALS:
            writes = self._casts.is_paused or getattr(func, "__name__", "_").endswith("_") or "out" in kwargs
            if writes or not any(map(self._casts.takes, tree_leaves((args, kwargs)))):
                raise
            args, kwargs = tree_map(self._casts.of, (args, kwargs))
            return func(*args, **kwargs)


def _grouped_mm(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:  # noqa: ANN401
    """As ``torch._grouped_mm`` of rows in groups, each with a matrix of its own."""
    out = rows.new_zeros(len(rows), weights.shape[-1])
    begin = 0
    for weight, end in zip(weights, ends.tolist(), strict=True):
        out[begin:end] = rows[begin:end] @ weight
        begin = end
    return out


@lru_cache(maxsize=4096)
def _read_only(func: Any) -> frozenset[int | str]:  # noqa: ANN401 - an operator
    """Return places and names of the arguments that an operator reads, and neither writes to nor returns a view of."""
    arguments = [(place, each) for place, each in enumerate(func._schema.arguments) if each.alias_info is None]  # noqa: SLF001
    return frozenset(place for place, _ in arguments) | frozenset(each.name for _, each in arguments)
