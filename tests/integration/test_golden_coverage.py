"""What a check that passes says: what it covered, and what differs inside. ``internal=``."""

import pytest
import torch  # noqa: F401 - pytester unloads what a run inside this process has loaded

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

SUITE = """
import os
import torch
import pytest
from torch import nn

BUG = float(os.environ.get("BUG", "0"))
X = torch.linspace(-1, 1, 16).view(2, 8)

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        unused = self.unused(x + BUG)
        return self.used(x)

class Drifting(Inner):
    def forward(self, x):
        return self.used(x) + BUG

from types import SimpleNamespace

class Held(Inner):
    def forward(self, x):
        return SimpleNamespace(held=self.used(x))

class BothHeld(Inner):
    def forward(self, x):
        return self.used(x), {"rest": SimpleNamespace(held=self.used(x))}

class Port(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.own = model.used

    def forward(self, x):
        return self.own(x)

class Best(Inner):
    def forward(self, x):
        return super().forward(x).argmax(-1)

class PortOfBest(Port):
    def forward(self, x):
        return super().forward(x).argmax(-1)

class Loss(Inner):
    def forward(self, x):
        return super().forward(x).mean()

class PortOfLoss(Port):
    def forward(self, x):
        return super().forward(x).mean()

def build(kind):
    torch.manual_seed(0)
    return kind().eval()
"""
#: A check of each kind, by the name of its test.
CHECKS = {
    "inner": "build(Inner), X",
    "drifting": "build(Drifting), X",
    "held": "build(Held), X",
    "both_held": "build(BothHeld), X",
    "port": "Port(build(Inner)), X, reference=build(Inner)",
    "best": "PortOfBest(build(Inner)), X, reference=build(Best)",
    "loss": "PortOfLoss(build(Inner)), X, reference=build(Loss)",
    "self": "build(Best), X",
}
IGNORED = ("-W", "ignore::pytest_tfdebug.errors.TFDebugWarning")
SHOWN = ("-W", "always::pytest_tfdebug.errors.TFDebugWarning")


@pytest.fixture
def run(pytester, monkeypatch):
    """Record goldens of some of ``CHECKS`` and run them with ``BUG`` set, with more arguments for each check."""

    def run_pytest(*names, arguments="", marker="", bug="0", options=()):
        tests = "".join(
            f"{marker}\ndef test_{name}(tf_golden):\n    tf_golden.check({CHECKS[name]}{arguments})\n\n"
            for name in names
        )
        pytester.makepyfile(test_it=SUITE + tests)
        pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tf-golden=missing", *IGNORED)
        monkeypatch.setenv("BUG", bug)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *SHOWN, *options)

    return run_pytest


def test_pass_says_what_was_compared(run):
    result = run("inner", "drifting", "port", bug="1e-6")

    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        ["3 goldens: 5 of 5 calls compared, outputs of 1 compared (the modules inside have other names), worst 0.*"]
    )


def test_port_with_names_of_its_own_says_that_its_outputs_were_compared(run):
    result = run("port")

    result.stdout.fnmatch_lines(
        ["1 golden: outputs compared (the modules inside have other names), worst 0 of tolerance"]
    )


@pytest.mark.nightly
def test_workers_of_xdist_say_it_together(run):
    pytest.importorskip("xdist")

    result = run("inner", "drifting", options=("-n2",))

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["2 goldens: 5 of 5 calls compared, worst 0 of tolerance"])


def test_failed_check_is_not_among_them(run):
    result = run("inner", "drifting", bug="1", options=IGNORED)

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["1 golden: 3 of 3 calls compared, worst 0 of tolerance"])


def test_root_that_returns_no_tensor_is_a_warning(run):
    result = run("held")

    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            (
                "*CoverageWarning: Held: What Held returns was not compared, for no tensor can be found in it: *. "
                "Return tensors, or a tuple, dict or dataclass of them, *"
            ),
        ]
    )


def test_object_beside_tensors_that_cannot_be_looked_into_is_a_warning(run):
    result = run("both_held", options=("-v",))

    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*CoverageWarning: BothHeld: What BothHeld returns as \"*'rest'*\" was not compared, for no tensor can be found in it: *",
            "*Outputs: * element by element; * not compared (no tensor can be found in it)*",
        ]
    )


@pytest.mark.parametrize(("name", "told"), [("best", "int64 (2,)"), ("loss", "float32 ()")])
def test_outputs_that_most_faults_leave_as_they_are_are_a_warning(run, name, told):
    result = run(name)

    result.assert_outcomes(passed=1, warnings=1)
    model = f"PortOf{name.capitalize()}"
    result.stdout.fnmatch_lines(
        [
            (
                f"*CoverageWarning: {model}: Most faults would pass: the outputs agree, but they are integers, booleans "
                f"or single numbers. Compared: the output {told}; and 1 of 3 calls. Return what they are computed from "
                "as well, logits or hidden states, in the port and in the reference, or give rename= to compare the "
                "modules inside."
            ),
        ]
    )


@pytest.mark.parametrize("name", ["port", "self"])
def test_outputs_of_numbers_or_modules_that_were_compared_give_no_such_warning(run, name):
    run(name).assert_outcomes(passed=1)


def test_difference_that_changes_no_output_is_a_warning(run):
    result = run("inner", bug="1")

    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            (
                "*InternalWarning: Inner: Outputs equal, 1 internal value differs: the first at 'Inner' (Inner), "
                'test_it.py:15. internal="fail" makes this a failure.'
            )
        ]
    )


@pytest.mark.parametrize("place", ["argument", "marker", "ini"])
def test_difference_that_changes_no_output_fails_where_that_is_asked(run, pytester, place):
    if place == "ini":
        pytester.makeini("[pytest]\ntf_golden_internal = fail\n")

    result = run(
        "inner",
        arguments=", internal='fail'" if place == "argument" else "",
        marker="@pytest.mark.tf_golden(internal='fail')" if place == "marker" else "",
        bug="1",
    )

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_it.py:15 in Inner (Inner): *"])
