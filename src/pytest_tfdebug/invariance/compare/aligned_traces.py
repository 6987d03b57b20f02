"""Bring the trace of a repeated call into the alignment of the expected one, so that the parity core can compare them.

Only what both sides have is kept, at real tokens: the root's inputs are left out (they differ on purpose), so are
masks that one side does without, and tensors whose sizes no pad explains.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_tfdebug.invariance.holding import is_in_cache
from pytest_tfdebug.parity.metrics import compare_leaf
from pytest_tfdebug.records import TensorRecord
from pytest_tfdebug.tracing.capture import dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from pytest_tfdebug.invariance.alignment import Aligned, Alignment
    from pytest_tfdebug.parity.tolerance import Tolerances
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.tracing.trace import Trace

Key = tuple[str, int, str, str]


@dataclass
class AlignedTraces:
    """Two traces whose tensors have the same shapes.

    Args:
        expected: The expected trace.
        actual: The repeated one, at real tokens.
        axes: Axes along the sequence by module path, call index, direction and leaf path.
    """

    expected: Trace
    actual: Trace
    axes: dict[Key, tuple[int, ...]] = field(default_factory=dict)


class TraceAligner:
    """Aligns the tensors of two traces; a tensor that both show twice is aligned once.

    Args:
        alignment: Where the expected tensors lie in the actual ones.
        tolerances: What is allowed, to choose between two ways to lay tensors side by side.
    """

    def __init__(self, alignment: Alignment, tolerances: Tolerances) -> None:
        self._alignment = alignment
        self._tolerances = tolerances
        self._known: dict[tuple[int, int], Aligned | None] = {}
        self._blanked: dict[tuple[int, tuple[int, ...]], torch.Tensor] = {}

    def align(self, expected: Trace, actual: Trace) -> AlignedTraces:
        """Return both traces with the tensors that they have in common.

        An encoder that only one of them ran (the other was given its output) is left out.
        """
        made = AlignedTraces(replace(expected, calls=[]), replace(actual, calls=[]))
        waiting = {(call.path, call.call): call for call in actual}
        partners: dict[int, Call] = {}
        for call in expected:
            other = waiting.pop((call.path, call.call), None)
            if other is None:
                made.expected.calls.append(call)
                continue
            own, partners[other.index] = self._align_call(call, other, made.axes)
            made.expected.calls.append(own)
        made.actual.calls.extend(partners.get(call.index, call) for call in actual)
        return made

    def _align_call(self, expected: Call, actual: Call, axes: dict[Key, tuple[int, ...]]) -> tuple[Call, Call]:
        expected, actual = _of_tensors_alone(expected), _of_tensors_alone(actual)
        is_root = expected.parent is None
        inputs = ((), ()) if is_root else self._align_leaves(expected.inputs, actual.inputs, actual, "input", axes)
        if expected.outputs is None or actual.outputs is None:
            return replace(expected, inputs=inputs[0]), replace(actual, inputs=inputs[1])
        outputs = self._align_leaves(expected.outputs, actual.outputs, actual, "output", axes)
        return (
            replace(expected, inputs=inputs[0], outputs=outputs[0]),
            replace(actual, inputs=inputs[1], outputs=outputs[1]),
        )

    def _align_leaves(
        self,
        expected: Sequence[TensorRecord],
        actual: Sequence[TensorRecord],
        call: Call,
        direction: str,
        axes: dict[Key, tuple[int, ...]],
    ) -> tuple[tuple[TensorRecord, ...], tuple[TensorRecord, ...]]:
        pairs = list(self._pairs(expected, actual))
        for one, _, aligned in pairs:
            axes[call.path, call.call, direction, one.leaf] = aligned.axes
        return (
            tuple(self._record(one, one.tensor, aligned) for one, _, aligned in pairs),
            tuple(self._record(other, aligned.tensor, aligned) for _, other, aligned in pairs),
        )

    def _pairs(
        self, expected: Sequence[TensorRecord], actual: Sequence[TensorRecord]
    ) -> Iterator[tuple[TensorRecord, TensorRecord, Aligned]]:
        others = {record.leaf: record for record in actual}
        for record in expected:
            other = others.get(record.leaf)
            if other is None or other.tensor is None or record.tensor is None or is_in_cache(record.leaf):
                continue
            if record.tensor.dim() == 1 and not record.tensor.is_floating_point():
                continue  # cache_position and the like: they number the padded sequence
            aligned = self._aligned(record.tensor, other.tensor)
            if aligned is not None:
                yield record, other, aligned

    def _aligned(self, expected: torch.Tensor, actual: torch.Tensor) -> Aligned | None:
        key = id(expected), id(actual)
        if key not in self._known:
            ways = list(self._alignment.candidates(actual, expected.shape))
            first = next(iter(ways), None)
            if len(ways) > 1 and self._differs(expected, ways[0]):
                first = next((way for way in ways[1:] if not self._differs(expected, way)), first)
            self._known[key] = first
        return self._known[key]

    def _differs(self, expected: torch.Tensor, way: Aligned) -> bool:
        tolerance = self._tolerances.of("", dtype_name(expected.dtype))
        blank = self._alignment.blank
        one, other = (_plain_record(blank(tensor, way.axes)) for tensor in (expected, way.tensor))
        return bool(compare_leaf("input", other, one, tolerance).problem)

    def _record(self, record: TensorRecord, tensor: torch.Tensor | None, aligned: Aligned) -> TensorRecord:
        assert tensor is not None  # noqa: S101 - pairs have values
        key = id(tensor), aligned.axes
        if key not in self._blanked:
            self._blanked[key] = self._alignment.blank(tensor, aligned.axes)
        kept = self._blanked[key]
        return TensorRecord(record.leaf, tuple(kept.shape), record.dtype, kept)


def _of_tensors_alone(call: Call) -> Call:
    """Return a call without its other arguments and its writes to caches: lengths, and caches, differ on purpose."""
    return replace(call, skeleton={"outputs": call.skeleton.get("outputs", "None")}, writes=())


def _plain_record(tensor: torch.Tensor) -> TensorRecord:
    return TensorRecord("", tuple(tensor.shape), dtype_name(tensor.dtype), tensor)
