"""On which sides a hand-written model is padded: its behaviour decides, and what was left out is said."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from pytest_tfdebug import InvarianceError, assert_padding_invariant
from pytest_tfdebug.invariance.api import CHECKS
from pytest_tfdebug.invariance.calls.observed_call import observe
from pytest_tfdebug.invariance.checks.base import Settings

IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [11, 12, 13, 14, 15, 16]])


class Attending(torch.nn.Module):
    """One attention over embedded ids; says nothing of itself."""

    def __init__(self, *, looks_ahead=False, ignores_mask=False, pools=False, positions=0):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.vocab_size = torch.nn.Embedding(40, 8), 40
        self.looks_ahead, self.ignores_mask, self.pools = looks_ahead, ignores_mask, pools
        self.position_embeddings = torch.nn.Embedding(positions, 8) if positions else None

    def forward(self, input_ids, attention_mask=None):
        states, length = self.embed(input_ids), input_ids.shape[1]
        if self.position_embeddings is not None:
            states = states + self.position_embeddings(torch.arange(length))
        seen = torch.ones(length, length, dtype=torch.bool)
        seen = seen if self.looks_ahead else seen.tril()
        if attention_mask is not None and not self.ignores_mask:
            seen = seen & attention_mask[:, None].bool() | torch.eye(length, dtype=torch.bool)
        states = scaled_dot_product_attention(states, states, states, attn_mask=seen)
        return states[:, -1] if self.pools else states


class Unmasked(Attending):
    def forward(self, tokens):
        return super().forward(tokens)


class Own(Attending):
    def forward(self, tokens, mask=None):
        return super().forward(tokens, mask)


def outcome_of(model, names=None, **settings):
    call, _ = observe(model, (IDS,), {}, lambda: model(IDS))
    return CHECKS["padding"].run(call.under_names(names or {}), Settings(**settings))


def test_decoder_that_says_nothing_of_itself_is_padded_on_the_left():
    with pytest.raises(InvarianceError, match="input_ids padded by 1 on the left"):
        assert_padding_invariant(Attending(ignores_mask=True), {"input_ids": IDS})

    assert outcome_of(Attending()).repeats == 10, "four lengths and a ragged batch on each side"


def test_model_that_looks_ahead_is_padded_right_without_a_word():
    outcome = outcome_of(Attending(looks_ahead=True))

    assert (outcome.repeats, outcome.notes) == (5, [])


@pytest.mark.parametrize("side", ["left", "both"])
def test_side_that_is_asked_for_is_padded_whatever_the_model_is(side):
    model = Attending(looks_ahead=True, positions=60)

    assert "input_ids padded by 1 on the left" in outcome_of(model, side=side).failure


@pytest.mark.parametrize(
    ("model", "names", "why"),
    [
        (Attending(pools=True, looks_ahead=True), {}, "the answer does not show whether Attending decodes"),
        (Attending(positions=60), {}, "Attending has absolute positions and takes no position_ids"),
        (Unmasked(), {"tokens": "input_ids"}, "Unmasked takes no attention_mask; side='left'"),
        (
            Own(),
            {"tokens": "input_ids"},
            "Own takes no attention_mask (inputs= says which of its inputs that is: mask); side='left'",
        ),
    ],
)
def test_what_is_left_out_of_a_model_that_may_decode_is_said(model, names, why):
    right = outcome_of(model, names, side="right")

    outcome = outcome_of(model, names)

    assert (outcome.repeats, right.notes) == (right.repeats, [])
    assert outcome.notes[0].startswith(f"{type(model).__name__}: input_ids was padded on the right only: {why}")


def test_lengths_that_the_model_refuses_are_said_and_shorter_ones_checked():
    model = Attending(positions=14, ignores_mask=True)

    outcome = outcome_of(Attending(positions=14), side="right")

    assert outcome.repeats == 3, "1 and 7 pads, and a ragged batch"
    assert outcome.notes == [
        "Attending: input_ids was not padded to 32 or more: IndexError: index out of range in self"
    ]
    assert "input_ids padded by 1 on the left" in outcome_of(model, side="both").failure


def test_pixels_on_the_left_are_refused_with_a_reason():
    class Masked(torch.nn.Module):
        def forward(self, pixel_values, pixel_mask=None):
            return (pixel_values * (1 if pixel_mask is None else pixel_mask[:, None])).sum((2, 3))

    call, _ = observe(Masked(), (torch.ones(1, 3, 4, 4),), {}, lambda: None)

    both, left = (CHECKS["padding"].run(call, Settings(side=side)) for side in ("both", "left"))

    assert both.notes == ["Masked: pixel_values was padded on the right only: pixels can be padded on the right only"]
    assert left.skipped == ["Masked: pixel_values was not padded: pixels can be padded on the right only"]
