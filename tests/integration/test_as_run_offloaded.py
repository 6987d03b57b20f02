"""Models that accelerate has offloaded, whose weights lie elsewhere between two forwards."""

import pytest
import torch
from accelerate import cpu_offload, dispatch_model
from torch import nn

from pytest_tfdebug.goldens.weights import fingerprint


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.act = nn.ReLU()

    def forward(self, x):
        for layer in self.layers:
            x = self.act(layer(x))
        return x


def to_disk(model, directory):
    places = {"layers.0": "cpu", "layers.1": "disk", "act": "cpu"}
    return dispatch_model(model, places, main_device="cpu", offload_dir=str(directory), force_hooks=True)


def to_cpu(model, _directory):
    return cpu_offload(model, execution_device=torch.device("cpu"))


@pytest.fixture(params=[to_cpu, to_disk], ids=["cpu", "disk"])
def run(request, pytester, tmp_path):
    class Given:
        @pytest.fixture
        def model(self):
            return given[0]

    given = []
    pytester.makepyfile(
        "import torch\ndef test_it(tf_golden, model):\n    tf_golden.check(model, torch.eye(4) - 0.5)\n"
    )

    def run(model, *options):
        given[:] = [model.eval()]
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options, plugins=[Given()])

    run(Model(), "--tf-golden=update").assert_outcomes(passed=1)
    return lambda model: run(request.param(model, tmp_path))


@pytest.mark.as_run("offloaded", works="Weights may be on the CPU or on disk.")
def test_offloaded_model_is_held_to_the_golden_of_the_whole_one(run):
    run(Model()).assert_outcomes(passed=1)


def test_bug_in_an_offloaded_model_is_named_with_its_recorded_weights(run):
    wrong = Model()
    wrong.act = nn.GELU()

    result = run(wrong)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*in act (GELU): computes a value that the reference never does"])
    result.stdout.no_fnmatch_line("*other weights*")


@pytest.mark.as_run("offloaded")
def test_other_weights_of_an_offloaded_model_are_named(run):
    wrong = Model()
    wrong.layers[1].weight.data *= 2

    result = run(wrong)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*in layers.1 (Linear): has other weights: layers.1.weight"])


@pytest.mark.parametrize("offload", [to_cpu, to_disk])
def test_offloaded_weights_have_the_prints_of_those_in_memory(offload, tmp_path):
    assert fingerprint(offload(Model(), tmp_path)) == fingerprint(Model())
