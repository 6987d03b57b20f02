"""Padded inputs of a failed check: what differs without padding as well, and what differs at pads alone.

Two right models compute other numbers at pads. So what differs there says nothing of a difference anywhere else.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import torch

from pytest_tfdebug.fingerprints import Fingerprint, are_among
from pytest_tfdebug.parity.values.value_culprit import AGREE
from pytest_tfdebug.tracing.record.leaves import replaced
from pytest_tfdebug.tracing.record.selection import Selection
from pytest_tfdebug.tracing.record.signatures import input_name, is_mask, method_of, parameters_of
from pytest_tfdebug.tracing.trace import Trace, recorded_forward
from pytest_tfdebug.tracing.values.float64 import has_floors, measure_floors
from pytest_tfdebug.tracing.values.rerun import Rerun

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.goldens.check.port_call import PortCall
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.parity.tensors.outputs import OutputRules
    from pytest_tfdebug.tracing.file.codec import TraceFile

logger = logging.getLogger(__name__)

_BATCH_AND_TOKENS = 2


#: Holds the model under test to a golden, by a call of it and by rules, and returns the report.
Hold: TypeAlias = "Callable[..., ParityReport]"


def _masks(golden: Trace, reference: Rerun) -> dict[str, torch.Tensor]:
    """Return the masks of a recorded forward's inputs, 1 at real tokens, by name; none where they hide nothing."""
    names = parameters_of(method_of(reference.model, reference.method))
    given = {input_name(record.leaf, names).strip("[]'"): record.tensor for record in golden.calls[0].inputs}
    masks = {
        name: tensor.cpu()
        for name, tensor in given.items()
        if is_mask(name)
        and tensor is not None
        and tensor.dim() == _BATCH_AND_TOKENS
        and not tensor.is_floating_point()
        and bool(((tensor == 0) | (tensor == 1)).all())
    }
    is_one_batch = len({len(mask) for mask in masks.values()}) == 1
    return masks if is_one_batch and not all(mask.all() for mask in masks.values()) else {}


def beside_pads(golden: TraceFile, called: PortCall, rules: OutputRules, hold: Hold) -> tuple[ParityReport | None, str]:
    """Hold a model that differs from its golden to the reference without padding.

    Returns:
        The report of that, if it differs there too; and the name of the mask if it differs nowhere but at pads.
    """
    try:
        return _beside_pads(golden, called, rules, hold)
    except Exception:  # a second look must not cost the report on the failure
        logger.debug("a forward without padding failed", exc_info=True)
        return None, ""


@torch.random.fork_rng(devices=[])
def _beside_pads(
    golden: TraceFile, called: PortCall, rules: OutputRules, hold: Hold
) -> tuple[ParityReport | None, str]:
    reference = None if called.reference is None else called.reference()
    masks = {} if reference is None else _masks(golden.trace, reference)
    if reference is None or not masks or not _still_gives(reference, golden.trace):
        return None, ""
    take, told = _unpadded(masks)
    if told:
        found = hold(*_on(golden, called, reference, take), replace(rules, positions=None))
        if not found.ok:
            return replace(found, notes=[f"This is about {told}, which differ as well.", *found.notes]), ""
    (name, mask), *more = masks.items()
    if rules.positions is None and not more:
        whole = _on(golden, called, reference, lambda tensor: tensor)
        if hold(*whole, replace(rules, positions=mask), is_explained=False).ok:
            return None, name
    return None, ""


def _unpadded(masks: dict[str, torch.Tensor]) -> tuple[Callable[[torch.Tensor], torch.Tensor], str]:
    """Return what takes the part of an input without padding, and what that part is; empty if there is none."""
    masks_of_rows = torch.stack([mask.bool().all(1) for mask in masks.values()])
    rows, mask = masks_of_rows.all(0), next(iter(masks.values()))
    if rows.any():
        told = f"the rows without padding ({int(rows.sum())} of {len(rows)})"
        return lambda tensor: tensor[rows] if tensor.shape[:1] == rows.shape else tensor, told
    columns = mask.bool().all(0) & (len(masks) == 1)
    told = f"the positions that no row pads ({int(columns.sum())} of {len(columns)})" if columns.any() else ""
    return lambda tensor: tensor[:, columns] if tensor.shape[:2] == mask.shape else tensor, told


def _on(
    golden: TraceFile, called: PortCall, reference: Rerun, take: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[TraceFile, PortCall]:
    """Return what the reference gives on a part of its inputs, and the model's call on the same part."""
    own_args, own_kwargs = replaced(reference.inputs(), take)
    again = Rerun(reference.model, own_args, own_kwargs, reference.method)
    trace = recorded_forward(reference.model, *again.inputs(), Selection(), method=reference.method)
    if has_floors(golden.trace):
        measure_floors(trace)
    args, kwargs = replaced((called.args, called.kwargs), take)
    return replace(golden, trace=trace), replace(called, args=args, kwargs=kwargs, reference=lambda: again)


def _still_gives(reference: Rerun, golden: Trace) -> bool:
    values = None if golden.again is None else golden.again.values()
    found = recorded_forward(reference.model, *reference.inputs(), Selection(among=()), method=reference.method)
    outputs = found.calls[0].outputs or ()
    of = Fingerprint.of
    made = [of(record.tensor) for record in outputs if record.tensor is not None and record.tensor.numel()]
    expected = [] if values is None else [values.values[index].print for _, index in values.results]
    return bool(made) and are_among(made, expected, AGREE)
