"""What differs in float32 by so little that it may be rounding, looked at in float64, where nothing is.

Kernels of a GPU sum thousands of products one after the other: the outputs of a right model of 7B parameters are 2e-5
apart there, which on a CPU would be a fault. In float64 two forwards that compute the same agree far within the
tolerance of float32, whatever the device, and what differs is a fault, however small.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.module_path import under
from pytest_tfdebug.parity.as_it_is import MOST_FLOORS, AsItIs, differ_in_values_alone, distance
from pytest_tfdebug.parity.calls.call_tree import CallTree
from pytest_tfdebug.parity.find.pads import made_of
from pytest_tfdebug.parity.tensors.tolerance import DEFAULTS, Tolerances
from pytest_tfdebug.records import FAILING
from pytest_tfdebug.tracing.record.modules import Selection
from pytest_tfdebug.tracing.values.widening import all_to_float64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.parity.result import ParityReport
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
        if other is None or distance(record, other) > _SMALL:
            return False
    return True


def are_of_tables(report: ParityReport, wide: Trace, reference: Rerun) -> bool:
    """Tell whether what outputs differ by in float64 is rounding of tables that are made in float32.

    Frequencies of a rotary embedding are off by half a unit in their last place, and positions multiply that: a port
    that makes its own is as far away as the reference with each number of its tables moved by one unit.
    """
    roots = [leaf for item in report.calls if item.call.parent is None for leaf in item.outputs]
    if not differ_in_values_alone(roots):
        return False
    with _moved_tables(reference.model) as names:
        if not names:
            return False
        reference.seed()
        moved = made_of(to_float64(reference), Selection(among=()))
    floors = {record.leaf: record for record in moved.calls[0].outputs or ()}
    for record in wide.calls[0].outputs or ():
        floor = distance(floors[record.leaf], record)
        apart = [leaf.metrics for leaf in roots if leaf.expected is not None and leaf.expected.leaf == record.leaf]
        if any(each.relative_l2 > MOST_FLOORS * floor for each in apart if each and each.mismatched):
            return False
    return True


@contextmanager
def _moved_tables(model: torch.nn.Module) -> Iterator[list[str]]:
    """Move each number of the tables that a model makes in float32 by one unit in its last place, in a block."""
    generator, names = torch.Generator().manual_seed(0), list[str]()
    with ExitStack() as stack:
        for path, module in model.named_modules():
            for name in sorted(module._non_persistent_buffers_set):  # noqa: SLF001 - there is no public name
                held = getattr(module, name, None)
                if held is not None and held.dtype == torch.float32 and held.numel() > 1:
                    ends = torch.where(torch.rand(held.shape, generator=generator) < 0.5, -torch.inf, torch.inf)  # noqa: PLR2004
                    module._buffers[name] = torch.nextafter(held, ends.to(held.device))  # noqa: SLF001 - as nn.Module holds it
                    stack.callback(module._buffers.__setitem__, name, held)  # noqa: SLF001
                    names.append(under(path, name))
        yield names


def as_it_is(compared: Compared, wide: Trace, port: Rerun, reference: Rerun) -> AsItIs:
    """Return two forwards as they are, which agree in float64."""
    roots = [item for item in compared.calls if item.call.parent is None]
    dtypes = frozenset(leaf.dtype for item in roots for leaf in item.outputs if leaf.dtype in DEFAULTS)
    return AsItIs(compared, wide, dtypes, all_to_float64, "float64", port, lambda: reference, _MOST_FLOORS)
