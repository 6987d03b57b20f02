"""Encoder-decoders, vision-language models and packed sequences: clean ones quiet, and a bug named."""

import pytest
import torch
from torch import nn
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from pytest_tfdebug import compare, trace

IDS = torch.arange(1, 9)[None]
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = LlamaConfig(**SIZES, vocab_size=32, head_dim=8)


def encoder_decoder():
    config = T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0)
    return T5ForConditionalGeneration(config), {"input_ids": IDS, "decoder_input_ids": IDS[:, :4]}


def vision_language():
    vision = CLIPVisionConfig(**SIZES, image_size=8, patch_size=4)
    model = LlavaForConditionalGeneration(LlavaConfig(vision_config=vision, text_config=TEXT, image_token_index=31))
    ids = torch.cat([torch.full((1, 4), 31), IDS], dim=1)
    return model, {"input_ids": ids, "pixel_values": torch.linspace(-1, 1, 192).view(1, 3, 8, 8)}


def packed():
    places = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4]])  # two sequences in one row
    return LlamaForCausalLM(TEXT), {"input_ids": IDS, "position_ids": places, "use_cache": False}


#: Where each gets a bug.
MODELS = {
    "encoder-decoder": (encoder_decoder, "decoder.block.1.layer.1.EncDecAttention.v"),
    "vision-language": (vision_language, "model.multi_modal_projector.act"),
    "packed": (packed, "model.layers.1.mlp.act_fn"),
}


class Doubled(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.weight, self.inner = getattr(inner, "weight", None), [inner]

    def forward(self, x):
        return self.inner[0](x) * 2


def made(make):
    torch.manual_seed(0)
    model, inputs = make()
    return model.eval(), inputs


@pytest.mark.as_run("architectures", works="Checked like any model.")
@pytest.mark.parametrize(("make", "place"), MODELS.values(), ids=MODELS)
def test_bug_is_named_in_architectures_of_every_shape(make, place):
    (model, inputs), (wrong, _) = made(make), made(make)
    wrong.set_submodule(place, Doubled(wrong.get_submodule(place)))

    expected = trace(model, **inputs)
    report = compare(expected, trace(wrong, **inputs))
    right = compare(expected, trace(made(make)[0], **inputs))

    assert right.ok
    assert right.coverage.compared == right.coverage.expected == len(expected)
    assert report.culprit.path == place
