"""Whether a model decodes, by what it does: do earlier positions of its answer depend on later tokens?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.invariance.calls.alignment import Alignment
from pytest_tfdebug.invariance.compare.outputs import lay

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_tfdebug.invariance.calls.observed_call import Leaves, ObservedCall
    from pytest_tfdebug.invariance.calls.sequences import InputSequence
    from pytest_tfdebug.parity.tensors.tolerance import Tolerances


def is_causal(call: ObservedCall, sequence: InputSequence, expected: Leaves, tolerances: Tolerances) -> bool | None:
    """Change the second half of each row's tokens, and tell whether the first half of the answer stays as it is.

    None where that cannot be seen: the answer has no axis along the sequence, or its rows are too short. Inside
    ``call.restored``.
    """
    if sequence.axis != 1:
        return None
    real = torch.ones(sequence.batch, sequence.length, dtype=torch.bool)
    real = real if sequence.mask is None else sequence.mask.cpu()
    is_earlier = real.cumsum(1) <= real.sum(1, keepdim=True) // 2
    if not bool((real & is_earlier).any(1).all()):
        return None
    try:
        output = call.leaves(_changed(call.inputs, sequence, real & ~is_earlier))
    except Exception:  # noqa: BLE001 - a model that refuses these tokens has told nothing
        return None
    at = Alignment(sequence.length, 0, sequence.length, sequence.batch, mask=real & is_earlier)
    laid = [
        found
        for path, tensor in expected.items()
        if path in output and (found := lay(path, tensor, output[path], at, tolerances)) is not None
    ]
    along = [comparison for aligned, comparison in laid if aligned.axes]
    return not any(comparison.problem for comparison in along) if along else None


def _changed(inputs: Mapping[str, object], sequence: InputSequence, where: torch.Tensor) -> dict[str, object]:
    """Return the inputs of a call with other tokens at some positions; only ids that it has, where it has several."""
    main = inputs[sequence.main]
    assert isinstance(main, torch.Tensor)  # noqa: S101 - what carries a sequence
    where = where.to(main.device).reshape(*where.shape, *(1,) * (main.dim() - where.dim()))
    if main.is_floating_point():
        return {**inputs, sequence.main: torch.where(where, -main, main)}
    ids = torch.unique(main)
    first = ids[0] if len(ids) > 1 else (ids[0] - 1).abs()
    return {**inputs, sequence.main: torch.where(where, torch.where(main == first, ids[-1], first), main)}
