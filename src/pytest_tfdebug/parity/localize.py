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
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.parity.arguments import other_arguments, returns_less
from pytest_tfdebug.parity.pairing import has_parameter, in_cache
from pytest_tfdebug.records import FAILING, FORMS, CallComparison, Culprit, Divergence, SourceRange
from pytest_tfdebug.tracing.glue import glue_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.parity.comparator import Compared
    from pytest_tfdebug.records import Call, LeafComparison

_TO_OPEN = (
    "Return tensors, or a tuple, dict or dataclass of them, or tell how to open it with "
    "torch.utils._pytree.register_pytree_node."
)


@dataclass
class Verdict:
    """What a comparison comes to.

    Args:
        divergences: Tensors outside tolerance in the order in which they were computed; empty when all is well.
        culprit: Where the first of them arose.
        notes: Differences that changed no output, in sentences.
        is_compared: Whether values were compared where no tensor could be laid side by side.
    """

    divergences: list[Divergence] = field(default_factory=list)
    culprit: Culprit | None = None
    notes: list[str] = field(default_factory=list)
    is_compared: bool = False


def judge(compared: Compared) -> Verdict:
    """Return the verdict of a comparison.

    Outputs decide: an input that differs while every output agrees (a mask written in another way) is a note. The
    root's inputs decide too, for with other inputs nothing below can be blamed.
    """
    tree = _Tree(compared)
    root_inputs = [leaf for root in tree.roots for leaf in root.inputs if _is_other_input(root, leaf)]
    bad_outputs = {item.call.index for item in compared.calls if _failing(item, "output")}
    if not root_inputs and not bad_outputs:
        return Verdict(notes=[*_unseen(tree.roots), *_harmless(compared), *_non_finite(compared)])
    divergences = [
        Divergence(item.call.path, item.call.class_name, item.call.call, leaf)
        for item, leaves in tree.events()
        for leaf in leaves
        if leaf.problem in FAILING or (leaf.problem and item.call.parent is None and leaf.direction == "input")
    ]
    if root_inputs:
        return Verdict(divergences, _blame_inputs(tree.roots))
    fault = _first_fault(tree)
    bad_writes = {item.call.index for item in compared.calls if any(leaf.problem for leaf, _ in item.writes)}
    harmless = _Harmless(tree, bad_outputs | bad_writes if fault.leaf.direction == "write" else bad_outputs)
    return Verdict(divergences, _blame(tree, fault, harmless), [*_given_to_model(tree.roots)])


def _is_other_input(root: CallComparison, leaf: LeafComparison) -> bool:
    """Tell whether a model was given other values: a port may name its inputs otherwise, or take another form."""
    return bool(leaf.problem) and (root.is_of_one_class or leaf.problem == "values")


class _Tree:
    """The compared calls as a tree, in the order of events."""

    def __init__(self, compared: Compared) -> None:
        self.compared = compared
        self.by_index = {item.call.index: item for item in compared.calls}
        self.children: dict[int | None, list[CallComparison]] = {}
        for item in compared.calls:
            self.children.setdefault(item.call.parent, []).append(item)
        self.tops = self.children.get(None, [])
        #: The forwards of the model; a call in a thread of its own has no parent either.
        self.roots = [item for item in self.tops if item.call.path == self.tops[0].call.path]
        self._is_independent = any(path != own for path, own in compared.own_paths.items())

    def events(self) -> Iterator[tuple[CallComparison, tuple[LeafComparison, ...]]]:
        """Yield each call's inputs as it begins, and what it wrote into caches and its outputs as it ends."""
        todo: list[tuple[CallComparison, bool]] = [(top, False) for top in reversed(self.tops)]
        while todo:
            item, ended = todo.pop()
            if ended:
                yield item, item.made
                continue
            yield item, item.inputs
            todo.append((item, True))
            todo.extend((child, False) for child in reversed(self.children.get(item.call.index, [])))

    def parent(self, item: CallComparison) -> CallComparison | None:
        """Return the enclosing call."""
        return None if item.call.parent is None else self.by_index[item.call.parent]

    def around(self, index: int) -> Iterator[CallComparison]:
        """Yield a call and those that enclose it, innermost first."""
        item: CallComparison | None = self.by_index[index]
        while item is not None:
            yield item
            item = self.parent(item)

    def has(self, call: Call) -> bool:
        """Tell whether the port has the module of an expected call, and not code of its own in its place.

        One with names of its own may do without a module what the reference does with one, or with another.
        """
        return call.path in self.compared.own_paths or not self._is_independent

    def next_child(self, item: CallComparison, leaf: LeafComparison) -> CallComparison | None:
        """Return the child call that began after a tensor was written into a cache, or should have been."""
        if leaf.direction != "write":
            return None
        children = self.children.get(item.call.index, [])
        before = next(before for written, before in item.writes if written is leaf)
        if before is not None:
            return self.by_index[before]
        writes = item.expected.writes if item.expected is not None else ()
        due = next((write.before for write in writes if write.record is leaf.expected), None)
        return next((child for child in children if child.expected and child.expected.index == due), None)

    def lost_in(self, item: CallComparison) -> CallComparison:
        """Return the call that returned less than it should, so that this one did: the innermost, of the last ones."""
        children = reversed(self.children.get(item.call.index, []))
        inside = next(filter(returns_less, children), None)
        return item if inside is None else self.lost_in(inside)

    def first_paired(self, item: CallComparison | None) -> CallComparison | None:
        """Return a call that has an expected one, or the first such call inside it."""
        if item is None or item.expected is not None:
            return item
        return next(filter(None, map(self.first_paired, self.children.get(item.call.index, []))), None)


def _fails(item: CallComparison, leaf: LeafComparison, direction: str) -> bool:
    if leaf.direction != direction:
        return False
    if leaf.problem == "missing":  # a port may return less than its reference; a model may not return less than it did
        if direction == "output" and _is_without_outputs(item):
            return item.call.parent is None or _opaque(item.call.skeleton.get("outputs")) is None
        return direction == "output" and item.is_of_one_class
    return leaf.problem in FAILING


def _is_without_outputs(item: CallComparison) -> bool:
    return all(leaf.problem == "missing" for leaf in item.outputs)


def _opaque(bare: Any) -> str | None:  # noqa: ANN401 - nested JSON
    """Return the text of the first object that a call returned in which no tensor can be found, and one may be."""
    if isinstance(bare, str):
        return None if bare == "None" else bare
    held = bare.get("items", {}).values() if isinstance(bare, dict) else bare or ()
    return next(filter(None, map(_opaque, held)), None)


def _failing(item: CallComparison, direction: str) -> list[LeafComparison]:
    leaves = item.outputs if direction == "output" else item.inputs
    return [leaf for leaf in leaves if _fails(item, leaf, direction)]


class _Harmless:
    """What differs in the inputs of calls that did right, and inside of which every call did.

    Args:
        tree: The calls.
        wrong: ``index`` of those that gave or wrote something else than is expected.
    """

    def __init__(self, tree: _Tree, wrong: set[int]) -> None:
        around = {item.call.index for index in wrong for item in tree.around(index)}
        right = [item for item in tree.compared.calls if item.outputs and item.call.index not in around]
        self._tensors = {
            id(leaf.expected.tensor)
            for item in right
            for leaf in item.inputs
            if leaf.problem and leaf.expected is not None
        }
        self._arguments = {argument for item in right for argument in other_arguments(item).items()}

    def evidence(self, item: CallComparison) -> list[LeafComparison]:
        """Return the tensors among the inputs of a call that can have made its outputs diverge.

        An input in another form (shape, dtype, not given) counts between two modules of one class; a port may write its
        masks in another way, and another version of a class may do without a parameter. No input counts that a call
        with agreeing outputs has taken as well, unless the outputs are in another form as it is: what one call
        broadcasts another keeps.
        """
        forms = {leaf.problem for leaf in item.outputs}.intersection(FORMS)
        return [
            leaf
            for leaf in item.inputs
            if (
                leaf.problem == "values"
                or (leaf.problem and (item.is_of_one_class or forms) and _can_be_given(item, leaf))
            )
            and (leaf.problem in forms or leaf.expected is None or id(leaf.expected.tensor) not in self._tensors)
        ]

    def arguments(self, item: CallComparison) -> dict[str, tuple[str, str]]:
        """Return likewise what else a call was given, beside what is expected."""
        found = other_arguments(item)
        return {name: pair for name, pair in found.items() if (name, pair) not in self._arguments}

    def is_given_other(self, item: CallComparison) -> bool:
        """Tell whether a call's inputs can have made its outputs diverge."""
        return bool(self.evidence(item) or self.arguments(item))


class _Fault(NamedTuple):
    """The first tensor that a call made wrong."""

    item: CallComparison
    leaf: LeafComparison


def _first_fault(tree: _Tree) -> _Fault:
    """Return the first output that fails, or what was written into a cache before it and explains it.

    Another value in a cache is a fault that shows later, if ever. A cache may be laid out in another way, or be left
    out, unless it is one that fails at the end.
    """
    written: list[_Fault] = []
    for item, leaves in tree.events():
        written += [_Fault(item, leaf) for leaf in leaves if leaf.direction == "write" and leaf.problem]
        failing = next((leaf for leaf in leaves if _fails(item, leaf, "output")), None)
        if failing is not None:
            break
    else:
        raise AssertionError("no output fails")
    explains = (fault for fault in written if fault.leaf.problem == "values" or _is_later(fault.leaf, failing))
    return next(explains, _Fault(item, failing))


def _is_later(written: LeafComparison, output: LeafComparison) -> bool:
    """Tell whether an output is what was written into a cache, or would have been."""
    return written.expected is not None and output.leaf.endswith(in_cache(written.expected))


def _blame(tree: _Tree, fault: _Fault, harmless: _Harmless) -> Culprit:
    first = fault.item
    if not harmless.is_given_other(first):
        return _blame_own(tree, fault)
    child = wrong = first
    parent = tree.parent(child)
    while parent is not None and parent.call.parent is not None:
        if harmless.is_given_other(parent):
            wrong = parent
        elif not child.is_handed_on:
            break
        child, parent = parent, tree.parent(parent)
    if parent is None:
        return _blame_own(tree, fault)
    siblings = tree.children[parent.call.index]
    previous = siblings[: siblings.index(child)]
    tensors = harmless.evidence(wrong)
    divergence = _divergence(wrong, tensors[0]) if tensors else _divergence(*fault)
    culprit = _blame_gap(tree, parent, previous, child, divergence)
    if tensors or culprit.kind != "glue":
        return culprit
    return replace(culprit, explanation=f"{culprit.explanation} {_told(wrong.call, harmless.arguments(wrong))}")


def _can_be_given(item: CallComparison, leaf: LeafComparison) -> bool:
    """Tell whether the side on which an input is missing has a parameter for it."""
    if item.expected is None or leaf.problem not in ("missing", "extra"):
        return True
    sides = (item.call, item.expected) if leaf.problem == "missing" else (item.expected, item.call)
    return has_parameter(sides[0], leaf.leaf, sides[1])


def _told(call: Call, given: dict[str, tuple[str, str]]) -> str:
    named = ", ".join(f"{name}={own} instead of {expected}" for name, (own, expected) in given.items())
    return f"{call.name!r} is given {named}."


def _blame_own(tree: _Tree, fault: _Fault) -> Culprit:
    item = fault.item
    divergence = _divergence(*fault)
    opaque = _opaque(item.call.skeleton.get("outputs"))
    if item.call.parent is None and opaque is not None and _is_without_outputs(item):
        return _blame_opaque(item.call, opaque, divergence)
    if fault.leaf.problem == "missing" and fault.leaf.direction == "output":
        item = tree.lost_in(item)
    children = tree.children.get(item.call.index, [])
    if children or any(map(tree.has, _only_expected(tree, item, None, None))):
        following = tree.next_child(item, fault.leaf)
        end = len(children) if following is None else children.index(following)
        return _blame_gap(tree, item, children[:end], following, divergence)
    call = item.call
    told = "Its inputs agree" if item.inputs else "It has no tensor inputs"
    made = "what it wrote into its cache" if fault.leaf.direction == "write" else "its output"
    return Culprit(
        call.path,
        "module",
        call.source or _line_of_call(call),
        f"{told} and {made} does not, and it calls no other module: "
        f"the fault is in the code, attributes or parameters of this {call.class_name}.",
        call.class_name,
        divergence,
    )


def _blame_opaque(call: Call, opaque: str, divergence: Divergence) -> Culprit:
    """Blame a model whose own output cannot be compared; inside of it, what an object holds is seen further on."""
    explanation = (
        f"{call.class_name} returns {shorten(opaque, 80)}, in which no tensor can be found, so that nothing holds it "
        f"to what is expected. {_TO_OPEN}"
    )
    return Culprit(call.path, "module", call.source, explanation, call.class_name, divergence)


def _blame_gap(
    tree: _Tree,
    parent: CallComparison,
    previous: list[CallComparison],
    following: CallComparison | None,
    divergence: Divergence,
) -> Culprit:
    """Blame the lines of ``parent`` between two child calls, or the call that is missing or too many there."""
    paired = [item for item in previous if item.expected is not None]
    last = paired[-1] if paired else None
    extra = _only_actual(tree, previous[previous.index(last) + 1 :] if last else previous)
    left_out = _only_expected(tree, parent, last, tree.first_paired(following))
    absent = [call for call in left_out if tree.has(call)]
    right = [item.call for item in paired]
    lines = glue_lines(parent.call, right[-1] if right else None, following.call if following else None, right)
    where = _where(last, following)
    if absent and not extra:
        call = absent[0]
        own = tree.compared.own_paths.get(call.path)
        here = f"{own!r} exists here and is never called" if own else "this one does not"
        explanation = f"The expected forward calls {call.name!r} ({call.class_name}) {where}; {here}."
        return Culprit(own or call.path, "not-called", lines, explanation, call.class_name, divergence)
    if extra and not left_out:
        call = extra[0]
        explanation = f"This forward calls {call.name!r} ({call.class_name}) {where}; the expected one does not."
        return Culprit(call.path, "extra-call", _line_of_call(call) or lines, explanation, call.class_name, divergence)
    explanation = (
        f"Everything up to there agrees: the fault is in the lines of {parent.call.class_name}'s forward {where}."
    )
    if left_out and extra:
        explanation += f" They call {_names(extra)} where the expected forward calls {_names(left_out)}."
    return Culprit(parent.call.path, "glue", lines, explanation, parent.call.class_name, divergence)


def _only_expected(
    tree: _Tree, parent: CallComparison, last: CallComparison | None, following: CallComparison | None
) -> list[Call]:
    """Return the expected calls in the gap that were not made and would have changed something.

    A wrapper that the port does without, while it calls what is inside, is no absent call: its inside is looked at.
    Before the gap, a call counts if the port has the module and leaves it out: its result may only be used here.
    """
    if parent.expected is None:
        return []
    expected, unpaired = tree.compared.expected, {call.index for call in tree.compared.unpaired_expected}
    opened = {parent.expected.index}
    end = following.expected.index if following is not None and following.expected is not None else len(expected)
    start = last.expected.index if last is not None and last.expected is not None else parent.expected.index
    found = []
    for call in expected[parent.expected.index + 1 : end]:
        if call.parent not in opened or call.index not in unpaired:
            continue
        if _has_paired_inside(expected, call, unpaired):
            opened.add(call.index)
        elif not _is_identity(call) and (call.path in tree.compared.own_paths or call.index > start):
            found.append(call)
    return sorted(found, key=lambda call: (call.index <= start, call.index))


def _has_paired_inside(expected: list[Call], call: Call, unpaired: set[int]) -> bool:
    inside = {call.index}
    for other in expected[call.index + 1 :]:
        if other.parent not in inside:
            return False
        if other.index not in unpaired:
            return True
        inside.add(other.index)
    return False


def _only_actual(tree: _Tree, calls: list[CallComparison]) -> list[Call]:
    """Return the calls without an expected call, those left out that wrap calls with one."""
    return [item.call for item in calls if item.expected is None and not _wraps_paired(tree, item)]


def _wraps_paired(tree: _Tree, item: CallComparison) -> bool:
    children = tree.children.get(item.call.index, [])
    return any(map(tree.first_paired, children))


def _is_identity(call: Call) -> bool:
    """Tell whether a call returned what it was given (dropout in eval mode): leaving it out changes nothing."""
    given = {id(record.tensor) for record in call.inputs}
    return bool(call.outputs) and all(id(record.tensor) in given for record in call.outputs or ())


def _blame_inputs(roots: list[CallComparison]) -> Culprit:
    item, wrong = next(
        (root, leaves) for root in roots if (leaves := [leaf for leaf in root.inputs if _is_other_input(root, leaf)])
    )
    names = ", ".join(f"{leaf.leaf} ({_input_problem(leaf)})" for leaf in wrong[:3])
    explanation = (
        f"The model was given other inputs than the expected forward: {names}. Nothing below the root can be judged."
    )
    call = item.call
    return Culprit(call.path, "inputs", None, explanation, call.class_name, _divergence(item, wrong[0]))


def _input_problem(leaf: LeafComparison) -> str:
    return {
        "values": "other values",
        "shape": f"shape {leaf.shape} instead of {leaf.expected.shape if leaf.expected else ()}",
        "dtype": f"{leaf.dtype} instead of {leaf.expected.dtype if leaf.expected else ''}",
        "missing": "not given",
        "extra": "not given in the expected forward",
    }.get(leaf.problem, leaf.problem)


def _given_to_model(roots: list[CallComparison]) -> Iterator[str]:
    """Mention what models are given, beside tensors, that the expected ones are not."""
    for root in roots:
        if given := other_arguments(root, is_strict=True):
            yield _told(root.call, given)


def _unseen(roots: list[CallComparison]) -> list[str]:
    """Mention what models return on both sides that holds no tensor which can be found."""
    return [
        f"What {root.call.class_name} returns was not compared, for no tensor can be found in it: {shorten(text, 80)}. "
        f"{_TO_OPEN}"
        for root in roots
        if not root.outputs and (text := _opaque(root.call.skeleton.get("outputs"))) is not None
    ]


def _harmless(compared: Compared) -> list[str]:
    changed = [item.call.path for item in compared.calls if any(leaf.problem in FAILING for leaf in item.inputs)]
    absent = [call for call in compared.unpaired_expected if not _is_identity(call)]
    extra = [item.call for item in compared.calls if item.expected is None]
    notes = []
    if changed:
        notes.append(f"Inputs of {len(changed)} calls differ and change no output, the first of {changed[0]!r}.")
    if absent:
        notes.append(f"Never called here: {_names(absent)}.")
    if extra:
        notes.append(f"Without an expected call: {_names(extra)}.")
    return notes


def _non_finite(compared: Compared) -> list[str]:
    """Mention inf and nan that both sides have in the same places: they agree, and may not be meant."""
    names = [
        f"{item.call.name!r}"
        for item in compared.calls
        for leaf in item.outputs
        if leaf.metrics is not None and leaf.metrics.non_finite_expected
    ]
    return (
        [f"inf or nan in the same places on both sides in {len(names)} outputs, the first of {names[0]}."]
        if names
        else []
    )


def _divergence(item: CallComparison, leaf: LeafComparison) -> Divergence:
    return Divergence(item.call.path, item.call.class_name, item.call.call, leaf)


def _line_of_call(call: Call) -> SourceRange | None:
    site = call.inner_site or call.site
    return SourceRange(site.file, site.line, site.end_line) if site else None


def _where(previous: CallComparison | None, following: CallComparison | None) -> str:
    if previous is None and following is None:
        return "of its own"
    if following is None:
        return f"after its call of {previous.call.name!r}" if previous else ""
    if previous is None:
        return f"before its call of {following.call.name!r}"
    return f"between its calls of {previous.call.name!r} and {following.call.name!r}"


def _names(calls: list[Call]) -> str:
    shown = ", ".join(repr(call.name) for call in calls[:4])
    return shown + (f" and {len(calls) - 4} more" if len(calls) > 4 else "")  # noqa: PLR2004
