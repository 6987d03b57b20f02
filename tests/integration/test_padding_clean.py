"""No false alarm: models that handle padding pass with default arguments, on every side they support."""

import pytest
import torch
from transformers import PegasusXConfig, PegasusXForConditionalGeneration

import padding_models
from pytest_tfdebug import InvarianceError, assert_padding_invariant
from pytest_tfdebug.invariance.calls.observed_call import observe
from pytest_tfdebug.invariance.checks.base import Settings
from pytest_tfdebug.invariance.checks.padding import PaddingCheck

CLEAN = [
    "bert",
    "bert-classifier",
    "bert-tokens",
    "bert-masked",
    "bert-choices",
    "bert-answers",
    "roberta",
    "distilbert",
    "electra",
    "llama",
    "llama-labels",
    "llama-classifier",
    "llama-eager",
    "qwen3",
    "gemma3",
    "gpt2",
    "gpt2-labels",
    "opt",
    "t5",
    "t5-encoder",
    "bart",
    "mixtral",
    "whisper",
    "mamba",
    "vilt",
    "vilt-pixels",
    "clip",
]


def check(model, inputs, **settings):
    with torch.no_grad():
        call, _ = observe(model, (), inputs, lambda: model(**inputs))
    return PaddingCheck.run(call, Settings(**settings))


@pytest.mark.parametrize("name", CLEAN)
def test_model_that_handles_padding_passes(name):
    assert_padding_invariant(*padding_models.build(name))


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "opt", "t5", "mixtral", "distilbert"])
def test_call_without_mask_passes(name):
    model, inputs = padding_models.build(name)
    inputs = {key: value for key, value in inputs.items() if key != "attention_mask"}
    inputs["input_ids"] = inputs["input_ids"].clamp(min=3)

    assert_padding_invariant(model, inputs)


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "t5-encoder", "mixtral", "qwen3"])
def test_hidden_states_and_attentions_are_compared_too(name):
    model, inputs = padding_models.build(name)
    model.set_attn_implementation("eager")

    assert_padding_invariant(model, {**inputs, "output_hidden_states": True, "output_attentions": True})


@pytest.mark.parametrize("name", ["llama", "bert", "t5-encoder"])
def test_embeddings_are_padded_in_the_place_of_ids(name):
    model, inputs = padding_models.build(name)
    embeds = model.get_input_embeddings()(inputs["input_ids"]).detach()

    assert_padding_invariant(model, {"inputs_embeds": embeds, "attention_mask": inputs["attention_mask"]})


@pytest.mark.parametrize("name", ["llama", "bert", "gpt2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_tolerances_follow_the_dtype(name, dtype):
    model, inputs = padding_models.build(name)

    assert_padding_invariant(model.to(dtype), inputs)


@pytest.mark.parametrize("name", ["llama", "bert", "t5-encoder", "gpt2"])
def test_content_of_masked_positions_does_not_matter(name):
    assert_padding_invariant(*padding_models.build(name), filler="random")


def test_real_sentences_of_different_lengths_pass_through_the_real_minilm():
    model, _ = padding_models.minilm()

    outcome = check(model, padding_models.minilm_inputs())

    assert not outcome.failure
    assert outcome.repeats == 7, "1, 7 and the two pads at the boundary, and the three shorter sentences alone"


def test_sides_follow_from_the_model():
    notes, has_left = {}, {}
    for name in ("bert", "llama", "t5-encoder", "bart"):
        outcome, right = (check(*padding_models.build(name), side=side) for side in ("auto", "right"))
        notes[name], has_left[name] = outcome.notes, outcome.repeats > right.repeats

    assert has_left == {"bert": False, "llama": True, "t5-encoder": True, "bart": False}
    assert notes["llama"] == notes["t5-encoder"] == notes["bert"] == []
    assert "decoder_input_ids was padded on the right only: " in notes["bart"][1]
    assert "has absolute positions and takes no decoder_position_ids" in notes["bart"][1]


def test_encoder_whose_sinusoids_count_from_the_left_is_padded_on_the_right():
    torch.manual_seed(0)
    model = PegasusXForConditionalGeneration(
        PegasusXConfig(
            vocab_size=60,
            d_model=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
        )
    ).eval()
    ids = torch.randint(5, 60, (2, 9))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "decoder_input_ids": ids}

    assert_padding_invariant(model, inputs)
    with pytest.raises(InvarianceError, match=r" in model\.encoder\.embed_positions \("):
        assert_padding_invariant(model, inputs, side="left")


def test_length_beyond_the_position_table_is_left_out():
    outcome = check(*padding_models.build("bert"))

    assert "input_ids: 23 pads do not fit: length 10 of 32 positions" in outcome.skipped
    assert not outcome.failure


def test_encoder_of_fixed_length_is_left_out_and_its_decoder_is_checked():
    outcome = check(*padding_models.build("whisper"))

    assert outcome.repeats >= 4
    assert any("on the right (ValueError: Whisper expects" in reason for reason in outcome.skipped)


def test_model_whose_positions_count_pads_passes_with_position_ids_and_says_so():
    outcome = check(*padding_models.build("gpt2"))

    assert outcome.notes == ["GPT2LMHeadModel needs position_ids under left padding"]
    assert check(*padding_models.build("llama")).notes == []


def test_model_that_varies_by_design_can_say_so():
    model, inputs = padding_models.build("wav2vec2")

    outcome = check(model, inputs, expect="varies", reason="GroupNorm over time")

    (note,) = outcome.notes
    assert note.startswith("Wav2Vec2Model (")
    assert note.endswith(" varies with padding as declared: GroupNorm over time")


def test_declaration_that_is_no_longer_true_fails():
    with pytest.raises(InvarianceError) as caught:
        assert_padding_invariant(*padding_models.build("bert"), expect="varies", reason="it did once")

    assert "is declared to vary with padding (it did once) and does not: 4 repeated forwards" in str(caught.value)
    assert "Remove expect='varies' and reason=." in str(caught.value)


def test_model_without_mask_is_padded_on_the_right():
    class Causal(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(20, 8)

        def forward(self, input_ids):
            return self.embed(input_ids).cumsum(1)

    outcome = check(Causal(), {"input_ids": torch.tensor([[3, 4, 5]])})

    assert outcome.repeats == 4
    assert not outcome.failure


def test_rows_with_several_choices_are_padded_on_their_last_axis():
    outcome = check(*padding_models.build("bert-choices"))

    assert outcome.repeats == 4
    assert not outcome.failure


def test_sizes_that_happen_to_be_equal_are_told_apart():
    model, _ = padding_models.build("bert-classifier")
    ids = torch.randint(3, 99, (3, 3), generator=torch.Generator().manual_seed(0))

    assert_padding_invariant(model, {"input_ids": ids, "labels": torch.tensor([0, 1, 2])})
    other, _ = padding_models.build("bert-classifier")
    assert_padding_invariant(other, {"input_ids": ids, "labels": torch.rand(3, 3)})
