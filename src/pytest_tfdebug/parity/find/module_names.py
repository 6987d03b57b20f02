"""Which module of a port is which of the reference: by its parameters, then by what it returns, then by its place.

A module with parameters stands for the one whose parameters hold the same numbers, wherever the fault is. One without
(an activation, a rotary embedding), or whose numbers say nothing (a norm of ones), is looked for among the modules that
the partner of its caller calls. The answer is rules for ``rename=``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_tfdebug.module_path import NUMBER, common_holder, holder, holders
from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.pair.rename import renamer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
    from pytest_tfdebug.parity.proof.value_graph import Side
    from pytest_tfdebug.parity.proof.weights import Weights
    from pytest_tfdebug.records import Call


def suggested_rules(pair: ForwardPair, named: Mapping[str, str]) -> dict[str, str]:
    """Return rules for ``rename=`` that give a port's modules the names of the reference's."""
    partners = _by_parameters(pair)
    partners[pair.port.root.path] = pair.reference.root.path
    _add_by_calls(pair, partners)
    roots = {"", pair.port.root.path}
    return _rules({own: other for own, other in partners.items() if own not in roots and named.get(own) != other})


def _by_parameters(pair: ForwardPair) -> dict[str, str]:
    """Return the partners of the modules that hold the same parameters; the path of the root is empty."""
    homes, back = _homes(pair.weights), _homes(pair.back)
    found = {"": ""}
    for own, other in homes.items():
        if back.get(other) != own:
            continue
        found.setdefault(own, other)
        for above, its in zip(holders(own), holders(other), strict=False):  # wrappers hold the same and no more
            if homes.get(above) != other or back.get(its) != own:
                break
            found.setdefault(above, its)
    return found


def _homes(weights: Weights) -> dict[str, str]:
    """Return, by module path, the innermost module of the other side that holds all partners of its parameters."""
    partners: dict[str, list[str]] = {}
    for name, others in weights.partners.items():
        if (len(others) == 1 or name in weights.joined) and not weights.is_misplaced(name):
            for path in holders(name):
                partners.setdefault(path, []).extend(others)
    return {path: common_holder(others) for path, others in partners.items()}


def _add_by_calls(pair: ForwardPair, partners: dict[str, str]) -> None:
    """Pair what two paired modules call: by equal outputs, then one by one where both call as many of one kind."""
    taken = set(partners.values())
    for call in _first_calls(pair.port):
        if call.path not in partners:
            others = (each for each in _first_calls(pair.reference) if each.path not in taken)
            other = next((each for each in others if _is_same_output(pair, partners, call, each)), None)
            if other is not None:
                partners[call.path] = other.path
                taken.add(other.path)
    for with_class in (True, False):
        mine = _groups(pair.port, partners, partners, with_class=with_class)
        theirs = _groups(pair.reference, {path: path for path in taken}, taken, with_class=with_class)
        for key, paths in mine.items():
            if len(theirs.get(key, ())) == len(paths):
                partners.update(zip(paths, theirs[key], strict=True))
                taken.update(theirs[key])
    _add_uncalled(pair, partners)


def _add_uncalled(pair: ForwardPair, partners: dict[str, str]) -> None:
    """Pair the one module that the port has and does not call with the one of its form that the reference calls."""
    taken, called = set(partners.values()), {call.path for call in pair.port.table.calls}
    idle: dict[tuple[object, ...], list[str]] = {}
    for path, shapes in _own_shapes(pair.port).items():
        if path not in partners and path not in called:
            above = next((each for each in holders(path) if each in partners), "")
            idle.setdefault((partners[above or pair.port.root.path], shapes), []).append(path)
    missed: dict[tuple[object, ...], list[str]] = {}
    theirs = _own_shapes(pair.reference)
    for call in _first_calls(pair.reference):
        if call.path not in taken and call.path in theirs:
            caller = _paired_caller(pair.reference, call, {path: path for path in taken})
            missed.setdefault((caller, theirs[call.path]), []).append(call.path)
    for key, paths in idle.items():
        if len(paths) == len(missed.get(key, ())) == 1:
            partners[paths[0]] = missed[key][0]


def _own_shapes(side: Side) -> dict[str, tuple[object, ...]]:
    """Return the names and shapes of the parameters that each module holds itself."""
    found: dict[str, tuple[object, ...]] = {}
    for name, (_, shape) in side.table.parameters.items():
        path = holder(name)
        found[path] = (*found.get(path, ()), shape)
    return found


def _is_same_output(pair: ForwardPair, partners: Mapping[str, str], call: Call, other: Call) -> bool:
    """Tell whether two calls of paired callers return the same; one number throughout says nothing."""
    mine, theirs = _output(pair.port, call), _output(pair.reference, other)
    if mine is None or theirs is None or pair.port.values[mine].print.is_constant:
        return False
    caller = _paired_caller(pair.port, call, partners)
    return (
        theirs in pair.matches.within(mine, AGREE)
        and (call.index in pair.port.callers) == (other.index in pair.reference.callers)
        and any(above.path == partners[caller] for above in pair.reference.around(other.parent))
    )


def _groups(
    side: Side, named: Mapping[str, str], paired: Iterable[str], *, with_class: bool
) -> dict[tuple[object, ...], list[str]]:
    """Return the unpaired modules in the order of their calls, by paired caller and form of output."""
    found: dict[tuple[object, ...], list[str]] = {}
    paired = set(paired)
    for call in _first_calls(side):
        output = _output(side, call)
        if call.path not in paired and output is not None:
            form = sorted(length for length, _ in side.values[output].print.axes)
            caller = named[_paired_caller(side, call, named)]
            key = caller, call.index in side.callers, tuple(form), call.class_name if with_class else ""
            found.setdefault(key, []).append(call.path)
    return found


def _first_calls(side: Side) -> Iterator[Call]:
    return (call for call in side.table.calls if not call.call)


def _output(side: Side, call: Call) -> int | None:
    made = side.table.outputs.get(call.index, ())
    return made[0][1] if made else None


def _paired_caller(side: Side, call: Call, partners: Mapping[str, str]) -> str:
    """Return the path of the innermost caller that has a partner; the root has one."""
    return next((above.path for above in side.around(call.parent) if above.path in partners), side.root.path)


def _rules(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return rules that name these modules: first those that hold for most layers, then the exceptions."""
    votes: dict[str, Counter[str]] = {}
    for own, other in pairs.items():
        source, target = _with_stars(own, other)
        votes.setdefault(source, Counter())[target] += 1
    usual = {source: counted.most_common(1)[0][0] for source, counted in votes.items()}
    rules: dict[str, str] = {}
    for own, other in sorted(pairs.items(), key=lambda both: both[0].count(".")):
        source, _ = _with_stars(own, other)
        for rule in ((source, usual[source]), (own, other)):
            if renamer(rules)(own) != other:
                rules[rule[0]] = rule[1]
    return rules


def _with_stars(own: str, other: str) -> tuple[str, str]:
    """Return a rule for a pair of paths and those of other numbers: a star for each number that both have first."""
    for mine, theirs in zip(NUMBER.findall(own), NUMBER.findall(other), strict=False):
        if mine != theirs:
            break
        own, other = (NUMBER.sub("*", path, count=1) for path in (own, other))
    return own, other
