"""Models that libraries adapt, quantize or make: ``make test-libraries`` installs these beside the test environment."""

from importlib.util import find_spec

import pytest
import torch

if find_spec("torchvision") is not None:
    # Its wheel's operators ask for CUDA and do not load beside a torch for the CPU; it looks for these two as it begins.
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """On one thread."""


@pytest.fixture(scope="session")
def ids():
    return torch.arange(1, 9)[None]


@pytest.fixture(scope="session")
def make_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}

    def make():
        torch.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=64, head_dim=32)).eval()

    return make
