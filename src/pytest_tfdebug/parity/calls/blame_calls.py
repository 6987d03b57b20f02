"""From the first divergence back to the lines that made it.

The first output that diverges, in the order in which calls end, belongs to the innermost call that went wrong. If its
inputs agree, it is the culprit: a module without child calls itself, one with child calls in its glue. If its inputs
diverge, they were made by the glue of the module that called it, or by the glue of that one's caller, and so on up; a
wrapper that the expected side does not have, and that hands on what it was given, made nothing. What a call wrote into
a cache is looked at like an output, as far as it explains one.
A call that only one side makes, in the glue so found, explains the divergence better than the glue.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from textwrap import shorten
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.calls.arguments import other_arguments
from pytest_tfdebug.parity.calls.call_notes import (
    given_to_model,
    harmless_differences,
    input_problem,
    names,
    non_finite,
    told_adapters,
    told_arguments,
    where,
)
from pytest_tfdebug.parity.calls.call_tree import CallTree, only_actual, only_expected
from pytest_tfdebug.parity.calls.guilty_inputs import GuiltyInputs
from pytest_tfdebug.parity.calls.noise import is_rounding
from pytest_tfdebug.parity.calls.other_dtype import blame_dtype
from pytest_tfdebug.parity.tensors.failing_tensors import (
    FailingTensor,
    failing,
    first_fault,
    is_other_input,
    is_without_outputs,
    opaque_text,
)
from pytest_tfdebug.parity.tensors.outputs import is_uncompared
from pytest_tfdebug.parity.tensors.plain_outputs import TO_OPEN
from pytest_tfdebug.parity.tensors.uncompared import blame_uncompared
from pytest_tfdebug.records import FAILING, Culprit, Divergence
from pytest_tfdebug.tracing.values.slicing import glue_lines

if TYPE_CHECKING:
    from pytest_tfdebug.parity.tensors.comparator import Compared
    from pytest_tfdebug.records import Call, CallComparison, LeafComparison


@dataclass
class Verdict:
    """What a comparison comes to."""

    # tensors outside tolerance in the order in which they were computed; empty when all is well
    divergences: list[Divergence] = field(default_factory=list)
    culprit: Culprit | None = None  # where the first of them arose
    notes: list[str] = field(default_factory=list)  # differences that changed no output, in sentences
    is_compared: bool = False  # whether values were compared where no tensors matched by name and shape


def judge_calls(compared: Compared) -> Verdict:
    """Return the verdict of a comparison.

    Outputs decide: an input that differs while every output agrees (a mask written in another way) is a note. The
    root's inputs decide too, for with other inputs nothing below can be blamed. Of several forwards (the steps of
    ``generate``) the first that differs decides: what the later ones were given follows from what it returned.
    """
    tree = CallTree(compared)
    root_inputs = _other_inputs(tree.roots)
    bad_outputs = {item.call.index for item in compared.calls if failing(item, "output")}
    if not root_inputs and not bad_outputs:
        return Verdict(
            notes=[
                *given_to_model(tree.roots),
                *harmless_differences(compared),
                *non_finite(compared),
            ]
        )
    divergences = [
        Divergence(item.call.path, item.call.class_name, item.call.call, leaf)
        for item, leaves in tree.events()
        for leaf in leaves
        if leaf.problem in FAILING or (leaf.problem and item.call.parent is None and leaf.direction == "input")
    ]
    if root_inputs:
        given = _blame_inputs(tree.roots)
        return Verdict(divergences, (given.divergence and blame_dtype(tree, given.divergence)) or given)
    fault = first_fault(tree)
    bad_writes = {item.call.index for item in compared.calls if any(leaf.problem for leaf, _ in item.writes)}
    inputs = GuiltyInputs(tree, bad_outputs | bad_writes if fault.leaf.direction == "write" else bad_outputs)
    wrong_root = next((root for root in tree.roots if failing(root, "output")), None)
    if wrong_root is not None and other_arguments(wrong_root) and _are_handed_on(tree, fault.item, inputs):
        return Verdict(divergences, _blame_arguments(wrong_root))
    of_dtype = blame_dtype(tree, _divergence(*fault))
    if of_dtype is not None:
        return Verdict(divergences, of_dtype)
    culprit = _blame(tree, fault, inputs)
    if is_rounding(fault.leaf):  # it may as well have come in
        culprit = replace(culprit, certain=False)
    return Verdict(divergences, culprit, [*given_to_model(tree.roots)])


def _other_inputs(roots: list[CallComparison]) -> list[LeafComparison]:
    """Return the inputs in which the first forward with others differs; none after one that returned others."""
    for root in roots:
        wrong = [leaf for leaf in root.inputs if is_other_input(root, leaf)]
        if wrong or failing(root, "output"):
            return wrong
    return []


def _blame(tree: CallTree, fault: FailingTensor, inputs: GuiltyInputs) -> Culprit:
    first = fault.item
    if not inputs.are_guilty(first):
        return _blame_own(tree, fault)
    child = wrong = first
    parent = tree.parent(child)
    while parent is not None and parent.call.parent is not None:
        if inputs.are_guilty(parent):
            wrong = parent
        elif not child.is_handed_on:
            break
        child, parent = parent, tree.parent(parent)
    if parent is None:
        return _blame_own(tree, fault)
    siblings = tree.children[parent.call.index]
    previous = siblings[: siblings.index(child)]
    tensors = inputs.tensors(wrong)
    divergence = _divergence(wrong, tensors[0]) if tensors else _divergence(*fault)
    culprit = _blame_gap(tree, parent, previous, child, divergence)
    if tensors or culprit.kind != "glue":
        return culprit
    return replace(culprit, why=f"{culprit.why} {told_arguments(wrong.call, inputs.arguments(wrong))}")


def _blame_own(tree: CallTree, fault: FailingTensor) -> Culprit:
    item = fault.item
    divergence = _divergence(*fault)
    opaque = opaque_text(item.call.skeleton.get("outputs"))
    if item.call.parent is None and opaque is not None and is_without_outputs(item):
        return _blame_opaque(item.call, opaque, divergence)
    if is_uncompared(fault.leaf) and not item.is_of_one_class and not is_without_outputs(item):
        return blame_uncompared(tree.compared)
    if fault.leaf.problem == "missing" and fault.leaf.direction == "output":
        item = tree.lost_in(item)
    adapted = told_adapters(tree, item)
    if adapted:
        call = item.call
        source = tree.lines_of(call)
        why = "Its inputs agree, and its output does not."
        return Culprit(
            call.path, "module", source, why, call.class_name, divergence=divergence, certain=True, wrong=adapted
        )
    children = tree.children.get(item.call.index, [])
    if children or any(map(tree.has, only_expected(tree, item, None, None))):
        following = tree.next_child(item, fault.leaf)
        end = len(children) if following is None else children.index(following)
        return _blame_gap(tree, item, children[:end], following, divergence)
    call = item.call
    told = "Its inputs agree" if item.inputs else "It has no tensor inputs"
    made = "what it wrote into its cache" if fault.leaf.direction == "write" else "its output"
    return Culprit(
        call.path,
        "module",
        tree.lines_of(call),
        f"{told} and {made} does not, and it calls no other module: "
        f"the fault is in the code, attributes or parameters of this {call.class_name}.",
        call.class_name,
        divergence=divergence,
        certain=True,
    )


def _blame_opaque(call: Call, opaque: str, divergence: Divergence) -> Culprit:
    """Blame a model whose own output cannot be compared; inside of it, what an object holds is seen further on."""
    wrong = f"returns {shorten(opaque, 80)}, in which no tensor can be found, so it was not compared"
    return Culprit(call.path, "module", call.source, TO_OPEN, call.class_name, divergence=divergence, wrong=wrong)


def _blame_gap(
    tree: CallTree,
    parent: CallComparison,
    previous: list[CallComparison],
    following: CallComparison | None,
    divergence: Divergence,
) -> Culprit:
    """Blame the lines of ``parent`` between two child calls, or the call that is missing or too many there."""
    paired = [item for item in previous if item.expected is not None]
    last = paired[-1] if paired else None
    extra = only_actual(tree, previous[previous.index(last) + 1 :] if last else previous)
    left_out = only_expected(tree, parent, last, tree.first_paired(following))
    absent = [call for call in left_out if tree.has(call)]
    right = [item.call for item in paired]
    lines = glue_lines(parent.call, right[-1] if right else None, following.call if following else None, right)
    place = where(last, following)
    if absent and not extra:
        call = absent[0]
        own = tree.compared.own_paths.get(call.path)
        here = f"{own!r} exists here and is never called" if own else "this one does not"
        explanation = f"The expected forward calls {call.name!r} ({call.class_name}) {place}; {here}."
        return Culprit(
            own or call.path, "not-called", lines, explanation, call.class_name, divergence=divergence, certain=True
        )
    if extra and not left_out:
        call = extra[0]
        explanation = f"This forward calls {call.name!r} ({call.class_name}) {place}; the expected one does not."
        source = call.called_at or lines
        return Culprit(
            call.path, "extra-call", source, explanation, call.class_name, divergence=divergence, certain=True
        )
    is_of_others = bool(left_out and extra)
    is_compared = bool(paired or following or not is_of_others)
    if not is_compared:
        explanation = (
            f"None of the calls in it could be compared, so the fault may lie in its lines or in {names(extra)}; "
            f"the expected forward calls {names(left_out)} instead."
        )
    else:
        explanation = (
            f"{_agreeing(tree, divergence)} before it: the fault is in the lines of {parent.call.class_name}'s forward "
            f"{place}."
        )
        if is_of_others:
            explanation += f" They call {names(extra)} where the expected forward calls {names(left_out)}."
    name = parent.call.class_name
    return Culprit(parent.call.path, "glue", lines, explanation, name, divergence=divergence, certain=is_compared)


def _agreeing(tree: CallTree, divergence: Divergence) -> str:
    """Say how many of the tensors that were computed before one were compared and agree."""
    count = 0
    for _, leaves in tree.events():
        for leaf in leaves:
            if leaf is divergence.comparison:
                return "1 tensor agrees" if count == 1 else f"{count or 'No'} tensors agree"
            count += leaf.is_measured and not leaf.problem
    return f"{count or 'No'} tensors agree"


def _blame_inputs(roots: list[CallComparison]) -> Culprit:
    item, wrong = next(
        (root, leaves) for root in roots if (leaves := [leaf for leaf in root.inputs if is_other_input(root, leaf)])
    )
    given = ", ".join(f"{leaf.leaf} ({input_problem(leaf)})" for leaf in wrong[:3])
    explanation = (
        f"The model was given other inputs than the expected forward: {given}. The inputs differ, so nothing else was "
        "compared."
    )
    call = item.call
    divergence = _divergence(item, wrong[0])
    return Culprit(call.path, "inputs", None, explanation, call.class_name, divergence=divergence, certain=True)


def _are_handed_on(tree: CallTree, first: CallComparison, inputs: GuiltyInputs) -> bool:
    """Tell whether what a model was given, beside tensors, can have reached the first wrong call: as its arguments."""
    below = [item for item in tree.around(first.call.index) if item.call.parent is not None]
    return not below or any(map(inputs.arguments, below))


def _blame_arguments(item: CallComparison) -> Culprit:
    """Blame numbers and flags that a model was given: its outputs differ, and other ones follow from other inputs."""
    call = item.call
    why = f"{told_arguments(call, other_arguments(item))} The inputs differ, so nothing else was compared."
    divergence = _divergence(item, failing(item, "output")[0])
    return Culprit(call.path, "inputs", None, why, call.class_name, divergence=divergence, certain=True)


def _divergence(item: CallComparison, leaf: LeafComparison) -> Divergence:
    return Divergence(item.call.path, item.call.class_name, item.call.call, leaf)
