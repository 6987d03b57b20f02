"""What other kernels round otherwise is no fault, and hides none: it is looked at in float64."""

import copy

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import llama_port
from other_kernels import OtherKernels
from pytest_tfdebug import compare, trace

IDS = torch.arange(1, 33)[None]
#: Thousands of products are summed one after the other on a GPU: so much more than the few dozens of a small model.
AS_OF_THOUSANDS = 12.0


def llama(dtype=torch.float32):
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "vocab_size": 200}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=6, use_cache=False)).to(dtype).eval()


def held(port, reference, share=AS_OF_THOUSANDS, seed=0):
    with OtherKernels(seed, share):
        return compare(trace(reference, input_ids=IDS), trace(port, IDS))


def test_port_whose_kernels_sum_otherwise_agrees():
    reference = llama()
    report = held(llama_port.load_port(reference), reference)

    assert report.ok, str(report)
    assert any(note.startswith("In float64 every output agrees; in float32 they are up to ") for note in report.notes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_small_mistake_is_named_where_rounding_is_as_large(dtype):
    reference = llama(dtype)
    port = llama_port.load_port(reference)
    attention = port.blocks[3].attention
    forward = attention.forward
    attention.forward = lambda *given: forward(*given) * 1.0005

    report = held(port, reference)

    assert not report.ok
    assert report.culprit.path == "blocks.3.attention", str(report)
    assert "Held in float64, where nothing is rounding." in report.notes


@pytest.mark.parametrize("seed", range(4))
def test_model_in_float64_that_computes_in_float32_inside_may_round_otherwise(seed):
    model = llama(torch.float64)
    expected = trace(model, IDS)
    wrong = copy.deepcopy(model)
    wrong.model.layers[1].mlp.act_fn = nn.GELU().eval()

    with OtherKernels(seed):
        right, named = compare(expected, trace(copy.deepcopy(model), IDS)), compare(expected, trace(wrong, IDS))

    assert right.ok, str(right)
    assert named.culprit.path == "model.layers.1.mlp.act_fn", str(named)


class Cancelling(llama_port.Norm):
    """Has the variance of large numbers as the difference of two larger ones."""

    def forward(self, hidden):
        far = hidden + 10.0
        variance = far.pow(2).mean(-1, keepdim=True) - 20.0 * hidden.mean(-1, keepdim=True) - 10.0**2
        return hidden * torch.rsqrt(variance + self.eps) * self.scale


def test_what_cancels_in_float32_alone_is_told_as_rounding_of_its_own():
    reference = llama()
    reference.model.norm.weight.data.mul_(3)
    port = llama_port.load_port(reference)
    port.norm.__class__ = Cancelling

    report = compare(trace(reference, input_ids=IDS), trace(port, IDS))

    assert report.culprit.path == "norm", str(report)
    assert "is right in float64, and too far off in float32" in str(report)


def test_port_that_makes_tables_of_its_own_agrees_where_positions_multiply_their_rounding():
    reference = llama()
    for weight in (each for each in reference.parameters() if each.dim() > 1):
        weight.data.normal_(std=3 * weight.shape[1] ** -0.5)
    table = reference.model.rotary_emb.inv_freq
    table.copy_(torch.nextafter(table, table + 1))
    ids = torch.arange(1024)[None] % 200
    port = llama_port.load_port(reference)

    report = compare(trace(reference, input_ids=ids), trace(port, ids))

    assert report.ok, str(report)
    assert "What differs in float64 is what rounding of the reference's tables to float32 explains." in report.notes

    port.blocks[3].attention.forward = lambda *given: (
        llama_port.Attention.forward(port.blocks[3].attention, *given) * 1.1
    )
    assert not compare(trace(reference, input_ids=ids), trace(port, ids)).ok
