"""The numbers that the other side has: of its operators, its modules, and its configuration."""

import copy

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import pytest_tfdebug
from pytest_tfdebug.parity.proof import prove
from pytest_tfdebug.parity.proof.known_numbers import KnownNumbers, configured_numbers

ROPE = {"rope_type": "default", "rope_theta": 1e6}
CONFIG = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=1,
    num_attention_heads=2,
    rope_parameters=ROPE,
)
IDS = torch.arange(3, 19).view(2, 8)


class OwnTable(torch.nn.Module):
    """Rotary tables that are made in each forward, with a base of its own."""

    def forward(self, states, position_ids):
        power = torch.arange(0, 16, 2).float() / 16
        angles = position_ids[..., None].float() * (1.0 / 10_000.0**power)
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()


def test_fractions_of_a_configuration_are_known_at_any_depth():
    known = configured_numbers(LlamaForCausalLM(CONFIG))

    assert known[1e6] == "rope_theta"
    assert known[1e-6] == "rms_norm_eps"
    assert "initializer_range" not in known.values()


def test_number_goes_before_what_is_made_of_another():
    known = KnownNumbers("the reference", held={1e-6: "eps", 1e6: "rope_theta"})

    told = {each.number: each.told for each in known.at("aten::pow", 10_000.0)}

    assert told[1e6] == "as the reference has"


@pytest.mark.usefixtures("one_thread")
def test_base_of_a_table_is_proved_by_the_references_configuration(monkeypatch):
    monkeypatch.setattr(prove, "SECONDS", 120.0)
    reference = pytest_tfdebug.fill(LlamaForCausalLM(CONFIG).eval(), seed=0)
    port = copy.deepcopy(reference)
    port.model.rotary_emb = OwnTable()

    report = pytest_tfdebug.compare(*(pytest_tfdebug.trace(model, input_ids=IDS) for model in (reference, port)))

    assert report.culprit.path == "model.rotary_emb"
    assert report.culprit.proved.startswith("with base 1e+06, as the reference has, instead of 10000 at ")
