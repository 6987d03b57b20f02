"""What leaves its tolerance by no more than rounding: it grows step by step, and no step makes it out of nothing.

The elements of a deep model drift apart: each operator adds what its own rounding is, and hands on what it was given.
Another version of a library, another machine or thread count changes the order of operations, and every tensor a
little. A wrong epsilon looks as small at the end, but one module makes it of inputs that are equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from pytest_tfdebug.parity.calls.call_tree import CallTree
from pytest_tfdebug.records import FORMS, as_they_ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_tfdebug.data.comparison import ComparisonResult
    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.records import CallComparison, LeafComparison

Finding = Literal["drift", "regression", "unclear"]

#: A module that multiplies the error by this is a jump. Rounding in one layer of the models of ``fixtures/`` multiplies
#: it by up to 8 (eager against SDPA attention, float32); the bugs of the catalogue start at 800.
_JUMP = 50.0
#: Rounding that has grown beyond this multiple of epsilon is no rounding any more.
_LARGE = 1e4
_NAMED: dict[Finding, str] = {
    "drift": "it is probably drift: ",
    "regression": "it is probably a regression: ",
    "unclear": "",
}
_NO_JUMP = "no module jumps, and the relative L2 stays below"


@dataclass(frozen=True)
class Assessment:
    """What the evidence speaks for."""

    finding: Finding
    reason: str  # why, in a sentence

    def __str__(self) -> str:
        return f"Regression or drift: {_NAMED[self.finding]}{self.reason}"


def assess(report: ComparisonResult, changes: Sequence[str], wrong_weights: Sequence[str]) -> Assessment:
    """Weigh the shape of the error and what has changed around the model since it was recorded."""
    culprit = report.culprit
    kind, divergence = (culprit.kind, culprit.divergence) if culprit is not None else (None, None)
    if kind == "inputs":
        return Assessment("unclear", "the model was given other inputs.")
    is_gone = divergence is not None and divergence.comparison.problem == "missing"
    is_of_form = any(leaf.problem in FORMS for item in report.calls for leaf in item.outputs)
    for reason, holds in (
        (f"the weights are not the recorded ones ({', '.join(map(repr, wrong_weights[:1]))}).", bool(wrong_weights)),
        ("the modules that are called differ.", kind in ("not-called", "extra-call")),
        ("an output has another shape or dtype.", is_of_form),
        ("a tensor is missing.", is_gone),
    ):
        if holds:
            return Assessment("regression", reason)
    return _told_by_size(report, "; ".join(changes))


def _told_by_size(report: ComparisonResult, since: str) -> Assessment:
    sizes = [
        (leaf.metrics.relative_l2 if leaf.metrics is not None else 0.0, leaf)
        for item in as_they_ended(report.calls)
        for leaf in item.made
        if leaf.problem in ("", "values")
    ]
    first = next((place for place, (_, leaf) in enumerate(sizes) if leaf.problem), None)
    if first is None:
        return Assessment("unclear", "no output that can be measured differs.")
    at, leaf = sizes[first]
    before = max((size for size, _ in sizes[:first]), default=0.0)
    is_whole = all(one.expected is None or one.expected.digest is None for _, one in sizes[:first])
    largest = max(size for size, _ in sizes)
    epsilon = _epsilon(leaf) if "float" in leaf.dtype else torch.finfo(torch.float32).eps
    if at > _JUMP * max(before, epsilon):
        equal = "equal bit by bit" if is_whole else "equal in everything that the golden keeps"
        was = f"within a relative L2 of {before:.1e}" if before else equal
        reason = f"the first output that could be compared is off by a relative L2 of {at:.1e}."
        if first:
            reason = f"before the culprit every output is {was}, there it jumps to {at:.1e}."
    elif largest > _LARGE * epsilon:
        reason = f"the error reaches a relative L2 of {largest:.1e}, more than rounding explains."
    elif since:
        return Assessment("drift", f"{_NO_JUMP} {largest:.1e}; changed since: {since}.")
    else:
        told = f"{_NO_JUMP} {largest:.1e}, as rounding does, but the environment is the recorded one."
        return Assessment("unclear", told)
    return Assessment("regression", reason)


#: Roundings that one step makes of inputs that are equal, at most, in epsilons of the dtype. Under other kernels the
#: models of utils/architectures.py make 1.0, a projection of 8,192 features 2.9, attention with logits of 30 makes 9.5.
_OWN = 10.0
#: How many times more a step makes of what it was given than any other of its class.
_BEYOND_OTHERS = 4.0
#: Others that are enough to tell what is usual.
_ENOUGH = 3


class ErrorStep(NamedTuple):
    """What a call, or the lines before it, made of a difference."""

    item: CallComparison
    leaf: LeafComparison  # a tensor that it returned, or was given by the lines before it
    before: float  # greatest relative L2 of what that was computed from
    after: float  # that of the tensor

    @property
    def roundings(self) -> float:
        """What it adds to what it was given, in epsilons of the dtype, as far as it was not handed on."""
        return self.after / (self.before + self.epsilon)

    @property
    def epsilon(self) -> float:
        """Epsilon of the tensor's dtype."""
        return _epsilon(self.leaf)


def excused(compared: Compared) -> list[tuple[CallComparison, LeafComparison]]:
    """Return the tensors that agree only as rounding: some of their elements are outside tolerance."""
    return [
        (item, leaf)
        for item in compared.calls
        for leaf in (*item.inputs, *item.made)
        if not leaf.problem and _is_excused(leaf)
    ]


def without_jumps(compared: Compared) -> Compared:
    """Return a comparison in which a jump is outside tolerance, and what was excused behind it."""
    if not excused(compared):
        return compared
    found = list(steps(compared))
    jump = next((step for step in found if _is_jump(step, found)), None)
    return compared if jump is None else _beginning_at(compared, jump.leaf)


def _is_excused(leaf: LeafComparison) -> bool:
    """Tell whether some elements of a tensor are outside tolerance."""
    return bool(leaf.metrics and leaf.metrics.mismatched)


def _is_no_rounding(leaf: LeafComparison) -> bool:
    """Tell whether a tensor differs by more than one step makes of inputs that are equal."""
    return any(size > _OWN * _epsilon(leaf) for size in _sizes((leaf,)))


def is_rounding(leaf: LeafComparison) -> bool:
    """Tell whether a tensor differs by no more than that, though some of its elements are outside tolerance."""
    return leaf.is_measured and "float" in leaf.dtype and not _is_no_rounding(leaf)


def _epsilon(leaf: LeafComparison) -> float:
    return torch.finfo(getattr(torch, leaf.dtype)).eps


def _beginning_at(
    compared: Compared, jump: LeafComparison, is_other: Callable[[LeafComparison], bool] = _is_excused
) -> Compared:
    """Return the comparison with ``jump``, and the later tensors that differ, marked as failing."""
    every = (leaf for _, leaves in CallTree(compared).events() for leaf in leaves)
    behind = dropwhile(lambda leaf: leaf is not jump, every)
    agreeing = (leaf for leaf in behind if leaf.metrics is not None and not leaf.problem)
    wrong = {id(leaf) for leaf in agreeing if leaf is jump or is_other(leaf)}

    def judged(leaf: LeafComparison) -> LeafComparison:
        return replace(leaf, problem="values") if id(leaf) in wrong else leaf

    calls = [
        replace(
            item,
            inputs=tuple(map(judged, item.inputs)),
            outputs=tuple(map(judged, item.outputs)),
            writes=tuple((judged(leaf), before) for leaf, before in item.writes),
        )
        for item in compared.calls
    ]
    return replace(compared, calls=calls)


def at_the_greatest_jump(compared: Compared) -> Compared:
    """Return a comparison that begins with the step that made the first difference outside tolerance.

    What is small beside the rest of a tensor is within its tolerance, and outside once a norm has made it large. A step
    that was given more than rounding is not the first, if one before it made more out of inputs that are equal.
    """
    tree = CallTree(compared)
    if not any(leaf.problem for root in tree.roots for leaf in root.outputs):
        return compared
    places = {id(leaf): place for place, (_, leaves) in enumerate(tree.events()) for leaf in leaves}
    failed = min(places[id(leaf)] for item in compared.calls for leaf in item.outputs if leaf.problem)
    found = [step for step in steps(compared) if places[id(step.leaf)] <= failed]
    first = next((step for step in found if places[id(step.leaf)] == failed), None)
    if first is None or first.before <= _OWN * first.epsilon:
        return compared
    made = (step for step in found if step.before <= _OWN * step.epsilon < step.after)
    jump = max(made, key=lambda step: step.roundings, default=first)
    return _beginning_at(compared, jump.leaf, _is_no_rounding) if jump.roundings > first.roundings else compared


def at_the_clearest_step(compared: Compared) -> Compared:
    """Return a comparison that begins with the step that makes most of what it was given.

    Where few modules have a partner, calls without one are part of a step.
    """
    tree = CallTree(compared)
    places = {id(leaf): place for place, (_, leaves) in enumerate(tree.events()) for leaf in leaves}
    failed = [places[id(leaf)] for item in compared.calls for leaf in item.outputs if leaf.problem]
    found = [step for step in steps(compared, is_across=True) if step.after > _OWN * step.epsilon]
    clearest = max(found, key=lambda step: step.roundings, default=None)
    if not failed or clearest is None or places[id(clearest.leaf)] > min(failed):
        return compared
    return _beginning_at(compared, clearest.leaf, _is_no_rounding)


def with_outputs_outside(compared: Compared) -> Compared:
    """Return a comparison in which the outputs that were excused are outside tolerance."""
    roots = [leaf for item, leaf in excused(compared) if item.call.parent is None and leaf.direction == "output"]
    return _beginning_at(compared, roots[0]) if roots else compared


def has_value_jump(pair: ForwardPair) -> bool:
    """Tell whether an operator of the port makes more than rounding of operands that are equal."""
    apart = [pair.matches.distance(value.index) for value in pair.port.values]
    of_float32 = torch.finfo(torch.float32).eps  # in which fingerprints are kept
    return any(
        value.producers
        and max(apart[made] for made in value.producers) <= of_float32
        and _OWN * of_float32 < apart[value.index] < math.inf
        for value in pair.port.values
        if value.index in pair.port.live and not value.is_moved and "float" in value.dtype
    )


def told_noise(compared: Compared) -> str:
    """Say what was excused as rounding, with the figures; empty where nothing was."""
    found = excused(compared)
    if not found:
        return ""
    shares = [(leaf.metrics.share, item, leaf) for item, leaf in found if leaf.metrics]
    share, item, leaf = max(shares, key=lambda each: each[0])
    count = "1 tensor leaves its" if len(found) == 1 else f"{len(found)} tensors leave their"
    size = leaf.metrics.relative_l2 if leaf.metrics else 0.0
    grown = max((step.roundings for step in steps(compared)), default=0.0)
    told = f" No step makes more than {max(grown, 0.1):.1f} roundings." if grown else ""
    return (
        f"{count} tolerance by no more than rounding explains: the worst {share:.1f} times, at {item.call.name!r}, "
        f"with a relative L2 of {size:.1e}.{told}"
    )


def _is_jump(step: ErrorStep, found: list[ErrorStep]) -> bool:
    """Tell whether a step makes more of a difference than rounding does, and than others of its class do."""
    if not step.before:
        return step.roundings > _OWN
    if step.roundings <= _BEYOND_OTHERS:
        return False
    kind = step.item.call.class_name, step.leaf.direction
    others = (other for other in found if other.item is not step.item)
    usual = [it.roundings for it in others if (it.item.call.class_name, it.leaf.direction) == kind]
    return len(usual) >= _ENOUGH and step.roundings > _BEYOND_OTHERS * max(1.0, *usual)


def steps(compared: Compared, *, is_across: bool = False) -> Iterator[ErrorStep]:
    """Yield what each call, and the lines between calls, made of a difference, in the order of the forward.

    Where one side calls a module that the other does not, what is computed there is more than one step, and is left out
    unless ``is_across``.
    """
    tree = CallTree(compared)
    callers = {call.parent for call in compared.expected}
    other = {call.parent for call in compared.unpaired_expected}
    for item in compared.calls:
        children = tree.children.get(item.call.index, [])
        if item.expected is None or (item.expected.index in callers) != bool(children):
            continue
        is_open = item.expected.index in other or any(child.expected is None for child in children)
        if is_open and not is_across:
            continue
        before = _greatest(item.inputs)
        for child in children:
            yield from _steps(child, child.inputs, before)
            before = max(before, _greatest(child.made))
        yield from _steps(item, item.outputs, before)


def _steps(item: CallComparison, leaves: tuple[LeafComparison, ...], before: float) -> Iterator[ErrorStep]:
    return (ErrorStep(item, leaf, before, size) for leaf in leaves for size in _sizes((leaf,)))


def _greatest(leaves: tuple[LeafComparison, ...]) -> float:
    return max(_sizes(leaves), default=0.0)


def _sizes(leaves: tuple[LeafComparison, ...]) -> Iterator[float]:
    """Yield the relative L2 of tensors that could be compared, of floating point."""
    for leaf in leaves:
        if leaf.is_measured and "float" in leaf.dtype and leaf.problem in ("", "values"):
            yield leaf.metrics.relative_l2 if leaf.metrics is not None else 0.0
