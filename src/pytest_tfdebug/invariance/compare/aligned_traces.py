"""Compare the trace of a repeated call with the expected one, at real tokens.

The root's inputs are left out, for they differ on purpose; so are masks that one side has no need of, and tensors whose
sizes no pad explains.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.invariance.compare.outputs import is_in_cache, lay
from pytest_tfdebug.parity.compare import start_comparison
from pytest_tfdebug.tensors import dtype_name
from pytest_tfdebug.tracing.record.signatures import is_mask_input

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.invariance.compare.alignment import Aligned, Alignment
    from pytest_tfdebug.parity.tensors.comparator import Comparator
    from pytest_tfdebug.parity.tensors.tolerance import Tolerance, Tolerances
    from pytest_tfdebug.records import Call, Divergence, TensorRecord
    from pytest_tfdebug.tracing.trace import Trace

    Key = tuple[str, int, str, str]

#: Tokens that are looked for in another order.
_SOME = 256


@dataclass
class AlignedTraces:
    """Two traces whose tensors have the same shapes."""

    expected: Trace  # the expected trace
    actual: Trace  # the repeated one, at real tokens
    real: int  # number of real positions
    # axes along the sequence by module path, call index, direction and leaf path
    axes: dict[Key, tuple[int, ...]] = field(default_factory=dict)

    def axes_of(self, divergence: Divergence) -> tuple[int, ...]:
        """Return the axes of a tensor along the sequence; none for a pooled one."""
        return self.axes.get((divergence.path, divergence.call, divergence.direction, divergence.leaf), ())

    def by_token(self, tensor: torch.Tensor, axis: int) -> torch.Tensor:
        """Return a tensor as ``(batch, real tokens, values)``, from its axis along the sequence."""
        rows = tensor.reshape(-1, self.real, *tensor.shape[1:]) if axis == 0 else tensor.movedim(axis, 1)
        return rows.unsqueeze(-1).flatten(2)


def off_by(expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """Return the share of its tolerance that each element is off; inf for one that is not a number on one side."""
    e, a = expected.double(), actual.double()
    off = ((a - e).abs() / (tolerance.atol + tolerance.rtol * e.abs())).nan_to_num(nan=torch.inf)
    return torch.where(e == a, 0.0, off)


def tensor_of(trace: Trace, of: Divergence) -> torch.Tensor | None:
    """Return the tensor of one side that a divergence is about."""
    return trace.tensor(of.path, of.call, of.direction, of.leaf)


def compare_traces(
    expected: Trace, actual: Trace, alignment: Alignment, tolerances: Tolerances
) -> tuple[AlignedTraces, Comparator]:
    """Compare two traces at real tokens."""
    aligned = _Aligner(alignment, tolerances).align(expected, actual)
    comparator = start_comparison(aligned.expected, None, tolerances, modules=actual.modules, aliases=actual.aliases)
    comparator.replay(aligned.actual.calls)
    return aligned, comparator


class _Aligner:
    """Aligns the tensors of two traces; a tensor that both show twice is aligned once."""

    def __init__(self, alignment: Alignment, tolerances: Tolerances) -> None:
        self._alignment = alignment
        self._tolerances = tolerances
        self._known: dict[tuple[int, int], Aligned | None] = {}
        self._blanked: dict[tuple[int, tuple[int, ...]], torch.Tensor] = {}

    def align(self, expected: Trace, actual: Trace) -> AlignedTraces:
        """Return both traces with the tensors that they have in common; calls of one trace alone stay as they are."""
        made = AlignedTraces(replace(expected, calls=[]), replace(actual, calls=[]), self._alignment.real)
        waiting = {(call.path, call.call): call for call in actual}
        partners: dict[int, Call] = {}
        for call in expected:
            other = waiting.pop((call.path, call.call), None)
            if other is not None:
                call, partners[other.index] = self._align_call(call, other, made.axes)  # noqa: PLW2901
            made.expected.calls.append(call)
        made.actual.calls.extend(partners.get(call.index, call) for call in actual)
        return made

    def _align_call(self, expected: Call, actual: Call, axes: dict[Key, tuple[int, ...]]) -> tuple[Call, Call]:
        one, other = _of_tensors_alone(expected), _of_tensors_alone(actual)
        for direction in ("input", "output"):
            leaves: list[Sequence[TensorRecord] | None] = [getattr(call, f"{direction}s") for call in (one, other)]
            if leaves[0] is None or leaves[1] is None:
                continue
            is_roots = direction == "input" and expected.parent is None
            pairs = [] if is_roots else list(self._pairs(leaves[0], leaves[1], expected.parameters))
            axes |= {(actual.path, actual.call, direction, mine.leaf): aligned.axes for mine, _, aligned in pairs}
            mines = tuple(self._blank(mine, mine.tensor, aligned) for mine, _, aligned in pairs)
            theirs = tuple(self._blank(their, aligned.tensor, aligned) for _, their, aligned in pairs)
            setattr(one, f"{direction}s", mines)
            setattr(other, f"{direction}s", theirs)
        return one, other

    def _pairs(
        self, expected: Sequence[TensorRecord], actual: Sequence[TensorRecord], parameters: tuple[str, ...]
    ) -> Iterator[tuple[TensorRecord, TensorRecord, Aligned]]:
        others = {record.leaf: record for record in actual}
        for record in expected:
            other = others.get(record.leaf)
            if other is None or other.tensor is None or record.tensor is None or is_in_cache(record.leaf):
                continue
            are_two_forms = (record.tensor.dtype is torch.bool) != (other.tensor.dtype is torch.bool)
            if are_two_forms and is_mask_input(record.leaf, parameters):
                continue  # eager attention takes a mask of numbers, and sdpa one of truth values
            if self._alignment.rows is not None and not record.tensor.dim():
                continue  # of the whole batch, as a loss is
            if record.tensor.dim() == 1 and not record.tensor.is_floating_point():
                continue  # cache_position and the like: they number the padded sequence
            aligned = self._aligned(record.tensor, other.tensor)
            if aligned is not None:
                yield record, other, aligned

    def _aligned(self, expected: torch.Tensor, actual: torch.Tensor) -> Aligned | None:
        key = id(expected), id(actual)
        if key not in self._known:
            ways = list(self._alignment.candidates(actual, expected))
            laid = lay("", expected, actual, self._alignment, self._tolerances)
            way = laid[0] if laid is not None else ways[0] if len(ways) == 1 else None
            differs = laid is None or laid[1].problem
            if way is not None and differs and 0 in way.axes and self._is_in_other_order(expected, actual):
                way = None
            self._known[key] = way
        return self._known[key]

    def _is_in_other_order(self, expected: torch.Tensor, actual: torch.Tensor) -> bool:
        """Tell whether tokens that share an axis with the batch lie in another order, as when sorted by expert."""
        if not expected.is_floating_point() or expected.shape[1:] != actual.shape[1:]:
            return False
        tolerance = self._tolerances.of("", dtype_name(expected.dtype))
        rows, all_rows = (tensor.double().reshape(len(tensor), -1) for tensor in (expected[:_SOME], actual))
        nearest = torch.cdist(rows, all_rows, p=float("inf")).min(1)
        is_there = nearest.values <= tolerance.atol + tolerance.rtol * rows.abs().amax(1)
        return bool(is_there.all()) and bool((nearest.indices.diff() != 1).any())

    def _blank(self, record: TensorRecord, tensor: torch.Tensor | None, aligned: Aligned) -> TensorRecord:
        assert tensor is not None  # noqa: S101 - pairs have values
        key = id(tensor), aligned.axes
        if key not in self._blanked:
            self._blanked[key] = self._alignment.blank(tensor, aligned.axes)
        kept = self._blanked[key]
        return replace(record, shape=tuple(kept.shape), tensor=kept, statistics=None)


def _of_tensors_alone(call: Call) -> Call:
    """Return a call without its other arguments and its writes to caches: lengths, and caches, differ on purpose."""
    return replace(call, skeleton={"outputs": call.skeleton.get("outputs", "None")}, writes=())
