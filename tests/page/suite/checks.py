"""Real checks of real models, some of them wrong: what the pages of the tests are made from.

Run twice: with ``--tf-golden=update`` every model is right, and afterwards bugs that ports had are put in.
"""

import copy

import pytest
import torch

from injections import edit
from llama_port import RENAME, load_port, load_reference

IDS = torch.arange(3, 19).view(2, 8)


@pytest.fixture
def reference():
    return load_reference()


@pytest.fixture
def is_recording(request):
    return request.config.getoption("tf_golden") == "update"


def check(tf_golden, reference, *bug, **arguments):
    port = load_port(reference)
    if bug:
        edit(*bug)(port)
    tf_golden.check(port, reference=reference, input_ids=IDS, **arguments)


def test_scale_of_attention(tf_golden, reference):
    bug = ("blocks.1.attention", "query.shape[-1] ** -0.5", "hidden.shape[-1] ** -0.5")
    check(tf_golden, reference, *bug)


def test_missing_residual(tf_golden, reference):
    check(tf_golden, reference, "blocks.1", "return hidden + self.mixer", "return self.mixer")


def test_activation_under_names(tf_golden, reference):
    check(tf_golden, reference, "blocks.1.mixer", "functional.silu", "functional.gelu", rename=RENAME)


def test_right_port(tf_golden, reference):
    check(tf_golden, reference, rename=RENAME)


def test_wrong_weight(tf_golden, reference, is_recording):
    port = load_port(reference)
    if not is_recording:
        with torch.no_grad():
            port.blocks[1].mixer.gate.weight.mul_(1.1)
    tf_golden.check(port, reference=reference, input_ids=IDS)


def test_regression(tf_golden, reference, is_recording):
    if not is_recording:
        edit("model.layers.2.mlp", "self.down_proj(", "1.01 * self.down_proj(")(reference)
    tf_golden.check(reference, input_ids=IDS)


class Pooled(torch.nn.Module):
    """A classifier that takes the mean over all tokens, pads too."""

    def __init__(self, body):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = body, torch.nn.Linear(99, 3)

    def forward(self, input_ids, attention_mask=None):
        hidden = self.body(input_ids=input_ids, attention_mask=attention_mask).logits
        return self.head(hidden.mean(1))


@pytest.mark.padding_invariant
def test_mean_over_pads(reference):
    Pooled(reference).eval()(input_ids=IDS, attention_mask=torch.ones_like(IDS))


@pytest.mark.padding_invariant
def test_mask_that_is_dropped(reference):
    edit("model.layers.1.self_attn", "attention_mask,", "None,")(reference)
    reference(input_ids=IDS, attention_mask=torch.ones_like(IDS))


@pytest.mark.invariant("batch")
def test_rows_alone(reference):
    reference(input_ids=IDS, attention_mask=torch.ones_like(IDS))


def grown(reference, factor, *parts):
    model = copy.deepcopy(reference)
    with torch.no_grad():
        for part in parts:
            model.model.layers[1].mlp.get_submodule(part).weight.mul_(factor)
    return model


@pytest.mark.overflow_free(dtype="float16", headroom=4.0)
def test_little_headroom(reference):
    grown(reference, 9e6, "down_proj")(input_ids=IDS)


@pytest.mark.overflow_free
def test_overflow(reference):
    with torch.no_grad():
        grown(reference, 2e4, "up_proj", "down_proj").half()(input_ids=IDS)


@pytest.mark.overflow_free(dtype="float16")
def test_enough_headroom(reference):
    reference(input_ids=IDS)


@pytest.mark.invariant("clean_load")
def test_head_of_another_class(reference, tmp_path):
    from transformers import LlamaForSequenceClassification, LlamaModel

    LlamaModel(reference.config).save_pretrained(tmp_path)
    LlamaForSequenceClassification.from_pretrained(tmp_path)
