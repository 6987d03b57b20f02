"""Operators that run others, as flex_attention does, run where each operator is looked at."""

import pytest
import torch
import torch.nn.attention.flex_attention as flex
from transformers import LlamaConfig, LlamaForCausalLM

from pytest_tfdebug.tracing.values.index_range import InRange
from pytest_tfdebug.tracing.values.widening import to_float32, widened

IDS = torch.arange(3, 35)[None]

pytestmark = [
    pytest.mark.skipif(
        not hasattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"), reason="this torch compiles flex_attention always"
    ),
    pytest.mark.filterwarnings("ignore"),  # torch's compiler warns of what it is made of
]


@pytest.fixture
def model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 100}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=1)).eval()


def logits(model, attention, ids=IDS):
    model.set_attn_implementation(attention)
    with torch.no_grad():
        return model(input_ids=ids).logits


def test_flex_attention_runs_where_indices_are_checked(model):
    expected = logits(model, "sdpa")

    with InRange():
        actual = logits(model, "flex_attention")

    torch.testing.assert_close(actual, expected)


def test_flex_attention_is_computed_in_wider_dtypes(model):
    model = model.bfloat16()
    model.set_attn_implementation("sdpa")
    found = []
    for attention in ("sdpa", "flex_attention"):
        with widened(model, ((), {"input_ids": IDS}), to_float32(model)) as ((_, inputs), _):
            found.append(logits(model, attention, inputs["input_ids"]))

    assert found[1].dtype == torch.float32
    torch.testing.assert_close(*found)
