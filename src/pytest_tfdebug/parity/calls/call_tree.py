"""The compared calls as a tree, what each was given beside tensors, and which of their tensors fails first."""

from __future__ import annotations

from functools import cached_property
from math import isclose, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.module_path import holders
from pytest_tfdebug.parity.closeness import number_of
from pytest_tfdebug.parity.pair.pairing import has_parameter, in_cache
from pytest_tfdebug.parity.tensors.coverage import is_without_outputs
from pytest_tfdebug.parity.tensors.outputs import is_uncompared
from pytest_tfdebug.records import FAILING, FORMS, CallComparison, LeafComparison, inputs_of, skeleton_ends
from pytest_tfdebug.tracing.record.sites import is_library

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.records import Call, CallComparison, LeafComparison, Metrics, SourceRange

#: Relative L2 difference that is no rounding, and cannot vanish in what is computed from it.
_GROSS = 0.05
#: How far the norms of a tensor in two layouts may be apart, by rounding: a share of the squared difference.
_SAME_NORM = 1e-3


class FailingTensor(NamedTuple):
    """The first tensor that a call made wrong."""

    item: CallComparison
    leaf: LeafComparison


def first_fault(tree: CallTree) -> FailingTensor:
    """Return the first output that fails, or what was written into a cache before it and explains it.

    Another value in a cache is a fault that shows later, if ever. A cache may be laid out in another way, or be left
    out, unless it is one that fails at the end. So may what a module computes whose own outputs agree, unless nothing
    else fails. Other values that a call makes of what it should be given go before another form.
    """
    written: list[FailingTensor] = []
    failures: list[tuple[FailingTensor, int]] = []
    for item, leaves in tree.events():
        written += [FailingTensor(item, leaf) for leaf in leaves if leaf.direction == "write" and leaf.problem]
        failures += [(FailingTensor(item, leaf), len(written)) for leaf in leaves if is_failure(item, leaf, "output")]
    own = (found for found in failures if not _is_convention(tree, found[0]))
    (fault, count) = next(own, failures[0])
    if fault.leaf.problem in FORMS:
        (fault, count) = next((each for each in failures if _is_made_of_right(tree, *each[0], fault)), (fault, count))
    item, failing = fault
    written = written[:count]
    explains = (fault for fault in written if fault.leaf.problem == "values" or _is_later(fault.leaf, failing))
    return next(explains, FailingTensor(item, failing))


def _is_made_of_right(tree: CallTree, item: CallComparison, leaf: LeafComparison, before: FailingTensor) -> bool:
    """Tell whether values are wrong in a call that began behind a tensor, and that was given what is expected."""
    inside = [each.call.index for each in tree.around(before.item.call.index)]
    around = (each for each in tree.around(item.call.index) if each.call.index > before.item.call.index)
    return leaf.problem == "values" and any(
        each.inputs and not any(given.problem for given in each.inputs) and not other_arguments(each)
        for each in around
        if each.call.index not in inside
    )


def _is_convention(tree: CallTree, fault: FailingTensor) -> bool:
    """Tell whether a tensor is no fault: it is laid out in another way, or nothing comes of it.

    Nothing does where a call around it returns and writes what is expected, to rounding. Of a layout an enclosing
    module makes the right outputs, or one that is given it; what it leaves in a cache is then judged for itself.
    """
    leaf = fault.leaf
    around = [item for item in tree.around(fault.item.call.index) if item.call.parent is not None][1:]
    if any(tree.agrees(item, _ROUNDED) for item in around):
        return True
    if leaf.problem == "shape":
        return any(map(tree.returns_agree, around)) or tree.is_taken_right(leaf)
    if leaf.problem not in FORMS and (leaf.metrics is None or not _may_be_reordered(leaf.metrics)):
        return False
    return any(map(tree.agrees, around))


def _may_be_reordered(metrics: Metrics) -> bool:
    """Tell whether a tensor differs as one with the same elements in another order does: its norm is the same.

    For equal norms the square of the relative L2 difference is 2 - 2 cos. Attention hardly feels a query that was
    scaled, and a norm behind it not at all: such a query is no layout, though its caller returns nearly the same.
    """
    squared = metrics.relative_l2**2
    return metrics.relative_l2 >= _GROSS and abs(squared - (2 - 2 * metrics.cosine)) <= _SAME_NORM * squared


def _is_later(written: LeafComparison, output: LeafComparison) -> bool:
    """Tell whether an output is what was written into a cache, or would have been."""
    return written.expected is not None and output.leaf.endswith(in_cache(written.expected))


def is_failure(item: CallComparison, leaf: LeafComparison, direction: str) -> bool:
    """Tell whether a tensor of a call, of this direction, makes the comparison fail."""
    if leaf.direction != direction:
        return False
    if leaf.problem == "missing" and leaf.how is not None:
        return direction == "output" and is_uncompared(leaf)
    if leaf.problem == "missing":  # a port may return less than its reference; a model may not return less than it did
        if direction == "output" and is_without_outputs(item):
            return item.call.parent is None or opaque_text(item.call) is None
        return direction == "output" and item.is_of_one_class
    return leaf.problem in FAILING


def opaque_text(call: Call) -> str | None:
    """Return the text of the first object that a call returned in which no tensor can be found, and one may be."""
    found = skeleton_ends(call.skeleton.get("outputs", "None"))
    return next((end for _, end in found if isinstance(end, str) and end != "None"), None)


def failing(item: CallComparison, direction: str) -> list[LeafComparison]:
    """Return the inputs or outputs of a call that make the comparison fail."""
    leaves = item.outputs if direction == "output" else item.inputs
    return [leaf for leaf in leaves if is_failure(item, leaf, direction)]


def is_other_input(root: CallComparison, leaf: LeafComparison) -> bool:
    """Tell whether a model was given other values: a port may name its inputs otherwise, or take another form.

    Another form has as many elements, other axes, or one row for all: fewer tokens are other values.
    """
    theirs = () if leaf.expected is None else leaf.expected.shape
    if leaf.problem == "shape" and len(leaf.shape) == len(theirs) and not root.is_of_one_class:
        is_for_all = all(own == other or 1 in (own, other) for own, other in zip(leaf.shape, theirs, strict=True))
        return prod(leaf.shape) != prod(theirs) and not is_for_all
    return leaf.problem == "values" or bool(leaf.problem and root.is_of_one_class and can_be_given(root, leaf))


def can_be_given(item: CallComparison, leaf: LeafComparison) -> bool:
    """Tell whether the side on which an input is missing has a parameter for it."""
    if item.expected is None or leaf.problem not in ("missing", "extra"):
        return True
    sides = (item.call, item.expected) if leaf.problem == "missing" else (item.expected, item.call)
    return has_parameter(sides[0], leaf.leaf, sides[1])


#: What an argument that is not given most often stands for.
_NOTHING = frozenset({"nothing", "None", "False", "0"})
_ABSENT = "nothing"
#: Two ways to leave an argument out: wrappers hand on every parameter that they have.
_LEFT_OUT = frozenset({_ABSENT, "None"})
_WORDS = frozenset({"None", "True", "False"})
#: What is told of a tensor and of an object; two of them are the same here.
_TENSOR, _OBJECT = "a tensor", "an object"


def other_arguments(item: CallComparison, *, is_strict: bool = False) -> dict[str, tuple[str, str]]:
    """Return the arguments, no tensors, in which a call differs from the expected one of the same class."""
    if item.expected is None or not item.is_of_one_class:
        return {}
    own, theirs = arguments(item.call), arguments(item.expected)
    pairs = {name: (own.get(name, _ABSENT), theirs.get(name, _ABSENT)) for name in (*own, *theirs)}
    return {name: pair for name, pair in pairs.items() if _differ(*pair) and (is_strict or _counts(name, pair, item))}


def _counts(name: str, pair: tuple[str, str], item: CallComparison) -> bool:
    """Tell whether a difference can be a caller's fault.

    Versions of a class differ in the flags that they leave out, and in those that they hand on to whoever takes them.
    """
    parameter = name.partition("[")[0]
    sides = [side.parameters for side in (item.call, item.expected) if side is not None]
    is_taken = all(parameter in each for each in sides)
    left_out = {_ABSENT} if len(set(sides)) == 1 else _LEFT_OUT  # another version may find by itself what None is for
    return is_taken and not _NOTHING.issuperset(pair) and (left_out.isdisjoint(pair) or _OBJECT in pair)


def returns_less(item: CallComparison) -> bool:
    """Tell whether a call returns None, or nothing, where the expected one of the same class returns an object."""
    if item.expected is None or not item.is_of_one_class:
        return False
    own = dict(_flat("", item.call.skeleton.get("outputs", "None")))
    theirs = _flat("", item.expected.skeleton.get("outputs", "None"))
    return any(text == _OBJECT and own.get(path, "None") == "None" for path, text in theirs)


def arguments(call: Call) -> dict[str, str]:
    """Return what a call was given, as text, by the names of its parameters and the places within them."""
    return {path: text for name, bare in inputs_of(call) for path, text in _flat(name, bare)}


def _flat(path: str, bare: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - nested JSON
    for place, end in skeleton_ends(bare, path):
        if isinstance(end, int):
            yield place, _TENSOR
        else:
            yield place, end if end in _WORDS or end[:1] in "'\"" or number_of(end) is not None else _OBJECT


def _differ(own: str, expected: str) -> bool:
    if own == expected or _LEFT_OUT.issuperset((own, expected)) or _TENSOR in (own, expected):
        return False
    numbers = number_of(own), number_of(expected)
    return None in numbers or not isclose(*numbers, rel_tol=1e-6)  # type: ignore[arg-type] # neither is None


#: Relative L2 difference of outputs that were computed from the same.
_NEAR = 1e-3
#: That of what differs by rounding in float32 alone, eight epsilons.
_ROUNDED = 1e-6


def _agree(leaves: Sequence[LeafComparison], near: float = _NEAR) -> bool:
    """Tell whether there are outputs, and all of them are what is expected."""
    is_near = all(leaf.metrics is None or leaf.metrics.relative_l2 < near for leaf in leaves)
    return bool(leaves) and is_near and all(leaf.is_measured and not leaf.problem for leaf in leaves)


class CallTree:
    """The compared calls as a tree, in the order of events."""

    def __init__(self, compared: Compared) -> None:
        self.compared = compared
        self.by_index = {item.call.index: item for item in compared.calls}
        self.children: dict[int | None, list[CallComparison]] = {}
        for item in compared.calls:
            self.children.setdefault(item.call.parent, []).append(item)
        self.tops = self.children.get(None, [])
        #: The forwards of the model; a call in a thread of its own has no parent either, nor one of a wrapper's.
        modules = {*compared.own_paths.values()}
        self.roots = [item for item in self.tops if item.call.path not in modules]
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

    def lines_of(self, call: Call) -> SourceRange | None:
        """Return the lines of a call's own forward, or those that made it: of the container, where torch's code did."""
        places = (call.source, *(item.call.called_at for item in self.around(call.index)))
        known = [place for place in places if place is not None]
        return next((place for place in known if not is_library(place.file)), known[0] if known else None)

    def agrees(self, item: CallComparison, near: float = _NEAR) -> bool:
        """Tell whether all that a call returned is what is expected, and what was written into caches inside it."""
        return self.returns_agree(item, near) and self._writes_agree(item)

    @staticmethod
    def returns_agree(item: CallComparison, near: float = _NEAR) -> bool:
        """Tell whether all that a call returned is what is expected.

        Tiny numbers agree in half precision whatever they are: that they are within tolerance is not enough.
        """
        return _agree(item.outputs, near)

    def is_taken_right(self, leaf: LeafComparison) -> bool:
        """Tell whether a call that was given a tensor in this form returned what is expected."""
        return leaf.expected is not None and id(leaf.expected.held) in self._taken_right

    @cached_property
    def _taken_right(self) -> set[int]:
        """The tensors of another shape of which a call made the right outputs, those that it handed on left aside."""
        found = set[int]()
        for item in self.compared.calls:
            pairs = [(leaf, leaf.expected) for leaf in item.inputs if leaf.expected and leaf.expected.held is not None]
            given = {id(expected.held): leaf.shape != expected.shape for leaf, expected in pairs}
            made = (leaf for leaf in item.outputs if leaf.expected is None or id(leaf.expected.held) not in given)
            if _agree(tuple(made)):
                found.update(held for held, is_other in given.items() if is_other)
        return found

    def _writes_agree(self, item: CallComparison) -> bool:
        return not any(leaf.problem for leaf, _ in item.writes) and all(
            map(self._writes_agree, self.children.get(item.call.index, []))
        )

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
        """Return the innermost call whose missing output explains that of another; the last one of several."""
        children = reversed(self.children.get(item.call.index, []))
        inside = next(filter(returns_less, children), None)
        return item if inside is None else self.lost_in(inside)

    def first_paired(self, item: CallComparison | None) -> CallComparison | None:
        """Return a call that has an expected one, or the first such call inside it."""
        if item is None or item.expected is not None:
            return item
        return next(filter(None, map(self.first_paired, self.children.get(item.call.index, []))), None)


def call_around(calls: Sequence[Call], *paths: str) -> Call:
    """Return the call of the innermost module with code that holds all of some modules."""
    with_code = {call.path: call for call in calls if call.source is not None}
    common = (each for each in holders(paths[0]) if all(each in holders(path) for path in paths))
    return next((with_code[each] for each in common if each in with_code), calls[0])


def only_expected(
    tree: CallTree, parent: CallComparison, last: CallComparison | None, following: CallComparison | None
) -> list[Call]:
    """Return the expected calls in the gap that were not made and would have changed something.

    A wrapper that the port does without, while it calls what is inside, is no absent call: its inside is looked at.
    Before the gap, a call counts if the port has the module and leaves it out: its result may only be used here.
    """
    if parent.expected is None:
        return []
    expected, unpaired = tree.compared.expected, {call.index for call in tree.compared.unpaired_expected}
    wrappers: set[int | None] = set()  # calls with a paired one inside
    for call in reversed(expected):
        if call.index not in unpaired or call.index in wrappers:
            wrappers.add(call.parent)
    opened = {parent.expected.index}
    end = following.expected.index if following is not None and following.expected is not None else len(expected)
    start = last.expected.index if last is not None and last.expected is not None else parent.expected.index
    found = []
    for call in expected[parent.expected.index + 1 : end]:
        if call.parent not in opened or call.index not in unpaired:
            continue
        if call.index in wrappers:
            opened.add(call.index)
        elif not is_identity(call) and (call.path in tree.compared.own_paths or call.index > start):
            found.append(call)
    return sorted(found, key=lambda call: (call.index <= start, call.index))


def only_actual(tree: CallTree, calls: list[CallComparison]) -> list[Call]:
    """Return the calls without an expected call, those left out that wrap calls with one, or change nothing."""
    alone = (item for item in calls if item.expected is None and not item.is_identity)
    return [item.call for item in alone if not any(map(tree.first_paired, tree.children.get(item.call.index, [])))]


def is_identity(call: Call) -> bool:
    """Tell whether a call returned what it was given (dropout in eval mode): leaving it out changes nothing."""
    given = {id(record.held) for record in call.inputs}
    return bool(call.outputs) and all(id(record.held) in given for record in call.outputs or ())
