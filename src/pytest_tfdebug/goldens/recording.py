"""Record a forward as a golden: run it, write what is kept of it, and say what that cannot see.

Of a model that runs on several ranks each holds a part, and the whole is written once, by rank 0: every rank must call
the functions that take a group.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

from pytest_tfdebug.errors import GoldenError, GoldenSizeWarning, TFDebugError
from pytest_tfdebug.generators import seed, was_seeded
from pytest_tfdebug.goldens.golden_file import save
from pytest_tfdebug.goldens.place import shown
from pytest_tfdebug.goldens.session import GoldenOutcome, GoldenSession
from pytest_tfdebug.goldens.weights import hash_of
from pytest_tfdebug.parity.pair.rename import Rename, renamed_tensors
from pytest_tfdebug.parity.tensors.metrics import compare_leaf
from pytest_tfdebug.parity.tensors.plain_outputs import number_dtype, plain_outputs
from pytest_tfdebug.parity.tensors.tolerance import DEFAULTS, Tolerance
from pytest_tfdebug.running import RUNNING
from pytest_tfdebug.tensors import readable, tensor_record
from pytest_tfdebug.tracing.file.codec import shown_size
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.modules import Selection, named_tensors
from pytest_tfdebug.tracing.record.ranks import STACKED, Group, held_here, present_group, within
from pytest_tfdebug.tracing.record.signatures import method_of
from pytest_tfdebug.tracing.record.state import preserved
from pytest_tfdebug.tracing.trace import Trace, in_float32, recorded_forward
from pytest_tfdebug.tracing.values.rerun import Rerun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pytest

    from pytest_tfdebug.check_record import BlindRecord
    from pytest_tfdebug.goldens.place import GoldenPlace
    from pytest_tfdebug.goldens.port_call import PortCall
    from pytest_tfdebug.goldens.settings import CheckSettings
    from pytest_tfdebug.records import Part, TensorRecord

_Result = TypeVar("_Result")
#: Bytes above which a golden that was written gives a warning.
_LARGE = 10_000_000
#: What a golden keeps -> how it becomes smaller.
_SMALLER = {
    "full": 'without store="full" a golden keeps a sample of each tensor',
    "values": "the model's inputs are kept whole: smaller ones make a smaller golden",
}


def record(
    item: pytest.Item,
    place: GoldenPlace,
    model: torch.nn.Module,
    called: PortCall,
    settings: CheckSettings,
    *,
    blind: Callable[[], tuple[BlindRecord, ...]] = tuple,
) -> None:
    """Record a forward as a golden; write nothing where that would change nothing."""
    __tracebackhide__ = True
    picked = Selection(settings.include, settings.exclude, settings.level)
    group = present_group()
    kept_output = None if settings.rules.positions is None else settings.rules.masked
    is_sampled = settings.kept.store == "values" and group is None
    how: dict[str, Any] = {
        "method": called.method,
        "is_sampled": is_sampled,
        "group": group,
        "kept_output": kept_output,
    }
    recorded = recorded_forward(model, called.args, called.kwargs, picked, **how)
    root = recorded.calls[0]
    settings.rules.refuse_misfit((*(root.outputs or ()), *plain_outputs(root, number_dtype(root))))
    if isinstance(recorded.again, Rerun) and group is None:
        refuse_unless_repeatable(model, recorded, recorded.again, settings.rules.masked)
        in_float32(recorded, is_sampled=is_sampled, kept_output=kept_output)
    weights = None if group is None else fingerprint_on_ranks(model, group)
    recorded = recorded if group is None else gathered(recorded, group)

    def write() -> GoldenOutcome:
        with place.staged() as file:
            return save(file, recorded, model, item.nodeid, kept=settings.kept, weights=weights, blind=blind)

    written = replace(once(group, write), path=str(place))
    GoldenSession.of(item.config).outcomes.append(written)
    if written.size > _LARGE:
        told = f"{shown(str(place), item.config)} takes {shown_size(written.size)}: large for a file to commit"
        warnings.warn(GoldenSizeWarning(f"{told}; {_SMALLER[settings.kept.store]}."), stacklevel=3)


def recorded_model(reference: torch.nn.Module | Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """Return the reference, whose forward is recorded."""
    if isinstance(reference, torch.nn.Module):
        return reference
    owner = getattr(reference, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        name, kind = getattr(reference, "__name__", "forward"), type(owner).__name__
        raise TFDebugError(
            f"reference= is the method {name} of a {kind}: give the {kind} itself.\n"
            f"To compare what {name} gives, check the port's: tf_golden.check(port.{name}, reference=model, ...)."
        )
    try:
        built = reference() if callable(reference) else reference
    except TypeError as error:
        if not isinstance(reference, type):
            raise
        name = reference.__name__
        raise TFDebugError(
            f"reference= is the class {name}, and {error}: give a model, as reference={name}(config).eval()."
        ) from error
    if not isinstance(built, torch.nn.Module):
        raise TFDebugError(
            f"reference= is a torch.nn.Module or a function that returns one; it gave {type(built).__name__}."
        )
    return built


#: What torch's generator begins with in a process where nobody has seeded it.
_UNSEEDED = 67280421310721
_OTHER_SEED = 1234567


def refuse_unless_repeatable(
    model: torch.nn.Module, recorded: Trace, again: Rerun, kept: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Make a recorded forward once more, with other random numbers, and refuse one that gives something else.

    What the test has seeded itself may draw random numbers, in eval mode: it draws the same ones at the next run.
    """

    def made() -> bool:
        """Make the forward, and tell whether it returns what it did."""
        args, kwargs = again.inputs()
        call = model if again.method == "forward" else method_of(model, again.method)
        found = {leaf.path: leaf for leaf in walk(call(*args, **kwargs))}
        for record in recorded.calls[0].outputs or ():
            if record.leaf in found:
                leaf, tolerance = found[record.leaf], DEFAULTS.get(record.dtype, Tolerance(0.0, 0.0))
                actual = tensor_record(leaf, readable(kept(leaf.tensor)))
                if compare_leaf("output", actual, record, tolerance).problem:
                    return False
        return True

    def made_with_other(*names: str) -> bool:
        """Make the forward with other random numbers of some generators."""
        with preserved(model), torch.no_grad():
            again.seed()
            for name in names:
                torch.manual_seed(_OTHER_SEED) if name == "torch" else seed(name, _OTHER_SEED)
            return made()

    held = again.random[1]
    if made_with_other("torch", *held):
        return
    before, is_repeated = RUNNING.random or {}, made_with_other()  # else it keeps a state
    drawn = [name for name in held if not was_seeded(name, before, held)] if is_repeated else []
    unseeded = [name for name in drawn if not made_with_other(name)]
    is_seeded = torch.initial_seed() != _UNSEEDED or made_with_other("torch")
    if not model.training and not unseeded and is_seeded and is_repeated:
        return
    why = (
        "it is in training mode: call .eval() on the model."
        if model.training
        else f"it draws from {unseeded[0]}, which the test does not seed: call {unseeded[0]}.seed(0) before."
        if unseeded
        else "it draws random numbers or keeps a state: give it fixed inputs and a seed.\n"
        "pytest_tfdebug.fill(model) gives it fixed weights."
    )
    raise GoldenError(
        f"The forward of {recorded.model_class} gives another result each time, so a golden of it would fail:\n  {why}"
    )


class _HeldByRank(NamedTuple):
    tensor: torch.Tensor
    part: Part | None

    @property
    def is_whole(self) -> bool:
        """Whether they are all of it, as far as is known."""
        return self.part is None or (self.part.shape == tuple(self.tensor.shape) and not self.part.is_summand)


def sharing_group(root: str | None) -> Group | None:
    """Return the group of ranks if all hold parts of one model; None if each holds a module of its own."""
    group = present_group()
    return group if group is not None and len(set(group.exchange(root))) == 1 else None


def once(group: Group | None, write: Callable[[], _Result]) -> _Result:
    """Write something on rank 0 alone; return its result, or raise its error, on every rank."""
    if group is None:
        return write()
    made: Any = None
    if group.rank == 0:
        try:
            made = write()
        except TFDebugError as error:
            made = error
    told: Any = group.exchange(made)[0]
    if isinstance(told, TFDebugError):
        raise told
    result: _Result = told
    return result


def fingerprint_on_ranks(
    model: torch.nn.Module,
    group: Group,
    recorded: Mapping[str, str] | None = None,
    rename: Rename = None,
) -> dict[str, str]:
    """Return a hash of every whole parameter and buffer by name.

    A plain tensor that differs from rank to rank may be a part of a whole along any axis. The hash in the golden tells
    which; without one, a tensor that may be a part of several wholes is left out.
    """
    held = _parts_of(model)
    told = group.exchange({name: (hash_of(each.tensor), each.is_whole) for name, each in held.items()})
    found: dict[str, str] = {}
    names = renamed_tensors(rename, sorted({name for rank in told for name in rank}))
    for name, there in names.items():
        wanted = (recorded or {}).get(there)
        own = {rank[name] for rank in told if name in rank}
        made, is_whole = next(iter(own))
        if len(own) == 1 and is_whole and wanted in (None, made):
            found[name] = made
            continue
        parts = [each for each in group.exchange(held.get(name)) if each is not None]
        known = [hash_of(whole) for whole in _candidates(parts)]
        if wanted in known:
            found[name] = wanted
        elif len(known) == 1 or wanted is not None:
            found[name] = known[0]
    return found


def _parts_of(model: torch.nn.Module) -> dict[str, _HeldByRank]:
    found = {}
    for name, given in named_tensors(model):
        if not torch.nn.parameter.is_lazy(given):
            tensor, part = held_here(given.detach())
            if tensor is not None:
                found[name] = _HeldByRank(tensor, part)
    return found


def _candidates(parts: Sequence[_HeldByRank]) -> list[torch.Tensor]:
    """Return the wholes that the parts may belong to; only one where each part says where it lies."""
    if parts[0].part is not None:
        return [_assembled(parts)[0]]
    tensors = [each.tensor.cpu() for each in parts]
    wholes = []
    for axis in range(tensors[0].dim()):
        others = {tuple(size for place, size in enumerate(each.shape) if place != axis) for each in tensors}
        if len(others) == 1:
            wholes.append(torch.cat(tensors, axis))
    return wholes or tensors[:1]


def sharded_too_often(model: torch.nn.Module, group: Group, name: str, shape: tuple[int, ...]) -> str:
    """Say that a parameter was sharded again after it had been, as tied weights are under their second name."""
    held, count = _parts_of(model)[name], group.world_size
    if held.part is not None or held.tensor.numel() * count >= prod(shape):
        return ""
    each = tuple(held.tensor.shape)
    return f"{count} ranks hold {each} each of {shape}, which does not add up: it was sharded more than once."


def gathered(trace: Trace, group: Group) -> Trace:
    """Return a trace with the whole tensors of all ranks."""
    records = list(trace.records())
    outlines = group.exchange([(call.name, len(call.inputs), len(call.outputs or ())) for call in trace.calls])
    if any(outline != outlines[0] for outline in outlines):
        names = [[name for name, *_ in outline] for outline in outlines]
        raise GoldenError(
            "The ranks made different calls, but a golden holds one forward: "
            + "; ".join(f"rank {rank} made {len(each)}" for rank, each in enumerate(names))
            + ".\nRecord the model on one process, or give reference=."
        )
    tensors = {id(record.tensor): record.tensor for record in records if record.tensor is not None}
    hashes = {key: hash_of(tensor) for key, tensor in tensors.items()}
    told = group.exchange([(hashes.get(id(record.tensor), ""), record.part) for record in records])
    known: dict[tuple[tuple[str, Part | None], ...], tuple[torch.Tensor, str]] = {}
    wholes: list[TensorRecord] = []
    for record, key in zip(records, zip(*told, strict=True), strict=True):
        if record.tensor is None or (len(set(key)) == 1 and _HeldByRank(record.tensor, record.part).is_whole):
            wholes.append(replace(record, part=None))
            continue
        if key not in known:
            known[key] = _assembled(group.exchange(_HeldByRank(record.tensor, record.part)))
        tensor, placement = known[key]
        wholes.append(replace(record, tensor=tensor, shape=tuple(tensor.shape), part=None, placement=placement))
    found = iter(wholes)
    calls = [call.with_records(lambda _record, _role: next(found)) for call in trace.calls]
    return replace(trace, calls=calls, again=None)


def _assembled(parts: Sequence[_HeldByRank]) -> tuple[torch.Tensor, str]:
    """Return a whole tensor, and how it lay on the ranks."""
    tensors, first = [each.tensor.cpu() for each in parts], parts[0].part
    if first is not None and first.is_summand:
        return torch.stack(tensors).sum(0), "Partial"
    if first is not None:
        whole = tensors[0].new_zeros(first.shape)
        for each, tensor in zip(parts, tensors, strict=True):
            if each.part is not None:
                within(whole, each.part, tensor.shape).copy_(tensor)
        axes = [axis for axis, size in enumerate(first.shape) if size != tensors[0].shape[axis]]
        return whole, ", ".join(f"Shard({axis})" for axis in axes)
    shapes = [tuple(tensor.shape) for tensor in tensors]
    other = [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1]
    if len(other) == 1:
        return torch.cat(tensors, other[0]), f"Shard({other[0]})"
    if other:
        raise GoldenError(f"The ranks hold tensors of shapes {shapes}, which do not fit together.")
    return torch.stack(tensors), STACKED
