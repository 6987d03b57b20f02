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
def test_a_list_where_one_value_belongs_is_refused(run, key):
    result = run(f'{key} = ["check", "off"]')

    assert f"{key} = ['check', 'off'] is a list. Give one value." in result.stdout.str() + result.stderr.str()
    assert result.ret != 0
