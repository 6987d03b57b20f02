"""A real model that was left in training mode is told as that, whatever draws random numbers or counts rows there."""

import copy

import pytest
import torch
import transformers

import pytest_tfdebug
from golden_files import held

BODY = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL = {"vocab_size": 64, **BODY}
BOTH_SIDES = {
    "vocab_size": 64,
    "d_model": 32,
    **dict.fromkeys(["encoder_layers", "decoder_layers"], 2),
    **dict.fromkeys(["encoder_attention_heads", "decoder_attention_heads"], 4),
    **dict.fromkeys(["encoder_ffn_dim", "decoder_ffn_dim"], 48),
    "use_cache": False,
}
SOUNDS = {"num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 20, "decoder_start_token_id": 1}
CONVOLUTIONS = {"conv_dim": (8, 8), "conv_kernel": (8, 4), "conv_stride": (4, 2)}
POSITIONS = {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
STAGES = {
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "sr_ratios": [2, 1],
    "hidden_sizes": [8, 16],
    "num_attention_heads": [1, 2],
    "patch_sizes": [3, 3],
    "strides": [2, 2],
    "mlp_ratios": [2, 2],
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 2, "use_cache": False}
WINDOWS = {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 2], "num_heads": [2, 2], "window_size": 4}
MASKED = {"mask_time_prob": 0.5, "mask_time_length": 2}
IDS = {"input_ids": torch.tensor([[5, 6, 7, 8], [9, 10, 3, 4]])}


def noise(name, *shape):
    return {name: torch.randn(*shape, generator=torch.Generator().manual_seed(0))}


PIXELS = noise("pixel_values", 2, 3, 32, 32)
#: What is other in training mode -> name of the model, its configuration and its inputs.
CASES = {
    "batch statistics": ("ResNet", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}, PIXELS),
    "batch statistics of depthwise convolutions": ("MobileNetV2", {"depth_multiplier": 0.25, "image_size": 32}, PIXELS),
    "paths left out": (
        "ConvNext",
        {"hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2, "drop_path_rate": 0.5},
        PIXELS,
    ),
    "paths of windows": ("Swin", WINDOWS, PIXELS),
    "paths of stages": ("Segformer", {**STAGES, "drop_path_rate": 0.5}, PIXELS),
    "dropout": ("ViT", {**BODY, "image_size": 32, "patch_size": 8, "hidden_dropout_prob": 0.1}, PIXELS),
    "spans masked by NumPy": (
        "Wav2Vec2",
        {**SMALL, **CONVOLUTIONS, **POSITIONS, **MASKED},
        noise("input_values", 2, 200),
    ),
    "spans of a spectrogram": (
        "Whisper",
        {**BOTH_SIDES, **SOUNDS, **TOKENS, **MASKED, "apply_spec_augment": True},
        {**noise("input_features", 2, 8, 40), "decoder_input_ids": IDS["input_ids"]},
    ),
    "layers left out": ("Bart", {**BOTH_SIDES, "encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5}, IDS),
    "a router that is jittered": ("Mixtral", {**SMALL, **EXPERTS, "router_jitter_noise": 0.1}, IDS),
    "dropout of words": ("GPT2", {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}, IDS),
    "dropout of attention": ("Llama", {**SMALL, "use_cache": False, "attention_dropout": 0.3}, IDS),
}


@pytest.mark.parametrize("other", CASES)
def test_model_left_in_training_mode_is_told_whatever_is_other_there(other, tmp_path):
    name, settings, inputs = CASES[other]
    config = getattr(transformers, f"{name}Config")(**settings)
    reference = pytest_tfdebug.fill(getattr(transformers, f"{name}Model")(config).eval(), seed=0)
    port = copy.deepcopy(reference).train()

    report = held(tmp_path, reference, port, inputs)

    model = f"{name}Model"
    answer = f"{model} ({model}): is in training mode, and the reference was in eval mode"
    assert str(report).partition("\n")[0] == answer
    assert (report.culprit.kind, report.culprit.certain, report.culprit.proved) == ("mode", True, "")
    assert port.training
