"""The compared calls as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.parity.calls.arguments import returns_less
from pytest_tfdebug.tracing.record.sites import is_library

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.parity.tensors.comparator import Compared
    from pytest_tfdebug.records import Call, CallComparison, LeafComparison, SourceRange

#: Relative L2 difference of outputs that were computed from the same.
_NEAR = 1e-3


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

    def agrees(self, item: CallComparison) -> bool:
        """Tell whether all that a call returned is what is expected, and what was written into caches inside it.

        Tiny numbers agree in half precision whatever they are: that they are within tolerance is not enough.
        """
        near = all(leaf.metrics is None or leaf.metrics.relative_l2 < _NEAR for leaf in item.outputs)
        agrees = all(leaf.is_measured and not leaf.problem for leaf in item.outputs)
        return bool(item.outputs) and near and agrees and self._writes_agree(item)

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
        """Return the call that returned less than it should, so that this one did: the innermost, of the last ones."""
        children = reversed(self.children.get(item.call.index, []))
        inside = next(filter(returns_less, children), None)
        return item if inside is None else self.lost_in(inside)

    def first_paired(self, item: CallComparison | None) -> CallComparison | None:
        """Return a call that has an expected one, or the first such call inside it."""
        if item is None or item.expected is not None:
            return item
        return next(filter(None, map(self.first_paired, self.children.get(item.call.index, []))), None)


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
