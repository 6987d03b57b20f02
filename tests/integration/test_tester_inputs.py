"""Inputs as transformers' own testers draw them: masks with holes, odd pad tokens, images; no false alarm."""

import linecache

import pytest
import torch
from transformers import LlamaForCausalLM

import padding_models
from pytest_tfdebug import (
    InvarianceError,
    assert_invariant,
    assert_padding_invariant,
)
from pytest_tfdebug.invariance.api import CHECKS
from pytest_tfdebug.invariance.calls.observed_call import observe
from pytest_tfdebug.invariance.checks.base import Settings

HOLES = torch.tensor([[1, 0, 1, 1, 0, 1, 1, 0, 1, 1], [1, 1, 0, 1, 1, 0, 0, 1, 1, 1]])


def lines_of(culprit):
    return "".join(linecache.getlines(culprit.source.file)[culprit.source.first - 1 : culprit.source.last])


def raised(check, *args, **kwargs):
    with pytest.raises(InvarianceError) as caught:
        check(*args, **kwargs)
    return caught.value


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3", "bert-decoder", "llama-classifier", "mixtral", "opt"])
def test_mask_with_holes_passes(name):
    model, inputs = padding_models.build(name)
    inputs = {"input_ids": inputs["input_ids"].clamp(min=3), "attention_mask": HOLES}

    assert_padding_invariant(model, inputs)
    assert_invariant(model, inputs, "batch")


def test_positions_are_those_of_the_test_where_its_mask_begins_with_zeros():
    model, inputs = padding_models.build("llama")
    mask = torch.ones(2, 10).long()
    mask[1, :3] = 0

    assert_padding_invariant(model, {"input_ids": inputs["input_ids"].clamp(min=3), "attention_mask": mask})


class Codebooks(torch.nn.Module):
    """Sums the embeddings of several ids at each position, and what came before."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(20, 4)

    def forward(self, input_ids, attention_mask=None):
        assert attention_mask is None or attention_mask.shape == input_ids.shape[:2]
        states = self.embed(input_ids).sum(2)
        return states if attention_mask is None else (states * attention_mask[..., None]).cumsum(1)


def test_several_ids_at_a_position_are_padded_along_the_positions():
    ids = torch.randint(1, 20, (2, 5, 3), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, "attention_mask": torch.ones(2, 5)}

    assert_padding_invariant(Codebooks(), inputs)
    assert_invariant(Codebooks(), inputs, "batch")


class BetweenPromptAndImage(torch.nn.Module):
    """Puts a prompt before its text and an image behind it, as TVP does."""

    def __init__(self, *, reads_mask=True):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(20, 4)
        self.prompt = torch.nn.Parameter(torch.randn(1, 3, 4))
        self.reads_mask = reads_mask

    def forward(self, input_ids, attention_mask=None, pixel_values=None):
        text, image = self.embed(input_ids), pixel_values.flatten(2).mT
        hidden = torch.cat([self.prompt.expand(len(text), -1, -1), text, image], 1)
        mask = torch.ones_like(input_ids) if attention_mask is None or not self.reads_mask else attention_mask
        mask = torch.nn.functional.pad(mask, (3, image.shape[1]), value=1)
        return hidden + (hidden * mask[..., None]).sum(1, keepdim=True)


def test_text_between_a_prompt_and_an_image_is_found_there():
    ids = torch.randint(1, 20, (2, 5), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, "pixel_values": torch.arange(32.0).view(2, 4, 2, 2)}

    assert_padding_invariant(BetweenPromptAndImage(), inputs)
    with pytest.raises(InvarianceError, match="is not invariant to padding"):
        assert_padding_invariant(BetweenPromptAndImage(reads_mask=False), inputs)


class TakesLengths(torch.nn.Module):
    """Takes the lengths of its rows in place of a mask, and the mask where it has both, as XLM does."""

    def __init__(self, *, reads_mask=True):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(20, 4)
        self.reads_mask = reads_mask

    def forward(self, input_ids, attention_mask=None, lengths=None):
        assert lengths is None or lengths.max() <= input_ids.shape[1]
        mask = torch.ones_like(input_ids)
        if attention_mask is not None and self.reads_mask:
            mask = attention_mask
        elif lengths is not None:
            mask = torch.arange(input_ids.shape[1]) < lengths[:, None]
        hidden = self.embed(input_ids) * mask[..., None]
        return hidden + hidden.sum(1, keepdim=True)


@pytest.mark.parametrize("lengths", [[4, 5], [5, 5]])
def test_lengths_of_rows_are_a_mask(lengths):
    ids = torch.randint(1, 20, (2, 5), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, "lengths": torch.tensor(lengths)}

    assert_padding_invariant(TakesLengths(), inputs)
    with pytest.raises(InvarianceError, match="is not invariant to padding"):
        assert_padding_invariant(TakesLengths(reads_mask=False), {"input_ids": ids})


class Magnifying(torch.nn.Module):
    """Rounds its states more coarsely with every token, unless they are float64."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(20, 64)

    def forward(self, input_ids):
        offset = 300.0 * input_ids.shape[1]
        return (self.embed(input_ids) + offset) - offset


def test_difference_that_is_gone_in_float64_is_rounding_and_is_noted():
    model, inputs = Magnifying(), {"input_ids": torch.tensor([[3, 4, 5]])}
    call, _ = observe(model, (), inputs, lambda: model(**inputs))
    check = CHECKS["padding"]

    outcome = check.run(call, Settings(lengths=1, side="right"))

    assert (outcome.failure, outcome.repeats) == ("", 1)
    assert outcome.notes == ["Magnifying magnifies the rounding of float32 (input_ids padded by 1 on the right)"]


class AtTheTolerance(torch.nn.Module):
    """Changes with padding by a share of what float32 allows, and by a little more or less where it is float32."""

    def __init__(self, share, rounding):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.share, self.rounding = share, rounding

    def forward(self, input_ids):
        rounding = self.rounding if self.weight.dtype == torch.float32 else 0.0
        change = 2e-5 * (self.share + rounding) * (input_ids.shape[1] > 3)
        return self.weight * torch.linspace(0.99, 1, 8).expand(*input_ids.shape, 8) + change


@pytest.mark.parametrize("rounding", [-0.15, 0.0, 0.15])
def test_verdict_does_not_hang_on_how_a_kernel_rounds(rounding):
    inputs = {"input_ids": torch.tensor([[3, 4, 5]])}
    allowed, excessive = (AtTheTolerance(share, rounding) for share in (0.95, 1.05))
    call, _ = observe(allowed, (), inputs, lambda: allowed(**inputs))

    outcome = CHECKS["padding"].run(call, Settings(lengths=1, side="right"))

    assert not outcome.failure
    with pytest.raises(InvarianceError, match="is not invariant to padding"):
        assert_padding_invariant(excessive, inputs, lengths=1)
    with pytest.raises(InvarianceError, match="is not invariant to padding"):
        assert_padding_invariant(allowed, inputs, lengths=1, rtol=0.0, atol=1e-5)


def test_first_token_that_is_the_pad_token_passes():
    model, inputs = padding_models.build("gpt2")
    ids = inputs["input_ids"].clamp(min=3)
    ids[1, 0] = 0

    assert_padding_invariant(model, {"input_ids": ids})


def test_keys_that_carry_their_positions_are_no_reason_to_give_position_ids():
    class Numbered(LlamaForCausalLM):
        """Answers otherwise when it is given position ids, which nobody asked for here."""

        def forward(self, input_ids, attention_mask=None, position_ids=None, **more):
            made = super().forward(input_ids, attention_mask=attention_mask, position_ids=position_ids, **more)
            made.logits = made.logits if position_ids is None else made.logits + 1
            return made

    model, inputs = padding_models.build("llama")
    model.__class__ = Numbered

    assert_padding_invariant(model, inputs)


def test_decoder_as_long_as_its_encoder_is_padded_with_it():
    assert_padding_invariant(*padding_models.build("bart-classifier"))


class Rigid(torch.nn.Module):
    """Takes three tokens."""

    def forward(self, input_ids):
        if input_ids.shape[1] != 3:
            raise IndexError("only three")
        return input_ids.float()


class Strict(torch.nn.Module):
    """Takes any number of tokens, and no mask with pads."""

    def __init__(self):
        super().__init__()
        self.inner = StrictInside()

    def forward(self, input_ids, attention_mask=None):
        return self.inner(input_ids.float(), attention_mask)


class StrictInside(torch.nn.Module):
    def forward(self, states, attention_mask):
        if attention_mask is not None and not attention_mask.all():
            raise IndexError("no pads")
        return states


IDS = torch.tensor([[3, 4, 5]])


def test_model_that_refuses_a_length_cannot_be_asked_that_way():
    error = raised(assert_padding_invariant, Rigid(), {"input_ids": IDS})

    assert str(error).startswith("padding_invariant checked nothing")
    assert "cannot be run that way: input_ids padded by 1 on the right (IndexError: only three)" in str(error)


def test_model_that_refuses_pads_alone_fails_at_the_line_that_raised():
    error = raised(assert_padding_invariant, Strict(), {"input_ids": IDS})

    assert "The repeated call raised IndexError: no pads" in str(error)
    assert (error.culprit.path, error.culprit.class_name) == ("inner", "StrictInside")
    assert lines_of(error.culprit).strip() == 'raise IndexError("no pads")'


class Gated(torch.nn.Module):
    """Weighs its tokens by one number each, and takes the mean over pads too."""

    def __init__(self):
        super().__init__()
        self.gates = Gates()

    def forward(self, input_ids, attention_mask=None):
        weighed = input_ids * self.gates(input_ids.float()).view_as(input_ids)
        return weighed[..., None] - weighed[..., None].mean(1, keepdim=True)


class Gates(torch.nn.Module):
    def forward(self, states):
        return (states - states.mean(1, keepdim=True)).flatten()


def test_one_number_for_each_token_of_a_batch_is_compared():
    error = raised(assert_padding_invariant, Gated(), {"input_ids": torch.tensor([[3, 4, 5], [6, 7, 9]])})

    assert (error.culprit.path, error.culprit.class_name) == ("gates", "Gates")


def test_rows_that_end_without_a_pad_token_are_placed_at_the_head():
    """The mixture of experts sorts its tokens, in another order for a row alone: that is no difference."""
    model, inputs = padding_models.build("mixtral-classifier")
    ids = inputs["input_ids"].clamp(min=3)

    error = raised(assert_padding_invariant, model, {**inputs, "input_ids": ids}, side="right", lengths=1)

    assert error.culprit.path == "MixtralForSequenceClassification"


def test_left_pads_are_told_where_the_forward_takes_no_position_ids():
    model, inputs = padding_models.build("bart-decoder")
    inputs = {name: value.flip(1) for name, value in inputs.items()}

    error = raised(assert_padding_invariant, model, inputs)

    assert error.culprit.path == "model.decoder.embed_positions"
    assert "Diagnosis: positions ignore the mask: pads are counted as tokens." in str(error)


def test_images_belong_to_the_prefill():
    assert_invariant(*padding_models.build("llava"), "cache")


def test_images_up_to_the_last_token_leave_no_step():
    model, inputs = padding_models.build("llava")
    inputs = {name: value[:, :18] if value.dim() == 2 else value for name, value in inputs.items()}

    error = raised(assert_invariant, model, inputs, "cache")

    assert "no token of text follows its images, so there is no step to decode" in str(error)


def test_one_real_token_leaves_no_step():
    model, inputs = padding_models.build("llama")
    mask = torch.zeros_like(inputs["input_ids"])
    mask[:, 0] = 1

    error = raised(assert_invariant, model, {**inputs, "attention_mask": mask}, "cache")

    assert "it was given no sequence of two tokens or more to decode" in str(error)


def test_cache_of_a_model_that_attends_in_both_directions_does_not_apply():
    error = raised(assert_invariant, *padding_models.build("bert-decoder"), "cache")

    assert str(error).startswith("invariant('cache') checked nothing")
    assert "BertLMHeadModel" in str(error)
    assert "attends in both directions" in str(error)


def test_decoder_that_looks_ahead_is_told_so():
    model, inputs = padding_models.build("llama")
    layer = model.model.layers[0].mlp
    forward = layer.forward
    layer.forward = lambda states: forward(states + states.mean(1, keepdim=True))

    error = raised(assert_invariant, model, {"input_ids": inputs["input_ids"].clamp(min=3)}, "cache")

    told = "Diagnosis: a later token changes the answer at an earlier one, even without a cache"
    assert told in " ".join(str(error).split())


def test_step_that_the_model_refuses_is_placed_at_the_line_that_raised():
    class Refuses(LlamaForCausalLM):
        def forward(self, input_ids, past_key_values=None, **more):
            if past_key_values is not None:
                raise ValueError("no steps")
            return super().forward(input_ids, **more)

    model, inputs = padding_models.build("llama")
    model.__class__ = Refuses

    error = raised(assert_invariant, model, inputs, "cache")

    assert "tokens 5 to 5" in " ".join(str(error).split())
    assert error.culprit.path == "Refuses"
    assert lines_of(error.culprit).strip() == 'raise ValueError("no steps")'


def test_answer_without_tokens_cannot_be_decoded():
    error = raised(assert_invariant, *padding_models.build("llama-classifier"), "cache")

    assert "none of its outputs has a token axis" in str(error)


def test_module_whose_output_underflows_is_the_culprit():
    model, inputs = padding_models.build("llama")
    with torch.no_grad():
        model.lm_head.weight.mul_(1e-9)

    error = raised(assert_invariant, model, inputs, "dtype", dtypes="float16")

    assert error.culprit.path == "lm_head"
    assert "self.lm_head(" in lines_of(error.culprit)


class Mixed(torch.nn.Module):
    """Meets its weights with numbers that stay in float32."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 2)

    def forward(self, input_ids):
        return self.head(torch.ones(*input_ids.shape, 4))


def test_model_that_raises_in_lower_precision_fails_at_that_line():
    error = raised(assert_invariant, Mixed(), {"input_ids": IDS}, "dtype")

    assert "raises where the plain call does not: bfloat16." in str(error)
    assert "The repeated call raised RuntimeError: " in str(error)
    assert "self.head(" in lines_of(error.culprit)


def test_model_that_takes_whole_batches_only_cannot_be_asked_for_a_row():
    class Pairs(torch.nn.Module):
        def forward(self, input_ids):
            return input_ids.float().reshape(-1, 2, input_ids.shape[1])

    error = raised(assert_invariant, Pairs(), {"input_ids": torch.tensor([[3, 4, 5], [6, 7, 8]])}, "batch")

    assert str(error).startswith("invariant('batch') checked nothing")
    assert "cannot be run that way: row 0 in its batch of 2, against the row alone (RuntimeError: " in str(error)


def test_attention_that_raises_fails_at_its_line():
    model, inputs = padding_models.build("llama")

    class Picky(type(model)):
        def forward(self, *args, **more):
            if self.config._attn_implementation == "sdpa":
                raise ValueError("not this one")
            return super().forward(*args, **more)

    model.set_attn_implementation("eager")
    model.__class__ = Picky

    error = raised(assert_invariant, model, inputs, "attention")

    assert "sdpa against eager" in str(error)
    assert lines_of(error.culprit).strip() == 'raise ValueError("not this one")'


def test_model_with_a_part_without_attention_is_loaded_all_the_same(monkeypatch):
    """transformers refuses an attention implementation for a convolutional backbone."""
    model, inputs = padding_models.build("bert")
    load = type(model).from_pretrained.__func__

    def refusing(cls, *args, **options):
        if "attn_implementation" in options:
            raise ValueError("ResNetBackbone does not support an attention implementation")
        return load(cls, *args, **options)

    monkeypatch.setattr(type(model), "from_pretrained", classmethod(refusing))

    assert_invariant(model, inputs, "save_load")


def test_limit_that_the_call_itself_exceeds_is_that_of_another_sequence():
    model, inputs = padding_models.build("llama")
    model.config.max_position_embeddings = 4
    call, _ = observe(model, (), inputs, lambda: model(**inputs))
    check = CHECKS["padding"]

    outcome = check.run(call, Settings())

    assert not any("do not fit" in told for told in outcome.skipped)


class HearsSound(LlamaForCausalLM):
    """Takes as many frames as there are tokens, as a tester of Gemma 4 has it."""

    def forward(self, input_ids, attention_mask=None, input_features=None, input_features_mask=None, **more):
        assert input_features[input_features_mask.bool()].shape[1] == 4
        return super().forward(input_ids, attention_mask, **more)


def test_mask_of_frames_is_not_padded_with_as_many_tokens():
    model, inputs = padding_models.build("llama")
    hears = HearsSound(model.config).eval()
    shape = inputs["input_ids"].shape

    assert_padding_invariant(
        hears, {**inputs, "input_features": torch.zeros(*shape, 4), "input_features_mask": torch.ones(shape)}
    )
