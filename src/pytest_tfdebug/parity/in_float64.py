"""What differs in float32 by so little that it may be rounding, looked at in float64, where nothing is.

Kernels of a GPU sum thousands of products one after the other: the outputs of a right model of 7B parameters are 2e-5
apart there, which on a CPU would be a fault. In float64 two forwards that compute the same agree far within the
tolerance of float32, whatever the device, and what differs is a fault, however small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.parity.as_it_is import AsItIs
from pytest_tfdebug.parity.calls.call_tree import CallTree
from pytest_tfdebug.parity.tensors.metrics import compare_leaf
from pytest_tfdebug.parity.tensors.tolerance import DEFAULTS, Tolerance, Tolerances
from pytest_tfdebug.records import FAILING
from pytest_tfdebug.tracing.values.widening import all_to_float64

if TYPE_CHECKING:
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.tracing.trace import Trace
    from pytest_tfdebug.tracing.values.rerun import Rerun

#: Relative L2 of the first tensor that differs up to which that may be rounding in float32.
_SMALL = 1e-3
#: Floors that an output may be away. Of a model in float64 that makes its norms in float32 the floor is a few
#: roundings, and other kernels are up to 13 of it away; a variance that cancels, thousands.
_MOST_FLOORS = 30.0
#: What tensors of float64 may differ by: tables that are made in float32 are as far apart as they were there.
AS_FLOAT32 = Tolerances(overrides=(("float64", DEFAULTS["float32"]), ("complex128", DEFAULTS["complex64"])))


def may_be_rounding(compared: Compared, model: Rerun) -> bool:
    """Tell whether what differs may be rounding: it begins small, or the model is on an accelerator."""
    if any(parameter.device.type not in ("cpu", "meta") for parameter in model.model.parameters()):
        return True
    leaves = (leaf for _, leaves in CallTree(compared).events() for leaf in leaves if leaf.problem in FAILING)
    first = next(leaves, None)
    if first is None or first.problem != "values" or first.metrics is None:
        return False
    return first.metrics.relative_l2 <= _SMALL


def to_float64(forward: Rerun) -> Rerun:
    """Return the same forward in float64."""
    return forward.widened(all_to_float64(forward.model))


def is_in_float64(forward: Rerun) -> bool:
    """Tell whether a forward is computed in float64 already."""
    return torch.float64 in forward.wider.values()


def still_gives(wide: Trace, expected: Trace) -> bool:
    """Tell whether a forward in float64 gives what was recorded, but for rounding."""
    made = {record.leaf: record for record in wide.calls[0].outputs or ()}
    for record in expected.calls[0].outputs or ():
        other = made.get(record.leaf)
        beside = other and compare_leaf("output", record, other, Tolerance(0.0, 0.0)).metrics
        if other is None or (beside and beside.relative_l2 > _SMALL):
            return False
    return True


def as_it_is(compared: Compared, wide: Trace, port: Rerun, reference: Rerun) -> AsItIs:
    """Return two forwards as they are, which agree in float64."""
    roots = [item for item in compared.calls if item.call.parent is None]
    dtypes = frozenset(leaf.dtype for item in roots for leaf in item.outputs if leaf.dtype in DEFAULTS)
    return AsItIs(compared, wide, dtypes, all_to_float64, "float64", port, lambda: reference, _MOST_FLOORS)
