"""``tolerance="fp64"``: a golden keeps what arithmetic alone explains, and a check allows a multiple of that."""

import json

import pytest

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.up, self.down, self._scale = torch.nn.Linear(64, 128), torch.nn.Linear(128, 64), scale

    def forward(self, hidden):
        return self.down(torch.relu(self.up(hidden)) * self._scale)

def build(scale=1.0):
    torch.manual_seed(0)
    return Model(scale).eval()

HIDDEN = torch.linspace(-1, 1, 4 * 64 * 64).view(4, 64, 64).sin() * 1e-2
"""


@pytest.fixture
def run(pytester):
    def run_pytest(body, *arguments, ini="", marker=""):
        pytester.makepyfile(
            model=MODEL,
            test_it=f"import pytest\nfrom model import *\n\n{marker}\ndef test_port(tf_golden):\n    tf_golden.{body}\n",
        )
        pytester.makeini(f"[pytest]\n{ini}")
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    return run_pytest


FP64 = 'check(build(), HIDDEN, tolerance="fp64")'
SLIGHTLY_WRONG = "check(build(1 + 5e-6), HIDDEN{})"


def test_what_the_tolerance_of_the_dtype_lets_pass_fails(pytester, run):
    file = pytester.path / "goldens" / "test_it" / "test_port.safetensors"
    written = run(FP64, "--tf-golden=update")
    before = file.read_bytes()
    again = run(FP64, "--tf-golden=update")

    written.stdout.fnmatch_lines(["1 new", "           floors of 5 tensors: median *, greatest * at *"])
    again.stdout.fnmatch_lines(["1 unchanged"])
    assert file.read_bytes() == before
    run(FP64, "--tf-json=checks.json").assert_outcomes(passed=1)
    [check] = json.loads((pytester.path / "checks.json").read_text())["checks"]
    assert "; its floor is " in check["distances"][0]
    run(SLIGHTLY_WRONG.format("")).assert_outcomes(passed=1)
    run(SLIGHTLY_WRONG.format(', tolerance="fp64"')).assert_outcomes(failed=1)
    run(SLIGHTLY_WRONG.format(""), marker='@pytest.mark.tf_golden(tolerance="fp64")').assert_outcomes(failed=1)
    run(SLIGHTLY_WRONG.format(""), ini="tf_golden_tolerance = fp64").assert_outcomes(failed=1)
    run(SLIGHTLY_WRONG.format(", tolerance=(1e-4, 1e-6)")).assert_outcomes(passed=1)


def test_golden_without_floors_is_named(run):
    run("check(build(), HIDDEN)", "--tf-golden=update")

    result = run(FP64)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            '*goldens/test_it/test_port.safetensors holds no floors: it was recorded without tolerance="fp64".',
            "*To record it again, run: pytest test_it.py::test_port --tf-golden=update",
        ]
    )
    run(FP64, "--tf-golden=update").stdout.fnmatch_lines(["1 changed"])
    run(FP64).assert_outcomes(passed=1)


def test_ini_value_that_makes_no_sense_is_refused(run):
    result = run(FP64, ini="tf_golden_tolerance = fp32")

    result.stdout.fnmatch_lines(["*tf_golden_tolerance='fp32' is not 'dtype', 'fp64', *"])
