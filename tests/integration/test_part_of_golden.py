"""A part of a model is held to a module of the golden: ``tf_golden.check(part, root="layers.1", ...)``."""

import pytest
import torch  # noqa: F401 - pytester unloads what a run inside this process has loaded

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

MODELS = """
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)

    def forward(self, hidden_states):
        return hidden_states + self.down(self.act(self.up(hidden_states)))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.layers = nn.Embedding(30, 8), nn.ModuleList(Layer() for _ in range(3))

    def forward(self, input_ids):
        hidden_states = self.embed(input_ids)
        for layer in self.layers:
            hidden_states = layer(hidden_states)
        return hidden_states

IDS = torch.arange(6).view(2, 3)

def stage(number):
    with torch.no_grad():
        hidden_states = Model().embed(IDS)
        for layer in Model().layers[:number]:
            hidden_states = layer(hidden_states)
    return Model().layers[number], {"hidden_states": hidden_states}
"""
TESTS = """
import os
from staged import IDS, Model, stage
from torch import nn

def test_stage(tf_golden):
    layer, inputs = stage(1)
    if "WRONG" in os.environ:
        layer.act = nn.GELU()
    tf_golden.check(layer, reference=Model, root=os.environ.get("ROOT", "layers.1"), port_inputs=inputs, input_ids=IDS)
"""


@pytest.fixture
def run(pytester, monkeypatch):
    pytester.makepyfile(staged=MODELS, test_models=TESTS)

    def run(*arguments, **environment):
        for name in ("WRONG", "ROOT"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:randomly", *arguments)

    return run


@pytest.mark.as_run(
    "part",
    works='`root="model.layers.1"`',
    limits="Give the part its own inputs.",
)
def test_bug_is_named_in_a_part_that_is_held_to_its_module(run):
    run("--tf-golden=update").assert_outcomes(passed=1)

    right, wrong = run(), run(WRONG="1")

    right.stdout.fnmatch_lines(["1 golden: 4 of 4 calls compared, worst 0 of tolerance*"])
    wrong.assert_outcomes(failed=1)
    wrong.stdout.fnmatch_lines(["E*act (GELU): gives another output for the same inputs"])


@pytest.mark.as_run("part")
def test_unknown_root_is_refused_with_the_nearest(run):
    run("--tf-golden=update").assert_outcomes(passed=1)

    result = run(ROOT="layer.1")

    result.stdout.fnmatch_lines(["*root='layer.1': the golden has no call of such a module. Nearest path: 'layers.1'."])


def test_root_without_a_reference_records_nothing(run, pytester):
    pytester.makepyfile(
        test_models="""
        from staged import stage

        def test_stage(tf_golden):
            layer, inputs = stage(1)
            tf_golden.check(layer, root="layers.1", **inputs)
        """
    )

    result = run("--tf-golden=update")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*root='layers.1' says which module of its reference the model is, but there is no*"])
    assert not list(pytester.path.glob("goldens/**/*.safetensors"))
