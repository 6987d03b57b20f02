import pytest
import pytest_tfdebug
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def build():
    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=99
    )
    model = pytest_tfdebug.fill(LlamaForCausalLM(config).eval(), seed=0)
    return model


@pytest.mark.overflow_free(dtype="float16", headroom=2.0)
def test_llama_has_room_for_float16():
    build()(input_ids=torch.arange(20).view(2, 10))
