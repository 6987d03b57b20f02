"""Proof of a fault: a change of one place that was tried, and after which every output agrees."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.explain.forward import Forward
from pytest_tfdebug.parity.explain.search import Expected, Search
from pytest_tfdebug.parity.open_values import OpenValues

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from pytest_tfdebug.parity.explain.search import Mend
    from pytest_tfdebug.parity.forward_pair import ForwardPair
    from pytest_tfdebug.tracing.tape import Tape

#: How long a failed check is explained.
SECONDS = 5.0
#: Distance from which on a value is open for the search.
_OPEN = 4e-6


class Trial(NamedTuple):
    """What a search needs beside the values of both forwards.

    Args:
        tape: What ran in the port.
        outputs: The reference's outputs with all of their elements, by their leaf paths, as far as they are known.
        seconds: How long to search; None for :data:`SECONDS`.
    """

    tape: Tape
    outputs: Mapping[str, torch.Tensor]
    seconds: float | None = None


@dataclass(frozen=True)
class Proof:
    """What mends a forward.

    Args:
        forward: The forward that was changed.
        mends: The changes that do, and cannot be told apart, the most likely first.
        tried: How many were tried.
        seconds: How long that took.
    """

    forward: Forward
    mends: tuple[Mend, ...]
    tried: int
    seconds: float


def prove(pair: ForwardPair, results: Sequence[tuple[int, int]], trial: Trial) -> Proof | None:
    """Search for the change of one place of a port after which its outputs are those of the reference.

    Args:
        pair: Both forwards.
        results: Outputs of the port, each with that of the reference that it is held to.
        trial: What else the search needs.
    """
    tape, started = trial.tape, time.monotonic()
    seconds = SECONDS if trial.seconds is None else trial.seconds
    if not tape.steps or not results or not seconds:
        return None
    theirs = pair.reference.values
    leaves = {index: trial.outputs.get(leaf) for leaf, index in pair.reference.table.results}
    expected = [Expected(mine, theirs[other].print, leaves.get(other)) for mine, other in results]
    opened = OpenValues(
        pair.port,
        pair.matches,
        _OPEN,
        [mine for mine, _ in results],
        known=pair.weights.known,
        right=pair.joined(_OPEN),
    )
    forward = Forward(pair.port, tape)
    search = Search(forward, pair.matches, theirs, pair.back_matches, opened, expected, started + seconds)
    mends = search.run()
    return Proof(forward, tuple(mends), search.tried, time.monotonic() - started)
