"""Every operator of a forward: what it computed, from what, and which line asked for it.

The second view of a forward beside its calls. Modules have names and nesting of their own in each implementation; the
numbers that operators compute are the same in all of them. No tensor is kept: each is reduced to a fingerprint when the
operator has run.
"""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from pytest_tfdebug.tensors import Leaf, dtype_name, is_plain, readable, storage_bytes, storage_id, tensors_in
from pytest_tfdebug.tracing.record.leaves import safe
from pytest_tfdebug.tracing.record.modules import bare, modules_by_path, named_modules, named_tensors
from pytest_tfdebug.tracing.record.recorder import Recorder
from pytest_tfdebug.tracing.record.sites import MODULE_FILE, codes_of, is_library
from pytest_tfdebug.tracing.values.operator_mode import OperatorMode
from pytest_tfdebug.tracing.values.tape import Geometry, Ref, Tape, geometry_of, mapped, results_of
from pytest_tfdebug.tracing.values.widening import NO_CASTS, Casts
from pytest_tfdebug.values import Fingerprint, Line, Origin, Value, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from pytest_tfdebug.records import Call
    from pytest_tfdebug.tracing.values.constructors import ConstructedTable
    from pytest_tfdebug.tracing.values.edited import Edited

#: In-place operators that leave nothing of what was there.
_OVERWRITES = frozenset({"copy_", "fill_", "zero_"})
#: More frames than this between a line of a forward and an operator are a recursion.
_MAX_FRAMES = 24
#: Characters of an attribute that is kept.
_LONGEST = 80
#: How deep the sequences in it may be.
_DEEPEST = 3


class _Made(NamedTuple):
    operator: str
    producers: tuple[int, ...]
    lines: tuple[Line, ...]
    is_written: bool = False
    is_random: bool = False


class _Memory:
    """What is known of one storage: which value each view of it shows, and which operators wrote it."""

    __slots__ = ("shown", "storage", "writers")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        self.shown: dict[Geometry, int] = {}
        self.writers: list[int] = []  # none as long as no operator has written or read it


class _Operators(OperatorMode):
    """Sees each operator below autograd and composites, and fills the table."""

    def __init__(
        self,
        model: torch.nn.Module,
        table: Values,
        progress: Callable[[int], object] | None,
        tape: Tape | None,
        casts: Casts,
        *,
        edited: Edited | None,
        tables: Mapping[int, ConstructedTable],
    ) -> None:
        super().__init__()
        self._progress, self._tape, self._casts, self._edited = progress, tape, casts, edited
        self._tables = dict(tables)
        self._lines_of_step: tuple[Line, ...] | None = None  # of a step that is made again for a table
        self._made_before: dict[str, dict[Any, torch.Tensor]] = {}  # what such steps gave, by the path of the module
        self._table = table
        self._memories: dict[int, _Memory] = {}
        self._stack: list[tuple[Call, frozenset[int]]] = []
        self._root = bare(model)
        self._modules = {path: module for path, _, module in named_modules(model)}
        self._own: dict[int, tuple[Origin, str]] = {}
        self._weights = named_tensors(model)  # kept, or what is read from a file would leave its address to others
        for name, tensor in reversed(self._weights):  # parameters, and the first name of each, come last
            if is_plain(tensor):
                kind: Origin = "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
                self._own[storage_id(tensor)] = kind, name

    # --- the calls of modules

    def enter(self, call: Call, leaves: list[Leaf], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        module = self._modules.get(call.path, self._root) if call.parent is not None else self._root
        outer = self._stack[-1][1] if self._stack else frozenset()
        self._stack.append((call, outer.union(codes_of(module))))
        self._table.calls.append(call)
        if self._progress is not None:
            self._progress(len(self._table.calls))
        with self._casts.paused():
            self._table.inputs[call.index] = [
                (path, self._read(tensor, ("input", path) if call.parent is None else None))
                for path, tensor in leaves
                if is_plain(tensor)
            ]

    def leave(self, call: Call, leaves: list[Leaf], _output: Any) -> None:  # noqa: ANN401
        self.fail(call)
        with self._casts.paused():
            shown = [(path, self._read(tensor)) for path, tensor in leaves if is_plain(tensor)]
            self._table.outputs[call.index] = shown

    def fail(self, call: Call) -> None:
        while self._stack and self._stack.pop()[0] is not call:
            pass

    # --- operators

    def on(self, func: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Run an operator, and note what it made."""
        name = func.overloadpacket.__name__
        with self._casts.paused():
            written = _written(func, args, kwargs)
            keeps = name not in _OVERWRITES
            producers = [
                self._read(tensor)
                for tensor in tensors_in((args, kwargs))
                if is_plain(tensor) and (keeps or not any(tensor is other for other in written))
            ]
            given = self._given(args, kwargs, written)
        if self._edited is None:
            result = func(*args, **kwargs)
        else:
            path = self._stack[-1][0].path if self._stack else ""
            result = self._edited.run(func, self._lines(), path, (args, kwargs))
        if self._tape is not None and torch.Tag.data_dependent_output in func.tags:
            self._tape.read()
        made = [tensor for tensor in (written or tensors_in(result)) if is_plain(tensor)]
        if made:
            is_random = torch.Tag.nondeterministic_seeded in func.tags and not _is_attention_alone(func, args, kwargs)
            how = _Made(name, tuple(dict.fromkeys(producers)), self._lines(), bool(written), is_random)
            with self._casts.paused():
                self._note(func, given, made, how, results_of(result))
        return result

    def _note(self, func: torch._ops.OpOverload, given: Any, made: list[torch.Tensor], how: _Made, every: Any) -> None:  # noqa: ANN401
        """Note what an operator has made, in the table and on the tape."""
        for tensor in made:
            self._made(tensor, how)
        if self._tape is not None and how.is_written:
            self._tape.wrote(func, given, [(self._read(tensor), tensor) for tensor in made])
        elif self._tape is not None:
            self._tape.ran(func, given, [self._ref(each) for each in every])

    def _given(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], written: Sequence[torch.Tensor]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of an operator as a tape keeps them; empty where there is none."""
        if self._tape is None:
            return (), {}
        readable = [tensor for tensor in written if is_plain(tensor)]
        for tensor in readable:
            self._read(tensor)
        targets = self._tape.will_write(readable)
        found: tuple[tuple[Any, ...], dict[str, Any]] = mapped(
            (args, kwargs), lambda each: targets.get(id(each)) or self._ref(each, each)
        )
        return found

    def _ref(self, given: Any, otherwise: Any = None) -> Any:  # noqa: ANN401 - any argument
        return Ref(self._read(given)) if isinstance(given, torch.Tensor) and is_plain(given) else otherwise

    def _made(self, tensor: torch.Tensor, made: _Made) -> None:
        memory = self._memory(tensor)
        is_view = bool(memory.writers) and not made.is_written
        index = self._add(tensor, "view" if is_view else "operator", made)
        if made.is_written:
            memory.shown.clear()
        if not is_view:
            if tensor.numel() * tensor.element_size() >= storage_bytes(tensor):
                memory.writers.clear()
            memory.writers.append(index)
        memory.shown[geometry_of(tensor)] = index
        if self._tape is not None:
            self._tape.has(index, tensor)

    def _add(self, tensor: torch.Tensor, origin: Origin, made: _Made, name: str = "") -> int:
        index = len(self._table.values)
        call = self._stack[-1][0].index if self._stack else None
        if "empty" in made.operator:  # what happens to lie there is no value, and differs from run to run
            tensor = torch.zeros_like(tensor)
        dtype = dtype_name(self._casts.dtype_of(tensor))
        tensor = self._casts.numbers(tensor)
        shape = tuple(tensor.shape)
        found = self._reduced(tensor, origin, made.producers)
        how = made.operator, origin, name, call, made.lines, made.producers
        self._table.values.append(Value(index, *how, shape, dtype, found, made.is_random))
        return index

    def _reduced(self, tensor: torch.Tensor, origin: Origin, producers: tuple[int, ...]) -> Fingerprint:
        """Reduce a tensor; a view of all of a tensor has its numbers, and one of a weight needs none of its own."""
        if origin == "view" and len(producers) == 1:
            base = self._table.values[producers[0]]
            if math.prod(base.shape) == tensor.numel() and 0 not in tensor.stride():
                return base.print if self._is_weight(base) else Fingerprint.of(tensor, base.print)
        return Fingerprint.of(tensor)

    def _is_weight(self, value: Value) -> bool:
        while value.origin == "view" and len(value.producers) == 1:
            value = self._table.values[value.producers[0]]
        return value.origin == "parameter"

    def _read(self, tensor: torch.Tensor, origin: tuple[Origin, str] | None = None) -> int:
        memory = self._memory(tensor)
        geometry = geometry_of(tensor)
        table = None if memory.writers else self._tables.pop(storage_id(tensor), None)
        if table is not None:
            self._compute(table)
        if not memory.writers:
            kind, name = origin or self._own.get(storage_id(tensor), ("constant", ""))
            memory.shown[geometry] = self._add(tensor, kind, _Made("", (), ()), name)
            memory.writers.append(memory.shown[geometry])
            if self._tape is not None:
                self._tape.has(memory.shown[geometry], tensor)
        elif geometry not in memory.shown:
            made = _Made("view", tuple(memory.writers), self._lines())
            memory.shown[geometry] = self._add(tensor, "view", made)
            if self._tape is not None:
                self._tape.views(memory.shown[geometry], tensor)
        return memory.shown[geometry]

    def _compute(self, table: ConstructedTable) -> None:
        """Note what a constructor computed a table by, as if that were done here."""

        def on(func: Any, args: Any, kwargs: Any, lines: tuple[Line, ...]) -> Any:  # noqa: ANN401
            self._lines_of_step = lines
            return self.on(func, args, kwargs)

        first = len(self._table.values)
        try:
            known = {} if table.recipe.is_written else self._made_before.setdefault(table.recipe.path, {})
            index = self._read(table.recipe.run(on, known))
        finally:
            self._lines_of_step = None
        if table.rounded_to is not None:
            index = self._rounded(index, table.held, table.rounded_to)
        made = range(first, len(self._table.values))
        self._table.constructed |= dict.fromkeys(made, (table.recipe.path, table.recipe.class_name))
        memory = self._memory(table.held)
        memory.shown[geometry_of(table.held)] = index
        memory.writers.append(index)
        if self._tape is not None:
            self._tape.has(index, table.held)

    def _rounded(self, index: int, held: torch.Tensor, low: torch.dtype) -> int:
        """Note that a model was put into another precision since a value was computed."""
        found = self._add(held, "operator", _Made("_to_copy", (index,), self._table.values[index].lines))
        if self._tape is not None:
            self._tape.rounds(index, found, low, held.dtype)
        return found

    def _memory(self, tensor: torch.Tensor) -> _Memory:
        address = storage_id(tensor)
        memory = self._memories.get(address)
        if memory is None or memory.storage.expired():  # type: ignore[no-untyped-call]
            memory = self._memories[address] = _Memory(tensor)
        return memory

    def _lines(self) -> tuple[Line, ...]:
        """Return the lines under way, innermost first, up to the forward of the nearest module that has source."""
        if self._lines_of_step is not None:
            return self._lines_of_step
        codes = self._stack[-1][1] if self._stack else frozenset()
        found: list[Line] = []
        end = 0
        frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - the documented way to the running frame
        while frame is not None and frame.f_code is not values_of.__code__ and len(found) < _MAX_FRAMES:
            code = frame.f_code
            if not is_library(code.co_filename):
                found.append(Line(code.co_filename, frame.f_lineno, code.co_name))
                if id(code) in codes:
                    end = len(found)  # a method; the forward may stand further out
            elif end and code.co_filename == MODULE_FILE:
                break
            frame = frame.f_back
        return tuple(found[:end])

    def finish(self) -> None:
        seen = {value.name: value.print for value in self._table.values if value.origin == "parameter"}
        named: dict[int, tuple[str, torch.Tensor]] = {}
        for name, tensor in self._weights:
            if isinstance(tensor, torch.nn.Parameter):
                named.setdefault(id(tensor), (name, tensor))
        for name, parameter in named.values():
            if name in seen:
                self._table.parameters[name] = seen[name], tuple(parameter.shape)
            elif (values := readable(parameter)) is not None:  # packed ones have no operators of their own
                self._table.parameters[name] = Fingerprint.of(values), tuple(values.shape)


#: What reads all numbers of a tensor and is no operator.
_READERS = (torch.Tensor.tolist, torch.Tensor.numpy)


class _WrittenOut(TorchFunctionMode):
    """Computes fused attention step by step, so that each step can be held to code that is written out."""

    def __init__(self, tape: Tape | None) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if func in _READERS and self._tape is not None:
            self._tape.read()
        if func is torch.nn.functional.scaled_dot_product_attention:
            with suppress(RuntimeError, TypeError, IndexError):  # the fused kernel takes it, or says it better
                return _attention(*args, **(kwargs or {}))
        if func is torch.nn.functional.multi_head_attention_forward:  # torch takes this mode off while it runs
            with patch.object(torch.nn.functional, "scaled_dot_product_attention", _attention):
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _attention(  # noqa: PLR0917 - torch's signature
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002
) -> torch.Tensor:
    """As ``torch.nn.functional.scaled_dot_product_attention``, one operator at a time."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = query @ key.transpose(-2, -1)
    scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
        weights = scores.softmax(-1)
        hidden = ~attn_mask.any(-1, keepdim=True)
        weights = weights.masked_fill(hidden, 0.0) if bool(hidden.any()) else weights
    else:
        weights = (scores if attn_mask is None else scores + attn_mask).softmax(-1)
    return torch.dropout(weights, dropout_p, train=True) @ value if dropout_p else weights @ value


def values_of(  # noqa: PLR0913 - how a forward is run, and what is made of it
    model: torch.nn.Module,
    method: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    progress: Callable[[int], object] | None = None,
    *,
    is_written_out: bool = True,
    tape: Tape | None = None,
    casts: Casts = NO_CASTS,
    edited: Edited | None = None,
    tables: Mapping[int, ConstructedTable] = MappingProxyType({}),
) -> Values:
    """Run a model's method and return the operators that ran.

    Fused attention is computed step by step, and torch's fast paths are off: the forward is the same up to rounding.
    With ``edited`` some operators are done otherwise; ``tables`` are computed as constructors do it.
    """
    table = Values()
    operators = _Operators(model, table, progress, tape, casts, edited=edited, tables=tables)
    if tape is not None:
        tape.casts = casts
    with ExitStack() as stack:
        if is_written_out:
            stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
            torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(torch.no_grad())
        recorder = stack.enter_context(Recorder(model, operators))
        table.modules = tuple(recorder.modules.by_path)
        table.attributes = plain_attributes(model)
        if is_written_out:
            stack.enter_context(_WrittenOut(tape))
        stack.enter_context(operators)
        recorder.run(method, args, kwargs)
    operators.finish()
    return table


def _written(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    schema = func._schema  # noqa: SLF001 - it has no public name
    if not schema.is_mutable:
        return []
    given = [
        args[place] if place < len(args) else kwargs.get(argument.name)
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return tensors_in(given)


def _is_attention_alone(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether an operator would draw random numbers for its dropout, and is given none."""
    names = [each.name for each in func._schema.arguments]  # noqa: SLF001 - as above
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return "dropout_p" in names and not given.get("dropout_p", 0.0)


def plain_attributes(model: torch.nn.Module) -> dict[str, dict[str, str]]:
    """Return the public attributes of every module as text, by module path (empty for the root) and name.

    The mode (``training``) is the caller's and is left out.
    """
    found = {}
    for path, module in modules_by_path(model).items():
        public = ((name, held) for name, held in vars(module).items() if name[:1] != "_" and name != "training")
        told = {name: text for name, held in public if (text := _plain_text(held)) and len(text) <= _LONGEST}
        if told:
            found[path] = told
    return found


def _plain_text(held: Any, depth: int = 0) -> str:  # noqa: ANN401 - any attribute
    """Return a plain value as text, a list as a tuple of the same; empty for any other."""
    if held is None or isinstance(held, (bool, int, float)):
        return repr(held)
    if isinstance(held, str):
        return safe(repr(held))
    if isinstance(held, (tuple, list)) and depth < _DEEPEST:  # a list may hold itself
        told = [_plain_text(each, depth + 1) for each in held[:_LONGEST]]
        return f"({', '.join(told)}{',' * (len(told) == 1)})" if all(told) else ""
    return getattr(held, "__name__", "") if callable(held) and not isinstance(held, type) else ""
