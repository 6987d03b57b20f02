"""Weights of a port that are near the reference's: quantised, converted by way of another dtype, or a step of training.

They hide what the code does: every output differs, and the first to differ is that of the first such weight. So the
port is held to its golden once more with the reference's numbers in them, and what then differs is the code.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.errors import counted
from pytest_tfdebug.goldens.weights import hash_of
from pytest_tfdebug.module_path import holder
from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.pair.rename import Rename, renamed_tensors
from pytest_tfdebug.tracing.record.modules import modules_by_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_tfdebug.records import CallComparison

#: Distance up to which a weight counts as near. Rounding to 4 bits in groups of 16 gives 0.05, to 2 bits about 0.4;
#: two tensors that have nothing to do with each other are 1.4 apart.
_NEAR = 0.5
#: Share of the numbers of a weight that differ where all were rounded; where fewer do, some were loaded otherwise.
_ROUNDED = 0.5


@dataclass(frozen=True)
class NearWeights:
    """Parameters of a port that are near the reference's of their names, and not equal to them."""

    pairs: Mapping[str, tuple[torch.nn.Parameter, torch.Tensor]]  # own name -> the port's, and the reference's numbers
    distances: Mapping[str, float]  # own name -> distance, see :func:`near_weights`

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
    def advice(self) -> str:
        """What to do where these weights are all that is wrong."""
        return "Fix how the port's weights are converted; if they are rounded on purpose, give tolerance=(rtol, atol)."

    @property
    def told(self) -> str:
        """How far they are from the reference's, in a sentence."""
        name = max(self.distances, key=lambda each: self.distances[each])
        least, most = min(self.distances.values()), self.distances[name]
        if len(self.distances) == 1:
            differ = f"{name!r} differs from the reference's by {most:.1e} of its spread"
        else:
            differ = f"{len(self.distances)} parameters differ from the reference's by {least:.1e} to {most:.1e} of "
            differ += f"their spread, {name!r} most"
        return f"{differ}: rounding leaves that much, and other numbers are about 1.4 apart."

    def claim(self, model: torch.nn.Module, calls: Iterable[CallComparison]) -> Claim:
        """Return that these weights are all that is wrong, at the line that calls the module of the first."""
        first = next(iter(self.distances))
        path = holder(first)
        kind = type(modules_by_path(model)[path]).__name__
        path = path or kind
        at = next((item.call.called_at for item in calls if item.call.path == path), None)
        others = len(self.distances) - 1
        wrong = f"has other weights: {first}" + (f", and {counted(others, 'parameter')} more" if others else "")
        proved = f"with the reference's numbers in {'them' if others else 'it'} every output agrees: the code is right"
        weights = tuple(self.distances)
        return Claim(path, "weights", Evidence.NEAR_WEIGHTS, kind, self.told, wrong, at, proved=proved, weights=weights)


@torch.no_grad()
def near_weights(
    port: torch.nn.Module, reference: torch.nn.Module, rename: Rename, recorded: Mapping[str, str]
) -> NearWeights | None:
    """Return the parameters of a port that are near the reference's, and not equal; None where there are none.

    The distance of two is the norm of their difference over that of the reference's spread around its mean, so that a
    norm's weights, all of them near one, are not near those of another norm.

    Args:
        port: The model under test; it is not changed.
        reference: The reference.
        rename: Port path -> reference path.
        recorded: Hash of each parameter of the golden, by name; what the reference has otherwise by now is left out.
    """
    own, theirs = (dict(model.named_parameters(remove_duplicate=False)) for model in (port, reference))
    pairs, distances, seen = {}, {}, set[int]()
    for name, there in renamed_tensors(rename, own).items():
        one, other = own[name], theirs.get(there)
        # packed and sharded ones are of other classes, whose numbers cannot be given to them
        are_plain = {type(one), type(other)} == {torch.nn.Parameter}
        is_alike = other is not None and are_plain and one.shape == other.shape and not (one.is_meta or other.is_meta)
        if not is_alike or other is None or id(one) in seen or not one.is_floating_point():
            continue
        seen.add(id(one))
        if torch.equal(one, given := other.detach().to(one)) or recorded.get(there) != hash_of(other):
            continue
        spread = torch.linalg.vector_norm(other - other.mean(), dtype=torch.float64)
        distance = float(torch.linalg.vector_norm((one - given), dtype=torch.float64) / spread)
        if distance <= _NEAR and float((one != given).double().mean()) >= _ROUNDED:
            pairs[name], distances[name] = (one, given), distance
    return NearWeights(pairs, distances) if pairs else None
