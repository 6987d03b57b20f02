"""What a runtime fuses, splits or computes in a loop is found by moments that add up: tiny Phi 3 and Mixtral models."""

import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM, Phi3Config, Phi3ForCausalLM

from models import DECODER, rope
from pytest_tfdebug import compare, trace

IDS = torch.arange(1, 9)[None] * 7 % 99
SIZES = {**DECODER, "tie_word_embeddings": False, **rope(10_000.0)}


def outputs(recorded):
    return [(call.name, leaf.tensor) for call in recorded for leaf in call.outputs or () if leaf.tensor is not None]


def how(report, *names):
    return [{array.how for array in report.arrays if array.label.endswith(name)} for name in names]


@pytest.fixture(scope="module")
def phi():
    torch.manual_seed(0)
    return trace(Phi3ForCausalLM(Phi3Config(**SIZES)).eval(), input_ids=IDS, use_cache=False)


def test_projections_that_the_reference_fuses_are_found_apart(phi):
    lengths = {"qkv_proj": (64, 16, 16), "gate_up_proj": (96, 96)}
    apart = [
        (name, part)
        for name, tensor in outputs(phi)
        for part in tensor.split(lengths.get(name.rpartition(".")[2], tensor.shape[-1]), -1)
    ]

    report = compare(phi, apart)

    assert report.ok
    assert how(report, "qkv_proj", "gate_up_proj") == [{"value"}, {"value"}]


def test_halves_of_a_tensor_that_the_reference_has_whole_are_found(phi):
    halves = [
        (f"{name}.{rank}", half)
        for name, tensor in outputs(phi)
        for rank, half in enumerate(tensor.chunk(2, -1) if name.endswith("activation_fn") else [tensor])
    ]

    report = compare(phi, halves)

    assert report.ok
    assert how(report, "activation_fn.0", "activation_fn.1") == [{"part"}, {"part"}]


def mixtral(implementation):
    torch.manual_seed(0)
    return MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=4, experts_implementation=implementation)).eval()


def computed(model, groups):
    """Return the outputs of a Mixtral's modules, and what its experts compute of each of some groups of choices."""
    found = []

    def look(name):
        def before(module, given):
            states, chosen, weights = given
            for token, place in groups(chosen):
                expert = chosen[token, place]
                gate, up = torch.einsum("nd,nfd->nf", states[token], module.gate_up_proj[expert]).chunk(2, -1)
                inner = torch.nn.functional.silu(gate) * up
                down = torch.einsum("nd,nfd->nf", inner, module.down_proj[expert])
                steps = {"inner": inner, "down": down, "weighted": down * weights[token, place][:, None]}
                found.extend((f"{name}.{step}", tensor) for step, tensor in steps.items())

        return before

    for name, module in model.named_modules():
        if name.endswith("experts"):
            module.register_forward_pre_hook(look(name))
    recorded = trace(model, input_ids=IDS, use_cache=False)
    return [*found, *outputs(recorded)]


def in_a_loop(chosen):
    return [torch.where(chosen == expert) for expert in chosen.unique()]


def at_once(chosen):
    return [torch.where(chosen >= 0)]


@pytest.mark.parametrize(
    ("implementation", "groups", "told"),
    [("grouped_mm", in_a_loop, "turn"), ("eager", at_once, "joined"), ("eager", in_a_loop, "value")],
)
def test_experts_are_found_whoever_loops_over_them(implementation, groups, told):
    recorded = trace(mixtral(implementation), input_ids=IDS, use_cache=False)

    report = compare(recorded, computed(mixtral(implementation), groups))

    assert report.ok
    assert how(report, ".inner", ".down", ".weighted") == [{told}] * 3
