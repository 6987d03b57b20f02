"""Proof of a fault: a change of one place that was tried, and after which every output agrees."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.explain.forward import Forward
from pytest_tfdebug.parity.explain.search import Expected, Search
from pytest_tfdebug.parity.open_values import OpenValues

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import torch

    from pytest_tfdebug.parity.explain.search import Mend
    from pytest_tfdebug.parity.forward_pair import ForwardPair
    from pytest_tfdebug.parity.matching import Matches
    from pytest_tfdebug.parity.value_graph import Side
    from pytest_tfdebug.tracing.tape import Tape

#: How long a failed check is explained.
SECONDS = 5.0
#: Share of the time for changes of the port, where the reference can be changed too.
_MEND = 0.6
#: Distance from which on a value is open for the search.
_OPEN = 4e-6


class Live(NamedTuple):
    """A forward that can be run again.

    Args:
        tape: What ran in it.
        outputs: What it gave, with all elements, by leaf path, as far as that is known.
    """

    tape: Tape
    outputs: Mapping[str, torch.Tensor]


class Trial(NamedTuple):
    """What a search needs beside the values of both forwards.

    Args:
        port: The forward under test.
        reference: The one that it is held to; its tape is empty where it cannot be run.
        seconds: How long to search; None for :data:`SECONDS`.
    """

    port: Live
    reference: Live
    seconds: float | None = None


@dataclass(frozen=True)
class Proof:
    """What makes the outputs of one forward those of the other.

    Args:
        forward: The forward that was changed.
        mends: The changes that do, and cannot be told apart, the most likely first.
        is_reverse: Whether the reference was changed, until it gave what the port gives.
        tried: How many changes were tried.
    """

    forward: Forward
    mends: tuple[Mend, ...]
    is_reverse: bool
    tried: int


def prove(pair: ForwardPair, results: Sequence[tuple[int, int]], trial: Trial) -> Proof | None:
    """Search for the change of one place of a port after which its outputs are those of the reference.

    Where there is none and the reference can be run, for one of the reference after which it gives what the port gives.

    Args:
        pair: Both forwards.
        results: Outputs of the port, each with that of the reference that it is held to.
        trial: What else the search needs.
    """
    seconds = SECONDS if trial.seconds is None else trial.seconds
    if not results or not seconds:
        return None
    begun = time.monotonic()
    port = _Way(pair.port, pair.matches, trial.port.tape, pair.weights.known, pair.joined(_OPEN))
    reference = _Way(pair.reference, pair.back_matches, trial.reference.tape, pair.back.known)
    is_both = bool(reference.tape.steps)
    found = _searched(port, reference, results, trial.reference.outputs, begun + seconds * (_MEND if is_both else 1))
    if not found.mends and is_both:
        turned = [(theirs, mine) for mine, theirs in results]
        return _searched(reference, port, turned, trial.port.outputs, begun + seconds, is_reverse=True)
    return found


class _Way(NamedTuple):
    """One of two forwards: its values, those that the other has too, what ran, and what is right in it."""

    side: Side
    matches: Matches
    tape: Tape
    known: frozenset[str]
    right: Collection[int] = ()


def _searched(
    one: _Way,
    other: _Way,
    results: Sequence[tuple[int, int]],
    outputs: Mapping[str, torch.Tensor],
    deadline: float,
    *,
    is_reverse: bool = False,
) -> Proof:
    """Search in one forward for a change after which its outputs are those of the other."""
    theirs = other.side.values
    leaves = {index: outputs.get(leaf) for leaf, index in other.side.table.results}
    forward = Forward(one.side, one.tape)
    begins = [mine for mine, _ in results]
    search = Search(
        forward,
        one.matches,
        theirs,
        other.matches,
        OpenValues(one.side, one.matches, _OPEN, begins, known=one.known, right=one.right),
        [Expected(mine, theirs[index].print, leaves.get(index)) for mine, index in results],
        deadline,
    )
    mends = search.run() if one.tape.steps else []
    return Proof(forward, tuple(mends), is_reverse, search.tried)
