"""A cache is held to its promise however a forward returns it: by name, in a dict, in a tuple."""

import copy
from dataclasses import dataclass

import pytest
import torch
from transformers import DynamicCache, LlamaForCausalLM
from transformers.utils import ModelOutput

import padding_models
import pytest_tfdebug
from pytest_tfdebug import InvarianceError

RETURNED = {
    "by name": lambda output: output,
    "in a dict": lambda output: {"logits": output.logits, "past_key_values": output.past_key_values},
    "in a tuple": lambda output: (output.logits, output.past_key_values),
    "by layer in a tuple": lambda output: (output.logits, by_layer(output.past_key_values)),
}


class Returns(LlamaForCausalLM):
    """A Llama that returns its cache in one way; a stale one forgets what a decoded token adds to it."""

    how, is_stale = "by name", False

    def forward(self, input_ids, past_key_values=None, use_cache=None):
        if isinstance(past_key_values, tuple):
            past_key_values = from_layers(past_key_values)
        before = copy.deepcopy(past_key_values)
        output = super().forward(input_ids, past_key_values=past_key_values, use_cache=use_cache)
        if self.is_stale and before is not None:
            output.past_key_values = before
        return RETURNED[self.how](output)


def by_layer(cache):
    return cache and tuple((layer.keys, layer.values) for layer in cache.layers)


def from_layers(state):
    cache = DynamicCache()
    for place, (keys, values) in enumerate(state):
        cache.update(keys, values, place)
    return cache


def model_that_returns(how, *, is_stale=False):
    model, inputs = padding_models.build("llama")
    model.__class__ = Returns
    model.how, model.is_stale = how, is_stale
    return model, {"input_ids": inputs["input_ids"]}


@pytest.mark.parametrize("how", RETURNED)
def test_cache_is_found_where_it_is_returned(how):
    pytest_tfdebug.assert_invariant(*model_that_returns(how), "cache")


@pytest.mark.parametrize("how", RETURNED)
def test_stale_cache_fails_wherever_it_is_returned(how):
    with pytest.raises(InvarianceError, match="gives another answer with its cache"):
        pytest_tfdebug.assert_invariant(*model_that_returns(how, is_stale=True), "cache")


def test_forward_that_returns_no_cache_has_not_been_checked(monkeypatch):
    monkeypatch.setitem(RETURNED, "not at all", lambda output: {"logits": output.logits})

    with pytest.raises(InvarianceError, match=r"invariant\('cache'\) checked nothing") as caught:
        pytest_tfdebug.assert_invariant(*model_that_returns("not at all"), "cache")

    told = " ".join(str(caught.value).split())
    assert (
        "it returned no past_key_values, so no step was decoded; return it by that name, in a dict or a ModelOutput, "
        "or as the one cache of a tuple" in told
    )


@dataclass
class Empty(ModelOutput):
    logits: torch.Tensor | None = None
    past_key_values: object = None
    features: list | None = None


def test_other_nested_lists_are_not_taken_for_a_cache_that_is_named_and_empty(monkeypatch):
    monkeypatch.setitem(RETURNED, "empty", lambda output: Empty(output.logits, None, [[output.logits]]))

    with pytest.raises(InvarianceError, match="it returned no past_key_values, so no step was decoded"):
        pytest_tfdebug.assert_invariant(*model_that_returns("empty"), "cache")


class CountsTheWholeMask(LlamaForCausalLM):
    def forward(self, input_ids, attention_mask=None, past_key_values=None, use_cache=None):
        positions = None if attention_mask is None else attention_mask.cumsum(-1) - 1
        return super().forward(
            input_ids, attention_mask, positions, past_key_values=past_key_values, use_cache=use_cache
        )


def test_step_that_raises_with_the_mask_of_all_tokens_says_that_it_is_not_cut():
    model, inputs = padding_models.build("llama")
    model.__class__ = CountsTheWholeMask

    with pytest.raises(InvarianceError) as caught:
        pytest_tfdebug.assert_invariant(model, {"input_ids": inputs["input_ids"][:1]}, "cache")

    told = " ".join(str(caught.value).split())
    assert "raises where the plain call does not" in told
    assert (
        "Diagnosis: what is made of attention_mask is not cut to the tokens of the step: without attention_mask the "
        "step is right." in told
    )
