"""What a tensor has and those of its name in other layers have not: numbers of another layer, a layout, an order.

Layouts and names differ between implementations; they do not differ between the layers of one.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import listed
from pytest_tfdebug.loading.arrivals import numbers_in, starred
from pytest_tfdebug.loading.numbers import is_constant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.data.load import Verdict
    from pytest_tfdebug.loading.arrivals import Arrival, Arrivals

_MOVED = ("renamed", "transposed")
#: Names of the three projections of an attention, in the order in which every fused one has them.
_PROJECTIONS = tuple(
    re.compile(rf"(?:^|[._]){letter}(?:[._]|$|_?proj|_?lin)|{word}")
    for letter, word in (("q", "query"), ("k", "key"), ("v", "value"))
)
_MATRIX = 2


def compare_siblings(arrivals: Arrivals) -> None:
    """Say of tensors that their numbers, their layout or their order is not that of the other layers."""
    for rule in (_other_names, _other_layers, _other_transposes, _other_layouts, _other_orders):
        for name, verdict, told in list(rule(arrivals)):
            arrivals.found[name] = replace(arrivals.found[name], verdict=verdict, detail=told)


#: A tensor, its verdict, and why.
_Told = tuple[str, "Verdict", str]


def _moved(arrivals: Arrivals) -> Iterator[tuple[str, Arrival]]:
    """Yield what holds one whole tensor of the checkpoint under another name, or transposed."""
    for name, found in arrivals.found.items():
        if found.verdict in _MOVED and found.sources and not is_constant(arrivals.held[name].tensor):
            yield name, found


def _is_mostly_by_name(arrivals: Arrivals) -> bool:
    by_name = sum(found.verdict in ("read", "cast") for found in arrivals.found.values())
    return 2 * by_name > len(arrivals.found)


def _other_names(arrivals: Arrivals) -> Iterator[_Told]:
    """Yield what holds another tensor's numbers, though the checkpoint has one of its own name and shape."""
    if not _is_mostly_by_name(arrivals):
        return
    for name, found in _moved(arrivals):
        own = arrivals.own_name(arrivals.held[name])
        if own is not None and arrivals.shapes[own] == tuple(arrivals.held[name].tensor.shape):
            yield name, "from elsewhere", f"holds {found.sources[0]}, though the checkpoint has one of this name"


def _shift(name: str, source: str) -> tuple[int, ...] | None:
    mine, theirs = numbers_in(name), numbers_in(source)
    return tuple(a - b for a, b in zip(mine, theirs, strict=True)) if len(mine) == len(theirs) else None


def _other_layers(arrivals: Arrivals) -> Iterator[_Told]:
    """Yield what is from another layer, while all else is from its own, or is as far away as its siblings are not."""
    everywhere, alike = Counter[tuple[int, ...]](), dict[tuple[str, str], Counter[tuple[int, ...]]]()
    for name, found in arrivals.found.items():
        shift = _shift(name, found.sources[0]) if len(found.sources) == 1 and found.verdict != "constant" else None
        if shift is not None:
            everywhere[shift] += 1
            alike.setdefault((starred(name), starred(found.sources[0])), Counter())[shift] += 1
    for name, found in _moved(arrivals):
        shift = _shift(name, found.sources[0])
        if not shift or not any(shift):
            continue
        votes = alike[starred(name), starred(found.sources[0])]
        peers = sum(count for each, count in everywhere.items() if len(each) == len(shift))
        is_usual = votes[shift] == votes.total() or 2 * everywhere[shift] >= peers
        if not is_usual:
            yield name, "from elsewhere", f"holds {found.sources[0]}, of another layer"


def _other_transposes(arrivals: Arrivals) -> Iterator[_Told]:
    """Yield square matrices that are transposed where others of their module's class are not, or the other way."""
    votes: dict[str, Counter[bool]] = {}
    square = []
    for name, found in arrivals.found.items():
        held = arrivals.held[name]
        if held.tensor.ndim != _MATRIX or len(found.sources) != 1 or is_constant(held.tensor):
            continue
        if found.verdict in (*_MOVED, "read", "cast"):
            if held.tensor.shape[0] == held.tensor.shape[1]:
                square.append((name, found, held.owner))
            else:
                votes.setdefault(held.owner, Counter())[found.verdict == "transposed"] += 1
    for name, found, owner in square:
        is_transposed = found.verdict == "transposed"
        cast = votes.get(owner, Counter())
        if cast[not is_transposed] > cast[is_transposed]:
            usual = "the others of its class are not" if is_transposed else "the others of its class are transposed"
            yield name, "in another order", f"{'is transposed' if is_transposed else 'is not transposed'}; {usual}"


def _other_layouts(arrivals: Arrivals) -> Iterator[_Told]:
    """Yield what is permuted where its siblings are not, or under its own name while the model is mostly as stored."""
    usual: dict[str, Counter[str]] = {}
    for name, found in arrivals.found.items():
        usual.setdefault(starred(name), Counter())[found.verdict] += 1
    by_name = _is_mostly_by_name(arrivals)
    for name, found in arrivals.found.items():
        if found.verdict != "permuted":
            continue
        votes, own = usual[starred(name)], arrivals.own_name(arrivals.held[name])
        is_own = own is not None and arrivals.shapes[own] == tuple(arrivals.held[name].tensor.shape)
        if votes["permuted"] < votes.total() or (is_own and by_name):
            yield name, "in another order", f"its numbers are those of {found.sources[0]}, in another order"


def _other_orders(arrivals: Arrivals) -> Iterator[_Told]:
    """Yield what is joined from others than its siblings are, from another layer, or in another order."""
    fused = [(name, found.sources) for name, found in arrivals.found.items() if found.verdict == "fused"]
    plans: dict[str, Counter[tuple[str, ...]]] = {}
    shifts: dict[str, Counter[tuple[int, ...]]] = {}
    for name, sources in fused:
        plans.setdefault(starred(name), Counter())[_plan(name, sources)] += 1
        shifts.setdefault(starred(name), Counter())[_layers_away(name, sources)] += 1
    for name, sources in fused:
        away, votes = _layers_away(name, sources), shifts[starred(name)]
        numbers, order = [numbers_in(source) for source in sources], listed(sources, 3)
        if any(away) and 2 * votes[away] <= votes.total():
            yield name, "from elsewhere", f"is joined from {order}, of another layer"
        elif _plan(name, sources) != plans[starred(name)].most_common(1)[0][0]:
            yield name, "in another order", f"is joined from {order}; other layers are joined otherwise"
        elif numbers != sorted(numbers) or _is_out_of_order(sources):
            yield name, "in another order", f"is joined in the order {order}"


def _layers_away(name: str, sources: Sequence[str]) -> tuple[int, ...]:
    """Return how far the layer of all sources is from that of a tensor; zeros where they have none in common."""
    own = numbers_in(name)
    layers = {numbers_in(source)[: len(own)] for source in sources}
    only = next(iter(layers)) if len(layers) == 1 else own
    return tuple(a - b for a, b in zip(own, only, strict=False))


def _plan(name: str, sources: Sequence[str]) -> tuple[str, ...]:
    """Return what a tensor is joined from, a star for each number that counts its own layer."""
    own = len(numbers_in(name))
    return tuple(re.sub(r"(?<![^.])\d+(?![^.])", "*", source, count=own) if own else source for source in sources)


def _is_out_of_order(sources: Sequence[str]) -> bool:
    """Tell whether query, key and value are joined in another order."""
    tails = [source.partition(".")[2] or source for source in sources]
    kinds = [next((n for n, kind in enumerate(_PROJECTIONS) if kind.search(tail)), -1) for tail in tails]
    return len(kinds) == len(_PROJECTIONS) and sorted(kinds) == [0, 1, 2] and kinds != [0, 1, 2]
