"""A keyword that nothing takes, and a list or array where a tensor belongs, are refused before anything runs."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from pytest_tfdebug import TFDebugError
from pytest_tfdebug.tracing.record.signatures import refuse_no_tensors, refuse_unknown_inputs

OPTIONS = ("reference", "tolerance", "rename", "outputs", "name")


@pytest.fixture(scope="module")
def llama():
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=16, **sizes)).eval()


class Wrapper(nn.Module):
    """Hands all keywords on to its model."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *args, **kwargs):
        return self.model(*args, **kwargs)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("refrence", "reference"),
        ("tolerence", "tolerance"),
        ("inputs_ids", "input_ids"),
        ("attention_masks", "attention_mask"),
    ],
)
def test_misspelt_keyword_is_refused_with_what_was_meant(llama, name, near):
    for model in (llama, Wrapper(llama)):
        with pytest.raises(TFDebugError) as caught:
            refuse_unknown_inputs(model, [name], OPTIONS)

        assert str(caught.value).splitlines()[0] == (
            f"{name}= is no option, and no forward of {type(model).__name__} takes it by name. Did you mean {near}=?"
        )
    assert "  It takes: input_ids, attention_mask, " in refused(llama, name)


def refused(model, *names, **how):
    with pytest.raises(TFDebugError) as caught:
        refuse_unknown_inputs(model, names, OPTIONS, **how)
    return str(caught.value)


class Own(nn.Module):
    """A port with names of its own, and a module of torch inside, whose parameter is called input."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, tokens, mask=None):
        return self.layer(tokens if mask is None else tokens * mask)


class Any(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = Own()

    def forward(self, **features):
        return self.own(features["words"])


def test_forward_that_takes_keywords_alone_takes_all_but_misspelt_ones():
    refuse_unknown_inputs(Any(), ["words", "lengths"], ["tolerance"])

    assert "Did you mean tokens=?" in refused(Any(), "token")


def test_only_names_that_the_model_itself_takes_are_suggested():
    text = refused(Own(), "input_ids", hint="Did you forget reference=?")

    assert text.splitlines()[0].endswith("takes it by name. Did you forget reference=?")
    assert "input= is no option, and no forward of Own" in refused(Own(), "input"), "that of its layer"
    assert "Did you mean tokens=?" in refused(Own(), "token", hint="Did you forget reference=?")


def test_ports_name_of_an_input_is_told_with_the_references(llama):
    assert "That is the port's name; give input_ids=, or exchange the port and reference=." in refused(
        llama, "tokens", port=Own()
    )
    assert "give attention_mask=, or" in refused(llama, "mask", port=Own())
    assert "That is the port's name; give tokens=, or exchange" in refused(Own(), "input_ids", port=llama)
    assert "Did you mean input_ids=?" in refused(llama, "inputs_ids", port=Own())


def test_what_a_forward_takes_by_way_of_its_keywords_is_no_mistake(llama):
    names = ("input_ids", "use_cache", "output_attentions", "output_hidden_states", "return_dict")

    refuse_unknown_inputs(llama, names, OPTIONS)
    refuse_unknown_inputs(Wrapper(llama), names, OPTIONS)


class HandsOn(nn.Module):
    """Hands its keywords on to another method, as models made for DataParallel do."""

    def forward(self, kind=None, **kwargs):
        return kind, self.both(**kwargs)

    def both(self, src, src_mask):
        return src, src_mask


class HandsOnTwice(nn.Module):
    """Hands its keywords on to a method that hands them on, and takes one out of them."""

    def forward(self, layer_in, **kwargs):
        return self.chosen(layer_in, **kwargs)

    def chosen(self, layer_in, **kwargs):
        return self.eager(layer_in, **kwargs)

    def eager(self, layer_in, **kwargs):
        return layer_in, kwargs.pop("pad_mask")


def test_keyword_that_a_method_takes_from_its_keywords_is_no_mistake():
    refuse_unknown_inputs(HandsOnTwice(), ["layer_in", "pad_mask"], OPTIONS)

    assert "Did you mean pad_mask=?" in refused(HandsOnTwice(), "pad_masks")


def test_what_a_forward_hands_on_to_another_method_is_no_mistake():
    refuse_unknown_inputs(HandsOn(), ["kind", "src", "src_mask"], OPTIONS)

    assert "Did you mean src_mask=?" in refused(HandsOn(), "src_masks")


def test_keyword_for_another_model_is_refused_only_near_an_option(llama):
    refuse_unknown_inputs(llama, ["pixel_values"], OPTIONS, others_may=True)

    assert "Did you mean reference=?" in refused(llama, "referense", others_may=True)
    assert "pixel_values= is no option" in refused(llama, "pixel_values")


class Plain(nn.Module):
    def forward(self, ids, sizes=None):
        return ids, sizes


@pytest.mark.parametrize("given", [np.ones((1, 2)), [[1, 2]]])
def test_what_is_no_tensor_is_refused_with_what_to_write(llama, given):
    made = "from_numpy" if isinstance(given, np.ndarray) else "tensor"
    for model, name in ((llama, "input_ids"), (Plain(), "ids")):
        for args, kwargs in (((given,), {}), ((), {name: given})):
            with pytest.raises(TFDebugError, match=rf"^{name} is .* takes tensors: give torch\.{made}\({name}\)\.$"):
                refuse_no_tensors(model, "forward", args, kwargs)


def test_lists_that_a_forward_takes_are_left_alone(llama):
    refuse_no_tensors(Plain(), "forward", (torch.ones(1),), {"sizes": [224, 224]})
    refuse_no_tensors(llama, "forward", (torch.ones(1, 2).long(),), {"use_cache": False, "logits_to_keep": 0})
