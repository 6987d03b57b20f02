"""The recorded forward: what ``trace(model, ...)`` returns."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch

from pytest_tfdebug.data.trace import RecordedForward
from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.records import Call, TensorRecord, Write
from pytest_tfdebug.report.tables import COLUMNS, render_tree, table, trace_rows
from pytest_tfdebug.tensors import Leaf, tensor_record
from pytest_tfdebug.tracing.file.codec import export_json, read, write
from pytest_tfdebug.tracing.file.stored_tensors import Samples
from pytest_tfdebug.tracing.record.leaves import skeleton
from pytest_tfdebug.tracing.record.modules import Level, Selection
from pytest_tfdebug.tracing.record.ranks import Group, record_here
from pytest_tfdebug.tracing.record.recorder import Consumer, Recorder
from pytest_tfdebug.tracing.record.signatures import forward_parameters, refuse_unknown_inputs
from pytest_tfdebug.tracing.record.state import Captures, preserved, random_state_kept
from pytest_tfdebug.tracing.values.digest import summarize
from pytest_tfdebug.tracing.values.precision import checked_dtypes, with_floors
from pytest_tfdebug.tracing.values.rerun import Recorded, Rerun
from pytest_tfdebug.tracing.values.widening import computing, to_float32

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pandas as pd
    import pytest

    from pytest_tfdebug.tracing.values.widening import Wider


@dataclass(eq=False, repr=False)
class Trace(RecordedForward):
    """The ordered tree of the calls of one forward, with their tensors.

    Args:
        model_class: Class name of the root.
        calls: Every recorded call, in the order in which the calls began.
        notes: What could not be seen, in sentences.
        aliases: Other module paths of a shared module, by its path.
        modules: Every module path of the model, called or not, the root left out.
        unrecorded: Those of them that ``include``, ``exclude`` or ``level`` left out, or that could not be seen.
        again: What its operators computed: recorded, or by one more forward of the model, which a live trace holds.
        wide: Of a model in half precision, the same forward in float32, where that was made.

    Examples:
        >>> trace = pytest_tfdebug.trace(model, input_ids=ids)  # doctest: +SKIP
        >>> trace["model.layers.0.mlp"].outputs[0].tensor.shape  # doctest: +SKIP
        torch.Size([1, 16, 64])
    """

    again: Rerun | Recorded | None = field(default=None, repr=False)
    wide: Trace | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"<Trace of {self.model_class}: {len(self.calls)} calls, {sum(1 for _ in self.records())} tensors>"

    def __str__(self) -> str:
        summarize(self.records())
        return "\n".join(render_tree(self.calls, self.notes))

    def _repr_html_(self) -> str:
        from pytest_tfdebug.report.page import trace_html

        summarize(self.records())
        return trace_html(repr(self), self.calls, self.notes)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each call and leaf: path, class, call, direction, leaf, shape, dtype and statistics."""
        summarize(self.records())
        return table(trace_rows(self.calls), COLUMNS)

    def save(self, path: str | os.PathLike[str], *, dtypes: tuple[str, ...] = ()) -> None:
        """Write the trace to a safetensors file, atomically; ``Trace.load`` reads it back.

        Args:
            path: The file.
            dtypes: ``("bfloat16",)``: make the forward once more in each, and keep what rounding makes of every value
                there, for arrays of a runtime in half precision.

        Raises:
            GoldenError: If the file cannot be written.
            TFDebugError: If the model is gone, or cannot be run in one of the dtypes.
        """
        in_float32(self)
        write(path, self, values=with_floors(self, checked_dtypes(dtypes)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Read a trace or golden; its tensors are mapped from the file, not copied into memory.

        Raises:
            GoldenError: If the file cannot be read or is not a trace.
        """
        return read(path, cls).trace

    def export_json(self, directory: str | os.PathLike[str]) -> tuple[str, str]:
        """Write the two files of transformers' model debugger, with its keys.

        Args:
            directory: Created if it does not exist.

        Returns:
            The paths of ``<Model>_debug_tree_SUMMARY.json`` and ``<Model>_debug_tree_FULL_TENSORS.json``.

        Raises:
            TFDebugError: If the trace has no calls, or the files cannot be written.
        """
        return export_json(self, directory)


#: Returns what is kept of a leaf of a call, which is its ``input``, ``output`` or ``write``.
_Keep: TypeAlias = "Callable[[Call, Leaf, str], TensorRecord]"


def _keep(model: torch.nn.Module, *, is_sampled: bool = False, is_part: bool = False) -> _Keep:
    """Return what keeps all of each tensor, or what a golden does; of a part, what this rank holds of it."""
    owned = chain(model.parameters(), model.buffers())
    if is_sampled:
        return Samples(owned).take
    take = Captures(owned).take
    if is_part:
        return lambda _call, leaf, _role: record_here(leaf, take)
    return lambda _call, leaf, _role: tensor_record(leaf, take(leaf.tensor))


@dataclass
class _Keeper:
    """Keeps the calls of a forward in a trace."""

    keep: _Keep
    kept_output: Callable[[torch.Tensor], torch.Tensor] | None = None  # what is kept of an output of the model
    trace: Trace = field(default_factory=lambda: Trace(""))

    def enter(self, call: Call, leaves: list[Leaf], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call.inputs = tuple([self.keep(call, leaf, "input") for leaf in leaves])
        call.skeleton["args"], call.skeleton["kwargs"] = skeleton((args, kwargs), leaves)
        self.trace.calls.append(call)

    def leave(self, call: Call, leaves: list[Leaf], output: Any) -> None:  # noqa: ANN401
        kept = leaves
        if self.kept_output is not None and call.parent is None and call.path == self.trace.model_class:
            kept = [leaf._replace(tensor=self.kept_output(leaf.tensor)) for leaf in leaves]
        call.outputs = tuple([self.keep(call, leaf, "output") for leaf in kept])
        call.skeleton["outputs"] = skeleton(output, leaves)

    def wrote(self, call: Call, leaves: list[Leaf], before: int | None) -> None:
        call.writes += tuple([Write(self.keep(call, leaf, "write"), before) for leaf in leaves])

    def fail(self, call: Call) -> None:
        """Nothing to keep: the call's error is on the call."""


@contextmanager
def record(
    model: torch.nn.Module,
    *,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    level: Level = "all",
) -> Iterator[Trace]:
    """Record every forward of a model inside a ``with`` block, into the trace that it yields.

    For what ``trace`` cannot reach: ``generate``, a forward that raises (the calls so far stay in the trace), several
    forwards in one trace. Gradients and random numbers are the block's own business.

    Args:
        model: The root.
        include: Globs of module paths to record; all when empty.
        exclude: Globs of module paths to leave out.
        level: ``"all"`` modules, ``"leaves"`` or ``"layers"``.

    Yields:
        The trace, growing.

    Raises:
        TFDebugError: If a glob matches nothing.
    """
    keeper = _Keeper(_keep(model))
    with _recording(model, Selection(include, exclude, level), keeper, runs_once=False):
        yield keeper.trace


def trace(
    model: torch.nn.Module,
    /,
    *args: Any,  # noqa: ANN401 - the model's own inputs
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    level: Level = "all",
    method: str = "forward",
    **kwargs: Any,  # noqa: ANN401
) -> Trace:
    """Run one forward without gradients and record every module's inputs and outputs.

    The model is left as it was, also when the forward raises: hooks, mode, buffers and random numbers.

    Args:
        model: Any ``torch.nn.Module``.
        *args: Positional inputs of the forward.
        include: Globs of module paths to record; all when empty. The root is always recorded.
        exclude: Globs of module paths to leave out.
        level: ``"all"`` modules, ``"leaves"`` (without submodules) or ``"layers"`` (items of a ``ModuleList`` or
            ``Sequential``).
        method: What to call instead of the forward: ``"encode"``, ``"get_image_features"``, ``"generate"``.
        **kwargs: Keyword inputs of the forward. A model whose own forward has a parameter of one of these names is
            recorded with :func:`record`.

    Returns:
        The trace.

    Raises:
        TFDebugError: If ``model`` is not a module, has no such method, takes no such input, or a glob matches nothing.
    """
    own = {"include": include, "exclude": exclude, "level": level, "method": () if method == "forward" else method}
    check_model(model, own, "trace")
    if method == "forward":
        refuse_unknown_inputs(model, kwargs, own)
    return recorded_forward(model, args, kwargs, Selection(include, exclude, level), method=method)


def recorded_forward(  # noqa: PLR0913 - keyword options
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    picked: Selection,
    *,
    method: str = "forward",
    is_sampled: bool = False,
    group: Group | None = None,
    kept_output: Callable[[torch.Tensor], torch.Tensor] | None = None,
    wider: Wider = MappingProxyType({}),
) -> Trace:
    """Run one forward without gradients and record it; see :func:`trace`.

    ``is_sampled`` reduces each tensor to what a golden keeps of it, as it is seen. Of a forward on several ranks what
    this one holds is recorded. ``kept_output`` returns what is recorded of an output of the model; ``wider`` are the
    dtypes that others stand for.
    """
    again = Rerun(model, args, kwargs, method, wider)
    keeper = _Keeper(_keep(model, is_sampled=is_sampled, is_part=group is not None), kept_output)
    with (
        computing(model, (args, kwargs), wider, keeper) as (given, consumer),
        _recording(model, picked, keeper, consumer) as recorder,
    ):
        recorder.run(method, *given)
    keeper.trace.again = again
    return keeper.trace


def in_float32(trace: Trace, **how: Any) -> Trace | None:  # noqa: ANN401 - of :func:`recorded_forward`
    """Return a forward in half precision as it is in float32; None for any other, and for one that cannot be made.

    That of a live trace is made once and kept.
    """
    again = trace.again
    if trace.wide is not None or not isinstance(again, Rerun) or again.wider:
        return trace.wide
    wider, picked = to_float32(again.model), Selection(among={*trace.modules}.difference(trace.unrecorded))
    if wider:
        with suppress(Exception), random_state_kept():  # a model that cannot compute in float32 is held as it is
            again.seed()
            trace.wide = recorded_forward(again.model, *again.inputs(), picked, method=again.method, wider=wider, **how)
    return trace.wide


#: What to do with a function that is to be held to another one.
_MODULE_OF_IT = (
    "\nIf it returns the model, call it. If it is what is to be checked, call it in the forward of a torch.nn.Module "
    "of your own, and check that."
)


def check_model(model: object, own: Mapping[str, object], function: str) -> None:
    """Refuse what is no model, and an option that the model's forward has as a parameter of its own."""
    if not isinstance(model, torch.nn.Module):
        name = getattr(model, "__name__", "")
        kind = "class" if isinstance(model, type) else type(model).__name__
        got = f"the {kind} {name}: call it, {name}(...)" if name and isinstance(model, type) else f"the {kind} {name}"
        how = "" if isinstance(model, type) else _MODULE_OF_IT
        raise TFDebugError(f"{function} needs a torch.nn.Module and got {got.rstrip() if name else kind}.{how}")
    given = {name for name, value in own.items() if not isinstance(value, (str, tuple)) or value not in ("all", ())}
    taken = sorted(given & forward_parameters(cast("type", type(model))).keys())
    if taken:
        raise TFDebugError(
            f"{taken[0]}= is an option of {function}, and a parameter of {type(model).__name__}'s forward as well, "
            "so it is unclear which you mean.\nUse `with pytest_tfdebug.record(model) as trace:` and call the model "
            "inside, or wrap it in a module whose forward has no such parameter."
        )


def tracer(item: pytest.Item) -> Callable[..., Trace]:
    """Return :func:`pytest_tfdebug.trace` for a test: a forward that raises leaves its calls in the test's report."""

    def tf_trace(model: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Trace:  # noqa: ANN401 - the model's own inputs
        __tracebackhide__ = True
        own: dict[str, Any] = {name: kwargs.pop(name) for name in ("include", "exclude", "level") if name in kwargs}
        check_model(model, own, "tf_trace")
        with preserved(model), torch.no_grad(), record(model, **own) as recorded:
            try:
                model(*args, **kwargs)
            except Exception:
                with suppress(RuntimeError):  # after an error on a device no tensor there can be read
                    summarize(recorded.records())
                told = "\n".join(["Calls before the error:", *render_tree(recorded.calls, recorded.notes)])
                item.add_report_section("call", "tfdebug trace", told)
                raise
        return recorded

    return tf_trace


@contextmanager
def _recording(
    model: torch.nn.Module,
    picked: Selection,
    keeper: _Keeper,
    consumer: Consumer | None = None,
    *,
    runs_once: bool = True,
) -> Iterator[Recorder]:
    recorder, recorded = Recorder(model, consumer or keeper, picked, runs_once=runs_once), keeper.trace
    modules = recorder.modules
    recorded.model_class, recorded.aliases, recorded.modules = recorder.root_name, modules.aliases, (*modules.by_path,)
    try:
        with recorder:
            yield recorder
    finally:
        recorded.notes, recorded.unrecorded = tuple(recorder.notes), recorder.unrecorded  # as the forward was found
