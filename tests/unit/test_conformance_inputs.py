"""The inputs that models are held to their promises with."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import CLIPConfig, CLIPModel, LlamaConfig, WhisperConfig
from transformers import WhisperForConditionalGeneration as Whisper

from pytest_tfdebug.conform.subject import cleaned
from pytest_tfdebug.invariance.calls.model_traits import default_inputs

PAD, BOS, EOS, IMAGE = 0, 1, 2, 30
CONFIG = LlamaConfig(vocab_size=32, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS)
ROW = st.lists(st.tuples(st.integers(0, 31), st.booleans()), min_size=5, max_size=5)


@given(st.lists(ROW, min_size=1, max_size=4))
def test_masks_have_no_holes_and_real_tokens_are_ordinary(rows):
    ids = torch.tensor([[token for token, _ in row] for row in rows])
    mask = torch.tensor([[1, *(int(is_real) for _, is_real in row[1:])] for row in rows])
    is_meant = ((ids <= EOS) & (ids == ids[:1])).all(dim=0)

    made = cleaned({"input_ids": ids, "attention_mask": mask, "labels": None}, CONFIG)

    real = made["attention_mask"].bool()
    assert set(made) == {"input_ids", "attention_mask"}
    assert ((real[:, 1:] != real[:, :-1]).sum(dim=1) <= 1).all()
    assert (made["input_ids"][~real] == PAD).all()
    assert (made["attention_mask"].sum(dim=1) >= mask.sum(dim=1)).all()
    if not is_meant.any():
        assert made["attention_mask"].sum(dim=1).tolist() == mask.sum(dim=1).clamp(min=3).tolist()
        if len(rows) > 1 and (ids > EOS).any():
            assert (made["input_ids"][real] > EOS).all()


def test_pad_that_ends_every_row_takes_the_place_of_no_token():
    ids = torch.tensor([[5, BOS, 7, PAD], [8, BOS, 9, PAD]])
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]])

    made = cleaned({"input_ids": ids, "attention_mask": mask}, CONFIG)

    assert made["input_ids"].tolist() == [[5, BOS, PAD, PAD], [8, BOS, 9, PAD]]


def test_pad_among_real_tokens_is_replaced_in_every_row():
    ids = torch.tensor([[PAD, BOS, PAD, 7, 8], [PAD, BOS, PAD, 6, 9]])

    made = cleaned({"input_ids": ids, "attention_mask": torch.ones(2, 5)}, CONFIG)

    assert made["input_ids"].tolist() == [[PAD, BOS, 7, 7, 8], [PAD, BOS, 7, 6, 9]]


def test_no_mask_hides_a_special_token_that_is_in_every_row():
    ids = torch.tensor([[5, BOS, 7, 8], [8, BOS, 9, 6]])
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0]])

    made = cleaned({"input_ids": ids, "attention_mask": mask}, CONFIG)

    assert made["input_ids"].tolist() == [[5, BOS, PAD, PAD], [8, BOS, 9, PAD]]
    assert made["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 0]]


@pytest.mark.parametrize(
    ("media", "expected"),
    [
        ({"pixel_values": torch.zeros(2, 3, 4, 4)}, [[5, IMAGE, IMAGE, PAD], [IMAGE, 7, 8, IMAGE]]),
        ({}, [[5, 5, PAD, PAD], [5, 7, PAD, PAD]]),
    ],
)
def test_tokens_whose_place_an_image_takes_stay_where_there_is_an_image(media, expected):
    config = CLIPConfig(image_token_id=IMAGE, pad_token_id=PAD)
    ids = torch.tensor([[5, IMAGE, IMAGE, 6], [IMAGE, 7, 8, IMAGE]])
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0]])

    made = cleaned({"input_ids": ids, "attention_mask": mask, **media}, config)

    assert made["input_ids"].tolist() == expected
    assert (made["attention_mask"].bool() == (made["input_ids"] != PAD)).all()


def test_token_of_an_image_that_one_row_happens_to_have_is_replaced():
    config = CLIPConfig(image_token_id=IMAGE, pad_token_id=PAD)
    ids = torch.tensor([[5, 6, 7], [8, 9, IMAGE], [4, 3, 8]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones(3, 3), "pixel_values": torch.zeros(3, 3, 4, 4)}

    assert cleaned(inputs, config)["input_ids"].tolist() == [[5, 6, 7], [8, 9, 5], [4, 3, 8]]


def test_all_frames_of_sound_are_real():
    mask = torch.tensor([[1, 1, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    inputs = {"input_features": torch.zeros(2, 6, 4), "attention_mask": mask}

    assert cleaned(inputs, CONFIG)["attention_mask"].tolist() == [[1] * 6, [1] * 6]
    assert cleaned({**inputs, "input_ids": torch.full((2, 6), 5)}, CONFIG)["attention_mask"].sum() == 9


def test_special_token_that_ends_every_row_ends_it_still():
    ids = torch.tensor([[5, 6, 7, EOS], [8, BOS, 9, EOS]])
    mask = torch.tensor([[1, 0, 1, 1], [1, 1, 1, 1]])

    made = cleaned({"input_ids": ids, "attention_mask": mask}, CONFIG)

    assert made["input_ids"].tolist() == [[5, 6, EOS, PAD], [8, 5, 9, EOS]]


@pytest.mark.parametrize(
    ("model_class", "config", "names"),
    [
        (
            CLIPModel,
            CLIPConfig(
                text_config={"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 40},
                vision_config={"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "image_size": 8}
                | {"patch_size": 4},
            ),
            {"input_ids", "attention_mask", "pixel_values"},
        ),
        (
            Whisper,
            WhisperConfig(
                vocab_size=40,
                d_model=16,
                **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
                **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
                **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0),
                num_mel_bins=4,
                max_source_positions=6,
            ),
            {"decoder_input_ids", "input_features"},
        ),
    ],
)
def test_inputs_are_made_of_what_a_forward_takes(model_class, config, names):
    assert names <= set(default_inputs(model_class(config).eval()))


def test_model_that_takes_nothing_known_asks_for_inputs():
    with pytest.raises(ValueError, match=r"its forward takes none of input_ids.*\nGive inputs="):
        default_inputs(torch.nn.Linear(2, 2))
