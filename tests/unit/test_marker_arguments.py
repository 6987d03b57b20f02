"""Markers and functions check their arguments in one place, and say what is wrong in one form."""

from dataclasses import fields

import pytest

from pytest_tfdebug import TFDebugError
from pytest_tfdebug.goldens.settings import KEYWORDS
from pytest_tfdebug.invariance.checks.registry import CHECKS
from pytest_tfdebug.marker_arguments import refuse_unknown
from pytest_tfdebug.overflow.settings import Settings
from pytest_tfdebug.triage.clean_load import Allowed

TAKES = {
    **{name: check.takes for name, check in CHECKS.items()},
    "overflow_free": Settings,
    "clean_load": Allowed,
}


@pytest.mark.parametrize("name", TAKES)
def test_an_unknown_or_positional_argument_is_quoted_and_the_valid_ones_are_listed(name):
    valid = ", ".join(item.name for item in fields(TAKES[name]))

    with pytest.raises(TFDebugError) as unknown:
        TAKES[name].of(name, (), {"unheard_of": 3})
    with pytest.raises(TFDebugError) as positional:
        TAKES[name].of(name, ("first",), {})

    assert str(unknown.value) == f"{name} has no argument unheard_of=3; it takes {valid}."
    assert str(positional.value) == f"{name} takes keyword arguments only ({valid}) and got 'first'."


def test_the_golden_marker_says_it_alike_and_names_what_was_meant():
    with pytest.raises(
        TFDebugError, match=r"^tf_golden has no argument atl=1; it takes rtol, .*\. Did you mean atol\?$"
    ):
        refuse_unknown("tf_golden", KEYWORDS, (), {"atl": 1})


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("padding_invariant", {"lengths": [0]}, "lengths=[0] is not a number of pads >= 1 or several."),
        ("batch_invariant", {"rtol": True}, "rtol=True is not a number >= 0."),
        ("attention_invariant", {"implementations": 3}, "implementations=3 is not a name or several, as in ('sdpa',)."),
        ("dtype_close", {"bound": 0}, "bound=0 is not a number > 0."),
        ("overflow_free", {"frames": 0}, "frames=0 is not a number of lines, 1 or more."),
        ("overflow_free", {"ignore": "a**"}, "'a**': ** stands between two dots or at an end, and not in 'a**'"),
        ("clean_load", {"allow": "("}, "allow='(' is not a regular expression (missing ), unterminated subpattern"),
    ],
)
def test_a_value_that_makes_no_sense_is_quoted_with_what_is_valid(name, given, told):
    with pytest.raises(TFDebugError) as caught:
        TAKES[name].of(name, (), given)

    assert str(caught.value).startswith(f"{name}: {told}")


def test_one_or_several_are_kept_in_one_form():
    assert TAKES["padding_invariant"](lengths=3).lengths == (3,)
    assert TAKES["padding_invariant"](lengths=iter([2, 1])).lengths == (2, 1)
    assert TAKES["dtype_close"](dtypes="bfloat16").dtypes == ("bfloat16",)
    assert Settings(ignore="lm_head", trace_batches=[1, 3]) == Settings(ignore=("lm_head",), trace_batches=(1, 3))
    assert Allowed(allow="classifier").allow == ("classifier",)
