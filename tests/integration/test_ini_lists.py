"""Values in ``[tool.pytest.ini_options]`` of pyproject.toml, where they can be lists."""

import pytest

TEST = """
import torch
import pytest_tfdebug

def test_it(tf_golden):
    model = pytest_tfdebug.fill(torch.nn.Linear(2, 2), seed=0)
    tf_golden.check(model, torch.ones(1, 2) * {scale})
"""


@pytest.fixture
def run(pytester):
    """Write a pyproject.toml and a test, and run it."""

    def run_pytest(key, *arguments, scale=1.0):
        pytester.makepyprojecttoml(f"[tool.pytest.ini_options]\n{key}\n")
        pytester.makepyfile(test_it=TEST.format(scale=scale))
        return pytester.runpytest_inprocess(*arguments, "-p", "no:cacheprovider")

    return run_pytest


@pytest.mark.parametrize(
    "value",
    ['["float32: 1 1"]', '["float64: 0 0", "float32: 1 1"]', '"float32: 1 1"', '"""\nfloat64: 0 0\nfloat32: 1 1\n"""'],
    ids=["list", "two-items", "text", "lines"],
)
def test_tolerances_are_a_list_or_lines(run, value):
    key = f"tf_golden_tolerances = {value}"
    run(key, "--tf-golden=update").assert_outcomes(passed=1)

    run(key, "-W", "ignore").assert_outcomes(passed=1)


@pytest.mark.parametrize("key", ["tf_golden_store", "tf_golden", "tf_golden_dir"])
def test_list_where_one_value_belongs_is_refused(run, key):
    result = run(f'{key} = ["check", "off"]')

    assert f"{key} = ['check', 'off'] is a list. Give one value." in result.stdout.str() + result.stderr.str()
    assert result.ret != 0


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest 8 reads [tool.pytest.ini_options] alone")
@pytest.mark.parametrize(
    "key",
    [
        "tf_explain_seconds = 5",
        "tf_explain_seconds = 0.5",
        "tf_explain = false",
        "tf_triage = true",
        'tf_golden_tolerances = ["float32: 1e-4 1e-5"]',
        'tf_golden_tolerances = "float32: 1e-4 1e-5"',
        'tf_golden_store = "values"',
    ],
)
def test_native_toml_gives_each_key_the_value_it_is(run, pytester, key):
    run('tf_golden_store = "values"', "--tf-golden=update")
    pytester.makepyprojecttoml(f"[tool.pytest]\nstrict = true\n{key}\n")

    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest 8 reads [tool.pytest.ini_options] alone")
@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("tf_explain_seconds = true", "tf_explain_seconds = 'True' is not a number of seconds >= 0."),
        ("tf_golden = 3", "tf_golden = '3' is not one of check, update, missing, off (see --tf-golden)."),
    ],
)
def test_native_toml_value_that_a_key_cannot_take_is_refused(run, pytester, key, told):
    run('tf_golden_store = "values"', "--tf-golden=update")
    pytester.makepyprojecttoml(f"[tool.pytest]\n{key}\n")

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")

    assert told in result.stdout.str() + result.stderr.str()
    assert result.ret != 0
