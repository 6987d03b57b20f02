"""Pads before the tokens shift every table of positions: what of that changes an answer, and what does not."""

import linecache

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BloomConfig,
    BloomModel,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXModel,
    LlamaConfig,
    LlamaModel,
    MistralConfig,
    MistralModel,
    PhiConfig,
    PhiModel,
    Qwen2Config,
    Qwen2Model,
)

from pytest_tfdebug import InvarianceError, assert_padding_invariant, fill

IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [11, 12, 13, 14, 15, 16]])
INPUTS = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
LEFT_PADDED = torch.tensor([[5, 6, 7, 8, 9, 10], [0, 0, 0, 11, 12, 13]])
SIZES = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0}
WIDE = {**SIZES, "intermediate_size": 48, "bos_token_id": 1, "eos_token_id": 2}
BODIES = {
    "llama": (LlamaModel, LlamaConfig(**WIDE, num_key_value_heads=2)),
    "mistral": (MistralModel, MistralConfig(**WIDE, num_key_value_heads=2)),
    "qwen2": (Qwen2Model, Qwen2Config(**WIDE, num_key_value_heads=2)),
    "phi": (PhiModel, PhiConfig(**WIDE)),
    "gpt-neox": (GPTNeoXModel, GPTNeoXConfig(**WIDE)),
    "bloom": (BloomModel, BloomConfig(vocab_size=99, hidden_size=32, n_layer=2, n_head=4, pad_token_id=0)),
}


class Pooled(torch.nn.Module):
    """A model with a head over its states: right, or wrong under left padding in one of three ways."""

    def __init__(self, body, how):
        super().__init__()
        self.body, self.how, self.score = body, how, torch.nn.Linear(32, 3)

    def forward(self, input_ids, attention_mask):
        states = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        if self.how == "last":
            return self.score(states[torch.arange(len(states)), attention_mask.sum(1) - 1])
        if self.how == "first":
            return self.score(states[:, 0])
        if self.how == "mean":
            return self.score(states.mean(1))
        return self.score((states * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True))


class PooledWithPositions(Pooled):
    def forward(self, input_ids, attention_mask, position_ids=None):
        states = self.body(input_ids, attention_mask=attention_mask, position_ids=position_ids).last_hidden_state
        return self.score(states[torch.arange(len(states)), attention_mask.sum(1) - 1])


def pooled(name, how, kind=Pooled):
    body, config = BODIES[name]
    return fill(kind(body(config), how).eval(), seed=0)


def failure(model, inputs=INPUTS, **settings):
    with pytest.raises(InvarianceError) as caught:
        assert_padding_invariant(model, inputs, **settings)
    return caught.value


def blamed(error):
    source = error.culprit.source
    return "".join(linecache.getlines(source.file)[source.first - 1 : source.last])


def first_line(error):
    return str(error).splitlines()[0]


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(
    ("how", "line"),
    [("last", "attention_mask.sum(1) - 1]"), ("first", "states[:, 0]"), ("mean", "states.mean(1)")],
)
def test_wrong_pooling_is_named_where_tables_of_positions_shift_too(name, how, line):
    error = failure(pooled(name, how), side="left")

    assert (error.culprit.path, error.culprit.kind) == ("Pooled", "glue")
    assert line in blamed(error)
    assert first_line(error).endswith("; probably pooling over pads")


@pytest.mark.parametrize("name", BODIES)
def test_right_pooling_passes_on_the_left(name):
    assert_padding_invariant(pooled(name, "right"), INPUTS, side="left")


def test_wrong_pooling_is_named_in_a_model_that_takes_position_ids():
    error = failure(pooled("llama", "last", PooledWithPositions), side="left")

    assert (error.culprit.path, error.culprit.kind) == ("PooledWithPositions", "glue")
    assert first_line(error).endswith("; probably pooling over pads")


class Turning(torch.nn.Module):
    """Rotary attention, which is given a table of angles."""

    def __init__(self, *, drops_mask):
        super().__init__()
        self.qkv, self.drops_mask = torch.nn.Linear(16, 48), drops_mask

    def forward(self, states, angle, mask):
        query, key, value = self.qkv(states).chunk(3, -1)
        scores = self.turned(query, angle) @ self.turned(key, angle).mT / 4
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()[None]
        if not self.drops_mask:
            seen = seen & mask[:, None].bool()
        return states + scores.masked_fill(~seen, -1e9).softmax(-1) @ value

    def turned(self, states, angle):
        one, other = states.chunk(2, -1)
        return torch.cat([one * angle.cos() - other * angle.sin(), other * angle.cos() + one * angle.sin()], -1)


class RootTable(torch.nn.Module):
    """Makes one table of angles, without a batch axis, for all its blocks; some of them forget the mask."""

    def __init__(self, *dropping):
        super().__init__()
        self.words = torch.nn.Embedding(99, 16)
        self.blocks = torch.nn.ModuleList(Turning(drops_mask=place in dropping) for place in range(3))

    def forward(self, input_ids, attention_mask):
        states = self.words(input_ids)
        angle = torch.arange(input_ids.shape[1])[:, None] * 100 ** -(torch.arange(8) / 8)
        for block in self.blocks:
            states = block(states, angle, attention_mask)
        return states


class AddedTable(RootTable):
    """Adds its table to the states, so that the shift matters."""

    def forward(self, input_ids, attention_mask):
        states = self.words(input_ids)
        places = torch.arange(input_ids.shape[1])[:, None] * 100 ** -(torch.arange(16) / 16)
        for block in self.blocks:
            states = block(states + places.sin(), torch.zeros(1, 8), attention_mask)
        return states


@pytest.mark.parametrize("dropping", [(0,), (1,), (2,), (1, 2)])
def test_first_block_that_forgets_the_mask_is_named_beside_a_shifted_table(dropping):
    error = failure(fill(RootTable(*dropping).eval(), seed=0), side="left")

    assert error.culprit.path == f"blocks.{dropping[0]}"
    assert "the pads are treated there like real tokens, and attention_mask is ignored" in first_line(error)


def test_shifted_table_that_attention_uses_as_distances_passes():
    assert_padding_invariant(fill(RootTable().eval(), seed=0), INPUTS, side="left")


def test_sum_with_a_shifted_table_is_named_as_positions():
    error = failure(fill(AddedTable().eval(), seed=0), side="left")

    assert (error.culprit.path, error.culprit.kind) == ("AddedTable", "glue")
    assert "; probably positions ignore the mask" in first_line(error)


class Counting(torch.nn.Module):
    """GPT-2 that numbers its tokens from 0, whatever the mask says."""

    def __init__(self):
        super().__init__()
        self.body = GPT2LMHeadModel(GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64))

    def forward(self, input_ids, attention_mask=None):
        return self.body(input_ids, attention_mask=attention_mask).logits


def test_positions_that_ignore_the_mask_are_told_from_pads_that_are_seen():
    error = failure(fill(Counting().eval(), seed=0), side="left")

    assert error.culprit.path == "body.transformer"
    assert first_line(error).endswith("; probably positions ignore the mask")
    assert "Diagnosis: positions ignore the mask: pads are counted as tokens." in str(error)
    assert "like real tokens" not in str(error)


def gpt2(**settings):
    config = GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, **settings)
    return fill(GPT2LMHeadModel(config).eval())


CALLERS = """
import pytest, torch
from test_padding_left import LEFT_PADDED, gpt2

def score(model, **positions):
    mask = (LEFT_PADDED > 0).long()
    return model(input_ids=LEFT_PADDED, attention_mask=mask, **positions).logits

@pytest.mark.padding_invariant
def test_without():
    score(gpt2())

@pytest.mark.padding_invariant
def test_with():
    score(gpt2(), position_ids=((LEFT_PADDED > 0).long().cumsum(-1) - 1).clamp(min=0))
"""


def test_left_padded_rows_without_position_ids_fail_at_the_tests_call(pytester):
    pytester.makepyfile(test_it=CALLERS)

    result = pytester.runpytest("-W", "ignore")

    result.assert_outcomes(passed=1, failed=1)
    told = "is not invariant to padding; probably input_ids has pads on the left and no position_ids"
    result.stdout.fnmatch_lines(
        [
            f"test_it.py:6 in GPT2LMHeadModel: {told}",
            "  GPT2LMHeadModel (test_it.py:6) is not invariant to padding: row 1 in its batch, where it has 3 pads,*",
            "  Next: pass position_ids at test_it.py:6: (attention_mask.cumsum(-1) - 1).clamp(min=0)",
        ]
    )
    result.stdout.no_fnmatch_line("*fix these lines*")


class Unmasked(BertForSequenceClassification):
    """Takes the mask and gives none to the body."""

    def forward(self, input_ids, attention_mask=None):
        return super().forward(input_ids)


def bert(cls):
    config = BertConfig(vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    return fill(cls(config).eval())


FORGOTTEN = """
import pytest
from transformers import BertForSequenceClassification
from test_padding_left import LEFT_PADDED, Unmasked, bert, gpt2

@pytest.mark.padding_invariant
def test_forgotten():
    bert(BertForSequenceClassification)(LEFT_PADDED.flip(-1))

@pytest.mark.padding_invariant
def test_mask_and_positions_forgotten():
    gpt2(pad_token_id=0)(input_ids=LEFT_PADDED)

@pytest.mark.padding_invariant
def test_forgotten_and_not_read():
    bert(Unmasked)(LEFT_PADDED.flip(-1))
"""


def test_forgotten_mask_is_told_at_the_call_unless_the_model_is_wrong_with_it_too(pytester):
    pytester.makepyfile(test_it=FORGOTTEN)

    result = pytester.runpytest("-W", "ignore")

    result.assert_outcomes(failed=3)
    told = "is not invariant to padding; probably the call was made without attention_mask although rows of input_ids"
    result.stdout.fnmatch_lines(
        [
            f"test_it.py:7 in BertForSequenceClassification: {told} begin or end with pad tokens",
            "  Next: pass attention_mask at test_it.py:7.",
            f"test_it.py:11 in GPT2LMHeadModel: {told} begin or end with pad tokens",
            "  Next: pass attention_mask at test_it.py:11.",
            "*test_padding_left.py:* in Unmasked (Unmasked): *",
            "  Next: fix these lines; *",
        ]
    )


class Windowed(Turning):
    """Attends to the last tokens alone, as many as its window."""

    def __init__(self, window):
        super().__init__(drops_mask=False)
        self.window = window

    def forward(self, states, angle, mask):
        query, key, value = self.qkv(states).chunk(3, -1)
        at = torch.arange(states.shape[1])
        seen = (at[None] <= at[:, None]) & (at[None] > at[:, None] - self.window) & mask[:, None].bool()
        scores = self.turned(query, angle) @ self.turned(key, angle).mT / 4
        return states + scores.masked_fill(~seen, -1e9).softmax(-1) @ value


class OfWindows(RootTable):
    def __init__(self, *windows):
        super().__init__()
        self.blocks = torch.nn.ModuleList(map(Windowed, windows))


@pytest.mark.parametrize("side", ["left", "right"])
def test_window_of_0_is_told_as_keys_that_are_all_hidden(side):
    error = failure(fill(OfWindows(4, 0).eval(), seed=0), side=side)

    assert error.culprit.path == "blocks.1"
    assert first_line(error).endswith("; probably every key is hidden from 12 of 12 real tokens")
    told = "a softmax then weighs all keys alike, pads too, as with a window of 0."
    assert told in " ".join(str(error).split())


def test_library_attention_with_a_window_of_0_is_told_the_same():
    config = MistralConfig(**WIDE, num_key_value_heads=2, sliding_window=0, attn_implementation="eager")
    config.use_cache = False

    error = failure(fill(MistralModel(config).eval(), seed=0), side="right")

    assert error.culprit.path == "layers.0.self_attn"
    assert first_line(error).endswith("; probably every key is hidden from 12 of 12 real tokens")


@pytest.mark.parametrize("side", ["left", "right"])
def test_window_of_1_passes(side):
    assert_padding_invariant(fill(OfWindows(4, 1).eval(), seed=0), INPUTS, side=side)
