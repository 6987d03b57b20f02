"""One forward as a graph: its values, what each was computed from and used for, and the calls around it."""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from pytest_tfdebug.module_path import holder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pytest_tfdebug.records import Call, Site
    from pytest_tfdebug.values import Line, Value, Values

#: Operators that copy elements to a place that the code chooses; views and plain copies choose nothing.
COPIES = frozenset({"cat", "stack", "repeat", "repeat_interleave", "copy_", "index", "index_select", "gather"})
#: Operators that do the same in another way of writing.
_KINDS = {
    "matmul": "mm addmm bmm baddbmm mv addmv dot",
    "mask": "where masked_fill",
    "scale": "mul div",
    "power": "pow square",
    "sum": "add sub",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}
#: Two masks hide the same share of their elements if the shares differ by less.
_SAME_SHARE = 1e-9


def kind_of(value: Value) -> str:
    """Return what an operator does, whatever it is called: ``matmul`` for ``addmm``, ``move`` for views and copies."""
    return "move" if value.is_moved else kind_of_operator(value.operator)


def kind_of_operator(operator: str) -> str:
    """Return what an operator that moves nothing does."""
    name = operator.rstrip("_") or operator
    return _KIND_OF.get(name, name)


def hidden_share(value: Value) -> float | None:
    """Return the share of the elements that a mask hides; None for what is no mask."""
    fingerprint = value.print
    if value.dtype == "bool":
        return fingerprint.mean
    if fingerprint.finite < fingerprint.elements:
        return 1 - fingerprint.finite / fingerprint.elements
    return None


def is_same_share(one: float | None, other: float | None) -> bool:
    """Tell whether two masks hide the same share; one may say what is hidden and the other what is not."""
    if one is None or other is None:
        return False
    return min(abs(one - other), abs(one + other - 1)) < _SAME_SHARE


class Side:
    """One forward."""

    def __init__(self, table: Values) -> None:
        self.table = table
        self.values = table.values
        self.calls = {call.index: call for call in table.calls}
        self.callers = {call.parent for call in table.calls}
        self.weighted = _depend_on_parameters(table)
        self.users: dict[int, list[int]] = {}
        for value in table.values:
            for made in value.producers:
                self.users.setdefault(made, []).append(value.index)

    @property
    def root(self) -> Call:
        """The call of the model itself."""
        return self.table.calls[0]

    @cached_property
    def live(self) -> set[int]:
        """The values that the outputs were computed from."""
        return self.ancestors(*(index for _, index in self.table.results))

    @cached_property
    def of_inputs(self) -> set[int]:
        """The inputs, and the values that were computed from them."""
        found: set[int] = set()
        for value in self.values:  # in the order in which they came about
            if value.origin == "input" or not found.isdisjoint(value.producers):
                found.add(value.index)
        return found

    @cached_property
    def used(self) -> set[str]:
        """The names of the parameters that the outputs were computed from."""
        return {value.name for value in map(self.values.__getitem__, self.live) if value.origin == "parameter"}

    @cached_property
    def lines_that_ran(self) -> set[tuple[str, int]]:
        """The lines that ran an operator, or called what did, with their files."""
        sites = (each for call in self.table.calls for each in (call.site, call.inner_site) if each is not None)
        called = ((site.file, number) for site in sites for number in range(site.line, site.end_line + 1))
        return {(line.file, line.line) for value in self.values for line in value.lines}.union(called)

    def call_of(self, value: Value) -> Call:
        """Return the innermost call that computed a value; the root for what was there before."""
        return self.calls[value.call] if value.call is not None else self.root

    def holder_of(self, value: Value) -> Call:
        """Return the first call of the module that holds a parameter or buffer; the root where none does."""
        return next((call for call in self.table.calls if call.path == holder(value.name)), self.root)

    def around(self, index: int | None) -> Iterator[Call]:
        """Yield a call and those that enclose it, innermost first."""
        while index is not None:
            yield self.calls[index]
            index = self.calls[index].parent

    def with_code(self, index: int | None) -> list[Call]:
        """Return the calls around that have code of their own, innermost first; the root at least: torch is right."""
        return [call for call in self.around(index) if call.source is not None] or [self.root]

    def places(self, value: Value, calls: Iterable[Call]) -> Iterator[Line | Site]:
        """Yield the lines by which a value came about, and those that made some of the calls around it."""
        yield from value.lines
        yield from (site for call in calls for site in (call.site, call.inner_site) if site is not None)

    def depth(self, call: Call) -> int:
        """Return how many calls are around a call, itself included."""
        return sum(1 for _ in self.around(call.index))

    def is_within(self, inner: int | None, outer: Call) -> bool:
        """Tell whether a call is another one, or was made under it."""
        return any(call.index == outer.index for call in self.around(inner))

    def child_towards(self, call: Call, inner: int | None) -> Call | None:
        """Return the child call of a call in which another one lies; None for the call itself."""
        below = None
        for each in self.around(inner):
            if each.index == call.index:
                return below
            below = each
        return None

    def bases(self, index: int, *, of_one: bool = True) -> Iterator[Value]:
        """Yield a value, then the value that it is a view or copy of, and so on to the one that an operator computed.

        Example: of ``q.view(2, 4, 8).transpose(1, 2)`` the transposed value, the view, and ``q``.

        Args:
            index: The value.
            of_one: Whether to end at what was put together of several, as by ``cat``; else its first producer follows.
        """
        value = self.values[index]
        yield value
        while value.is_moved and (len(value.producers) == 1 or (value.producers and not of_one)):
            value = self.values[value.producers[0]]
            yield value

    def parameter(self, index: int) -> str:
        """Return the name of the parameter that a value is a view of; empty for other values."""
        return next((value.name for value in self.bases(index) if value.origin == "parameter"), "")

    def values_of(self, parameter: str) -> Sequence[int]:
        """Return the values that are a parameter as a whole."""
        return self._of_parameters.get(parameter, ())

    @cached_property
    def _of_parameters(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for value in self.values:
            if value.origin == "parameter":
                found.setdefault(value.name, []).append(value.index)
        return found

    def parameters_of(self, value: Value) -> list[str]:
        """Return the parameter that each producer of a value is a view of; empty names for other producers."""
        return [self.parameter(made) for made in value.producers]

    def ancestors(self, *indices: int, but: int | None = None) -> set[int]:
        """Return some values with all that they were computed from; one may be left out, as if it were given."""
        found: set[int] = set() if but is None else {but}
        todo = list(indices)
        while todo:
            at = todo.pop()
            if at not in found:
                found.add(at)
                todo += self.values[at].producers
        return found - {but}

    def moves(self, index: int) -> list[Value]:
        """Return the views and copies that handed a value on, the last first."""
        return [value for value in self.bases(index, of_one=False) if value.is_moved and value.producers]

    def pieces(self) -> dict[int, list[Value]]:
        """Return the outputs that are cut from each value that is not returned itself."""
        found: dict[int, list[Value]] = {}
        results = dict.fromkeys(index for _, index in self.table.results)
        for result in results:
            for base in islice(self.bases(result), 1, None):  # what is put together of several is no piece
                if base.index not in results:
                    found.setdefault(base.index, []).append(self.values[result])
        return found

    def uses(self, index: int) -> Iterator[Value]:
        """Yield what was computed from a value, or from a view or copy of it."""
        for user in map(self.values.__getitem__, self.users.get(index, ())):
            if user.is_moved:
                yield from self.uses(user.index)
            else:
                yield user

    def computed(self, value: Value) -> Value:
        """Return the value that an operator computed and that views and copies handed on."""
        *_, last = self.bases(value.index)
        return last

    def is_given(self, call: Call, index: int) -> bool:
        """Tell whether a call was given a value, or one that it is a view of."""
        bases = {value.index for value in self.moves(index)}
        shown = {index, self.computed(self.values[index]).index, *bases}
        return not shown.isdisjoint(each for _, each in self.table.inputs.get(call.index, ()))

    def returns(self, call: Call, index: int) -> bool:
        """Tell whether a call returned a value that was computed in it, or a view of that."""
        returned = {self.computed(self.values[each]).index for _, each in self.table.outputs.get(call.index, ())}
        return self.is_within(self.values[index].call, call) and self.computed(self.values[index]).index in returned

    def has(self, call: Call, index: int) -> bool:
        """Tell whether a call made a value, or was given it."""
        return self.is_within(self.values[index].call, call) or self.is_given(call, index)

    def holds(self, call: Call, name: str) -> bool:
        """Tell whether a parameter is of a module within a call's, whether or not that is called."""
        return call.parent is None or name.startswith(f"{call.path}.")

    def leads_to(self, index: int, among: Collection[int]) -> bool:
        """Tell whether one of some values was computed from a value, or from a view or copy of it."""
        for user in self.users.get(index, ()):
            if user in among or (self.values[user].is_moved and self.leads_to(user, among)):
                return True
        return False


def _depend_on_parameters(table: Values) -> list[bool]:
    """Return of each value whether it comes from a parameter or numbers of an input: not from constants and masks."""
    found: list[bool] = []
    for value in table.values:
        is_number = value.origin == "input" and "float" in value.dtype and not value.print.has_two_numbers
        is_source = value.origin == "parameter" or is_number
        takes_numbers = not value.operator.startswith("new_") and not value.operator.endswith("_like")
        found.append(is_source or (takes_numbers and any(found[made] for made in value.producers)))
    return found
