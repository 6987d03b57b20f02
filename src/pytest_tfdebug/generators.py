"""Python's and NumPy's generators of random numbers: what they hold, and whether a test has seeded them."""

from __future__ import annotations

import random
import sys
from typing import Any, TypeAlias

#: What a generator holds, by the name of its module; NumPy's only where it is in use.
States: TypeAlias = "dict[str, Any]"


def states() -> States:
    """Return what both generators hold."""
    numpy_random = getattr(sys.modules.get("numpy"), "random", None)  # which numpy loads when it is asked for
    return {"random": random.getstate()} | ({} if numpy_random is None else {"numpy.random": numpy_random.get_state()})


def put_back(kept: States) -> None:
    """Let both generators go on from what they held."""
    random.setstate(kept["random"])
    if "numpy.random" in kept:
        sys.modules["numpy.random"].set_state(kept["numpy.random"])


def seed(name: str, number: int) -> None:
    """Seed the generator of a module."""
    sys.modules[name].seed(number)


def drawn(before: States, now: States) -> list[str]:
    """Return the generators that hold something else than before: numbers were drawn from them."""
    return [name for name in now if name in before and _parts(name, now[name]) != _parts(name, before[name])]


def was_seeded(name: str, before: States, now: States) -> bool:
    """Tell whether a generator was seeded between two moments: it holds other words, or went back in them.

    Both are Mersenne twisters of 624 words, which are drawn one after another and then all made anew; a test that draws
    more is taken for one that seeds.
    """
    if name not in before or name not in now:
        return True
    (words, place), (new_words, new_place) = (_parts(name, each[name]) for each in (before, now))
    return words != new_words or new_place < place


def _parts(name: str, state: Any) -> tuple[tuple[int, ...], int]:  # noqa: ANN401 - of either
    if name == "random":
        return state[1][:-1], state[1][-1]
    return tuple(state[1].tolist()), state[2]
