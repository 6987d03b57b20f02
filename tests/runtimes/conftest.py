"""Runtimes that models are ported to: ``make test-runtimes`` installs them beside the test environment."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from models import DECODER, rope
from pytest_tfdebug import trace

IDS = torch.arange(1, 9)[None] * 7 % 99


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """On one thread."""


@pytest.fixture(scope="session")
def ids():
    return IDS


@pytest.fixture(scope="session")
def llama():
    torch.manual_seed(0)
    config = LlamaConfig(**DECODER, tie_word_embeddings=False, rms_norm_eps=1e-5, **rope(10_000.0))
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="session")
def recorded(llama):
    return trace(llama, input_ids=IDS, use_cache=False)
