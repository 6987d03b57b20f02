"""Ways to a skip -> the condition as it reads."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfdebug.scan.resolve.conditions import Condition, alternatives, negated

READINGS = [
    ([], ""),
    ([("a",)], "a"),
    ([("a", "b")], "a and b"),
    ([("a",), ("b",), ("a",)], "a or b"),
    ([("a", "b"), ("a", "c")], "a and (b or c)"),
    ([("a", "b"), ("c",), ("a", "d", "e")], "a and (b or d and e) or c"),
    ([("for x in y", "a"), ("for x in y", "b", "c")], "for x in y and (a or b and c)"),
    # what another way makes needless
    ([("a",), ("a", "b")], "a"),
    ([("a", "b"), ("a",)], "a"),
    ([("x > 1",), ("not (x > 1)", "b")], "x > 1 or b"),
    ([("a", "b"), ("a", "not b", "c")], "a and (b or c)"),
    ([("a",), ("not a",)], "a or not a"),
    # brackets where Python would read it otherwise
    ([("a or b",)], "a or b"),
    ([("a or b",), ("c",)], "a or b or c"),
    ([("a or b", "c")], "(a or b) and c"),
    ([("a", "b or c")], "a and (b or c)"),
    ([("a if b else c",), ("d",)], "(a if b else c) or d"),
    ([("f(a or b)", "[x for x in y if z]")], "f(a or b) and [x for x in y if z]"),
    ([('flaky("if (it rains")',), ("d",)], 'flaky("if (it rains") or d'),
    ([("it's odd or not", "d")], "(it's odd or not) and d"),
    ([("not (no exception and (a or b))", "d")], "not (no exception and (a or b)) and d"),
]


@pytest.mark.parametrize(("ways", "text"), READINGS)
def test_how_ways_to_a_skip_read(ways, text):
    assert Condition.of(ways) == text


@pytest.mark.parametrize(
    ("test", "text"),
    [
        ("a.b", "not a.b"),
        ("not  a.b", "a.b"),
        ("is_there()", "not is_there()"),
        ("not is_there()", "is_there()"),
        ("a not in b", "a in b"),
        ("a in b", "a not in b"),
        ("a == b", "not (a == b)"),
        ("not a or b", "not (not a or b)"),
        ("a in b or c", "not (a in b or c)"),
    ],
)
def test_how_the_opposite_of_a_test_reads(test, text):
    assert negated(test) == text


ATOMS = ["a", "b", "c", "d"]
GUARDS = st.sampled_from([*ATOMS, *map(negated, ATOMS), "a or b", negated("a or b"), "c if d else a"])


@given(st.lists(st.lists(GUARDS, min_size=1, max_size=4).map(tuple), min_size=1, max_size=6))
def test_condition_holds_where_one_of_the_ways_is_open(ways):
    text = Condition.of(ways)
    for values in product([False, True], repeat=len(ATOMS)):
        names = dict(zip(ATOMS, values, strict=True))
        is_open = any(all(eval(guard, {}, names) for guard in way) for way in ways)  # noqa: S307 - the guards above
        assert bool(eval(text, {}, names)) is is_open  # noqa: S307


def test_condition_keeps_the_ways_that_it_is_made_of():
    assert Condition.of([("a", "b"), ("a", "c"), ("a", "b")]).ways == (("a", "b"), ("a", "c"))


@pytest.mark.parametrize(
    ("condition", "parts"),
    [
        ("slow", ["slow"]),
        ("slow or not self.fast", ["slow", "not self.fast"]),
        ("a and (b or slow) or c", ["a and (b or slow)", "c"]),
        ("x in [y or z, (w or v)] or slow", ["x in [y or z, (w or v)]", "slow"]),
    ],
)
def test_parts_of_a_condition_of_which_any_is_enough(condition, parts):
    assert alternatives(condition) == parts
