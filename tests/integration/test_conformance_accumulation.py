"""The promise that two micro-batches give the gradients of the whole, on tiny models of transformers."""

import pytest
import torch
from transformers import (
    CLIPConfig,
    CLIPModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    ResNetConfig,
    ResNetForImageClassification,
    T5Config,
    T5ForConditionalGeneration,
)

from pytest_tfdebug.conform.mixin import PROMISES
from pytest_tfdebug.conform.subject import Subject

SMALL = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
LLAMA = LlamaConfig(**SMALL, num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True)
MIXTRAL = MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4, max_position_embeddings=64)
IDS = torch.arange(5, 41).view(4, 9)
PROMISE = next(promise for promise in PROMISES if promise.name == "accumulation")


def found(model_class, config=LLAMA, **inputs):
    return PROMISE.find(Subject(model_class, config, inputs or {"input_ids": IDS}))


class Averages(torch.autograd.Function):
    """A product whose backward averages over the rows of its batch."""

    @staticmethod
    def forward(ctx, hidden, weight):
        ctx.save_for_backward(hidden, weight)
        return hidden @ weight.T

    @staticmethod
    def backward(ctx, gradient):
        hidden, weight = ctx.saved_tensors
        flat, given = gradient.flatten(0, -2), hidden.flatten(0, -2)
        return gradient @ weight, flat.T @ given / hidden.shape[0]


class AveragingLinear(torch.nn.Linear):
    def forward(self, hidden):
        return Averages.apply(hidden, self.weight)


class HasAnAveragingLayer(LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.model.layers[1].mlp.up_proj = AveragingLinear(16, 24, bias=False)


class ScalesByRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden):
        return hidden * 1.0

    @staticmethod
    def backward(ctx, gradient):
        return gradient / gradient.shape[0]


class ScaledAttention(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *args, **kwargs):
        hidden, *others = self.inner(*args, **kwargs)
        return ScalesByRows.apply(hidden), *others


class HasScaledAttention(LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.model.layers[0].self_attn = ScaledAttention(self.model.layers[0].self_attn)


class EmptiesItsGradients(LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        self.zero_grad()
        return super().forward(*args, **kwargs)


class ClipsEachGradient(LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        norm = self.model.norm.weight
        norm.register_hook(lambda gradient: gradient / gradient.norm())

    def __deepcopy__(self, memo):
        made = type(self)(self.config)
        made.load_state_dict(self.state_dict())
        return made


class CountsSquares(LlamaForCausalLM):
    def forward(self, input_ids, labels=None, **kwargs):
        output = super().forward(input_ids, labels=labels, **kwargs)
        if labels is not None:
            output.loss = output.loss / labels.numel()
        return output


class CountsTokens(LlamaForCausalLM):
    def forward(self, input_ids, labels=None, **kwargs):
        output = super().forward(input_ids, **kwargs)
        if labels is not None:
            logits, targets = output.logits.flatten(0, 1), labels.flatten()
            summed = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
            output["loss"] = summed / (targets != -100).sum()
        return output


class SumsItsLoss(LlamaForCausalLM):
    def forward(self, input_ids, labels=None, **kwargs):
        output = super().forward(input_ids, **kwargs)
        if labels is not None:
            logits = output.logits.flatten(0, 1)
            output["loss"] = torch.nn.functional.cross_entropy(logits, labels.flatten(), reduction="sum")
        return output


class KeepsState(LlamaForCausalLM):
    kept = 0.0

    def forward(self, input_ids, labels=None, **kwargs):
        output = super().forward(input_ids, **kwargs)
        output.logits = output.logits * (1 + self.kept)
        if torch.is_grad_enabled():
            self.kept = self.kept + 0.5
        return output


@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        (LlamaForCausalLM, LLAMA),
        (MixtralForCausalLM, MIXTRAL),
        (CountsTokens, LLAMA),
        (SumsItsLoss, LLAMA),
    ],
)
def test_micro_batches_give_the_gradients_of_the_whole(model_class, config):
    finding = found(model_class, config)

    assert not finding.failure
    assert finding.repeats == 1


def test_loss_by_tokens_keeps_the_promise_with_hidden_labels():
    labels = IDS.clone()
    labels[0, 2:] = -100
    labels[3, 1:4] = -100

    assert found(CountsTokens, input_ids=IDS, labels=labels).repeats == 1


def test_encoder_decoder_keeps_the_promise():
    config = T5Config(vocab_size=64, d_model=16, d_ff=24, num_layers=2, num_heads=2, d_kv=8, decoder_start_token_id=0)

    assert found(T5ForConditionalGeneration, config, input_ids=IDS, decoder_input_ids=IDS[:, :5]).repeats == 1


def test_backward_that_averages_over_its_batch_is_found_at_its_module():
    finding = found(HasAnAveragingLayer)

    assert finding.failure.startswith("HasAnAveragingLayer gets other gradients from two micro-batches than from the")
    assert "model.layers.1.mlp.up_proj.weight" in finding.failure
    assert "first in model.layers.1.mlp.up_proj (AveragingLinear), " in finding.failure
    assert finding.culprit.path == "model.layers.1.mlp.up_proj"
    lines = AveragingLinear.forward.__code__.co_firstlineno
    assert (finding.culprit.source.file, finding.culprit.source.first) == (__file__, lines)


def test_gradient_scaled_between_calls_is_found_at_the_module_of_the_lines():
    finding = found(HasScaledAttention)

    assert finding.culprit.path == "model.layers.0.self_attn"
    assert finding.culprit.kind == "gradient"
    assert finding.culprit.class_name == "ScaledAttention"


def test_gradients_that_are_emptied_between_micro_batches_are_told_as_that():
    finding = found(EmptiesItsGradients)

    assert (
        "EmptiesItsGradients gets other gradients from two micro-batches than from the whole: 20 of 20."
        in finding.failure
    )
    assert finding.diagnosis.startswith("a gradient is written or emptied where it should be added")
    assert finding.culprit is None


def test_hook_that_clips_each_gradient_is_found_at_its_parameter():
    finding = found(ClipsEachGradient)

    assert "than from the whole: 1 of 20.\n  first in model.norm (LlamaRMSNorm), " in finding.failure
    assert "\n  model.norm.weight\n" in finding.failure


def test_loss_with_a_wrong_count_is_told_with_its_numbers():
    finding = found(CountsSquares)

    assert finding.failure.startswith("CountsSquares has a loss of 0.")
    assert "It is neither their mean nor their sum; all other outputs agree." in finding.failure
    assert finding.diagnosis == "the loss is divided by something else than the labels of its batch."


def test_model_that_keeps_state_between_its_calls_is_found():
    finding = found(KeepsState)

    assert finding.failure.startswith("KeepsState gives another answer to a micro-batch after another one than alone")


@pytest.mark.parametrize(
    ("model_class", "config", "inputs", "reason"),
    [
        (LlamaForCausalLM, LLAMA, {"input_ids": IDS[:1]}, "its call has no batch of two rows"),
        (
            ResNetForImageClassification,
            ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic"),
            {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 32 * 32).view(2, 3, 32, 32)},
            "BatchNorm2d (resnet.embedder.embedder.normalization) normalises over the rows of a batch",
        ),
        (
            MixtralForCausalLM,
            MixtralConfig(**{**MIXTRAL.to_dict(), "output_router_logits": True}),
            {"input_ids": IDS},
            "its output .aux_loss is of the batch as a whole, and enters its loss",
        ),
        (
            CLIPModel,
            CLIPConfig(
                text_config={**SMALL, "max_position_embeddings": 64},
                vision_config={**SMALL, "image_size": 8, "patch_size": 4},
                projection_dim=8,
            ),
            {"input_ids": IDS[:2], "pixel_values": torch.linspace(-1, 1, 2 * 3 * 8 * 8).view(2, 3, 8, 8)},
            "its output .logits_per_image is of the batch as a whole: (2, 2) against (1, 1)",
        ),
    ],
)
def test_what_is_of_a_whole_batch_by_nature_does_not_apply(model_class, config, inputs, reason):
    assert found(model_class, config, **inputs).absent == reason
