"""Weights and tables that the reference holds nowhere, or in another order, where all else of a wrong value is right.

Before: ``self.packed(x)`` computes what the reference never does, where ``x`` is right. After: the line that makes
``packed.weight``, which holds queries scaled by something, keys and values; or the constructor that makes the table of
``x + self.table``. Such a weight may be right, as one into which a norm is folded; so nothing of this is certain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.find.values import line_of, lines_of, made_as_buffer, put_in_order, told_use, where_loaded
from pytest_tfdebug.parity.proof.value_graph import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.find.counterparts import Finding
    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
    from pytest_tfdebug.records import SourceRange
    from pytest_tfdebug.values import Value


def told_with_unknown_weights(claim: Claim, finding: Finding, pair: ForwardPair) -> Claim:
    """Return what values say of a fault, with the line that makes what may be wrong instead of the one that uses it."""
    port = pair.port
    if not finding.values:
        return claim
    value = finding.values[0]
    if port.parameter(value.index):  # a view of it
        value = next(port.uses(value.index), value)
    if finding.fault == "order":  # what is laid out otherwise was computed so
        value = port.computed(value)
    given = [made for made in value.producers if not port.parameter(made)]
    made, weights = _table_of(value, given, pair), _odd_weights(value, pair)
    if made is not None and finding.fault in ("unknown", "replaced", "left-out"):
        why = f"{claim.why} {told_use(claim)}".strip()
        return replace(claim, source=made, why=why, function="", callers=())
    if weights and finding.fault in ("unknown", "replaced", "order") and given and _are_right(given, pair):
        why = f"{claim.why} {pair.weights.told(weights)}".lstrip()
        return where_loaded(replace(claim, weights=weights, why=why), pair)
    return claim


def _are_right(given: Sequence[int], pair: ForwardPair) -> bool:
    return all(pair.matches.within(made, AGREE) for made in given)


def _odd_weights(value: Value, pair: ForwardPair) -> tuple[str, ...]:
    """Return the parameters of a value whose numbers the reference has nowhere, or in another form.

    If it has those of a product, it may be those of the bias that is added next.
    """
    found, unknown = _odd_parameters(value, pair), pair.weights.unknown
    if unknown.isdisjoint(found):
        for used in pair.port.uses(value.index):
            added = tuple(filter(unknown.__contains__, _odd_parameters(used, pair) if kind_of(used) == "sum" else ()))
            if added:
                return added
    return found


def _odd_parameters(value: Value, pair: ForwardPair) -> tuple[str, ...]:
    weights, own, theirs = pair.weights, pair.port.table.parameters, pair.reference.table.parameters
    odd = weights.unknown | {each for each in weights.joined if not weights.is_stacked(each)} | weights.reordered

    def is_in_another_form(name: str) -> bool:
        partners = () if weights.is_stacked(name) else weights.partners.get(name, ())
        shapes = {theirs[each][1] for each in partners}
        return bool(shapes) and shapes.isdisjoint({own[name][1], own[name][1][::-1]})

    names = set(filter(None, pair.port.parameters_of(value)))
    return tuple(name for name in own if name in names and (name in odd or is_in_another_form(name)))


def _table_of(value: Value, given: Sequence[int], pair: ForwardPair) -> SourceRange | None:
    """Return where the one table or mask is made that a step takes, if it is not the reference's and all else is.

    Of a mask with the reference's numbers it counts whether these are known to lie in the same order.
    """
    made = {index: _made_before(index, value, pair) for index in given}
    for is_right in (_is_known, _is_known_in_order):
        tables = [index for index, at in made.items() if at is not None and not is_right(index, pair)]
        others = [index for index in given if index not in tables]
        if len(tables) == 1 and others and _are_right(others, pair):
            return made[tables[0]]
    return None


def _made_before(index: int, user: Value, pair: ForwardPair) -> SourceRange | None:
    """Return where a table of a constructor, or what is computed from no weights, is made before a step takes it.

    If its numbers are right, that is where they are put in their order.
    """
    port = pair.port
    value = port.values[index]
    made = made_as_buffer(value, port)
    if made is not None or port.weighted[index]:
        return made
    while value.lines[:1] == user.lines[:1] and len(value.producers) == 1:
        value = port.values[value.producers[0]]
    value = (put_in_order(value, port) if pair.matches.within(index, AGREE) else None) or value
    line = line_of(port, value, port.call_of(value)) if value.operator and value.lines[:1] != user.lines[:1] else None
    return None if line is None else lines_of(line)


def _is_known(index: int, pair: ForwardPair) -> bool:
    return bool(pair.matches.within(index, AGREE)) and pair.lies_right(index) is not False


def _is_known_in_order(index: int, pair: ForwardPair) -> bool:
    return bool(pair.matches.within(index, AGREE)) and pair.lies_right(index) is True
