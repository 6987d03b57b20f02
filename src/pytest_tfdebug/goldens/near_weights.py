"""Weights of a port that are near the reference's: quantised, converted by way of another dtype, or a step of training.

They hide what the code does: every output differs, and the first to differ is that of the first such weight. So the
port is held to its golden once more with the reference's numbers in them, and what then differs is the code.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.errors import counted
from pytest_tfdebug.goldens.computed_weights import computed_weights
from pytest_tfdebug.goldens.weights import hash_of
from pytest_tfdebug.module_path import holder, last_part
from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.closeness import AGREE, SAME_WEIGHT
from pytest_tfdebug.parity.find.converted import converted_at
from pytest_tfdebug.parity.pair.rename import Rename, renamed_tensors
from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
from pytest_tfdebug.parity.proof.weights import Weights
from pytest_tfdebug.parity.text.text_differences import source_file
from pytest_tfdebug.tensors import dtype_name
from pytest_tfdebug.tracing.record.modules import modules_by_path
from pytest_tfdebug.tracing.values.conversions import Conversions, made_of_rounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_tfdebug.records import CallComparison
    from pytest_tfdebug.values import Values

#: Distance up to which a weight counts as near. Rounding to 4 bits in groups of 16 gives 0.05, to 2 bits about 0.4;
#: two tensors that have nothing to do with each other are 1.4 apart.
_NEAR = 0.5
#: Share of the numbers of a weight that differ where all were rounded; where fewer do, some were loaded otherwise.
_ROUNDED = 0.5
#: Elements of a piece that is widened at once.
_PIECE = 2**22
#: Elements of a row that tell which tensor begins there.
_SAMPLED = 64


@dataclass(frozen=True)
class NearWeights:
    """Parameters of a port that are near the reference's, and not equal to them."""

    pairs: Mapping[str, tuple[torch.nn.Parameter, torch.Tensor]]  # own name -> the port's, and the reference's numbers
    distances: Mapping[str, float]  # own name -> distance, see :func:`near_weights`
    rounded: frozenset[str]  # which are computed of the reference's parameters, and rounded to the port's dtype

    @property
    def are_folded(self) -> bool:
        """Whether all are computed of the reference's parameters, and rounded to the port's dtype."""
        return self.rounded == self.pairs.keys()

    def that_count(self, port: Values, reference: Values) -> NearWeights | None:
        """Return them without those that give a value of the reference: they are used otherwise there, as if folded.

        What is behind another fault can give none. It counts only where one of them gives another value than it should.
        """
        pair = ForwardPair(port, reference)
        right, wrong = set[str](), set[str]()
        for value in pair.port.values:
            names = self.pairs.keys() & set(pair.port.parameters_of(value))
            if not names or value.is_moved or not value.tells:
                continue
            others = (made for made in value.producers if pair.port.weighted[made] and not pair.port.parameter(made))
            if pair.matches.within(value.index, AGREE):
                right |= names
            elif all(pair.matches.within(made, AGREE) for made in others):
                wrong |= names
        left = [name for name in self.pairs if name not in right] if wrong - right or not right else []
        distances = {name: self.distances[name] for name in left}
        pairs = {name: self.pairs[name] for name in left}
        return NearWeights(pairs, distances, self.rounded.intersection(left)) if left else None

    @contextmanager
    def as_the_reference_has(self) -> Iterator[None]:
        """Give the port the reference's numbers for as long as the block lasts; nothing is copied."""
        kept = [(own, own.data) for own, _ in self.pairs.values()]
        try:
            for own, theirs in self.pairs.values():
                own.data = theirs
            yield
        finally:
            for own, data in kept:
                own.data = data

    @property
    def _wrong(self) -> Mapping[str, float]:
        """The distances of those that are more than rounded; of all where none is."""
        return {name: each for name, each in self.distances.items() if name not in self.rounded} or self.distances

    @property
    def folded(self) -> str:
        """That they are what the reference computes, in a sentence."""
        first, dtype = next(iter(self.pairs.items()))[0], dtype_name(next(iter(self.pairs.values()))[0].dtype)
        others = len(self.pairs) - 1
        more = f" and {counted(others, 'parameter')} more" if others else ""
        return f"{first!r}{more}: what is computed of the reference's parameters, rounded to {dtype}."

    @property
    def advice(self) -> str:
        """What to do where these weights are all that is wrong."""
        return "Fix how the port's weights are converted; if they are rounded on purpose, give tolerance=(rtol, atol)."

    @property
    def told(self) -> str:
        """How far they are from the reference's, in a sentence."""
        distances = self._wrong
        name = max(distances, key=lambda each: distances[each])
        least, most = min(distances.values()), distances[name]
        if len(distances) == 1:
            differ = f"{name!r} differs from the reference's by {most:.1e} of its spread"
        else:
            differ = f"{len(distances)} parameters differ from the reference's by {least:.1e} to {most:.1e} of "
            differ += f"their spread, {name!r} most"
        return f"{differ}; numbers that have nothing in common are about 1.4 apart."

    @property
    def condition(self) -> str:
        """With what the code was looked at alone, in a few words."""
        return f"with the reference's numbers in {counted(len(self.pairs), 'parameter')}"

    def claim(self, model: torch.nn.Module, calls: Iterable[CallComparison], *, is_all: bool = True) -> Claim:
        """Return that these weights are wrong, and whether they are all that is.

        It is at the forward that uses the first, or at its call.
        """
        first = next(iter(self._wrong))
        path = holder(first)
        kind = type(modules_by_path(model)[path]).__name__
        path = path or kind
        at = next((item.call.source or item.call.called_at for item in calls if item.call.path == path), None)
        file = None if at is None else source_file(at.file)
        if at is not None and file is not None:
            at = next(iter(file.reading_in(last_part(first), at)), at)
        known = Conversions(model)
        at = converted_at([*self._wrong], known, known.keys() - self._wrong.keys(), Weights()) or at
        others = len(self._wrong) - 1
        wrong = f"has other weights: {first}" + (f", and {counted(others, 'parameter')} more" if others else "")
        proved = f"with the reference's numbers in {'them' if others else 'it'} every output agrees: the code is right"
        evidence = Evidence.NEAR_WEIGHTS if is_all else Evidence.NAMED_WEIGHT
        found = Claim(path, "weights", evidence, kind, self.told, wrong, at, weights=tuple(self._wrong))
        return replace(found, proved=proved) if is_all else found


@torch.no_grad()
def near_weights(
    port: torch.nn.Module, reference: torch.nn.Module, rename: Rename, recorded: Mapping[str, str]
) -> NearWeights | None:
    """Return the parameters of a port that are near the reference's, and not equal; None where there are none.

    The distance of two is the norm of their difference over that of the reference's spread around its mean, so that a
    norm's weights, all of them near one, are not near those of another norm. Parameters that no name pairs are paired
    by their numbers: one with one, transposed too, or one with several that stand in it row below row. What is computed
    of the reference's parameters alone counts, too: a port in which a batch norm is folded holds its factor.

    Args:
        port: The model under test; it is not changed.
        reference: The reference.
        rename: Port path -> reference path.
        recorded: Hash of each parameter of the golden, by name; what the reference has otherwise by now is left out.
    """
    own, held = _plain(port), _plain(reference)
    computed, made_of = computed_weights(reference)
    theirs = {**held, **computed}

    def is_known(name: str) -> bool:
        return all(recorded.get(each) == hash_of(held[each]) for each in made_of.get(name, [name]))

    names = {name: there for name, there in renamed_tensors(rename, own).items() if there in theirs}
    alike = {name: theirs[there] for name, there in names.items() if own[name].shape == theirs[there].shape}
    given: dict[str, torch.Tensor] = {
        name: it for name, it in alike.items() if torch.equal(own[name], it.to(own[name])) or is_known(names[name])
    }
    left = {name: each for name, each in own.items() if name not in names}
    if left:
        free = (name for name in theirs.keys() - set(names.values()) if is_known(name))
        given |= _by_numbers(left, [theirs[name] for name in sorted(free)])
        made = made_of_rounded(port) if left.keys() - given.keys() else {}
        given |= {name: made[name].detach() for name in left.keys() & made.keys() - given.keys()}
    places = {each.data_ptr() for each in computed.values()}  # what is computed is kept in float32
    pairs, distances, rounded = {}, {}, set[str]()
    for name, one in own.items():
        if name not in given:
            continue
        is_computed = given[name].data_ptr() in places or given[name].dtype is not one.dtype
        other = given[name].to(one.device if is_computed else one)  # what is computed is not rounded
        if not is_computed and torch.equal(one, other):
            continue
        distance = _distance(one, other)
        is_rounded = is_computed and _is_rounded(one, other)  # of a fused one, the part that is computed
        share = 1.0 if is_rounded else int(torch.count_nonzero(one != other)) / one.numel()
        if SAME_WEIGHT < distance <= _NEAR and share >= _ROUNDED:
            pairs[name], distances[name] = (one, other), distance
            if is_rounded:
                rounded.add(name)
    return NearWeights(pairs, distances, frozenset(rounded)) if pairs else None


def _plain(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the parameters of floating point; not packed and sharded ones, whose numbers cannot be given to others."""
    named = model.named_parameters()
    return {
        name: it for name, it in named if type(it) is torch.nn.Parameter and it.is_floating_point() and not it.is_meta
    }


def _is_rounded(own: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Tell whether a tensor is another one in its dtype, up to two roundings of the steps by which it was computed."""
    most = 2 * torch.finfo(own.dtype).eps
    return float(torch.linalg.vector_norm(own - theirs)) <= most * float(torch.linalg.vector_norm(theirs))


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the norm of a difference over that of the second tensor's spread, a piece at a time; nan of no spread."""
    pieces = [*zip(*(torch.split(each.reshape(-1), _PIECE) for each in (one, other)), strict=True)]
    mean = sum(it.sum(dtype=torch.float64) for _, it in pieces) / other.numel()
    apart = [torch.linalg.vector_norm(mine - it, dtype=torch.float64) for mine, it in pieces]
    spread = [torch.linalg.vector_norm(it.double() - mean) for _, it in pieces]
    return float(torch.linalg.vector_norm(torch.stack(apart)) / torch.linalg.vector_norm(torch.stack(spread)))


def _by_numbers(own: Mapping[str, torch.Tensor], theirs: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the reference's numbers for each of a port's parameters that is near some, in the port's layout."""
    found: dict[str, torch.Tensor] = {}
    layouts = [*theirs, *(each.T for each in theirs if each.dim() == 2)]  # noqa: PLR2004 - a matrix
    stacks = _Stacks(layouts)
    for name, whole in own.items():
        parts = stacks.parts_of(whole)
        if len(parts) == 1:
            found[name] = parts[0].reshape(whole.shape)
        elif parts:
            found[name] = torch.cat([_rows(part) for part in parts]).view_as(whole)
    left = {name: each for name, each in own.items() if name not in found}
    names, stacks = {id(each): name for name, each in left.items()}, _Stacks([*left.values()])
    for whole in layouts if left else ():  # a projection that is fused in the reference alone
        at = 0
        for part in stacks.parts_of(whole):
            rows = len(_rows(part))
            found[names[id(part)]] = _rows(whole)[at : at + rows].reshape(part.shape)
            at += rows
    return found


class _Stacks:
    """Tensors that may stand in another one, row below row.

    The first row of each tells which comes next: by up to 64 of its elements, then by all numbers of the tensor.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._by_width: dict[int, list[torch.Tensor]] = {}
        for each in tensors:
            self._by_width.setdefault(_rows(each).shape[1], []).append(each)
        self._firsts = {
            width: torch.stack([_rows(each)[0, _places(width)].double().cpu() for each in some])
            for width, some in self._by_width.items()
        }

    def parts_of(self, whole: torch.Tensor) -> list[torch.Tensor]:
        """Return which tensors stand in one, from its first row to its last; none where some rows are no one's."""
        rows, found, at = _rows(whole), list[torch.Tensor](), 0
        firsts = self._firsts.get(rows.shape[1])
        while firsts is not None and at < len(rows):
            first = rows[at, _places(rows.shape[1])].double().cpu()
            apart = torch.linalg.vector_norm(firsts - first, dim=1) / torch.linalg.vector_norm(firsts, dim=1)
            part = self._by_width[rows.shape[1]][int(apart.nan_to_num(torch.inf).argmin())]
            there = _rows(part).to(rows)
            here = rows[at : at + len(there)]
            if here.shape != there.shape or not _distance(here, there) <= _NEAR:
                return []
            found.append(part)
            at += len(there)
        return found


def _places(width: int) -> torch.Tensor:
    return torch.linspace(0, width - 1, min(width, _SAMPLED)).long()


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return a parameter as a matrix: a vector is one row, and all axes but the first of a larger one are one."""
    return tensor.reshape(1, -1) if tensor.dim() < 2 else tensor.flatten(1)  # noqa: PLR2004
