import torch

import padding_models
from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.calls.observed_call import observe
from pytest_tfdebug.invariance.calls.repetition import padded, with_positions
from pytest_tfdebug.invariance.calls.sequences import find_sequences, mask_of, padless


def call_of(model, inputs):
    return observe(model, (), inputs, lambda: None)[0]


def sequence_of(model, inputs):
    sequences, reasons = find_sequences(call_of(model, inputs))
    assert not reasons
    return sequences[0]


def test_every_input_along_the_sequence_is_padded_with_it():
    model, inputs = padding_models.build("bert-tokens")
    types = torch.ones(2, 10).long()
    given = {**inputs, "token_type_ids": types, "position_ids": torch.arange(10)[None]}

    made = padded(model, given, sequence_of(model, given), (2, 1))

    assert {name: tuple(value.shape) for name, value in made.items()} == {
        "input_ids": (2, 13),
        "attention_mask": (2, 13),
        "labels": (2, 13),
        "token_type_ids": (2, 13),
        "position_ids": (1, 13),
    }
    assert made["labels"][:, [0, 1, 12]].unique().tolist() == [-100]
    assert made["attention_mask"][0].tolist() == [0, 0, *[1] * 10, 0]
    assert made["token_type_ids"][0].tolist() == [0, 0, *[1] * 10, 0]


def test_pads_are_the_models_pad_token():
    model, inputs = padding_models.build("roberta")

    made = padded(model, inputs, sequence_of(model, inputs), (0, 2))

    assert made["input_ids"][:, 10:].unique().tolist() == [1]
    assert padded(model, inputs, sequence_of(model, inputs), (0, 2), 7)["input_ids"][:, 10:].unique().tolist() == [7]


def test_random_filler_keeps_the_real_tokens():
    model, inputs = padding_models.build("llama")

    made = padded(model, inputs, sequence_of(model, inputs), (3, 2), "random")

    assert torch.equal(made["input_ids"][:, 3:13], inputs["input_ids"])
    assert len(made["input_ids"][:, [0, 1, 2, 13, 14]].unique()) > 3


def test_encoder_decoder_has_two_sequences_and_each_is_padded_alone():
    model, inputs = padding_models.build("t5")

    sequences, _ = find_sequences(call_of(model, inputs))
    made = padded(model, inputs, sequences[1], (0, 2))

    assert [sequence.main for sequence in sequences] == ["input_ids", "decoder_input_ids"]
    assert made["decoder_input_ids"].shape == made["decoder_attention_mask"].shape == (2, 8)
    assert made["input_ids"].shape == (2, 10)


def test_pointers_into_the_sequence_move_with_it():
    model, inputs = padding_models.build("bert-answers")

    made = padded(model, inputs, sequence_of(model, inputs), (3, 0))

    assert made["start_positions"].tolist() == [4, 5]


def test_first_label_of_a_shifted_loss_is_ignored_behind_left_pads():
    model, inputs = padding_models.build("llama-labels")

    left = padded(model, inputs, sequence_of(model, inputs), (2, 0))["labels"]
    right = padded(model, inputs, sequence_of(model, inputs), (0, 2))["labels"]

    assert left[:, :3].unique().tolist() == [-100]
    assert torch.equal(left[:, 3:], inputs["labels"][:, 1:])
    assert torch.equal(right[:, :10], inputs["labels"])


def test_positions_count_real_tokens():
    model, inputs = padding_models.build("llama")
    sequence = sequence_of(model, inputs)

    made = with_positions(model, padded(model, inputs, sequence, (2, 0)), sequence)

    assert made["position_ids"][0].tolist() == [0, 0, *range(10)]


def test_positions_count_what_the_mask_excludes_between_real_tokens():
    model, inputs = padding_models.build("llama")
    inputs = {**inputs, "attention_mask": torch.tensor([[1, 0, 1, 1, 0, 0, 1, 1, 0, 0]] * 2)}
    sequence = sequence_of(model, inputs)

    made = with_positions(model, padded(model, inputs, sequence, (2, 0)), sequence)

    assert made["position_ids"][0].tolist() == [0, 0, *range(10)]


def test_positions_begin_after_the_entries_kept_for_pads():
    model, inputs = padding_models.build("roberta")

    made = with_positions(model, inputs, sequence_of(model, inputs))

    assert made["position_ids"][0].tolist() == list(range(2, 12))
    assert model_traits.position_limit(model, "encoder") == 46


def test_missing_mask_is_all_ones():
    model, inputs = padding_models.build("opt")

    assert mask_of(inputs, sequence_of(model, inputs)).unique().tolist() == [1]


def test_real_tokens_are_inferred_from_pad_tokens_at_the_ends_only():
    real = padless(torch.tensor([[0, 0, 5, 0, 6, 0], [0, 5, 6, 7, 8, 9]]), 0)

    assert real.tolist() == [[False, False, True, True, True, False], [False, *[True] * 5]]


def test_first_token_that_happens_to_be_the_pad_token_is_no_pad():
    assert padless(torch.tensor([[0, 5, 6], [7, 8, 0]]), 0).tolist() == [[True] * 3, [True, True, False]]


def test_mask_with_more_axes_has_a_row_for_each_of_its_sequences():
    model, inputs = padding_models.build("bert-choices")
    mask = torch.ones(2, 3, 10).long().index_fill(2, torch.tensor([9]), 0)

    sequence = sequence_of(model, {**inputs, "attention_mask": mask})

    assert sequence.mask.shape == (6, 10)
    assert sequence.windows() == [(0, 9)] * 6


def test_models_that_decode_are_told_from_those_that_do_not():
    decoding = {name: model_traits.decodes(padding_models.build(name)[0]) for name in padding_models.ARCHITECTURES}

    assert {name for name, does in decoding.items() if not does} == {
        "bert", "roberta", "distilbert", "electra", "vit", "vilt", "vilt-pixels", "text-cnn", "text-cnn-normed",
        "bert-classifier", "bert-tokens", "bert-answers", "bert-choices", "bert-masked", "wav2vec2",
    } | {name for name in ("clip",) if not decoding[name]}  # fmt: skip


def test_masks_of_other_shapes_are_refused_with_a_reason():
    model, inputs = padding_models.build("llama")

    _, reasons = find_sequences(call_of(model, {**inputs, "attention_mask": torch.ones(2, 1, 10, 10)}))
    _, other = find_sequences(call_of(model, {**inputs, "attention_mask": {"full_attention": None}}))

    assert reasons == [
        "input_ids of LlamaForCausalLM: attention_mask has shape (2, 1, 10, 10); only masks of shape (2, 10) can be padded"
    ]
    assert other == ["input_ids of LlamaForCausalLM: attention_mask is a dict, not a tensor"]
