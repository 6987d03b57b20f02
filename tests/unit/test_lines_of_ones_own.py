"""The lines that are named are the ones to change: a method that a library calls, a constructor that makes a table."""

import linecache

import torch
from torch import nn
from transformers import BloomConfig, BloomForCausalLM, BloomModel

import pytest_tfdebug

IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 10, 11, 12, 13]])


def line_with(comment):
    return next(at for at, text in enumerate(linecache.getlines(__file__), 1) if text.rstrip().endswith(comment))


class FastBloomModel(BloomModel):
    def build_alibi_tensor(self, attention_mask, num_heads, dtype):
        slopes = 2.0 ** -torch.arange(1, num_heads + 1)  # SLOPES
        places = ((attention_mask.cumsum(-1) - 1) * attention_mask)[:, None]
        return (slopes[:, None] * places).flatten(0, 1)[:, None].to(dtype)


class FastBloom(BloomForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.transformer = FastBloomModel(config)
        self.post_init()


def test_method_of_ones_own_that_a_librarys_forward_calls_is_named():
    config = BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4, use_cache=False)
    reference, port = (pytest_tfdebug.fill(each(config).eval(), seed=0) for each in (BloomForCausalLM, FastBloom))
    inputs = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}

    report = pytest_tfdebug.compare(pytest_tfdebug.trace(reference, **inputs), pytest_tfdebug.trace(port, **inputs))

    line = line_with("# SLOPES")
    assert (report.culprit.source.file, report.culprit.source.first) == (__file__, line)
    assert f"here, test_lines_of_ones_own.py:{line} in build_alibi_tensor, called at modeling_bloom.py:" in str(report)


class Turned(nn.Module):
    """Scales each token by the cosine of its place; the port keeps a table of them."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(64, 16), nn.Linear(16, 16)

    def forward(self, ids):
        powers = 100.0 ** -(torch.arange(0, 16).float() / 16)
        angles = torch.outer(torch.arange(ids.shape[1]).float(), powers)
        return self.out(self.table(ids) * angles.cos())


class TurnedByTable(Turned):
    def __init__(self):
        super().__init__()
        angles = torch.outer(torch.arange(32.0), 1000.0 ** -(torch.arange(0, 16).float() / 16))
        self.register_buffer("turns", angles.cos(), persistent=False)  # TURNS

    def forward(self, ids):
        return self.out(self.table(ids) * self.turns[: ids.shape[1]])


def test_buffer_that_a_wrong_value_is_a_part_of_is_told_where_it_is_made():
    reference, port = (pytest_tfdebug.fill(each().eval(), seed=0) for each in (Turned, TurnedByTable))

    report = pytest_tfdebug.compare(pytest_tfdebug.trace(reference, ids=IDS), pytest_tfdebug.trace(port, ids=IDS))

    line = line_with("# TURNS")
    assert (report.culprit.source.first, report.culprit.source.last) == (line - 1, line - 1)
    assert str(report).startswith(f"test_lines_of_ones_own.py:{line - 1} in TurnedByTable (TurnedByTable)")
