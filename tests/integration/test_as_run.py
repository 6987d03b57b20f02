"""Goldens of models as they are run: wrapped, compiled, through another method than forward."""

import pytest
import torch

torch.compile(torch.nn.Identity(), backend="eager")  # its compiler is loaded once for all runs

MODEL = """
import os
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.act = nn.GELU() if "WRONG" in os.environ else nn.ReLU()

    def encode(self, x, *, scale=1.0):
        for layer in self.layers:
            x = self.act(layer(x))
        return x * scale

    def forward(self, x):
        return self.encode(x).sum(-1)

class Harness(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.module = model

    def forward(self, x):
        return self.module(x)

X = torch.linspace(-1, 1, 8).view(2, 4)
WAYS = {
    "bare": lambda model: model,
    "averaged": torch.optim.swa_utils.AveragedModel,
    "held": Harness,
    "compiled": lambda model: torch.compile(model, backend="eager"),
    "layers": lambda model: model.layers.__setitem__(0, torch.compile(model.layers[0], backend="eager")) or model,
}
model = WAYS[os.environ.get("WAY", "bare")](Encoder()).eval()
"""
TESTS = """
from model import X, model

def test_forward(tf_golden):
    tf_golden.check(model, X)

def test_encode(tf_golden):
    tf_golden.check((model if hasattr(model, "encode") else model.module).encode, X, scale=2.0)
"""


@pytest.fixture
def run(pytester, monkeypatch):
    pytester.makepyfile(model=MODEL, test_model=TESTS)

    def run(*args, **environment):
        for name in ("WAY", "WRONG"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:randomly", *args)

    return run


@pytest.mark.parametrize("way", ["averaged", "compiled", "layers", "held"])
def test_goldens_hold_the_bare_model_and_the_wrapped_one_alike(run, way):
    run("--tf-golden=update").assert_outcomes(passed=2)
    run(WAY=way).assert_outcomes(passed=2)
    run("--tf-golden=update", WAY=way).assert_outcomes(passed=2)

    run().assert_outcomes(passed=2)


def test_bug_behind_a_method_and_a_wrapper_is_named(run):
    run("--tf-golden=update").assert_outcomes(passed=2)

    result = run(WAY="averaged", WRONG="1")

    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines_random(["*act (GELU)*"])


def test_bug_in_a_compiled_model_fails_by_its_output(run):
    run("--tf-golden=update").assert_outcomes(passed=2)

    result = run("-k", "forward", WAY="compiled", WRONG="1")

    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["*The model is compiled: only its own inputs and outputs can be seen.*"])


def test_unknown_method_is_refused(run, pytester):
    pytester.makepyfile(
        test_model="from model import X, model\ndef test_it(tf_golden):\n    tf_golden.check(model.encod, X)\n"
    )

    result = run("--tf-golden=update")

    result.stdout.fnmatch_lines(["*AttributeError: 'Encoder' object has no attribute 'encod'*"])
