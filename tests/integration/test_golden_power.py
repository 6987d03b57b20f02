"""``--tf-power``: which modules a golden check sees, and which outputs no input changes."""

import pytest

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.aside = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.dead = nn.ReLU()

    def forward(self, hidden):
        self.aside(hidden)
        hidden = self.one(hidden)
        return {
            "hidden": self.two(hidden) + self.dead(-hidden.abs()),
            "loss": torch.zeros(3),
            "scale": torch.arange(3.0) + 1,
            "rounded": hidden.round(),
        }

def build():
    torch.manual_seed(0)
    return Model().eval()

HIDDEN = torch.linspace(-1, 1, 4 * 8).view(4, 8).sin()
"""


@pytest.fixture
def run(pytester):
    def run_pytest(*arguments, options=""):
        test = f"def test_port(tf_golden):\n    tf_golden.check(build(), HIDDEN{options})\n"
        pytester.makepyfile(model=MODEL, test_it=f"from model import *\n\n{test}")
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    return run_pytest


def test_what_a_check_does_not_see_is_listed(run):
    run("--tf-golden=update").assert_outcomes(passed=1)

    plain, nudged = run(), run("--tf-power")

    plain.stdout.no_fnmatch_line("*nudged*")
    nudged.assert_outcomes(passed=1)
    nudged.stdout.fnmatch_lines(
        [
            "test_it.py::test_port: 2 of 3 nudged modules fail the check",
            '  seen inside alone (internal="fail" fails): aside',
            "  dead: output ['loss'] of Model is constant",
            "  dead: output ['scale'] of Model does not change with the input",
            "  dead: the output of dead is constant",
        ]
    )


def test_a_tolerance_that_is_too_wide_shows(run):
    run("--tf-golden=update")

    wide, narrow = run("--tf-power", options=", atol=10.0"), run("--tf-power", options=', exclude=("aside",)')

    wide.stdout.fnmatch_lines(["test_it.py::test_port: 0 of 3 nudged modules fail the check", "  not seen: one"])
    narrow.stdout.fnmatch_lines(["test_it.py::test_port: 2 of 3 nudged modules fail the check", "  not seen: aside"])


def test_workers_hand_over_what_they_found(run):
    pytest.importorskip("xdist")
    run("--tf-golden=update")

    result = run("--tf-power", "-n1")

    result.stdout.fnmatch_lines(["test_it.py::test_port: 2 of 3 nudged modules fail the check"])
