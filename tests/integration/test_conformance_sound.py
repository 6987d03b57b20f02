"""Sound models of unusual ways, as transformers has them, break no promise."""

import copy

import pytest
import torch
from transformers import CLIPConfig, CLIPModel, LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

import pytest_tfdebug
from pytest_tfdebug.conform.mixin import PROMISES
from pytest_tfdebug.conform.subject import Subject, cleaned
from pytest_tfdebug.invariance.api import CHECKS

SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
LLAMA = LlamaConfig(**SMALL, vocab_size=64, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0)
T5 = T5Config(vocab_size=64, d_model=16, d_ff=24, num_layers=1, num_heads=2, d_kv=8, decoder_start_token_id=0)
CLIP = CLIPConfig(
    text_config={**SMALL, "vocab_size": 64, "eos_token_id": 63},
    vision_config={**SMALL, "image_size": 8, "patch_size": 4},
)
IDS = torch.arange(5, 23).view(2, 9)
BY_NAME = {promise.name: promise for promise in PROMISES}


def found(model_class, promise, config=LLAMA, **inputs):
    return BY_NAME[promise].find(Subject(model_class, config, inputs or {"input_ids": IDS}))


class KeepsATupleAsItsConfig(LlamaForCausalLM):
    """As the layers of Idefics do."""

    def __init__(self, config):
        super().__init__(config)
        self.model.norm.config = (16,)


class SaysHowLongItsAnswerIs(LlamaForCausalLM):
    """As VITS does, whose durations are rounded: weights that are rounded give an answer of another length."""

    def forward(self, input_ids, **more):
        weight = self.lm_head.weight
        logits = super().forward(input_ids, **more).logits
        if weight.dtype is not torch.float32:
            return logits[:, :5] * 2
        is_rounded = bool((weight.view(torch.int32) % 2**13 == 0).all())  # to the ten bits of float16 or less
        return logits[:, : 4 if is_rounded else 5]


class ReadsItsEncoderByName(T5ForConditionalGeneration):
    """As Florence2 does; and cannot be called without ``input_ids``, as FSMT."""

    def forward(self, input_ids, encoder_outputs=None, past_key_values=None, **more):
        if encoder_outputs is not None:
            assert encoder_outputs.last_hidden_state.dim() == 3
            input_ids = None
        return super().forward(input_ids, encoder_outputs=encoder_outputs, past_key_values=past_key_values, **more)


class TakesATokenAtATime(LlamaForCausalLM):
    """As the decoder of ProphetNet does."""

    def forward(self, input_ids, past_key_values=None, **more):
        if past_key_values is not None:
            assert input_ids.shape[1] == 1, "use_cache is only supported for input_ids of length 1"
        return super().forward(input_ids, past_key_values=past_key_values, **more)


class LooksAtTheImageInEachStep(LlamaForCausalLM):
    """As Evolla looks at its protein."""

    def forward(self, input_ids, pixel_values=None, past_key_values=None, **more):
        output = super().forward(input_ids, past_key_values=past_key_values, **more)
        output.logits = output.logits + (0 if pixel_values is None else pixel_values.mean((1, 2, 3))[:, None, None])
        return output


class BansTokens(LlamaForCausalLM):
    """As Chameleon bans the tokens of images."""

    def forward(self, input_ids, **more):
        output = super().forward(input_ids, **more)
        output.logits[..., :8] = torch.finfo(output.logits.dtype).min
        return output


class HasALossForEachRow(LlamaForCausalLM):
    """The mean over the batch, with a value for each row, as in DAC; and in a module of its own."""

    def __init__(self, config):
        super().__init__(config)
        self.penalty = Mean()

    def forward(self, input_ids, **more):
        logits = super().forward(input_ids, **more).logits
        return {"loss": self.penalty(logits).expand(len(input_ids)), "logits": logits}


class Mean(torch.nn.Module):
    def forward(self, logits):
        return logits.square().mean()


class PicksTokens(LlamaForCausalLM):
    """Gives the tokens that are picked, row after row, as Flava does: three of one row and two of the other."""

    def forward(self, input_ids, **more):
        output = super().forward(input_ids, **more)
        return {"logits": output.logits, "picked": output.logits[(input_ids < 8) | (input_ids > 20)]}


class GivesATensorForEachRow(LlamaForCausalLM):
    """As SmolVLM gives its images."""

    def forward(self, input_ids, **more):
        logits = super().forward(input_ids, **more).logits
        return {"logits": logits, "images": tuple(row[: 2 + place] for place, row in enumerate(logits[:, :2]))}


class Quantizes(LlamaForCausalLM):
    """Rounding decides between neighbouring codes."""

    def forward(self, input_ids, **more):
        logits = super().forward(input_ids, **more).logits
        return {"codes": torch.sin(2.5 * (50 * logits).round())}


class LooksUpCodes(LlamaForCausalLM):
    """Its layers decide between codes, and only the codes have a gradient."""

    def __init__(self, config):
        super().__init__(config)
        self.codes = torch.nn.Embedding(8, 4)

    def forward(self, input_ids, **more):
        logits = super().forward(input_ids, **more).logits
        return {"codes": self.codes((500 * logits).round().long() % 8)}


class TransformsFrequencies(LlamaForCausalLM):
    """Torch has no Fourier transform in half precision on CPUs."""

    def forward(self, input_ids, **more):
        logits = super().forward(input_ids, **more).logits
        return {"logits": torch.fft.fft(logits).real}


class OverwritesItsState(LlamaForCausalLM):
    """In use, as RWKV does."""

    def forward(self, input_ids, use_cache=None, **more):
        output = super().forward(input_ids, use_cache=use_cache, **more)
        states = output.logits.exp()
        if use_cache is not False:
            states.data, _ = states.data + 1, states.mul_(2)
        return {"logits": states}


class WantsAnotherConfigurationForTraining(LlamaForCausalLM):
    """As Reformer does."""

    def forward(self, input_ids, **more):
        assert not torch.is_grad_enabled(), "set num_buckets to train"
        return super().forward(input_ids, **more)


class HasPartsOfTheirOwn(CLIPModel):
    """Its text is under another attention than the rest, as in Grounding DINO."""

    def forward(self, input_ids, pixel_values, attention_mask=None):
        output = super().forward(input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask)
        return {"logits": output.logits_per_text + (self.text_model.config._attn_implementation == "sdpa")}


class LooksForItsOwnClasses(LlamaForCausalLM):
    """Each row has three classes to look for, as in OmDet-Turbo."""

    def forward(self, input_ids, classes, **more):
        output = super().forward(input_ids, **more)
        output.logits = output.logits + classes.float().view(len(input_ids), 3, -1).mean((1, 2))[:, None, None]
        return output


class CountsFromOne(LlamaForCausalLM):
    """Where no one gives it positions, as PaliGemma does."""

    def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None, use_cache=None):
        if position_ids is None:
            position_ids = torch.arange(1, 1 + input_ids.shape[1])[None]
        given = {"attention_mask": attention_mask, "position_ids": position_ids, "past_key_values": past_key_values}
        return super().forward(input_ids, use_cache=use_cache, **given)


IMAGE = torch.linspace(-1, 1, 384).view(2, 3, 8, 8)


@pytest.mark.parametrize(
    ("model_class", "promise"),
    [
        (KeepsATupleAsItsConfig, "attention"),
        (TakesATokenAtATime, "cache"),
        (BansTokens, "dtype"),
        (HasALossForEachRow, "batch"),
        (PicksTokens, "batch"),
        (GivesATensorForEachRow, "batch"),
        (OverwritesItsState, "gradients"),
    ],
)
def test_sound_model_keeps_the_promise(model_class, promise):
    finding = found(model_class, promise)

    assert (finding.failure, finding.absent) == ("", "")


def test_output_of_an_encoder_has_its_name():
    finding = found(ReadsItsEncoderByName, "cache", T5, input_ids=IDS, decoder_input_ids=IDS[:, :6])

    assert (finding.failure, finding.absent) == ("", "")


def test_images_are_given_in_each_step_to_a_model_that_reads_them():
    finding = found(LooksAtTheImageInEachStep, "cache", input_ids=IDS, pixel_values=IMAGE)

    assert (finding.failure, finding.absent) == ("", "")


def test_each_row_brings_its_own_items_of_an_input():
    finding = found(LooksForItsOwnClasses, "batch", input_ids=IDS, classes=torch.arange(12).view(6, 2))

    assert (finding.failure, finding.absent) == ("", "")


def test_positions_that_a_model_counts_from_one_change_only_its_rotary_keys():
    assert not found(CountsFromOne, "padding", input_ids=IDS, attention_mask=torch.ones_like(IDS)).failure


def test_parts_keep_their_attention_when_a_model_is_loaded():
    config = copy.deepcopy(CLIP)
    config._attn_implementation, config.text_config._attn_implementation = "eager", "sdpa"
    ids = torch.cat([IDS, torch.full((2, 1), 63)], 1)

    assert not found(HasPartsOfTheirOwn, "save_load", config, input_ids=ids, pixel_values=IMAGE).failure


def test_choice_between_close_numbers_is_rounding():
    finding = found(Quantizes, "dtype")

    assert not finding.failure
    assert finding.note.startswith("Quantizes magnifies the rounding of bfloat16: its relative L2 error is ")
    with pytest.raises(pytest_tfdebug.InvarianceError, match="relative L2 error"):
        pytest_tfdebug.assert_invariant(Quantizes(LLAMA).eval(), {"input_ids": IDS}, "dtype", bound=0.05)


def test_operator_that_torch_lacks_is_no_fault():
    assert "torch has no such operator here (Unsupported dtype" in found(TransformsFrequencies, "dtype").absent


def test_parameter_that_only_decides_between_codes_has_no_gradient_to_give():
    finding = found(LooksUpCodes, "gradients")

    assert not finding.failure
    assert finding.note.startswith("without effect in this call, and without gradient: model.embed_tokens.weight")


def test_model_none_of_whose_outputs_has_a_gradient_is_told_so():
    class Detached(LlamaForCausalLM):
        def forward(self, input_ids, **more):
            return super().forward(input_ids, **more).logits.detach()

    finding = found(Detached, "gradients")

    assert finding.failure.startswith("Detached gives no gradient to parameters that change its answer: ")
    assert finding.culprit.class_name == "Detached"


def test_model_that_is_not_configured_for_training_has_no_gradients_to_give():
    finding = found(WantsAnotherConfigurationForTraining, "gradients")

    assert finding.absent == "it cannot be run that way (set num_buckets to train)"


def test_answer_whose_length_hangs_on_rounding_is_no_fault():
    finding = found(SaysHowLongItsAnswerIs, "dtype")

    assert not finding.failure
    assert "SaysHowLongItsAnswerIs magnifies the rounding of bfloat16" in finding.note


@pytest.mark.parametrize("promise", ["padding", "batch", "cache"])
def test_error_while_no_module_runs_is_not_a_refusal_of_the_model(promise, monkeypatch):
    def broken(self):
        raise IndexError("of the check")

    monkeypatch.setattr(CHECKS[promise], "check", broken)

    with pytest.raises(IndexError, match="of the check"):
        found(LlamaForCausalLM, promise)


def test_loss_of_a_generating_model_predicts_no_first_token_from_a_pad():
    class LlamaForConditionalGeneration(LlamaForCausalLM):
        pass

    assert not found(LlamaForConditionalGeneration, "padding", input_ids=IDS, labels=IDS).failure


def test_half_of_each_row_is_real():
    mask = torch.tensor([[1, 1, 1], [0, 0, 0]])

    made = cleaned({"input_ids": torch.tensor([[5, 6, 7], [8, 9, 10]]), "attention_mask": mask}, LLAMA)

    assert made["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]


class StacksItsLayers(LlamaForCausalLM):
    """Batch and sequence are the second and third axis of what it gives; what stands at pads follows from the length."""

    def forward(self, input_ids, attention_mask=None, position_ids=None):
        given = {"attention_mask": attention_mask, "position_ids": position_ids}
        logits = (
            super().forward(input_ids, **given).logits.masked_fill(attention_mask[..., None] == 0, input_ids.shape[1])
        )
        return {"states": torch.stack([logits] * 3)}


def test_pads_in_a_stack_of_layers_are_not_compared():
    mask = torch.ones_like(IDS)
    mask[0, 6:] = 0

    assert not found(StacksItsLayers, "padding", input_ids=IDS, attention_mask=mask).failure


class LeaksUpToALength(LlamaForCausalLM):
    """Has no positions beyond 20, as Canine has a bound of its own."""

    def forward(self, input_ids, attention_mask=None, position_ids=None, **more):
        if input_ids.shape[1] > 20:
            raise IndexError("index out of range in self")
        output = super().forward(input_ids, attention_mask=attention_mask, position_ids=position_ids, **more)
        output.logits = output.logits + input_ids.shape[1]
        return output


def test_positions_that_a_model_refuses_do_not_count_as_right():
    report = found(LeaksUpToALength, "padding").failure

    assert "is not invariant to padding: input_ids padded by 1 on the right" in report
    assert "built from the mask the answer is right" not in report


class TakesNoPositions(LlamaForCausalLM):
    """As VibeVoice ASR does: its keys are rotated as far as the pads move them, and attention sees only distances."""

    def forward(self, input_ids, attention_mask=None, past_key_values=None, use_cache=None):
        return super().forward(input_ids, attention_mask, past_key_values=past_key_values, use_cache=use_cache)


class RaisesWithOtherWeights(LlamaForCausalLM):
    """As PP-DocLayoutV2 does, which then places a box outside of its image."""

    def forward(self, input_ids, attention_mask=None, **more):
        if self.lm_head.weight.std() > 0.1:
            raise IndexError("The `bbox` coordinate values should be within 0-1000 range.")
        return super().forward(input_ids, attention_mask, **more)


def test_keys_that_left_pads_rotate_further_are_no_leak():
    finding = found(TakesNoPositions, "padding")

    assert not finding.failure
    assert not finding.absent


def test_model_that_raises_with_other_weights_has_its_own():
    finding = found(RaisesWithOtherWeights, "batch")

    assert not finding.failure
    assert not finding.absent
