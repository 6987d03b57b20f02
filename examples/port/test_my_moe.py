import pytest
import pytest_tfdebug
import torch
from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

from my_moe import MyMoE, load


@pytest.fixture
def reference():
    config = Qwen2MoeConfig(
        hidden_size=64,
        intermediate_size=128,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=48,
        num_experts=6,
        num_experts_per_tok=2,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=99,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    )
    return pytest_tfdebug.fill(Qwen2MoeForCausalLM(config).eval(), seed=0)


@pytest.fixture
def port(reference):
    return load(MyMoE(reference.config), reference.state_dict())


def test_port(tf_golden, reference, port):
    tf_golden.check(port, reference=reference, input_ids=torch.arange(20).view(2, 10))
