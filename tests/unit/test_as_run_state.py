"""A model is left as it was: the plain attributes of its modules too, also when its forward raises."""

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from models import rope
from pytest_tfdebug import compare, trace

LONG = torch.arange(1, 25)[None]


def dynamic_llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=32,
        head_dim=8,
        max_position_embeddings=8,
        **rope(10_000.0, rope_type="dynamic", factor=2.0),
    )
    return LlamaForCausalLM(config).eval()


def plain_attributes(model):
    return {
        f"{path}.{name}": value
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, (int, float, str, tuple, type(None)))
    }


@pytest.mark.as_run("kept state", works="The model is left as it was,")
def test_dynamic_rotary_embeddings_are_left_as_they_were():
    model = dynamic_llama()
    before = plain_attributes(model)
    frequencies = model.model.rotary_emb.inv_freq.clone()

    first = trace(model, LONG)

    assert before == plain_attributes(model)
    assert model.model.rotary_emb.max_seq_len_cached == 8
    assert torch.equal(model.model.rotary_emb.inv_freq, frequencies)
    assert compare(first, trace(model, LONG)).ok
    with torch.no_grad():
        model(LONG)
    assert model.model.rotary_emb.max_seq_len_cached == 24


@pytest.mark.as_run("kept state", works="also if its forward raises.")
def test_forward_that_raises_leaves_attributes_as_they_were():
    model = dynamic_llama()
    before = plain_attributes(model)
    model.lm_head.register_forward_pre_hook(lambda *_: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        trace(model, LONG)

    assert plain_attributes(model) == before


class Keeping(nn.Module):
    """A module that writes to itself in every way."""

    def __init__(self):
        super().__init__()
        self.steps, self.seen, self.sizes, self.names = 0, [], {"last": None}, {"a"}
        self.memory = torch.zeros(2)
        self.unused = 1

    def forward(self, x):
        self.steps += 1
        self.seen.append(x)
        self.sizes["last"] = x.shape
        self.sizes["more"] = 1
        self.names.add("b")
        self.memory += x
        self.fresh = x
        del self.unused
        return x * 1


@pytest.mark.as_run("kept state", limits="Lists and dicts are put back, but not the contents of their items.")
def test_attributes_of_every_kind_are_put_back():
    model = Keeping()
    seen, memory = model.seen, model.memory

    trace(model, torch.ones(2))

    assert (model.steps, model.seen, model.sizes, model.names, model.unused) == (0, [], {"last": None}, {"a"}, 1)
    assert model.seen is seen
    assert model.memory is memory
    assert model.memory.tolist() == [0.0, 0.0]
    assert not hasattr(model, "fresh")


class ReplacesItsChild(nn.Module):
    """Takes another attention for a short sequence and notes that, as BigBird does."""

    def __init__(self):
        super().__init__()
        self.kind, self.attention = "sparse", nn.Linear(2, 2)

    def forward(self, x):
        if self.kind == "sparse":
            self.kind, self.attention = "full", nn.Identity()
        return self.attention(x)


def test_child_that_a_forward_replaces_is_put_back():
    model = ReplacesItsChild()
    attention = model.attention

    trace(model, torch.ones(1, 2))

    assert model.kind == "sparse"
    assert model.attention is attention


def test_earlier_forward_in_training_can_still_go_backward_after_a_trace():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train(), torch.randn(8, 4)
    loss = model(x).square().sum()

    trace(model, x)

    loss.backward()
    assert model[0].weight.grad is not None
