"""Record a forward as a golden: run it, write what is to be kept of it, and say what became of the file."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.errors import GoldenError, TFDebugError
from pytest_tfdebug.goldens.check.on_ranks import fingerprint_on_ranks, gathered, once
from pytest_tfdebug.goldens.session import GoldenOutcome, GoldenSession
from pytest_tfdebug.goldens.store.golden_file import Written, save
from pytest_tfdebug.parity.tensors.metrics import compare_leaf
from pytest_tfdebug.parity.tensors.plain_outputs import number_dtype, plain_outputs
from pytest_tfdebug.parity.tensors.tolerance import DEFAULTS, Tolerance
from pytest_tfdebug.tensors import readable, tensor_record
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.ranks import present_group
from pytest_tfdebug.tracing.record.selection import Selection
from pytest_tfdebug.tracing.record.signatures import method_of
from pytest_tfdebug.tracing.record.state import preserved
from pytest_tfdebug.tracing.trace import recorded_forward
from pytest_tfdebug.tracing.values.rerun import Rerun

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from pytest_tfdebug.check_record import BlindRecord
    from pytest_tfdebug.goldens.check.port_call import PortCall
    from pytest_tfdebug.goldens.settings import CheckSettings
    from pytest_tfdebug.goldens.store.place import GoldenPlace
    from pytest_tfdebug.records import TensorRecord
    from pytest_tfdebug.tracing.trace import Trace


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
    recorded = recorded_forward(
        model,
        called.args,
        called.kwargs,
        picked,
        method=called.method,
        is_sampled=settings.kept.store == "values" and group is None,
        group=group,
        kept_output=None if settings.rules.positions is None else settings.rules.masked,
    )
    root = recorded.calls[0]
    settings.rules.refuse_misfit((*(root.outputs or ()), *plain_outputs(root, number_dtype(root))))
    if isinstance(recorded.again, Rerun) and group is None:
        refuse_unless_repeatable(model, recorded, recorded.again, settings.rules.masked)
    weights = None if group is None else fingerprint_on_ranks(model, group)
    recorded = recorded if group is None else gathered(recorded, group)

    def write() -> Written:
        with place.staged() as file:
            return save(file, recorded, model, item.nodeid, kept=settings.kept, weights=weights, blind=blind)

    written = once(group, write)
    outcome = GoldenOutcome(str(place), item.nodeid, written.status, written.review)
    GoldenSession.of(item.config).outcomes.append(outcome)


def recorded_model(reference: torch.nn.Module | Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """Return the reference, whose forward is recorded."""
    if isinstance(reference, torch.nn.Module):
        return reference
    built = reference() if callable(reference) else reference
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
    root = recorded.calls[0]
    if _is_same(model, again, root.outputs or (), kept, is_seeded=False):
        return
    is_seeded = torch.initial_seed() != _UNSEEDED
    if not model.training and is_seeded and _is_same(model, again, root.outputs or (), kept, is_seeded=True):
        return
    why = (
        "it is in training mode: call .eval() on the model."
        if model.training
        else "it draws random numbers or keeps a state: give it fixed inputs and a seed.\n"
        "pytest_tfdebug.fill(model) gives it fixed weights."
    )
    raise GoldenError(
        f"The forward of {recorded.model_class} gives another result each time, so a golden of it would fail:\n  {why}"
    )


def _is_same(
    model: torch.nn.Module,
    again: Rerun,
    outputs: tuple[TensorRecord, ...],
    kept: Callable[[torch.Tensor], torch.Tensor],
    *,
    is_seeded: bool,
) -> bool:
    """Make a forward again, and tell whether it returns what it did; with random numbers as they were, or others."""
    args, kwargs = again.inputs()
    with preserved(model), torch.no_grad():
        if is_seeded:
            again.seed()
        else:
            torch.manual_seed(_OTHER_SEED)
            random.seed(_OTHER_SEED)
        call = model if again.method == "forward" else method_of(model, again.method)
        found = {leaf.path: leaf for leaf in walk(call(*args, **kwargs))}
    for record in outputs:
        leaf = found.get(record.leaf)
        if leaf is None:
            continue
        actual = tensor_record(leaf, readable(kept(leaf.tensor)))
        if compare_leaf("output", actual, record, DEFAULTS.get(record.dtype, Tolerance(0.0, 0.0))).problem:
            return False
    return True
