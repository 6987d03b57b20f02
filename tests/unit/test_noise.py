"""Rounding grows step by step; what one module makes of inputs that are equal is no rounding."""

import copy

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import llama_port
from pytest_tfdebug import compare, trace
from pytest_tfdebug.errors import NoiseWarning
from pytest_tfdebug.goldens.golden_check import warnings_of

IDS = torch.randint(3, 60, (2, 16), generator=torch.Generator().manual_seed(0))


def llama():
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 8, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=128, use_cache=False, **sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
    return model


def with_epsilon(model, path, epsilon):
    changed = copy.deepcopy(model)
    changed.get_submodule(path).variance_epsilon = epsilon
    return changed


@pytest.mark.parametrize("path", ["model.layers.0.input_layernorm", "model.layers.3.input_layernorm"])
def test_one_wrong_epsilon_fails_at_its_norm(path):
    reference = llama()
    port = with_epsilon(reference, path, 2e-5)

    report = compare(trace(reference, IDS), trace(port, IDS))

    assert not report.ok
    assert report.culprit.path == path


def test_one_wrong_epsilon_that_leaves_the_outputs_within_tolerance_is_told():
    reference, path = llama(), "model.layers.7.post_attention_layernorm"

    report = compare(trace(reference, IDS), trace(with_epsilon(reference, path, 2e-5), IDS))

    assert report.ok
    assert f"the first at {path!r}" in report.internal


@pytest.mark.parametrize("path", ["blocks.1.attention_norm", "norm"])
def test_one_wrong_epsilon_fails_where_names_do_not_pair(path):
    reference = llama_port.load_reference()
    port = llama_port.load_port(reference)
    port.get_submodule(path).eps = 1.2e-6

    report = compare(trace(reference, input_ids=IDS), trace(port, input_ids=IDS))

    assert not report.ok
    assert report.culprit.path == path


class Halves(nn.Linear):
    """A projection that adds up in another order."""

    def forward(self, x):
        half = self.in_features // 2
        return x[..., half:] @ self.weight[:, half:].T + x[..., :half] @ self.weight[:, :half].T


class Chain(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers = nn.ModuleList([kind(64, 64, bias=False) for _ in range(400)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def drifting():
    """Return the report on a deep model under other kernels: every layer rounds otherwise."""
    torch.manual_seed(0)
    reference, port = Chain(nn.Linear), Chain(Halves)
    for layer in reference.layers:
        nn.init.orthogonal_(layer.weight)
    port.load_state_dict(reference.state_dict())
    x = torch.randn(64, 64)
    return compare(trace(reference, x), trace(port, x))


def test_rounding_that_grows_slowly_passes_with_figures_and_a_warning():
    report = drifting()

    assert report.ok
    assert report.worst.share > 1
    assert "tolerance by no more than rounding explains: the worst " in report.noise
    assert " times, at 'layers." in report.noise or " times, at 'Chain'" in report.noise
    assert "Noise: " in str(report)
    (warning,) = [each for each in warnings_of(report, "Chain") if isinstance(each, NoiseWarning)]
    assert str(warning) == f'Chain: {report.noise}\ntolerance="fp64" measures what rounding explains.'


@pytest.mark.nightly
def test_jump_amid_rounding_is_no_rounding():
    torch.manual_seed(0)
    reference, port = Chain(nn.Linear), Chain(Halves)
    for layer in reference.layers:
        nn.init.orthogonal_(layer.weight)
    port.load_state_dict(reference.state_dict())
    with torch.no_grad():
        port.layers[20].weight *= 1 + 8e-6
    x = torch.randn(64, 64)

    report = compare(trace(reference, x), trace(port, x))

    assert not report.ok
    assert report.culprit.path == "layers.20"


@pytest.mark.parametrize("factor", [1.01, 1.03])
def test_what_a_norm_makes_large_is_wrong_where_it_was_small(factor):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    reference = LlamaForCausalLM(LlamaConfig(vocab_size=128, use_cache=False, **sizes)).eval()
    port = copy.deepcopy(reference)
    for layer in port.model.layers:  # its output is small beside the residual, which is small beside what a norm gives
        layer.self_attn.scaling *= factor

    culprit = compare(trace(reference, IDS), trace(port, IDS)).culprit

    assert culprit.path == "model.layers.0.self_attn"
    assert culprit.explanation.startswith("LlamaAttention has scaling ")


def test_module_whose_output_differs_by_rounding_is_not_wrong_for_certain():
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    reference = LlamaForCausalLM(LlamaConfig(vocab_size=99, **sizes)).eval().half()
    port = copy.deepcopy(reference)
    for (
        layer
    ) in port.model.layers:  # seen only behind the residual and a norm, where 1 of 1280 elements leaves tolerance
        layer.self_attn.scaling *= 1.5
    ids = torch.randint(0, 99, (2, 10), generator=torch.Generator().manual_seed(1))

    culprit = compare(trace(reference, input_ids=ids), trace(port, input_ids=ids)).culprit

    assert "self_attn" in culprit.path or not culprit.certain
