"""A forward is made again as it was, or not at all."""

import linecache
import random

import pytest
import torch
from torch import nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from pytest_tfdebug import compare, trace
from pytest_tfdebug.tracing.values.rerun import Recorded, Rerun

X = torch.linspace(-1, 1, 8).view(2, 4)


class Calls(nn.Module):
    """A linear layer, and a function of it and the inputs."""

    def __init__(self, function=lambda layer, x: layer(x)):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.function = nn.Linear(4, 4), function

    def forward(self, *args, **kwargs):
        return self.function(self.layer, *args, **kwargs)


def test_second_forward_gives_the_values_of_the_first():
    model = Calls()
    rerun = Rerun(model, (X,), {})

    values = rerun.values([model(X)])

    assert [call.path for call in values.calls] == ["Calls", "layer"]
    assert values.values[values.results[0][1]].shape == (2, 4)


def test_callers_cache_of_ten_entries_is_as_it_was():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "vocab_size": 32}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=2)).eval()
    cache, ids = DynamicCache(config=model.config), torch.arange(10).view(1, 10)
    with torch.no_grad():
        model(ids, past_key_values=cache)
    rerun = Rerun(model, (), {"input_ids": ids[:, :3], "past_key_values": cache})
    with torch.no_grad():
        output = model(ids[:, :3], past_key_values=cache)

    first, second = rerun.values([output.logits]), rerun.values([output.logits])

    assert cache.get_seq_length() == 13
    assert first is not None
    assert [value.print for value in first.values] == [value.print for value in second.values]


def test_inputs_that_the_forward_overwrites_are_as_they_were():
    model, given = Calls(lambda layer, x: x.mul_(2) + layer(x)), X.clone()
    rerun = Rerun(model, (given,), {})
    output = model(given)

    assert rerun.values([output]) is not None
    assert torch.equal(given, X * 2)
    assert torch.equal(rerun.inputs()[0][0], X)


def test_model_that_has_changed_since_gives_nothing():
    model = Calls()
    rerun, output = Rerun(model, (X,), {}), model(X)
    model.layer.bias.data += 1

    assert rerun.values([output]) is None
    assert rerun.values() is not None


@pytest.mark.parametrize(
    "noise", [lambda x: torch.dropout(x, 0.5, train=True), lambda x: x * random.random()], ids=["torch", "python"]
)
def test_random_numbers_are_drawn_again_and_the_generators_left_as_they_were(noise):
    model = Calls(lambda layer, x: noise(layer(x)))
    rerun, output = Rerun(model, (X,), {}), model(X)
    states = torch.random.get_rng_state(), random.getstate()

    assert rerun.values([output]) is not None
    assert torch.equal(states[0], torch.random.get_rng_state())
    assert states[1] == random.getstate()


def test_forwards_of_models_that_nobody_else_holds_are_explained():
    report = compare(trace(Calls(), X), trace(Calls(lambda layer, x: layer(x) + 1), X))

    assert "layer(x) + 1" in linecache.getline(report.culprit.source.file, report.culprit.source.first)


def test_forward_that_raises_the_second_time_costs_no_report():
    runs = []

    def once(layer, x):
        runs.append(1)
        if len(runs) > 1:
            raise RuntimeError("only once")
        return layer(x) + 1

    model, reference = Calls(once), Calls()

    report = compare(trace(reference, X), trace(model, X))

    assert len(runs) == 4  # for random numbers, with attention written out, and without
    assert (report.ok, report.culprit.path) == (False, "Calls")
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


class ViewsAttention(nn.Module):
    """Needs the layout that torch's attention returns."""

    def forward(self, x):
        heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
        made = nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return made.transpose(1, 2).view(x.shape)


def test_forward_that_needs_fused_attentions_layout_is_made_again_as_it_is():
    x = torch.linspace(-1, 1, 48).view(2, 3, 8)

    values = Rerun(ViewsAttention(), (x,), {}).values([ViewsAttention()(x)])

    assert values is not None
    assert any("scaled_dot_product" in value.operator for value in values.values)


def test_buffers_and_mode_are_left_as_they_were():
    model = nn.Sequential(nn.BatchNorm1d(4)).train()
    rerun = Rerun(model, (X,), {})
    before = model[0].running_mean.clone()

    assert rerun.values() is not None
    assert torch.equal(model[0].running_mean, before)
    assert model.training


def test_recorded_values_are_returned_as_they_are():
    model = Calls()
    values = Rerun(model, (X,), {}).values()

    assert values is not None
    assert Recorded(values).values([X]) is values


def test_forward_that_hangs_on_rounding_runs_again_with_its_fused_attention():
    def chaotic(layer, x):
        hidden = layer(x)[None, None]
        attended = torch.nn.functional.scaled_dot_product_attention(hidden, hidden, hidden)
        return torch.sin(attended * 1e9)

    model = Calls(chaotic)

    values = Rerun(model, (X,), {}).values([model(X)])

    assert values is not None
    assert any("scaled_dot_product" in value.operator for value in values.values)
