"""The ini key ``tf_explain_seconds``: a failed check is run again with changes, and what mends it is told."""

import pytest

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

TEST = """
import torch

class Norm(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.linspace(0.5, 2, 16)), eps

    def forward(self, hidden):
        scale = torch.rsqrt(hidden.square().mean(-1, keepdim=True) + self.eps)
        return hidden * scale * self.weight

class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.norm, self.head = Norm(eps), torch.nn.Linear(16, 8)

    def forward(self, hidden):
        return self.head(self.norm(hidden))

def test_model(tf_golden):
    torch.manual_seed(0)
    tf_golden.check(Model({eps}).eval(), hidden=0.1 * torch.linspace(-1, 1, 5 * 16).view(5, 16).sin())
"""


@pytest.fixture
def run(pytester):
    def run_pytest(eps, *arguments, ini="60"):
        pytester.makeini(f"[pytest]\ntf_explain_seconds = {ini}")
        pytester.makepyfile(TEST.replace("{eps}", eps))
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    return run_pytest


def test_what_mends_a_failed_check_is_told_in_a_line(run):
    run("1e-6", "--tf-golden=update").assert_outcomes(passed=1)

    result = run("1e-3")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*:9 in norm (Norm): *", "*Proved: with eps 1e-06, as the reference has, instead of 0.001 at*"]
    )


def test_with_no_seconds_nothing_is_tried(run):
    run("1e-6", "--tf-golden=update")

    run("1e-3", ini="0").stdout.no_fnmatch_line("*Proved*")


@pytest.mark.parametrize("text", ["long", "-1", "nan"])
def test_another_time_is_refused(run, text):
    result = run("1e-6", "--tf-golden=update", ini=text)

    result = run("1e-6", ini=text)

    result.stdout.fnmatch_lines([f"*tf_explain_seconds = '{text}' is not a number of seconds >= 0."])
