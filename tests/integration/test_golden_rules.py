"""Rules of a golden check that match nothing are an error."""

import pytest
import torch._dynamo  # noqa: F401 - loaded once for all runs

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

SUITE = """
import pytest, torch
from torch import nn

X = torch.ones(2, 4)

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Dropout(), nn.Linear(4, 4))).eval()

class Port(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift, self.lower = build()[0], build()[1][1]

    def forward(self, x):
        return self.lower(self.lift(x))
"""
PLAIN = SUITE + "def test_one(tf_golden):\n    tf_golden.check(build(), X)\n"


def said(text):
    """Return a line of a report as ``fnmatch_lines`` reads it."""
    return (
        text.replace("[", "[[]")
        .replace("(* is", "([*] is")
        .replace(", ** any", ", [*][*] any")
        .replace("'**.", "'[*][*].")
    )


@pytest.fixture
def run(pytester):
    pytester.makepyfile(test_it=PLAIN)
    pytester.runpytest("-p", "no:cacheprovider", "--tf-golden=update").assert_outcomes(passed=1)
    return lambda *arguments: pytester.runpytest("-p", "no:cacheprovider", *arguments)


@pytest.mark.parametrize(
    ("marker", "arguments", "text"),
    [
        ("", "tolerance={'2': (1, 1)}", "tolerance: no module of the port matches '2' "),
        ("tolerance={'**.lm_head': (1, 1)}", "", "tolerance: no module of the port matches '**.lm_head' "),
        ("rename={'lift': '0'}", "", "rename: no module of the port matches 'lift' "),
        ("", "rename={'0': 'lift'}", "rename: '0' -> 'lift' names no module of the reference: it has no 'lift'."),
        ("include='2'", "", "No module matches '2' "),
        ("exclude='1.*.0'", "", "No module matches '1.*.0' "),
    ],
)
def test_rule_of_a_test_that_matches_nothing_is_an_error(pytester, run, marker, arguments, text):
    marked = f"@pytest.mark.tf_golden({marker})\n" if marker else ""
    pytester.makepyfile(
        test_it=SUITE + marked + f"def test_one(tf_golden):\n    tf_golden.check(build(), X, {arguments})\n"
    )

    result = run()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"E *TFDebugError: {said(text)}*"])


def test_port_may_lack_what_is_left_out(pytester, run):
    pytester.makepyfile(
        test_it=SUITE
        + "@pytest.mark.tf_golden(exclude='1.0')\ndef test_one(tf_golden):\n    tf_golden.check(Port(), X, "
        "reference=build, rename={'lift': '0', 'lower': '1.1'})\n"
    )
    run("--tf-golden=update").assert_outcomes(passed=1)

    run().assert_outcomes(passed=1)
