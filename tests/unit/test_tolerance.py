import pytest

from pytest_tfdebug import TFDebugError
from pytest_tfdebug.parity.tensors.tolerance import DEFAULTS, Tolerance, layered, tolerances


@pytest.mark.parametrize(("dtype", "expected"), DEFAULTS.items())
def test_dtype_has_its_default(dtype, expected):
    assert tolerances().of("any.path", dtype) == expected


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8"])
def test_integers_and_booleans_are_equal_or_not_whatever_is_asked_for(dtype):
    assert tolerances(1.0, 1.0, {"**": (1.0, 1.0)}).of("any.path", dtype) == Tolerance(0.0, 0.0)


def test_strongest_is_rtol_and_atol_then_the_path_then_the_dtype():
    overrides = {"model.head": (0.3, 0.3), "float32": (0.2, 0.2), "model.*": (0.4, 0.4)}

    assert tolerances(overrides=overrides).of("other", "float32") == Tolerance(0.2, 0.2)
    assert tolerances(overrides=overrides).of("model.head", "float32") == Tolerance(0.4, 0.4)
    assert tolerances(0.1, None, overrides).of("model.head", "float32") == Tolerance(0.1, 0.4)
    assert tolerances(0.1, 0.0, overrides).of("model.head", "float32") == Tolerance(0.1, 0.0)


def test_tolerance_that_is_given_is_taken_at_its_word():
    found = tolerances(rtol=1e-3, atol=1e-4).of("any", "float32")

    assert found == Tolerance(1e-3, 1e-4, scaled=False, noise=0.0)


def test_stronger_place_wins_with_whatever_it_says():
    argument = tolerances(overrides={"head": (0.3, 0.3)})
    marker = tolerances(rtol=0.1, atol=0.1)
    ini = tolerances(overrides={"**": (0.5, 0.5), "float16": (0.7, 0.7)})

    found = layered(argument, marker, ini)

    assert found.of("head", "float32")[:2] == (0.3, 0.3)
    assert found.of("body", "float32")[:2] == (0.1, 0.1)
    assert layered(argument, tolerances(), ini).of("body", "float32")[:2] == (0.5, 0.5)
    assert layered(tolerances(atol=0.2), marker, ini).of("body", "float32")[:2] == (0.1, 0.2)


@pytest.mark.parametrize("value", [-1.0, float("nan"), "1e-3", True, [1e-3]])
def test_what_is_no_tolerance_is_refused(value):
    with pytest.raises(TFDebugError) as caught:
        tolerances(rtol=value)
    assert str(caught.value) == f"rtol = {value!r} is not a number >= 0."


def test_override_that_is_no_pair_is_refused():
    with pytest.raises(TFDebugError, match=r"^tolerance\['head'\] = 0.1 is not a pair \(rtol, atol\).$"):
        tolerances(overrides={"head": 0.1})
    with pytest.raises(TFDebugError, match=r"^atol of tolerance\['head'\] = -1 is not a number >= 0.$"):
        tolerances(overrides={"head": (0.1, -1)})
