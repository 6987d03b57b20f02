"""Every change of a line of versions is found at its own step, whatever lies between."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from pytest_tfdebug.bisect.history import History, VersionDifference

#: What a version may be off by before it has changed, and what drift adds at each step.
FLOOR, DRIFT = 1e-3, 1e-6


@dataclass
class Version:
    result: float
    name: str
    runs: bool


def made(seed: int) -> tuple[list[Version], set[int], set[int]]:
    """Return a line of versions, and which of them change the result, and the name."""
    draw = random.Random(seed)
    count = draw.randint(20, 60)
    faults = set(draw.sample(range(1, count), 2)) if seed % 2 else set()
    renames = set(draw.sample(range(1, count), 3))
    line, result, name = [Version(0.0, "past", runs=True)], 0.0, "past"
    for place in range(1, count):
        result += draw.uniform(-DRIFT, DRIFT) + (draw.uniform(0.01, 1) if place in faults else 0)
        name = f"cache{place}" if place in renames else name
        line.append(Version(result, name, runs=place == count - 1 or draw.random() > 0.2))
    return line, faults, renames


def history_of(line: list[Version]) -> History:
    def hold(first: str, second: str) -> VersionDifference:
        one, other = line[int(first)], line[int(second)]
        assert one.runs
        assert other.runs
        if abs(one.result - other.result) > FLOOR:
            return VersionDifference("changed")
        return VersionDifference("same" if one.name == other.name else "renamed")

    names = [str(place) for place in range(len(line))]
    return History(names, lambda version: "" if line[int(version)].runs else "it does not import", hold)


def steps(line: list[Version], places: set[int]) -> set[tuple[int, int]]:
    """Return the neighbours that run around each of some places."""
    runs = [place for place, version in enumerate(line) if version.runs]
    return {
        (max(each for each in runs if each < place), min(each for each in runs if each >= place)) for place in places
    }


@pytest.mark.parametrize("seed", range(30))
def test_fault_of_a_history_is_found_at_its_step_and_none_invented(seed: int) -> None:
    line, faults, renames = made(seed)

    changes = history_of(line).changes()

    found = {
        kind: {(int(it.before), int(it.after)) for it in changes if it.outcome.kind == kind}
        for kind in ("changed", "renamed")
    }
    assert found["changed"] == steps(line, faults)
    assert found["renamed"] == steps(line, renames) - found["changed"]
    assert not any(change.is_spread for change in changes)


def test_drift_that_no_step_explains_is_told_as_spread() -> None:
    line = [Version(place * FLOOR / 2, "past", runs=True) for place in range(9)]

    changes = history_of(line).changes()

    assert {change.is_spread for change in changes} == {True}


def test_versions_that_do_not_run_stand_beside_their_possible_change() -> None:
    line = [Version(0.0, "past", runs=True), Version(1.0, "past", runs=False), Version(1.0, "past", runs=True)]
    history = history_of(line)

    (change,) = history.changes()

    assert (change.before, change.after, change.skipped) == ("0", "2", ("1",))
    assert history.skipped == {"1": "it does not import"}
