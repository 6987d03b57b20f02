"""A golden of a forward that draws random numbers is recorded only where the test seeds what it draws from."""

import pytest

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

SUITE = """
import random
import numpy
import numpy.random
import torch
import pytest_tfdebug

class Draws(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x) * {drawn}

def test_it(tf_golden):
    {seeded}
    tf_golden.check(pytest_tfdebug.fill(Draws().eval(), seed=0), x=torch.ones(3, 8))
"""


@pytest.fixture
def run(pytester):
    def run_pytest(drawn, seeded, *flags):
        pytester.makepyfile(test_it=SUITE.replace("{drawn}", drawn).replace("{seeded}", seeded))
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *flags)

    return run_pytest


@pytest.mark.parametrize(
    ("drawn", "generator"), [("random.random()", "random"), ("numpy.random.rand()", "numpy.random")]
)
def test_what_draws_from_a_generator_that_nobody_seeds_is_not_recorded(run, drawn, generator):
    result = run(drawn, "pass", "--tf-golden=update")

    result.assert_outcomes(failed=1)
    told = f"*it draws from {generator}, which the test does not seed: call {generator}.seed(0) before."
    result.stdout.fnmatch_lines([told])


@pytest.mark.parametrize(
    ("drawn", "seeded"),
    [("random.random()", "random.seed(7)"), ("numpy.random.rand()", "numpy.random.seed(7)")],
)
def test_what_the_test_seeds_itself_is_recorded_and_agrees(run, drawn, seeded):
    seeded = f"torch.manual_seed(0); {seeded}"

    run(drawn, seeded, "--tf-golden=update").assert_outcomes(passed=1)

    run(drawn, seeded).assert_outcomes(passed=1)
