"""A promise that is broken is told with its line, found among the operators of the module that breaks it."""

import linecache
from functools import partial

import pytest
import torch
from torch import nn
from transformers import DynamicCache, GraniteConfig, GraniteForCausalLM

from pytest_tfdebug import InvarianceError, assert_invariant, assert_padding_invariant, fill

IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [11, 12, 13, 14, 15, 16], [17, 18, 19, 20, 21, 22]])


class Tagger(nn.Module):
    """A model around one module of its own, which takes states and the mask."""

    def __init__(self, inner):
        super().__init__()
        self.embed, self.inner, self.head = nn.Embedding(60, 16), inner, nn.Linear(16, 5)

    def forward(self, input_ids, attention_mask=None):
        return self.head(self.inner(self.embed(input_ids), attention_mask))


class NormOverTime(nn.Module):
    def forward(self, states, mask):
        keep = mask[..., None].to(states.dtype)
        centred = states - (states * keep).sum(1, keepdim=True) / keep.sum(1, keepdim=True)
        variance = centred.square().mean(1, keepdim=True)  # wrong: pads count
        return centred * torch.rsqrt(variance + 1e-6)


class LowMask(nn.Module):
    def forward(self, states, mask):
        hidden = (1 - mask[:, None].to(states.dtype)) * -10.0
        scores = 4 * states @ states.transpose(1, 2)
        weights = (scores + hidden).softmax(-1)  # wrong: pads keep weight
        return weights @ states


class SoftExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.slots, self.expert = nn.Linear(16, 4), nn.Linear(16, 16)

    def forward(self, states, mask):
        logits = self.slots(states)
        dispatch = logits.softmax(1)  # wrong: pads are dispatched
        combine = logits.softmax(2)
        return combine @ self.expert(dispatch.transpose(1, 2) @ states)


class BothWays(nn.Module):
    """The last state of the first layer holds pads and is not read: it breaks nothing."""

    def __init__(self):
        super().__init__()
        self.ahead, self.behind = (nn.GRU(16, 8, batch_first=True) for _ in range(2))

    def forward(self, states, mask):
        ahead, _ = self.ahead(states)
        behind, _ = self.behind(states.flip(1))  # wrong: begins with the pads
        return torch.cat([ahead, behind.flip(1)], -1)


class Capacity(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(16, 3)

    def forward(self, states, mask):
        chosen = nn.functional.one_hot(self.router(states).argmax(-1), 3)
        place = chosen.flatten(0, 1).cumsum(0).view_as(chosen)  # wrong: counted over all rows
        kept = chosen * (place <= 4)
        return states * kept.sum(-1, keepdim=True).to(states.dtype)


def failure(model, inputs, name):
    """Return the error, the blamed path and the blamed lines."""
    hold = partial(assert_padding_invariant, model, inputs)
    with pytest.raises(InvarianceError) as caught:
        hold() if name == "padding" else assert_invariant(model, inputs, name)
    culprit = caught.value.culprit
    lines = linecache.getlines(culprit.source.file)[culprit.source.first - 1 : culprit.source.last]
    return caught.value, culprit.path, lines


@pytest.mark.parametrize(
    ("inner", "check"),
    [
        (NormOverTime, "padding"),
        (LowMask, "padding"),
        (SoftExperts, "padding"),
        (BothWays, "padding"),
        (Capacity, "batch"),
    ],
)
def test_a_broken_promise_is_told_with_the_line_that_breaks_it_and_what_that_reads(inner, check):
    model = fill(Tagger(inner()).eval(), seed=0)

    _, path, lines = failure(model, {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}, check)

    assert path == "inner"
    assert "# wrong" in lines[-1]
    assert len(lines) <= 3


def test_a_recurrent_layer_is_not_told_to_attend():
    model = fill(Tagger(BothWays()).eval(), seed=0)

    error, _, _ = failure(model, {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}, "padding")

    assert "probably the pads are treated there like real tokens, and attention_mask is ignored" in str(error)


class KeptUnnormed(nn.Module):
    """Keys go into the cache without their norm, and are not normed when they come out."""

    def __init__(self):
        super().__init__()
        self.key, self.norm, self.out = nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, states, past):
        own = self.key(states)[:, None]
        keys, values = past.update(own, states[:, None], 0)
        keys = torch.cat([keys[:, :, : -own.shape[2]], self.norm(own)], 2)  # wrong
        scores = states[:, None] @ keys.transpose(2, 3)
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(keys.shape[2] - own.shape[2])
        return self.out((scores.masked_fill(~seen, -1e9).softmax(-1) @ values)[:, 0])


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attention, self.head = nn.Embedding(60, 16), KeptUnnormed(), nn.Linear(16, 60)

    def forward(self, input_ids, past_key_values=None, use_cache=None):
        past = DynamicCache() if past_key_values is None else past_key_values
        return {"logits": self.head(self.attention(self.embed(input_ids), past)), "past_key_values": past}


def test_what_a_cache_is_read_for_is_told_and_no_module():
    _, path, lines = failure(fill(Writer().eval(), seed=0), {"input_ids": IDS}, "cache")

    assert path == "attention"
    assert any("# wrong" in line for line in lines)
    assert not any("self.key(states)" in line for line in lines)


def own_scale(module, query, key, value, attention_mask, **kwargs):
    scores = query @ key.repeat_interleave(module.num_key_value_groups, 1).transpose(2, 3)
    scores = scores * module.head_dim**-0.5 + attention_mask
    weights = scores.softmax(-1)
    return (weights @ value.repeat_interleave(module.num_key_value_groups, 1)).transpose(1, 2), weights


def test_attention_that_is_computed_in_two_ways_is_told_where_it_is_called(monkeypatch):
    monkeypatch.setattr("transformers.models.granite.modeling_granite.eager_attention_forward", own_scale)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = GraniteForCausalLM(GraniteConfig(vocab_size=60, **sizes, attention_multiplier=0.1)).eval()

    _, path, lines = failure(fill(model, seed=0), {"input_ids": IDS}, "attention")

    assert path == "model.layers.0.self_attn"
    assert any("attention_interface(" in line for line in lines)
    assert len(lines) <= 20
