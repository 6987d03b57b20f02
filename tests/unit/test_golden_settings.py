from types import SimpleNamespace

import pytest

from pytest_tfdebug import TFDebugError
from pytest_tfdebug.goldens.settings import merged_settings, parse_tolerances
from pytest_tfdebug.redaction import ci_server


def item(*markers):
    """Stand for a test with markers, the closest first."""
    marks = [SimpleNamespace(args=marker.pop("args", ()), kwargs=marker) for marker in markers]
    return SimpleNamespace(iter_markers=lambda name: iter(marks))


def tolerance(test, arguments, ini=None, path="a.b"):
    return merged_settings(test, arguments, {"golden_tolerances": ini}).tolerances.of(path, "float32")[:2]


def test_defaults_hold_where_nothing_is_said():
    found = merged_settings(item(), {}, {})

    assert (found.rename, found.include, found.exclude, found.level) == (None, (), (), "all")
    assert tolerance(item(), {}) == (1.3e-6, 1e-5)


@pytest.mark.parametrize("key", ["rename", "include", "exclude", "level"])
def test_argument_beats_the_closest_marker_and_that_the_next(key):
    argument, closest, of_class = "all", "leaves", "layers"
    test = item({key: closest}, {key: of_class})

    assert getattr(merged_settings(test, {key: argument}, {}), key) == argument
    assert getattr(merged_settings(test, {key: None}, {}), key) == closest
    assert getattr(merged_settings(item({}, {key: of_class}), {}, {}), key) == of_class


def test_tolerances_of_the_argument_beat_the_marker_that_beats_the_ini():
    ini = "**: 0.5 0.5"

    assert tolerance(item(), {}, ini) == (0.5, 0.5)
    assert tolerance(item({"tolerance": (0.3, 0.3)}), {}, ini) == (0.3, 0.3)
    assert tolerance(item({"tolerance": (0.3, 0.3)}), {"tolerance": {"a.*": (0.1, 0.1)}}, ini) == (0.1, 0.1)
    assert tolerance(item({"tolerance": (0.3, 0.3)}), {"tolerance": {"c": (0.1, 0.1)}}, ini) == (0.3, 0.3)
    assert tolerance(item({"tolerance": {"float32": (0.2, 0.2)}}), {"tolerance": (0.2, 0)}, ini) == (0.2, 0)


def test_ini_file_has_a_line_for_each_override():
    text = "\n  float32: 1e-4 1e-5\n\n  **.lm_head: 1 2\n  a:b: 0 0\n"

    assert parse_tolerances(text) == {"float32": (1e-4, 1e-5), "**.lm_head": (1.0, 2.0), "a:b": (0.0, 0.0)}
    assert parse_tolerances(None) == parse_tolerances("") == {}


@pytest.mark.parametrize("line", ["float32", "float32: 1e-4", "float32: a b", "1e-4 1e-5 3", "float32: 1 2 3"])
def test_line_of_another_form_is_a_usage_error(line):
    with pytest.raises(pytest.UsageError) as caught:
        parse_tolerances(line)
    assert str(caught.value) == (
        f"tf_golden_tolerances: {line!r} is not of the form '<dtype or module glob>: <rtol> <atol>'."
    )


def test_negative_value_of_the_ini_file_is_an_error_of_its_name():
    with pytest.raises(TFDebugError, match=r"^rtol of tolerance\['\*'\] = -1.0 is not a number >= 0.$"):
        merged_settings(item(), {}, {"golden_tolerances": "*: -1 0"})


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        ({"rtol": 1}, "tf_golden has no argument rtol=1; it takes tolerance, "),
        ({"args": (1e-3,)}, "tf_golden takes keyword arguments only (tolerance, "),
        ({"tolerance": ("x", 0)}, "tf_golden: rtol = 'x' is not a number >= 0."),
        ({"name": "x", "reference": 1}, "tf_golden has no argument name='x'; it takes tolerance, "),
    ],
)
def test_bad_marker_is_a_usage_error(marker, text):
    with pytest.raises(pytest.UsageError) as caught:
        merged_settings(item(marker), {}, {})
    assert str(caught.value).startswith(text)


def test_everything_that_is_wrong_with_the_markers_of_a_test_is_told():
    test = item({"levle": "layers", "tolerance": "1e-4", "internal": "fial"}, {"level": "layer", "dtypes": "int8"})

    with pytest.raises(pytest.UsageError) as caught:
        merged_settings(test, {}, {})

    told = "\n".join(sorted(str(caught.value).splitlines()))
    assert [line.partition("=")[0] for line in told.splitlines()] == [
        "tf_golden has no argument levle",
        *(f"tf_golden: {key}" for key in ("dtypes", "internal", "level", "tolerance")),
    ]


def test_what_passes_is_settled_like_the_rest():
    def settled(test, arguments, **ini):
        return merged_settings(test, arguments, ini).internal

    assert settled(item(), {}) == "warn"
    assert settled(item(), {}, golden_internal="fail") == "fail"
    assert settled(item({"internal": "fail"}), {"internal": "warn"}, golden_internal="fail") == "warn"


def test_bad_values_of_the_marker_and_the_ini_file_are_usage_errors():
    told = [
        (item({"internal": "no"}), {}, "tf_golden: internal='no' is not one of 'warn', 'fail'."),
        (item(), {"golden_internal": "no"}, "tf_golden_internal='no' is not one of 'warn', 'fail'."),
    ]
    for test, ini, message in told:
        with pytest.raises(pytest.UsageError) as caught:
            merged_settings(test, {}, ini)
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"CI": "true"}, True),
        ({"CI": "false", "GITHUB_ACTIONS": "true"}, False),
        ({"GITHUB_ACTIONS": "true"}, True),
        ({"JENKINS_URL": "https://ci.example"}, True),
        ({"TF_BUILD": "True"}, True),
    ],
    ids=str,
)
def test_ci_server_is_known_by_what_it_sets(monkeypatch, environment, expected):
    for name in ("CI", "GITHUB_ACTIONS", "JENKINS_URL", "TF_BUILD", "TEAMCITY_VERSION", "CODEBUILD_BUILD_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert bool(ci_server()) is expected
