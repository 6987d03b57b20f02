"""Markers and functions check their arguments in one place, and say what is wrong in one form."""

from dataclasses import fields

import pytest

from pytest_tfdebug import TFDebugError
from pytest_tfdebug.goldens.settings import KEYWORDS
from pytest_tfdebug.invariance.api import asked
from pytest_tfdebug.invariance.checks.base import Settings
from pytest_tfdebug.marker_arguments import MisspeltMarkers, unknown
from pytest_tfdebug.overflow.settings import OverflowSettings

CHECKS = "padding, batch, cache, attention, save_load, dtype, clean_load"
TAKES = {
    "padding_invariant": (
        lambda *args, **given: asked("padding_invariant", ("padding",), given, args),
        "rtol, atol, inputs, side, lengths, filler, position_ids, expect, reason",
    ),
    "invariant": (
        lambda *args, **given: asked("invariant", ("attention", "dtype"), given, args),
        "rtol, atol, inputs, implementations, dtypes, bound",
    ),
    "overflow_free": (
        lambda *args, **given: OverflowSettings.of("overflow_free", args, given),
        ", ".join(item.name for item in fields(OverflowSettings)),
    ),
}


@pytest.mark.parametrize("name", TAKES)
def test_unknown_or_positional_argument_is_quoted_and_the_valid_ones_are_listed(name):
    read, valid = TAKES[name]

    with pytest.raises(TFDebugError) as unknown:
        read(unheard_of=3)
    with pytest.raises(TFDebugError) as positional:
        read("first")

    assert str(unknown.value) == f"{name} has no argument unheard_of=3; it takes {valid}."
    assert str(positional.value) == f"{name} takes keyword arguments only ({valid}) and got 'first'."


def test_every_wrong_argument_is_listed():
    with pytest.raises(TFDebugError) as caught:
        asked("padding_invariant", ("padding",), {"sides": "left", "lengths": 0, "filler": "x"})

    lines = str(caught.value).splitlines()
    assert lines[0].startswith("padding_invariant has no argument sides='left'; ")
    assert lines[0].endswith(" Did you mean side?")
    assert lines[1] == "padding_invariant: lengths=0 is not a number of pads >= 1 or several."
    assert lines[2] == "padding_invariant: filler='x' is not one of 'pad', 'random', a token id."


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ((), f"invariant needs the names of checks, as in 'batch', 'cache'; the checks are {CHECKS}."),
        (("cahce",), f"invariant has no check 'cahce'; there are {CHECKS}. Did you mean cache?"),
        ((3, "batch"), f"invariant has no check 3; there are {CHECKS}."),
    ],
)
def test_check_that_does_not_exist_is_told_with_the_nearest(names, told):
    with pytest.raises(TFDebugError) as caught:
        asked("invariant", names, {})

    assert str(caught.value) == told


def test_option_is_refused_where_no_check_takes_it():
    with pytest.raises(TFDebugError, match=r"^invariant has no argument bound=1; it takes rtol, atol, inputs\.$"):
        asked("invariant", ("batch", "cache"), {"bound": 1})


def test_golden_marker_says_it_alike_and_names_what_was_meant():
    [told] = unknown("tf_golden", KEYWORDS, (), {"tolerence": 1})

    assert told.startswith("tf_golden has no argument tolerence=1; it takes tolerance, ")
    assert told.endswith(". Did you mean tolerance?")


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (Settings, {"lengths": [0]}, "lengths=[0] is not a number of pads >= 1 or several."),
        (Settings, {"rtol": True}, "rtol=True is not a number >= 0."),
        (Settings, {"implementations": 3}, "implementations=3 is not a name or several, as in ('sdpa',)."),
        (Settings, {"bound": 0}, "bound=0 is not a number > 0."),
        (Settings, {"allow": "("}, "allow='(' is not a regular expression (missing ), unterminated subpattern"),
        (OverflowSettings, {"frames": 0}, "frames=0 is not a number of lines, 1 or more."),
        (OverflowSettings, {"ignore": "a**"}, "'a**': ** stands between two dots or at an end, and not in 'a**'"),
    ],
)
def test_value_that_makes_no_sense_is_quoted_with_what_is_valid(kind, given, told):
    with pytest.raises(TFDebugError) as caught:
        kind.of("marker", (), given)

    assert str(caught.value).startswith(f"marker: {told}")


def test_one_or_several_are_kept_in_one_form():
    assert Settings(lengths=3).lengths == (3,)
    assert Settings(lengths=iter([2, 1])).lengths == (2, 1)
    assert Settings(dtypes="bfloat16").dtypes == ("bfloat16",)
    assert OverflowSettings(ignore="lm_head").ignore == ("lm_head",)
    assert Settings(allow="classifier").allow == ("classifier",)


def test_marker_that_nobody_declared_is_misspelt_if_near_one_of_ours():
    ours = ("padding_invariant", "overflow_free")

    assert MisspeltMarkers({"slow"}, ours).meant == {}
    assert MisspeltMarkers({"padding_invarient"}, ours).meant == {"padding_invarient": "padding_invariant"}
