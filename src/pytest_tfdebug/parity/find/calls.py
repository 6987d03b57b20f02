"""From the first divergence back to the lines that made it.

The first output that diverges, in the order in which calls end, belongs to the innermost call that went wrong. If its
inputs agree, it is the culprit: a module without child calls itself, one with child calls in its glue. If its inputs
diverge, they were made by the glue of the module that called it, or by the glue of that one's caller, and so on up; a
wrapper that the expected side does not have, and that hands on what it was given, made nothing. What a call wrote into
a cache is looked at like an output, as far as it explains one.
A call that only one side makes, in the glue so found, explains the divergence better than the glue.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import takewhile
from textwrap import shorten
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.calls.call_notes import (
    given_to_model,
    harmless_differences,
    input_problem,
    names,
    non_finite,
    told_adapters,
    told_arguments,
    told_form,
    where,
)
from pytest_tfdebug.parity.calls.call_tree import (
    CallTree,
    FailingTensor,
    can_be_given,
    failing,
    first_fault,
    is_other_input,
    only_actual,
    only_expected,
    opaque_text,
    other_arguments,
)
from pytest_tfdebug.parity.calls.noise import is_rounding
from pytest_tfdebug.parity.claims import Evidence, claim_of
from pytest_tfdebug.parity.tensors.coverage import blame_uncompared, is_without_outputs
from pytest_tfdebug.parity.tensors.outputs import is_uncompared
from pytest_tfdebug.parity.tensors.plain_outputs import TO_OPEN
from pytest_tfdebug.records import FAILING, FORMS, Divergence
from pytest_tfdebug.tracing.values.slicing import glue_lines

if TYPE_CHECKING:
    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.records import CallComparison, LeafComparison

#: Kinds of a culprit of which lines go wrong, where values do.
_IN_LINES = ("module", "glue")
_NOTHING_ELSE = "The inputs differ, so nothing else was compared."


@dataclass
class Verdict:
    """What a comparison comes to."""

    # tensors outside tolerance in the order in which they were computed; empty when all is well
    divergences: list[Divergence] = field(default_factory=list)
    claim: Claim | None = None  # where the first of them arose
    notes: list[str] = field(default_factory=list)  # differences that changed no output, in sentences
    is_compared: bool = False  # whether values were compared where no tensors matched by name and shape


def judge_calls(compared: Compared) -> Verdict:
    """Return the verdict of a comparison.

    Outputs decide: an input that differs while every output agrees (a mask written in another way) is a note. The
    root's inputs decide too, for with other inputs nothing below can be blamed. Of several forwards (the steps of
    ``generate``) the first that differs decides: what the later ones were given follows from what it returned.
    """
    tree = CallTree(compared)
    given = _other_inputs(tree.roots)
    bad_outputs = {item.call.index for item in compared.calls if failing(item, "output")}
    if given is None and not bad_outputs:
        return Verdict(notes=[*given_to_model(tree.roots), *harmless_differences(compared), *non_finite(compared)])
    divergences = [
        _divergence(item, leaf)
        for item, leaves in tree.events()
        for leaf in leaves
        if leaf.problem in FAILING or (leaf.problem and item.call.parent is None and leaf.direction == "input")
    ]
    if given is not None:
        return Verdict(divergences, blame_dtype(tree, _divergence(given[0], given[1][0])) or _blame_inputs(*given))
    fault = first_fault(tree)
    bad_writes = {item.call.index for item in compared.calls if any(leaf.problem for leaf, _ in item.writes)}
    inputs = GuiltyInputs(tree, bad_outputs | bad_writes if fault.leaf.direction == "write" else bad_outputs)
    wrong_root = next((root for root in tree.roots if failing(root, "output")), None)
    if wrong_root is not None and other_arguments(wrong_root) and _are_handed_on(tree, fault.item, inputs):
        divergence = _divergence(wrong_root, failing(wrong_root, "output")[0])
        told = told_arguments(wrong_root.call, other_arguments(wrong_root))
        why = f"{told} {_NOTHING_ELSE}"
        return Verdict(divergences, claim_of(wrong_root.call, "inputs", why, divergence, evidence=Evidence.INPUTS))
    of_dtype = blame_dtype(tree, _divergence(*fault))
    if of_dtype is not None:
        return Verdict(divergences, of_dtype)
    claim = _blame(tree, fault, inputs)
    if is_rounding(fault.leaf):  # it may as well have come in
        claim = replace(claim, evidence=Evidence.ROUNDED_CALLS)
    if claim.kind in _IN_LINES and not any(leaf.problem == "values" for it in compared.calls for leaf in it.made):
        claim = replace(claim, wrong=claim.wrong or told_form(fault.leaf))
    return Verdict(divergences, claim, [*given_to_model(tree.roots)])


def _other_inputs(roots: list[CallComparison]) -> tuple[CallComparison, list[LeafComparison]] | None:
    """Return the first root whose inputs differ, and these; None if an earlier root's outputs differ already."""
    for root in roots:
        wrong = [leaf for leaf in root.inputs if is_other_input(root, leaf)]
        if wrong:
            return root, wrong
        if failing(root, "output"):
            return None
    return None


def _blame(tree: CallTree, fault: FailingTensor, inputs: GuiltyInputs) -> Claim:
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
    claim = _blame_gap(tree, parent, previous, child, divergence)
    if tensors or claim.kind != "glue":
        return claim
    return replace(claim, why=f"{claim.why} {told_arguments(wrong.call, inputs.arguments(wrong))}")


def _blame_own(tree: CallTree, fault: FailingTensor) -> Claim:
    item, leaf = fault
    divergence = _divergence(*fault)
    opaque = opaque_text(item.call)
    if item.call.parent is None and opaque is not None and is_without_outputs(item):  # what it holds is seen further on
        wrong = f"returns {shorten(opaque, 80)}, in which no tensor can be found, so it was not compared"
        at = item.call.source
        return claim_of(item.call, "module", TO_OPEN, divergence, at, wrong=wrong, evidence=Evidence.UNREADABLE)
    lost = tree.lost_in(item) if leaf.problem == "missing" and leaf.direction == "output" else item
    if is_uncompared(leaf) and not (item.is_of_one_class and lost is not item) and not is_without_outputs(item):
        return blame_uncompared(tree.compared)
    item = lost
    call, lines = item.call, tree.lines_of(item.call)
    adapted = told_adapters(tree, item)
    if adapted:
        why = "Its inputs agree, and its output does not."
        return claim_of(call, "module", why, divergence, lines, wrong=adapted)
    children = tree.children.get(call.index, [])
    if children or any(map(tree.has, only_expected(tree, item, None, None))):
        following = tree.next_child(item, leaf)
        end = len(children) if following is None else children.index(following)
        return _blame_gap(tree, item, children[:end], following, divergence)
    told = "Its inputs agree" if item.inputs else "It has no tensor inputs"
    made = "what it wrote into its cache" if leaf.direction == "write" else "its output"
    why = (
        f"{told} and {made} does not, and it calls no other module: "
        f"the fault is in the code, attributes or parameters of this {call.class_name}."
    )
    return claim_of(call, "module", why, divergence, lines)


def _blame_gap(
    tree: CallTree,
    parent: CallComparison,
    previous: list[CallComparison],
    following: CallComparison | None,
    divergence: Divergence,
) -> Claim:
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
        why = f"The expected forward calls {call.name!r} ({call.class_name}) {place}; {here}."
        evidence = Evidence.CALL if own else Evidence.OTHER_CALL
        return replace(claim_of(call, "not-called", why, divergence, lines, evidence=evidence), path=own or call.path)
    if extra and not left_out:
        call = extra[0]
        why = f"This forward calls {call.name!r} ({call.class_name}) {place}; the expected one does not."
        return claim_of(call, "extra-call", why, divergence, call.called_at or lines, evidence=Evidence.CALL)
    is_of_others = bool(left_out and extra)
    if is_of_others and not paired and not following:
        why = (
            f"None of the calls in it could be compared, so the fault may lie in its lines or in {names(extra)}; "
            f"the expected forward calls {names(left_out)} instead."
        )
        return claim_of(parent.call, "glue", why, divergence, lines, evidence=Evidence.UNPAIRED_CALLS)
    why = (
        f"{_agreeing(tree, divergence)} before it: the fault is in the lines of {parent.call.class_name}'s forward "
        f"{place}."
    )
    if is_of_others:
        why += f" They call {names(extra)} where the expected forward calls {names(left_out)}."
    return claim_of(parent.call, "glue", why, divergence, lines)


def _agreeing(tree: CallTree, divergence: Divergence) -> str:
    """Say how many of the tensors that were computed before one were compared and agree."""
    every = (leaf for _, leaves in tree.events() for leaf in leaves)
    before = takewhile(lambda leaf: leaf is not divergence.comparison, every)
    count = sum(leaf.is_measured and not leaf.problem for leaf in before)
    return "1 tensor agrees" if count == 1 else f"{count or 'No'} tensors agree"


def _blame_inputs(root: CallComparison, wrong: list[LeafComparison]) -> Claim:
    given = ", ".join(f"{leaf.leaf} ({input_problem(leaf)})" for leaf in wrong[:3])
    why = f"The model was given other inputs than the expected forward: {given}. {_NOTHING_ELSE}"
    return claim_of(root.call, "inputs", why, _divergence(root, wrong[0]), evidence=Evidence.INPUTS)


def _are_handed_on(tree: CallTree, first: CallComparison, inputs: GuiltyInputs) -> bool:
    """Tell whether what a model was given, beside tensors, can have reached the first wrong call: as its arguments."""
    below = [item for item in tree.around(first.call.index) if item.call.parent is not None]
    return not below or any(map(inputs.arguments, below))


def _divergence(item: CallComparison, leaf: LeafComparison) -> Divergence:
    return Divergence(item.call.path, item.call.class_name, item.call.call, leaf)


#: Share of the innermost modules that must compute in the other dtype: autocast leaves norms and embeddings alone.
_MOST = 0.5
#: Fewer modules than this do not tell a model from one module of it.
_FEWEST = 3


def blame_dtype(tree: CallTree, first: Divergence) -> Claim | None:
    """Return a claim that names the dtype, where most modules compute in another one; None where they do not."""
    if first.comparison.problem != "dtype":
        return None
    outputs = [leaf for item in tree.compared.calls for leaf in _of_innermost(tree, item)]
    pairs = Counter(_dtypes(leaf) for leaf in outputs if leaf.problem == "dtype")
    (expected, actual), count = pairs.most_common(1)[0] if pairs else (("", ""), 0)
    if len(outputs) < _FEWEST or count < _MOST * len(outputs):
        return None
    call = tree.roots[0].call
    wrong = f"computes in {actual}, and the expected forward in {expected}"
    why = (
        f"Of its innermost modules {count} of {len(outputs)} do, so the model was converted or runs under autocast. "
        f"No module's code is to blame, and values were not compared. Run it in {expected}, or compare it with a "
        f"forward recorded in {actual}."
    )
    return claim_of(call, "dtype", why, first, wrong=wrong, evidence=Evidence.DTYPE)


def _of_innermost(tree: CallTree, item: CallComparison) -> list[LeafComparison]:
    """Return the outputs of floating point of a call that makes no others."""
    if item.expected is None or item.call.index in tree.children:
        return []
    return [leaf for leaf in item.outputs if all("float" in dtype for dtype in _dtypes(leaf))]


def _dtypes(leaf: LeafComparison) -> tuple[str, str]:
    return ("" if leaf.expected is None else leaf.expected.dtype, leaf.dtype)


class GuiltyInputs:
    """Which inputs of a call can have made its outputs wrong: not those that right calls of its class were given too.

    A call of another class may be right because it uses them for less: positions are counted from the shape of the ids.
    """

    def __init__(self, tree: CallTree, wrong: set[int]) -> None:
        around = {item.call.index for index in wrong for item in tree.around(index)}
        right = [item for item in tree.compared.calls if item.outputs and item.call.index not in around]
        self._tensors = {
            (item.call.class_name, id(leaf.expected.held))
            for item in right
            for leaf in item.inputs
            if leaf.problem and leaf.expected is not None
        }
        self._arguments = {(item.call.class_name, each) for item in right for each in other_arguments(item).items()}

    def tensors(self, item: CallComparison) -> list[LeafComparison]:
        """Return the tensors among the inputs of a call that can have made its outputs diverge.

        An input in another form (shape, dtype, not given) counts between two modules of one class; a port may write its
        masks in another way, and another version of a class may do without a parameter. No input counts that a call
        of its class with agreeing outputs has taken as well, unless the outputs are in another form as it is: what one
        call broadcasts another keeps.
        """
        name = item.call.class_name
        forms = {leaf.problem for leaf in item.outputs}.intersection(FORMS)
        return [
            leaf
            for leaf in item.inputs
            if (
                leaf.problem == "values"
                or (leaf.problem and (item.is_of_one_class or forms) and can_be_given(item, leaf))
            )
            and (leaf.problem in forms or leaf.expected is None or (name, id(leaf.expected.held)) not in self._tensors)
        ]

    def arguments(self, item: CallComparison) -> dict[str, tuple[str, str]]:
        """Return likewise what else a call was given, beside what is expected."""
        found, own = other_arguments(item).items(), item.call.class_name
        return {name: pair for name, pair in found if (own, (name, pair)) not in self._arguments}

    def are_guilty(self, item: CallComparison) -> bool:
        """Tell whether a call's inputs can have made its outputs diverge."""
        return bool(self.tensors(item) or self.arguments(item))
