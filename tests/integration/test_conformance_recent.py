"""Sound models of recent transformers break no promise, and those that break one are told the right cause."""

import pytest
import torch
import transformers

from pytest_tfdebug import InvarianceError, assert_invariant, assert_padding_invariant
from pytest_tfdebug.conform.mixin import PROMISES
from pytest_tfdebug.conform.subject import Subject, cleaned

IDS = torch.arange(5, 23).view(2, 9)
BY_NAME = {promise.name: promise for promise in PROMISES}
ENCODER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
ENCODER |= {"num_mel_bins": 16, "subsampling_conv_channels": 8}
#: Two spectrograms of 60 frames, of which the second has 21 pads.
SOUND = {
    "input_features": torch.randn(2, 60, 16, generator=torch.Generator().manual_seed(0)),
    "attention_mask": (torch.arange(60) < torch.tensor([60, 39])[:, None]).long(),
}
DEEPSEEK = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "moe_intermediate_size": 16}
DEEPSEEK |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "n_routed_experts": 4}
DEEPSEEK |= {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16}
DEEPSEEK |= {"n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 2}
DEEPSEEK |= {"index_n_heads": 2, "index_head_dim": 32, "index_topk": 4}


def classes(*names):
    """Return classes of transformers; skip the test where it has none of that name."""
    found = [getattr(transformers, name, None) for name in names]
    if None in found:
        pytest.skip(f"transformers has no {', '.join(names)} here")
    return found


def found(model_class, promise, config, inputs):
    return BY_NAME[promise].find(Subject(model_class, config, inputs))


@pytest.mark.parametrize("promise", ["padding", "dtype", "attention", "batch"])
def test_pads_among_the_frames_of_a_tester_break_no_promise(promise):
    encoder, config_class = classes("ParakeetEncoder", "ParakeetEncoderConfig")
    config = config_class(**ENCODER)

    finding = found(encoder, promise, config, cleaned(SOUND, config))

    assert not finding.failure
    assert not finding.absent


def test_frames_that_a_test_pads_itself_are_no_leak():
    encoder, config_class = classes("ParakeetEncoder", "ParakeetEncoderConfig")

    assert_padding_invariant(encoder(config_class(**ENCODER)).eval(), SOUND)


def test_table_of_distances_is_not_taken_for_shifted_positions():
    encoder, config_class = classes("ParakeetEncoder", "ParakeetEncoderConfig")
    model = encoder(config_class(**ENCODER)).eval()
    conv = model.layers[0].conv
    forward = conv.forward
    conv.forward = lambda hidden_states, attention_mask=None: forward(hidden_states)  # without its mask

    with pytest.raises(InvarianceError) as caught:
        assert_padding_invariant(model, SOUND)

    assert "encode_positions" not in caught.value.culprit.path
    assert "position ids" not in str(caught.value)


def test_parameter_of_a_choice_that_shows_in_the_cache_needs_no_gradient():
    model, config_class = classes("DeepseekV32ForCausalLM", "DeepseekV32Config")

    finding = found(model, "gradients", config_class(**DEEPSEEK), {"input_ids": IDS})

    assert not finding.failure
    assert "indexer.wk.weight" in finding.note


def test_boolean_mask_is_not_blamed_for_what_attention_makes_of_it():
    encoder, config_class = classes("NemotronAsrStreamingEncoder", "NemotronAsrStreamingEncoderConfig")
    config = config_class(**ENCODER)

    finding = found(encoder, "attention", config, cleaned(SOUND, config))

    assert finding.culprit is None or finding.culprit.path == "layers.0.self_attn"


class Sums(torch.nn.Module):
    """Gives its last layer a sum that is as large as its factor."""

    def __init__(self, factor):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.factor = factor

    def forward(self, hidden_states):
        return self.last(self.first(hidden_states) * self.factor)


def test_value_that_overflows_between_two_modules_is_placed_there():
    with pytest.raises(InvarianceError) as caught:
        assert_invariant(Sums(1e6), {"hidden_states": torch.ones(2, 4)}, "dtype", dtypes="float16")

    assert caught.value.culprit.path == "Sums"
    assert "Values overflow at 'last'" in str(caught.value)


def test_weights_that_are_too_large_for_a_dtype_break_no_promise():
    backbone, config_class = classes("PPLCNetV3Backbone", "PPLCNetV3Config")

    pixels = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))

    finding = found(backbone, "dtype", config_class(), {"pixel_values": pixels})

    assert not finding.failure
    assert "float16 ends at 6.55e+04" in finding.note


def test_blocks_of_keys_are_no_convolution_over_pads():
    model, config_class = classes("MiniMaxM3VLTextModel", "MiniMaxM3VLTextConfig")
    config = config_class(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        pad_token_id=0,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        rotary_dim=16,
        dense_intermediate_size=32,
        shared_intermediate_size=32,
        num_local_experts=4,
        num_experts_per_tok=2,
        n_shared_experts=1,
        moe_layer_freq=[0, 1],
        layer_types=["full_attention", "minimax_m3_sparse"],
        index_n_heads=2,
        index_head_dim=16,
        index_block_size=8,
        index_topk_blocks=1,
        index_local_blocks=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    )

    finding = found(model, "padding", config, {"input_ids": IDS})

    assert finding.culprit.path == "layers.1.self_attn"
    assert "or strides begin at the first pad: pads before the tokens matter, whatever they hold" in finding.diagnosis


def test_keys_made_of_several_tokens_are_not_hidden_by_the_attention_mask():
    model, config_class = classes("DeepseekV4Model", "DeepseekV4Config")
    config = config_class(
        vocab_size=64,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        pad_token_id=0,
        num_key_value_heads=1,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        head_dim=32,
        max_position_embeddings=64,
        partial_rotary_factor=0.25,
        q_lora_rank=32,
        o_groups=2,
        o_lora_rank=16,
        n_routed_experts=4,
        n_shared_experts=1,
        mlp_layer_types=["moe", "moe"],
        layer_types=["heavily_compressed_attention", "compressed_sparse_attention"],
        sliding_window=8,
        hc_mult=2,
        hc_sinkhorn_iters=3,
        index_n_heads=2,
        index_head_dim=16,
        index_topk=2,
        num_nextn_predict_layers=0,
        rope_theta=1e4,
        compress_rope_theta=1e4,
    )

    finding = found(model, "padding", config, {"input_ids": IDS[:, :7]})

    assert finding.culprit.path == "layers.1.self_attn"
    assert finding.diagnosis.endswith("or keys are made of several tokens, pads too.")


def test_windows_of_an_image_are_not_taken_for_its_rows():
    model, config_class, swin = classes("GroundingDinoModel", "GroundingDinoConfig", "SwinConfig")
    backbone = swin(window_size=7, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 1, 1, 1], image_size=224)
    backbone.out_features = ["stage2", "stage3", "stage4"]
    text = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = config_class(
        backbone_config=backbone,
        text_config={"model_type": "bert", "vocab_size": 64, **text},
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        num_queries=2,
        encoder_n_points=1,
        decoder_n_points=1,
        num_feature_levels=4,
    )
    images = torch.rand(2, 3, 98, 98, generator=torch.Generator().manual_seed(0))

    finding = found(model, "padding", config, {"pixel_values": images, "input_ids": torch.full((2, 4), 5)})

    assert not finding.absent
    assert ".encoder.layers.0." in f"{finding.culprit.path}."


def test_cache_that_is_not_returned_with_checkpointing_changes_no_gradient():
    """A forward that takes ``use_cache`` among ``**kwargs`` alone returns one without checkpointing."""
    model, config_class = classes("GraniteMoeForCausalLM", "GraniteMoeConfig")
    small = {"num_local_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 2}
    config = config_class(vocab_size=64, **{key: value for key, value in ENCODER.items() if "_size" in key}, **small)
    config.num_hidden_layers, config.num_attention_heads = 2, 2

    finding = found(model, "checkpointing", config, {"input_ids": IDS})

    assert not finding.failure
    assert finding.repeats == 1
