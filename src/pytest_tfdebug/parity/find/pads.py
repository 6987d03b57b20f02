"""Padded inputs of two forwards that differ: what differs without padding as well, and what differs at pads alone.

Two right models compute other numbers at pads. So what differs there says nothing of a difference anywhere else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import torch

from pytest_tfdebug.errors import second_look
from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.tensors.positions import counting
from pytest_tfdebug.records import FAILING
from pytest_tfdebug.tracing.record.leaves import replaced
from pytest_tfdebug.tracing.record.masks import is_mask
from pytest_tfdebug.tracing.record.modules import Selection
from pytest_tfdebug.tracing.record.signatures import input_name, method_of, parameters_of
from pytest_tfdebug.tracing.trace import Trace, recorded_forward
from pytest_tfdebug.tracing.values.index_range import indices_checked
from pytest_tfdebug.tracing.values.rerun import Recorded, Rerun
from pytest_tfdebug.values import Fingerprint, are_among

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.data.comparison import ComparisonResult
    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.tensors.outputs import OutputRules

_BATCH_AND_TOKENS = 2

_Result = TypeVar("_Result", bound="ComparisonResult")
#: Returns the part of an input or output that counts.
Take: TypeAlias = "Callable[[torch.Tensor], torch.Tensor]"
#: Holds a forward to its reference on that part of their inputs, by rules for the outputs; None where it cannot. What
#: differs is explained, unless positions are given.
Hold: TypeAlias = "Callable[[Rerun, Take, OutputRules], _Result | None]"


def beside_pads(
    expected: Trace, again: Callable[[], Rerun], rules: OutputRules, hold: Hold[_Result]
) -> tuple[_Result | None, str]:
    """Hold a forward that differs from a recorded one to its reference without padding.

    Returns:
        The report of that, if it differs there too; and the name of the mask if it differs nowhere but at pads.
    """
    with second_look([]), torch.random.fork_rng(devices=[]):
        return _beside_pads(expected, again(), rules, hold)
    return None, ""


def _beside_pads(
    expected: Trace, reference: Rerun, rules: OutputRules, hold: Hold[_Result]
) -> tuple[_Result | None, str]:
    masks = masks_of(expected, reference)
    if not masks or not _still_gives(reference, expected):
        return None, ""
    take, told = _unpadded(masks)
    if told:
        found = hold(reference, take, replace(rules, positions=None))
        if found is not None and _differs(found):
            return replace(found, part=told), ""
    (name, mask), *more = masks.items()
    has_positions = any(counting(mask, record.shape) is not None for record in expected.calls[0].outputs or ())
    if rules.positions is None and not more and has_positions:  # frames are fewer than the samples that a mask is of
        found = hold(reference, _whole, replace(rules, positions=mask))
        return None, name if found is not None and found.ok else ""
    return None, ""


def _differs(found: ComparisonResult) -> bool:
    """Tell whether an output that was compared differs: one that is missing is missing with padding, too."""
    leaves = (leaf for item in found.calls if item.call.parent is None for leaf in item.outputs)
    return not found.ok and any(leaf.is_measured and leaf.problem in FAILING for leaf in leaves)


def at_pads(claim: Claim, mask: str) -> Claim:
    """Return a claim on a forward that differs nowhere but at positions that a mask hides: where that begins."""
    wrong, why = f"differs only at positions that {mask} hides", "Every other position agrees."
    return replace(claim, wrong=wrong, why=why)


def on_part(forward: Rerun, take: Take) -> Rerun | None:
    """Return a forward on a part of its inputs; None where none of them has such a part."""
    is_cut = False

    def taken(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal is_cut
        part = take(tensor)
        is_cut = is_cut or part is not tensor or take is _whole
        return part

    args, kwargs = replaced(forward.inputs(), taken)
    return Rerun(forward.model, args, kwargs, forward.method, forward.wider) if is_cut else None


def made(forward: Rerun, recorded: Trace | None = None) -> Trace:
    """Make a forward once more, and return what it gave: of the modules that a trace recorded, if one is given."""
    among = None if recorded is None else {*recorded.modules}.difference(recorded.unrecorded)
    return made_of(forward, Selection(among=among))


def made_of(forward: Rerun, picked: Selection) -> Trace:
    """Make a forward once more, and return what it gave of some modules; an index out of range raises on any device."""
    with indices_checked(forward.model):
        return _recorded(forward, picked)


def _recorded(forward: Rerun, picked: Selection) -> Trace:
    inputs = forward.inputs()
    return recorded_forward(forward.model, *inputs, picked, method=forward.method, wider=forward.wider)


def is_part(trace: Trace, whole: Trace, take: Take) -> bool:
    """Tell whether a forward on a part of its inputs gave that part of what it had given on the whole of them."""
    expected = [take(tensor) for tensor in _outputs(whole)]
    return are_among(map(Fingerprint.of, expected), [*map(Fingerprint.of, _outputs(trace))], AGREE)


def _still_gives(forward: Rerun, recorded: Trace) -> bool:
    """Tell whether a model gives what was recorded of it: it may have changed since."""
    found = _recorded(forward, Selection(among=()))
    if not isinstance(recorded.again, Recorded):
        return is_part(found, recorded, _whole)
    values = recorded.again.values()
    given, expected = _outputs(found), [values.values[index].print for _, index in values.results]
    return bool(given) and are_among(map(Fingerprint.of, given), expected, AGREE)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _outputs(trace: Trace) -> list[torch.Tensor]:
    records = trace.calls[0].outputs or ()
    return [record.tensor for record in records if record.tensor is not None and record.tensor.numel()]


def masks_of(recorded: Trace, reference: Rerun) -> dict[str, torch.Tensor]:
    """Return the masks of a recorded forward's inputs, 1 at real tokens, by name; none where they hide nothing.

    A ``padding_mask`` is 1 at pads in torch and at real tokens in transformers: nothing is made of it.
    """
    names = parameters_of(method_of(reference.model, reference.method))
    given = {input_name(record.leaf, names).strip("[]'"): record.tensor for record in recorded.calls[0].inputs}
    masks = {
        name: tensor.cpu()
        for name, tensor in given.items()
        if is_mask(name)
        and "padding" not in name
        and tensor is not None
        and tensor.dim() == _BATCH_AND_TOKENS
        and not tensor.is_floating_point()
        and bool(((tensor == 0) | (tensor == 1)).all())
    }
    is_one_batch = len({len(mask) for mask in masks.values()}) == 1
    return masks if is_one_batch and not all(mask.all() for mask in masks.values()) else {}


def _unpadded(masks: dict[str, torch.Tensor]) -> tuple[Take, str]:
    """Return what takes the part of an input without padding, and what that part is; empty if there is none."""
    masks_of_rows = torch.stack([mask.bool().all(1) for mask in masks.values()])
    rows, mask = masks_of_rows.all(0), next(iter(masks.values()))
    if rows.any():
        told = f"the rows without padding ({int(rows.sum())} of {len(rows)})"
        return lambda tensor: tensor[rows] if tensor.shape[:1] == rows.shape else tensor, told
    columns = mask.bool().all(0) & (len(masks) == 1)
    told = f"the positions that no row pads ({int(columns.sum())} of {len(columns)})" if columns.any() else ""
    return lambda tensor: tensor[:, columns] if tensor.shape[:2] == mask.shape else tensor, told
