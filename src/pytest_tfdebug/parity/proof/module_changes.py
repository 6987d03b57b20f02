"""What may be wrong with a module as a whole.

Its weights: loaded into each other's place, not the reference's, or laid out in another way. The tables that its
constructor makes, as of angles or positions. Its call: left out, or another activation. What it was made with: a
convolution's stride, say, which is another than the reference's. What it was given, see :mod:`.argument_changes`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.module_path import NUMBER, holder, name_of, starred
from pytest_tfdebug.parity.proof.changes import Change, only
from pytest_tfdebug.parity.proof.transforms import ACTIVATIONS, pairings
from pytest_tfdebug.tracing.record.modules import modules_by_path

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.proof.forward import Forward
    from pytest_tfdebug.parity.proof.value_graph import Side
    from pytest_tfdebug.parity.proof.weights import Weights
    from pytest_tfdebug.values import Values

    _Tensors = dict[str, torch.Tensor]
    _Found = Iterator[tuple[float, str, Hashable, _Tensors]]

#: Kind of the change of a module that was made otherwise.
MADE = "made otherwise"
#: Kinds of changes of whole calls.
OF_CALLS = ("call left out", "activation", MADE)
#: How unlikely it is that a module was made otherwise: more so than the number alone that it was made with.
_MADE_OTHERWISE = 1.6
#: Steps of a call that may be another activation; one that takes a weight is none.
_SHORT = 12


class Twin(NamedTuple):
    """The reference's module of the class and the weights of one of the port, which was made otherwise."""

    module: torch.nn.Module
    old: str  # what the port's was made with, ``padding_mode='replicate'``
    new: str  # what this was made with


def twins(
    models: tuple[torch.nn.Module, torch.nn.Module], tables: tuple[Values, Values], weights: Weights
) -> Iterator[tuple[str, Twin]]:
    """Yield the path of each module of a port that the reference has with the same weights, made otherwise.

    None in training mode, for to run it may change its buffers, and none that holds others: these may be wrong.

    Args:
        models: The port and the reference.
        tables: Their values.
        weights: Which weights of both are the same.
    """
    own, others = map(modules_by_path, models)
    mine, theirs = (table.attributes for table in tables)
    for path, module in own.items():
        if next(module.children(), None) is not None:
            continue
        names = [name for name, _ in module.named_parameters(recurse=False)]
        partners = [weights.partners.get(f"{path}.{name}", ()) for name in names]
        for partner in dict.fromkeys(holder(each) for each in partners[0]) if partners else ():
            twin = others.get(partner)
            is_of_weights = all(f"{partner}.{name}" in found for name, found in zip(names, partners, strict=True))
            if twin is None or twin.training or not is_of_weights or not _are_of_one_form(module, twin, names):
                continue
            held, wanted = mine.get(path, {}), theirs.get(partner, {})
            apart = [name for name in held if name in wanted and held[name] != wanted[name]]
            if apart:
                old, new = (", ".join(f"{name}={each[name]}" for name in apart) for each in (held, wanted))
                yield path, Twin(twin, old, new)
            break


def _are_of_one_form(module: torch.nn.Module, other: torch.nn.Module, names: Sequence[str]) -> bool:
    """Tell whether two modules are of one class, with parameters of the same shapes."""
    shapes = ([each.get_parameter(name).shape for name in names] for each in (module, other))
    return type(module) is type(other) and next(shapes) == next(shapes)


def changes_of_twins(forward: Forward, twins: Mapping[str, Twin]) -> Iterator[Change]:
    """Yield calls of one tensor made as the reference's module is, which is given by the path of the port's."""
    table = forward.side.table
    for call in table.calls if twins else ():
        given, made = table.inputs.get(call.index, []), table.outputs.get(call.index, [])
        twin = twins.get(call.path) if call.parent is not None and len(given) == len(made) == 1 else None
        if twin is None or given[0][1] == made[0][1]:
            continue
        place, edit = forward.tape.maker.get(made[0][1]), partial(only, given[0][1], form=twin.module)
        text = f"{twin.new}, as the reference has, instead of {twin.old}"
        cost, key = _MADE_OTHERWISE, (_called(call.path), text)
        if place is not None:
            yield Change(cost, text, place, edit, MADE, key, call=call.index, old=twin.old, new=twin.new)


def changes_of_calls(forward: Forward, near: Collection[int], twins: Mapping[str, Twin]) -> Iterator[Change]:
    """Yield changes of whole calls: left out, another activation, or made as the reference's module is."""
    yield from (change for change in changes_of_twins(forward, twins) if change.place in near)
    table = forward.side.table
    for call in table.calls:
        given, made = table.inputs.get(call.index, []), table.outputs.get(call.index, [])
        if call.parent is None or not given or not made:
            continue
        x, y = given[0][1], made[0][1]
        place = forward.tape.maker.get(y)
        if place is None or place not in near or x == y or forward.tensor(x).shape != forward.tensor(y).shape:
            continue
        steps = _steps_between(forward, x, y)
        path, key, edit = call.path, _called(call.path), partial(only, x)
        yield Change(1.4, f"{path} left out", place, edit, "call left out", key, other=x, call=call.index, old=path)
        is_short = len(steps) <= _SHORT and not any(forward.takes_weight(each) for each in steps)
        for name, function in ACTIVATIONS.items() if is_short else ():
            edit = partial(only, x, form=function)
            text = f"{name} instead of {path}"
            yield Change(1, text, place, edit, "activation", (key, name), call=call.index, old=path, new=name)


def _called(path: str) -> str:
    """Return what a module is called in every layer."""
    return starred(name_of(path))


def _steps_between(forward: Forward, x: int, y: int) -> list[int]:
    """Return the steps by which a value was computed from another one, in order."""
    found: set[int] = set()
    leads: dict[int, bool] = {x: True}

    def comes_from(index: int) -> bool:
        if index not in leads:
            leads[index] = False
            place = forward.tape.maker.get(index)
            step = None if place is None else forward.tape.steps[place]
            if place is not None and step is not None and (index < 0 or x < index):
                leads[index] = bool(sum(map(comes_from, step.refs)))  # all are looked at
                if leads[index]:
                    found.add(place)
        return leads[index]

    comes_from(y)
    return sorted(found)


#: Kinds of changes of weights.
TABLE, EXCHANGE, IN_TURN = "table", "exchange", "in turn"
OF_WEIGHTS = (EXCHANGE, IN_TURN, "weights", "converted", TABLE)
#: Two numbers of order 1 that are further apart are no rounding of one.
_EVEN = 1e-5
#: Things of one form near a place that are exchanged with each other.
_MOST = 14
#: Axes of a weight that are tried in every order.
_MOST_AXES = 4


@dataclass(frozen=True)
class Others:
    """The weights that a forward is held to."""

    pairs: Weights  # which are which
    lacking: Sequence[str]  # names of those that this forward has nowhere
    tensors: Mapping[str, torch.Tensor]  # by name; empty where the other forward cannot be run
    own: Mapping[str, torch.Tensor]  # those of this forward, by name
    tables: Sequence[tuple[str, torch.Tensor]] = ()  # what the other has or makes of no input, and this one never does
    used: Sequence[str] = ()  # names of the other side's in the order in which its forward uses them

    @cached_property
    def added(self) -> dict[float, str]:
        """What several weights of one axis hold more than weights of the other side, and the first that does."""
        found: dict[float, list[str]] = defaultdict(list)
        lacking = [self.tensors[name] for name in self.lacking if name in self.tensors]
        for name in sorted(self.pairs.unknown & self.own.keys()):
            tensor = self.own[name]
            for other in (each for each in lacking if tensor.dim() == 1 and each.shape == tensor.shape):
                low, high = map(float, (tensor - other).aminmax())
                if high - low < _EVEN and abs(low + high) > _EVEN:
                    found[round((low + high) / 2, 4)].append(name)
        return {number: names[0] for number, names in found.items() if len({*names}) > 1}


def changes_of_weights(forward: Forward, near: Collection[int], others: Others | None) -> Iterator[Change]:
    """Yield changes of the weights of each module near some steps."""
    places = {value.name: value.index for value in forward.side.values if value.origin == "parameter"}
    held: dict[str, _Tensors] = defaultdict(dict)
    for name, index in places.items():
        held[holder(name)][name] = forward.tensor(index)
    paths = {forward.side.call_of(forward.side.values[out]).path for place in near for out in forward.outs_of(place)}
    around = {holder(holder(path)) for path in paths} | {holder(path) for path in paths}
    used = {forward.named(ref) for place in near for ref in forward.tape.steps[place].refs if ref >= 0}
    found = {EXCHANGE: _exchanges({module: own for module, own in held.items() if holder(module) in around})}
    if others is not None:
        near_by = [(module, own) for module, own in held.items() if not used.isdisjoint(own)]
        found["weights"] = (
            each for module, own in near_by for kind in _OF_OTHERS for each in kind(module, own, others)
        )
        found["converted"] = (each for module, own in near_by for each in _as_other_weights(module, own, others))
        buffers = {value.name: value.index for value in forward.side.values if value.origin == "buffer"}
        near_tables = {name: forward.tensor(index) for name, index in buffers.items() if name in used}
        found[TABLE] = (each for name, own in near_tables.items() for each in _other_tables(name, own, others))
        places |= buffers
        found[IN_TURN] = _in_order_of_use(order_of_use(forward.side), held, others)
    for kind, (cost, text, key, tensors) in ((kind, each) for kind, some in found.items() for each in some):
        instead = {
            places[name]: new for name, new in tensors.items() if not torch.equal(new, forward.tensor(places[name]))
        }
        if instead:
            yield Change(cost, text, -1, _never, kind, key, instead)


def _exchanges(held: Mapping[str, _Tensors]) -> _Found:
    """Yield exchanges of two weights of one shape, and of all weights of two modules of one form."""
    alike: dict[tuple[str, Hashable], list[tuple[str, _Tensors]]] = defaultdict(list)
    for module, own in held.items():
        for name, tensor in own.items():
            alike[holder(module), tensor.shape].append((name, {name: tensor}))
        if len(own) > 1:
            form = tuple((name[len(module) :], tensor.shape) for name, tensor in own.items())
            alike[holder(module), form].append((module, own))
    for (owner, _), members in alike.items():
        for (one, mine), (other, theirs) in combinations(members[:_MOST], 2):
            tensors = {**dict(zip(mine, theirs.values(), strict=True)), **dict(zip(theirs, mine.values(), strict=True))}
            yield 2, f"{one} and {other} exchanged", (one[len(owner) :], other[len(owner) :]), tensors


def order_of_use(side: Side) -> list[str]:
    """Return the parameters of a forward in the order in which it uses them."""
    return list(dict.fromkeys(name for value in side.values for name in side.parameters_of(value) if name))


def _in_order_of_use(used: Sequence[str], held: Mapping[str, _Tensors], others: Others) -> _Found:
    """Yield the weights of a list of modules with the numbers that the reference uses first, second and so on.

    ``for i, layer in enumerate(neck.layers)`` loads them from the first, and the port uses its last one first.
    """
    own = {name: tensor for some in held.values() for name, tensor in some.items()}
    partners = others.pairs.partners
    lists: dict[str, list[str]] = defaultdict(list)
    for name in used:
        if len(partners.get(name, ())) == 1 and starred(name) != name:
            lists[starred(name)].append(name)
    found: dict[str, _Tensors] = defaultdict(dict)
    for name, members in lists.items():
        theirs = {starred(partners[each][0]) for each in members}
        in_turn = [each for each in others.used if starred(each) in theirs]
        if len(theirs) > 1 or len(in_turn) != len(members) or [partners[each][0] for each in members] == in_turn:
            continue
        for each, meant in zip(members, in_turn, strict=True):
            holding = next((other for other in own if partners.get(other) == (meant,)), None)
            new = others.tensors.get(meant) if holding is None else own[holding]
            if new is not None and _form(new) == _form(own[each]):
                found[name.partition("*")[0].rstrip(".")][each] = new
    for name, tensors in found.items():
        yield 1.2, f"the weights of {name} in the order in which the reference uses them", (name, "in turn"), tensors


def _transposed(module: str, own: _Tensors, others: Others) -> _Found:
    """Yield the square weights of a module the other way round, where the reference has them so."""
    turned = {name: each.mT for name, each in own.items() if name in others.pairs.transposed and each.dim() > 1}
    turned = {name: each for name, each in turned.items() if each.shape == own[name].shape}
    if turned:
        yield 1.2, f"{' and '.join(turned)} transposed", (starred(module), "transposed"), turned


def _of_the_reference(module: str, own: _Tensors, others: Others) -> _Found:
    """Yield the weights of a module of the reference in the place of those that this one has otherwise."""
    pairs = others.pairs
    wrong = [name for name in own if name in pairs.unknown or name in pairs.reordered]
    known = [each for name in wrong for each in pairs.partners.get(name, ())]
    candidates = {each: others.tensors[each] for each in (*others.lacking, *known) if each in others.tensors}
    for theirs in dict.fromkeys(holder(each) for each in candidates if _is_of_one_layer(module, each)):
        taken: dict[str, str] = {}
        for name in wrong:
            left = (each for each in candidates if holder(each) == theirs and each not in taken.values())
            alike = next((each for each in left if _form(candidates[each]) == _form(own[name])), None)
            if alike is not None:
                taken[name] = alike
        if taken:
            text = ", ".join(f"{name} as the reference's {each}" for name, each in taken.items())
            yield 1.2, text, (starred(module), starred(theirs)), {name: candidates[taken[name]] for name in taken}


def _as_elsewhere(module: str, own: _Tensors, others: Others) -> _Found:
    """Yield the weights of a module with the reference's numbers laid out as they are in another layer of the port."""
    laid: _Tensors = {}
    for name, tensor in own.items():
        for other, theirs, here in others.pairs.in_other_layers(name):
            if not others.tensors.keys() >= {*theirs, *here}:
                continue
            there, new = (torch.cat([others.tensors[each].flatten() for each in names]) for names in (theirs, here))
            if new.numel() != tensor.numel():
                continue
            alike = others.own.get(other)  # None where nothing uses it
            places = None if alike is None or alike.shape != tensor.shape else _places(there, alike)
            if places is not None:
                laid[name] = new[places].reshape(tensor.shape)
                break
    if laid:
        text = f"{' and '.join(laid)} laid out as in other layers"
        yield 1.2, text, (starred(module), "elsewhere"), laid


def _places(numbers: torch.Tensor, laid: torch.Tensor) -> torch.Tensor | None:
    """Return the permutation that maps some numbers to a weight; None if they are not the same multiset."""
    if numbers.numel() != laid.numel() or numbers.dtype != laid.dtype:
        return None
    (mine, own_order), (theirs, order) = laid.flatten().sort(), numbers.sort()
    return order[own_order.argsort()] if torch.equal(mine, theirs) else None


def _in_groups(module: str, own: _Tensors, others: Others) -> _Found:
    """Yield the joined weights of a module with the rows of the reference's one after the other, or in turns."""
    partners = {name: others.pairs.partners[name] for name in own if name in others.pairs.joined}
    joined = {
        name: [others.tensors[each] for each in names]
        for name, names in partners.items()
        if len(names) > 1 and others.tensors.keys() >= {*names}
    }
    rows = {len(part) for parts in joined.values() for part in parts}
    for groups in range(1, min(rows, default=0) + 1):
        if any(count % groups for count in rows):
            continue
        laid = {
            name: torch.cat([part.reshape(groups, -1, *part.shape[1:]) for part in parts], 1).flatten(0, 1)
            for name, parts in joined.items()
        }
        if all(_form(each) == _form(own[name]) for name, each in laid.items()):
            order = f"in {groups} turns" if groups > 1 else "one after the other"
            text = f"the reference's rows {order} in {' and '.join(laid)}"
            yield 1.2, text, (starred(module), "groups", groups), laid


def _as_other_weights(module: str, own: _Tensors, others: Others) -> _Found:
    """Yield the reference's numbers changed as other weights hold them: ``1 + weight`` in all norms but one.

    So it is with the rows of queries and keys, which are turned in pairs by one code, and in halves by another.
    """
    pairs = others.pairs
    same = [name for name in own if name in pairs.partners and name not in pairs.reordered]
    for number, name in others.added.items():
        more = {each: own[each] + number for each in same if own[each].dim() == 1}
        if more:
            text = f"{' and '.join(more)} plus {number:g}, as {name} holds the reference's"
            yield 0.9, text, (starred(module), number), more
    beside = next((name for name in pairs.reordered if holder(holder(name)) == holder(module)), None)
    for name in (each for each in same if beside is not None and own[each].dim() > 1):
        for _, text, form in pairings(0, len(own[name])):
            told = f"{name} {text}, for {beside} lies in another order too"
            yield 0.9, told, (starred(module), text), {name: form(own[name])}


def _other_tables(name: str, own: torch.Tensor, others: Others) -> _Found:
    """Yield the tables of the other forward in the place of one of this: those of its size, but for axes of one."""
    size = [each for each in own.shape if each > 1]
    for other, table in others.tables:
        if table.dtype.is_floating_point == own.dtype.is_floating_point and [n for n in table.shape if n > 1] == size:
            new = table.reshape(own.shape).to(own)
            yield 1.7, f"{name} as {other}", (starred(name), starred(other)), {name: new}


def _laid_out_anew(module: str, own: _Tensors, others: Others) -> _Found:
    """Yield a weight with the numbers that it holds in the order of the reference's, of which the axes are permuted.

    A kernel of ``(out, in, rows, columns)`` is loaded as ``kernel.permute(0, 2, 3, 1).flatten(1)``, say.
    """
    for name, tensor in own.items():
        partners = others.pairs.partners.get(name, ())
        theirs = others.tensors.get(partners[0]) if len(partners) == 1 else None
        if theirs is None or theirs.numel() != tensor.numel() or not 2 <= theirs.dim() <= _MOST_AXES:  # noqa: PLR2004
            continue  # a vector has one order
        if theirs.dim() == 2 and theirs.shape == tensor.shape:  # noqa: PLR2004 - see _transposed
            continue
        for axes in permutations(range(theirs.dim())):
            laid = theirs.permute(axes).reshape(tensor.shape)
            order = f" with axes {axes}" if axes != tuple(range(theirs.dim())) else ""
            text = f"{name} as the reference's {partners[0]}{order}"
            yield 1.3, text, (starred(module), starred(partners[0]), axes), {name: laid}


_OF_OTHERS = (_transposed, _of_the_reference, _as_elsewhere, _in_groups, _laid_out_anew)


def _form(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def _is_of_one_layer(name: str, other: str) -> bool:
    mine, theirs = NUMBER.findall(name), NUMBER.findall(other)
    return mine == theirs or len(mine) != len(theirs)


def _never(*_given: Any) -> Any:  # noqa: ANN401
    raise NotImplementedError
