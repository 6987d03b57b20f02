"""Compare a forward with an expected one while it runs, or from a trace.

As a consumer of the recorder it compares each tensor as its call begins or ends and retains nothing of the forward
but numbers: memory does not grow with the model.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.parity.pair.pairing import (
    CallPairing,
    RecordedModules,
    equal_first,
    in_cache,
    pair_inputs,
    pair_outputs,
)
from pytest_tfdebug.parity.pair.rename import renamer
from pytest_tfdebug.parity.tensors.coarseness import told_coarse
from pytest_tfdebug.parity.tensors.compared import Compared, tally
from pytest_tfdebug.parity.tensors.metrics import compare_leaf
from pytest_tfdebug.parity.tensors.outputs import OutputRules, hold_outputs, is_cache, shown
from pytest_tfdebug.parity.tensors.plain_outputs import number_dtype, plain_outputs
from pytest_tfdebug.parity.tensors.ranks import compare_on_rank, in_recorded_layout
from pytest_tfdebug.records import Call, CallComparison, LeafComparison, TensorRecord, Write
from pytest_tfdebug.tensors import readable, tensor_record, version
from pytest_tfdebug.tracing.record.leaves import skeleton
from pytest_tfdebug.tracing.record.masks import is_recoded, let_through
from pytest_tfdebug.tracing.record.ranks import record_here

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pytest_tfdebug.parity.pair.rename import Rename
    from pytest_tfdebug.parity.tensors.tolerance import Tolerances
    from pytest_tfdebug.records import Direction, TensorRecord
    from pytest_tfdebug.tensors import Leaf
    from pytest_tfdebug.tracing.record.ranks import Group
    from pytest_tfdebug.tracing.trace import Trace


def by_meaning(leaf: LeafComparison, actual: torch.Tensor | None) -> LeafComparison:
    """Return a mask that two models write in other numbers as that: 1 for a real token in one, 0 in the other."""
    expected = leaf.expected.tensor if leaf.expected is not None else None
    if leaf.problem != "values" or actual is None or expected is None or actual.shape != expected.shape:
        return leaf
    return replace(leaf, problem="recoded", metrics=None) if is_recoded(actual, expected) else leaf


def in_one_form(actual: TensorRecord, expected: TensorRecord) -> tuple[TensorRecord, TensorRecord] | None:
    """Return two tensors in one shape, masks as what they let through; None where they have one, or can have none."""
    if actual.tensor is None or expected.tensor is None or actual.tensor.device != expected.tensor.device:
        return None
    mine, theirs = actual.tensor.detach(), expected.tensor
    shapes = [(a, b) for a, b in zip(mine.shape, theirs.shape, strict=False) if a != b]
    if mine.dim() != theirs.dim() or any(1 not in pair for pair in shapes) or not mine.numel():
        return None
    masks = let_through(mine), let_through(theirs)
    if masks[0] is not None and masks[1] is not None:
        mine, theirs = masks[0], masks[1]
    elif not shapes:
        return None
    whole = [max(a, b) for a, b in zip(mine.shape, theirs.shape, strict=True)]
    return tuple(  # type: ignore[return-value] # of two
        replace(record, tensor=tensor, shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
        for record, tensor in zip((actual, expected), (mine.expand(whole), theirs.expand(whole)), strict=True)
    )


class Comparator:
    """The consumer that holds a forward to an expected trace, to be fed by a recorder or a replay.

    ``modules``, ``aliases`` and ``unrecorded`` are the paths of the forward's own model: all, those of shared modules,
    and those that are not recorded.
    """

    def __init__(
        self,
        expected: Trace,
        rename: Rename,
        tolerances: Tolerances,
        *,
        modules: Collection[str],
        aliases: dict[str, tuple[str, ...]],
        unrecorded: Collection[str] = (),
        group: Group | None = None,
        rules: OutputRules | None = None,
    ) -> None:
        to_expected = renamer(rename)
        calls = RecordedModules(modules, aliases, unrecorded, to_expected).common(expected.calls)
        own_paths = {to_expected(path): path for path in modules}
        self._rules = rules or OutputRules()
        self._pairing = CallPairing(calls, expected.aliases, aliases, to_expected, modules)
        self.group = group
        self.tolerances = tolerances
        self._by_index: dict[int, CallComparison] = {}
        self._by_expected: dict[int, CallComparison] = {}
        #: Comparisons already made: a neighbour's output that comes in again, unchanged, is not compared again.
        self._known: dict[object, tuple[weakref.ref[torch.Tensor], int, LeafComparison]] = {}
        self._given: dict[int, set[tuple[int, int]]] = {}
        self._unwritten: dict[int, list[Write]] = {}
        self._modules = {*own_paths.values()}
        self.result = Compared(expected=calls, own_paths=own_paths)

    def enter(self, call: Call, leaves: list[Leaf], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compare the inputs of a call that begins."""
        is_tensors = all(isinstance(each, torch.Tensor) for each in (*args, *kwargs.values()))
        if not is_tensors or self._pairing.is_ambiguous(call):
            call.skeleton["args"], call.skeleton["kwargs"] = skeleton((args, kwargs), leaves)
        self._begin(call, self._records(leaves))

    def leave(self, call: Call, leaves: list[Leaf], output: Any) -> None:  # noqa: ANN401
        """Compare the outputs of a call that ends."""
        if not isinstance(output, torch.Tensor):
            call.skeleton["outputs"] = skeleton(output, leaves)
        self._finish(call, self._records(leaves))

    def wrote(self, call: Call, leaves: list[Leaf], before: int | None) -> None:
        """Compare what a call has written to caches."""
        self._wrote(call, [Write(record, before) for record in self._records(leaves)])

    def fail(self, call: Call) -> None:
        """Nothing to compare: the call has no outputs."""

    def replay(self, actual: Iterable[Call]) -> None:
        """Compare the calls of a finished trace."""
        for call in actual:
            self._begin(replace(call, inputs=(), outputs=None, writes=()), call.inputs)
            self._wrote(call, call.writes)
            if call.outputs is not None:
                self._finish(call, call.outputs)

    def finish(self) -> Compared:
        """Return what was found once the forward has ended; on several ranks, what this one found."""
        return tally(self.result)

    def _begin(self, call: Call, inputs: tuple[TensorRecord, ...]) -> None:
        comparison = CallComparison(call, self._partner(call, inputs))
        self._by_index[call.index] = comparison
        if comparison.expected is not None:
            self._by_expected[comparison.expected.index] = comparison
        self.result.calls.append(comparison)
        if call.parent in self._given:
            comparison.is_handed_on = _identities(inputs) <= self._given[call.parent]
        if comparison.expected is None:
            self._given[call.index] = _identities(inputs)
        else:
            comparison.inputs = self._compared_inputs(call, inputs, comparison.expected)
            if call.parent is None and not comparison.is_of_one_class:
                held = {record.leaf: record.tensor for record in inputs}
                comparison.inputs = tuple(by_meaning(leaf, held.get(leaf.leaf)) for leaf in comparison.inputs)
            self._doubt_unless_right(call, comparison.expected, comparison.inputs)

    def _partner(self, call: Call, inputs: tuple[TensorRecord, ...]) -> Call | None:
        def is_alike(expected: Call) -> bool:
            return not any(leaf.problem for leaf in self._compared_inputs(call, inputs, expected))

        found = self._pairing.partner(call, is_alike)
        earlier = self._by_expected.get(found.index) if found is not None else None
        if earlier is not None:  # it stood beside a call that was not meant, and is one too many itself
            earlier.expected, earlier.inputs, earlier.outputs, earlier.writes = None, (), (), ()
        return found

    def _compared_inputs(
        self, call: Call, inputs: tuple[TensorRecord, ...], expected: Call
    ) -> tuple[LeafComparison, ...]:
        pairs = pair_inputs(inputs, expected.inputs, call, expected)
        return self._compare("input", call.path, pairs, in_any_form=call.path in self._modules)

    def _wrote(self, call: Call, writes: Iterable[Write]) -> None:
        comparison = self._by_index[call.index]
        if comparison.expected is None:
            return
        waiting = self._unwritten.setdefault(call.index, list(comparison.expected.writes))
        for record, before in writes:
            named = (write for write in waiting if in_cache(write.record) == in_cache(record))
            equal = (write for write in waiting if self._is_equal(call.path, record, write.record))
            partner = next(chain(named, equal), None)
            if partner is None:
                continue  # extra values are judged by their effect
            waiting.remove(partner)
            found = self._compare("write", call.path, [(record, partner.record)])
            comparison.writes += tuple((leaf, before) for leaf in found)

    def _finish(self, call: Call, outputs: tuple[TensorRecord, ...]) -> None:
        comparison = self._by_index[call.index]
        if comparison.expected is None:
            comparison.is_identity = bool(outputs) and _identities(outputs) <= self._given[call.index]
            return
        left = self._unwritten.pop(call.index, comparison.expected.writes)
        comparison.writes += tuple((_one_sided("write", None, write.record), None) for write in left)
        if comparison.expected.outputs is not None:
            comparison.outputs = self._compared_outputs(comparison, outputs, comparison.expected.outputs)
            self._doubt_unless_right(call, comparison.expected, comparison.outputs)

    def _compared_outputs(
        self, item: CallComparison, actual: tuple[TensorRecord, ...], expected: tuple[TensorRecord, ...]
    ) -> tuple[LeafComparison, ...]:
        path = item.call.path
        assert item.expected is not None  # noqa: S101 - of a call that has outputs to be held to
        if item.call.parent is None and path not in self._modules:
            is_strict = item.is_of_one_class and self._rules.paths is None
            dtype = number_dtype(item.expected)
            actual = *actual, *plain_outputs(item.call, dtype)
            expected = *expected, *plain_outputs(item.expected, dtype)
            if self.group is None:
                compare = partial(self._leaf, "output", path)
                found = hold_outputs(actual, expected, compare, self._rules, is_strict=is_strict)
                self.result.coarse += self._told_coarse(path, found, actual)
                return found
        is_given_other = any(
            not leaf.problem and leaf.expected is not None and leaf.shape != leaf.expected.shape for leaf in item.inputs
        )
        pairs = pair_outputs(actual, expected, partial(self._apart, path))
        due = [(own, theirs) for own, theirs in pairs if own or (theirs and self._is_taken(theirs, item.expected))]
        return self._compare("output", path, due, in_any_form=is_given_other)

    def _is_taken(self, output: TensorRecord, of: Call) -> bool:
        """Tell whether the expected forward hands an output of a call to another one, or returns it.

        A module may be asked for more than its caller takes: the hidden states of all layers, and the last is used.
        """
        inside = {of.index}
        for call in self.result.expected:
            if call.parent in inside:
                inside.add(call.index)
            given = call.inputs if call.index > of.index and call.index not in inside else ()
            returned = call.outputs or () if call.parent is None else ()
            if any(record.held is output.held for record in (*given, *returned)):
                return True
        return False

    def _told_coarse(self, path: str, found: Iterable[LeafComparison], actual: Iterable[TensorRecord]) -> Iterator[str]:
        """Say of outputs that agree what would agree as well; a cache shows in what is computed from it."""
        tensors = {record.leaf: record.tensor for record in actual}
        for leaf in found:
            expected = leaf.expected
            if expected is None or leaf.problem or not leaf.is_measured or is_cache(expected):
                continue
            tensor = expected.tensor if expected.tensor is not None else tensors.get(leaf.leaf)
            if tensor is not None:
                tolerance = self.tolerances.of(path, expected.dtype, expected.floor)
                told = told_coarse(shown(expected.leaf) or "output", tensor, tolerance)
                yield from [told] if told else []

    def _apart(self, path: str, actual: TensorRecord, expected: TensorRecord) -> float:
        """Return the relative difference of two outputs of a module; infinite where they cannot be subtracted."""
        found = self._leaf("output", path, actual, expected)
        return found.metrics.relative_l2 if found.metrics is not None else 0.0 if found.is_measured else inf

    def _is_equal(self, path: str, actual: TensorRecord, expected: TensorRecord) -> bool:
        return bool(equal_first([actual], [expected], partial(self._apart, path))[0])

    def _doubt_unless_right(self, call: Call, expected: Call, leaves: tuple[LeafComparison, ...]) -> None:
        """Let a later call take the expected one; not from a call with children, which are paired already."""
        if not call.has_children and any(leaf.problem for leaf in leaves):
            self._pairing.doubt(expected)

    def _compare(
        self,
        direction: Direction,
        path: str,
        pairs: Iterable[tuple[TensorRecord | None, TensorRecord | None]],
        *,
        in_any_form: bool = False,
    ) -> tuple[LeafComparison, ...]:
        return tuple(
            _one_sided(direction, actual, expected)
            if actual is None or expected is None
            else (self._in_any_form if in_any_form else self._leaf)(direction, path, actual, expected)
            for actual, expected in pairs
        )

    def _in_any_form(
        self, direction: Direction, path: str, actual: TensorRecord, expected: TensorRecord
    ) -> LeafComparison:
        """Compare what a module is given, or makes of it: what is in another form may be the same."""
        found = self._leaf(direction, path, actual, expected)
        alike = in_one_form(actual, expected) if found.problem else None
        if alike is None:
            return found
        tolerance = self.tolerances.of(path, alike[1].dtype, expected.floor)
        is_same = not compare_leaf(direction, *alike, tolerance).problem
        return replace(found, problem="", metrics=None, is_measured=True) if is_same else found

    def _leaf(self, direction: Direction, path: str, actual: TensorRecord, expected: TensorRecord) -> LeafComparison:
        """Compare a tensor of a module with its expected one, unless that was done before."""
        tolerance = self.tolerances.of(path, expected.dtype, expected.floor)
        tensor, key = actual.tensor, (id(actual.tensor), id(expected.held), tolerance)
        made = self._known.get(key)
        if made is not None and tensor is not None and made[0]() is tensor and made[1] == version(tensor):
            return replace(made[2], direction=direction, leaf=actual.leaf, expected=expected)
        laid_out = in_recorded_layout(actual, expected, self.group) if expected.placement else (actual, expected)
        if self.group is None:
            comparison = compare_leaf(direction, *laid_out, tolerance)
        else:
            comparison = replace(compare_on_rank(direction, *laid_out, tolerance, self.group), expected=expected)
        if tensor is not None and expected.held is not None and not tensor.is_inference():
            self._known[key] = weakref.ref(tensor), version(tensor), comparison
        return comparison

    def _records(self, leaves: list[Leaf]) -> tuple[TensorRecord, ...]:
        if self.group is None:
            return tuple(tensor_record(leaf, readable(leaf.tensor)) for leaf in leaves)
        return tuple(record_here(leaf) for leaf in leaves)


def _identities(records: tuple[TensorRecord, ...]) -> set[tuple[int, int]]:
    """Return which tensors these are, each as it is now."""
    return {(id(record.tensor), version(record.tensor)) for record in records if record.tensor is not None}


def _one_sided(direction: Direction, actual: TensorRecord | None, expected: TensorRecord | None) -> LeafComparison:
    if actual is not None:
        return LeafComparison(direction, actual.leaf, "extra", actual.shape, actual.dtype, None)
    assert expected is not None  # noqa: S101 - a pair has at least one side
    return LeafComparison(direction, expected.leaf, "missing", expected.shape, expected.dtype, expected)
