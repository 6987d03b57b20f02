"""Implementations of other people, each with the reference's weights; see ``utils/first_try.py``.

None of them was used to build the tool. ``Port.reloaded`` names the packages whose forward code is edited at random.
"""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

import torch
from cases import Case, shaken, to_edit, tokens
from conversion import carried, experienced, fused, picture
from stubs import bare


def gpt_oss(load):
    from transformers import GptOssConfig, GptOssForCausalLM

    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 4}
    yarn = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0}
    yarn |= {"original_max_position_embeddings": 4096, "truncate": False}
    config = GptOssConfig(**sizes, num_local_experts=4, num_experts_per_tok=2, rope_parameters=yarn)
    reference = shaken(GptOssForCausalLM(config))
    settings = load("gpt_oss.torch.model").ModelConfig(**sizes, num_experts=4, experts_per_token=2)
    port = load("gpt_oss.torch.model").Transformer(settings).float()
    names = [
        (r"^model\.embed_tokens", "embedding"),
        (r"^model\.norm\.weight", "norm.scale"),
        (r"^model\.layers", "block"),
        (r"^lm_head", "unembedding"),
        (r"input_layernorm\.weight", "attn.norm.scale"),
        (r"post_attention_layernorm\.weight", "mlp.norm.scale"),
        (r"self_attn\.o_proj", "attn.out"),
        (r"self_attn", "attn"),
        (r"mlp\.router", "mlp.gate"),
        (r"experts\.gate_up_proj$", "mlp1_weight"),
        (r"experts\.gate_up_proj_bias", "mlp1_bias"),
        (r"experts\.down_proj$", "mlp2_weight"),
        (r"experts\.down_proj_bias", "mlp2_bias"),
    ]

    def cut(weights):
        turned = {name: w.transpose(1, 2) if w.ndim == 3 else w for name, w in weights.items()}
        return fused(turned, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.qkv")

    ids = tokens(64, batch=1)
    port = carried(port, reference, names, cut)
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids[0],), arranged=lambda out: out[None])


def xlm_roberta(load):
    from transformers import XLMRobertaConfig, XLMRobertaModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = XLMRobertaConfig(
        **sizes, vocab_size=64, max_position_embeddings=20, type_vocab_size=1, layer_norm_eps=1e-5
    )
    reference = shaken(XLMRobertaModel(config, add_pooling_layer=False))
    bare("pytext", "pytext.models")
    package = load("pytext.models.representations.transformer")
    layers = [
        package.TransformerLayer(
            32, package.MultiheadSelfAttention(32, 4, scaling=8**-0.5), package.ResidualMLP(32, hidden_dims=[48])
        )
        for _ in range(2)
    ]
    port = package.SentenceEncoder(package.Transformer(64, 32, 1, 20, layers))
    names = [
        (r"^embeddings\.word_embeddings", "transformer.token_embedding"),
        (r"^embeddings\.position_embeddings", "transformer.positional_embedding.embedding"),
        (r"^embeddings\.LayerNorm", "transformer.embedding_layer_norm"),
        (r"^encoder\.layer", "transformer.layers"),
        (r"attention\.output\.dense", "attention.output_projection"),
        (r"attention\.output\.LayerNorm", "attention_layer_norm"),
        (r"attention\.self", "attention"),
        (r"intermediate\.dense", "residual_mlp.mlp.0"),
        (r"output\.dense", "residual_mlp.mlp.3"),
        (r"output\.LayerNorm", "final_layer_norm"),
    ]

    def cut(weights):  # the port has no kinds of tokens
        at = "embeddings.word_embeddings.weight"
        weights[at] = weights[at] + weights.pop("embeddings.token_type_embeddings.weight")
        return fused(weights, [f"self.{kind}" for kind in ("query", "key", "value")], "self.input_projection")

    ids = tokens(64)  # without padding, of which the port makes zeros
    return Case(reference, carried(port, reference, names, cut), (), {"input_ids": ids}, (ids,))


def t5(load):
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 64}
    near = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 16}
    reference = shaken(T5ForConditionalGeneration(T5Config(**sizes, **near)))
    bare("torchtext", "torchtext.models", "torchtext.models.t5")  # its extension is compiled for another torch
    package = load("torchtext.models.t5.model")
    sizes = {"embedding_dim": 32, "qkv_dim": 8, "num_attention_heads": 4, "ffn_dimension": 48, "vocab_size": 64}
    settings = package.T5Conf(**sizes, **near, num_encoder_layers=2, num_decoder_layers=2, linear_head=True)
    names = [
        (r"^shared", "token_embeddings"),
        (r"^encoder\.embed_tokens", "encoder.token_embeddings"),
        (r"\.block\.", ".layers."),
        (r"final_layer_norm", "norm"),
        (r"layer\.0\.SelfAttention", "self_attn"),
        (r"layer\.1\.EncDecAttention", "cross_attn"),
        (r"attn\.([qkv])\.", r"attn.\1_proj_"),
        (r"attn\.o\.", "attn.out_proj."),
        (r"layer\.0\.layer_norm", "norm1"),
        (r"decoder(.*)layer\.1\.layer_norm", r"decoder\1norm3"),
        (r"layer\.[12]\.(layer_norm|norm)", "norm2"),
        (r"layer\.[12]\.DenseReluDense\.wi", "linear1"),
        (r"layer\.[12]\.DenseReluDense\.wo", "linear2"),
    ]
    ids, said = tokens(64), tokens(64).flip(1)[:, :8].contiguous()
    ids[1, 9:] = 0
    inputs = {"input_ids": ids, "attention_mask": ids.ne(0).long(), "decoder_input_ids": said, "use_cache": False}
    port = carried(package.T5Model(settings), reference, names)
    return Case(reference, port, (), inputs, (ids, said), arranged=lambda out: out["decoder_output"])


def gemma4(load):
    from transformers import Gemma4TextConfig, Gemma4TextModel

    config = Gemma4TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        global_head_dim=16,
        num_global_key_value_heads=1,
        attention_k_eq_v=True,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention", "full_attention"],
        vocab_size_per_layer_input=64,
        hidden_size_per_layer_input=4,
        num_kv_shared_layers=1,
    )
    reference = shaken(Gemma4TextModel(config))
    package = load("gemma4_pt_codex.config")
    sliding, full = package.AttentionKind.SLIDING, package.AttentionKind.FULL
    settings = package.TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_layers=3,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        global_head_dim=16,
        num_global_kv_heads=1,
        attention_k_eq_v_global=True,
        sliding_window=4,
        layer_types=(sliding, full, full),
        per_layer_input_dim=4,
        kv_sharing=package.KVSharingConfig(1 / 3),
    )
    port = load("gemma4_pt_codex.text").Gemma4TextTower(settings)
    names = [
        (r"^embed_tokens_per_layer\.weight", "per_layer_token_embedding"),
        (r"^embed_tokens", "token_embedding"),
        (r"^norm", "final_norm"),
        (r"self_attn", "attn"),
        (r"input_layernorm", "pre_attn_norm"),
        (r"post_attention_layernorm", "post_attn_norm"),
        (r"pre_feedforward_layernorm", "pre_ffn_norm"),
        (r"post_feedforward_layernorm", "post_ffn_norm"),
    ]

    def cut(weights):
        at = "embed_tokens_per_layer.weight"
        weights["per_layer_model_projection.weight"] = weights["per_layer_model_projection.weight"] * 32**-0.5
        return {**weights, at: weights[at].view(64, 3, 4)}

    ids = tokens(64)
    positions, seen = torch.arange(12).expand(2, 12), torch.ones(12, 12, dtype=torch.bool).tril().expand(2, 12, 12)
    given = {"position_ids": positions, "full_attention_mask": seen}
    port = carried(port, reference, names, cut, kept=("layers.2.attn.",))
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids,), given)


def sam2_vision(load):
    from transformers import Sam2HieraDetConfig, Sam2VisionConfig, Sam2VisionModel

    backbone = Sam2HieraDetConfig(
        hidden_size=16,
        image_size=[64, 64],
        window_positional_embedding_background_size=[4, 4],
        num_query_pool_stages=2,
        blocks_per_stage=[1, 2, 1],
        embed_dim_per_stage=[16, 32, 64],
        num_attention_heads_per_stage=[1, 2, 4],
        window_size_per_stage=[8, 4, 4],
        global_attention_blocks=[2],
    )
    config = Sam2VisionConfig(
        backbone_config=backbone,
        backbone_channel_list=[64, 32, 16],
        backbone_feature_sizes=[[16, 16], [8, 8], [4, 4]],
        fpn_hidden_size=24,
        fpn_top_down_levels=[0, 1],
    )
    reference = shaken(Sam2VisionModel(config))
    bare("sam2")
    encoder, positions = load("sam2.modeling.backbones.image_encoder"), load("sam2.modeling.position_encoding")
    port = encoder.ImageEncoder(
        load("sam2.modeling.backbones.hieradet").Hiera(
            embed_dim=16,
            q_pool=2,
            stages=(1, 2, 1),
            window_pos_embed_bkg_spatial_size=(4, 4),
            window_spec=(8, 4, 4),
            global_att_blocks=(2,),
        ),
        encoder.FpnNeck(
            positions.PositionEmbeddingSine(24),
            d_model=24,
            backbone_channel_list=[64, 32, 16],
            fpn_interp_model="nearest",
            fpn_top_down_levels=[0, 1],
        ),
    )
    names = [
        (r"^backbone", "trunk"),
        (r"patch_embed\.projection", "patch_embed.proj"),
        (r"layer_norm(\d)", r"norm\1"),
        (r"mlp\.proj_in", "mlp.layers.0"),
        (r"mlp\.proj_out", "mlp.layers.1"),
        (r"^neck\.convs\.(\d)", r"neck.convs.\1.conv"),
    ]
    pixels, port = picture(64), carried(port, reference, names)
    finest = lambda out: out["backbone_fpn"][0]  # noqa: E731
    return Case(
        reference,
        port,
        (),
        {"pixel_values": pixels},
        (pixels,),
        arranged=finest,
        main=lambda out: out.fpn_hidden_states[0],
    )


def pocket_tts(load):
    from transformers import PocketTTSAudioTokenizerConfig
    from transformers.models.pocket_tts_audio_tokenizer import modeling_pocket_tts_audio_tokenizer as theirs

    config = PocketTTSAudioTokenizerConfig(
        sampling_rate=1600,
        hidden_size=16,
        num_filters=4,
        upsampling_ratios=[4, 2],
        upsample_groups=16,
        intermediate_size=24,
        num_attention_heads=2,
        num_key_value_heads=2,
        sliding_window=6,
        latent_stride=2,
        latent_dim=6,
    )
    reference = shaken(theirs.PocketTTSAudioTokenizerEncoderModel(config.encoder_config))
    bare("pocket_tts")
    seanet, mimi = load("pocket_tts.modules.seanet"), load("pocket_tts.models.mimi")
    sizes = {"dimension": 16, "n_filters": 4, "n_residual_layers": 1, "ratios": [4, 2]}
    sizes |= {"last_kernel_size": 3, "pad_mode": "constant"}
    layers = load("pocket_tts.modules.transformer").ProjectedTransformer(
        16, (16,), 16, 2, 2, layer_scale=0.01, context=6, max_period=10000.0, dim_feedforward=24
    )
    port = mimi.MimiModel(
        seanet.SEANetEncoder(**sizes),
        seanet.SEANetDecoder(**sizes),
        load("pocket_tts.modules.dummy_quantizer").DummyQuantizer(6, 16),
        frame_rate=100,
        encoder_frame_rate=200,
        sample_rate=1600,
        channels=1,
        inner_dim=6,
        outer_dim=16,
        encoder_transformer=layers,
        decoder_transformer=torch.nn.Identity(),
    )
    port.forward = port.encode_to_latent
    names = [
        (r"^encoder_seanet\.layers", "encoder.model"),
        (r"^encoder_transformer", "encoder_transformer.transformer"),
        (r"^downsample\.", "downsample.conv."),
        (r"self_attn\.o_proj", "self_attn.out_proj"),
        (r"mlp\.fc(\d)", r"linear\1"),
        (r"input_layernorm", "norm1"),
        (r"post_attention_layernorm", "norm2"),
        (r"self_attn_layer_scale", "layer_scale_1"),
        (r"mlp_layer_scale", "layer_scale_2"),
    ]

    def cut(weights):  # the port turns neighbours, the reference halves
        for name in [name for name in weights if name.endswith(("q_proj.weight", "k_proj.weight"))]:
            weights[name] = weights[name].view(2, 2, 4, 16).transpose(1, 2).reshape(16, 16)
        return fused(weights, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.in_proj")

    sound = torch.randn(2, 1, 160, generator=torch.Generator().manual_seed(1))
    port = carried(port, reference, names, cut, kept=("decoder.", "quantizer.", "upsample."))
    turned = lambda out: out.transpose(1, 2)  # noqa: E731
    return Case(reference, port, (), {"input_values": sound}, (sound,), arranged=turned)


def parakeet(load):
    from transformers import ParakeetEncoder, ParakeetEncoderConfig

    config = ParakeetEncoderConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        conv_kernel_size=5,
        subsampling_factor=4,
        subsampling_conv_channels=8,
        num_mel_bins=16,
        layerdrop=0.0,
    )
    reference = experienced(shaken(ParakeetEncoder(config)))
    bare(
        "nemo",
        "nemo.core",
        "nemo.core.classes",
        "nemo.core.config",
        "nemo.collections.common",
        "nemo.collections.common.parts",
        "nemo.collections.asr",
        "nemo.collections.asr.models",
        "nemo.collections.asr.modules",
        "nemo.collections.asr.parts.mixins",
        "nemo.collections.asr.parts.submodules.adapters",
        "nemo.collections.asr.parts.utils",
    )
    sys.modules["nemo.core.classes.exportable"] = SimpleNamespace(Exportable=type("Exportable", (), {}))
    sys.modules["nemo.collections.asr.models.configs"] = SimpleNamespace(CacheAwareStreamingConfig=SimpleNamespace)
    port = load("nemo.collections.asr.modules.conformer_encoder").ConformerEncoder(
        feat_in=16,
        n_layers=2,
        d_model=32,
        subsampling="dw_striding",
        subsampling_factor=4,
        subsampling_conv_channels=8,
        ff_expansion_factor=2,
        n_heads=4,
        conv_kernel_size=5,
        dropout=0.0,
        dropout_pre_encoder=0.0,
        dropout_emb=0.0,
        dropout_att=0.0,
    )
    names = [
        (r"^subsampling\.layers", "pre_encode.conv"),
        (r"^subsampling\.linear", "pre_encode.out"),
        (r"conv\.norm", "conv.batch_norm"),
        (r"self_attn\.bias", "self_attn.pos_bias"),
        (r"self_attn\.([qkv])_proj", r"self_attn.linear_\1"),
        (r"self_attn\.o_proj", "self_attn.linear_out"),
        (r"self_attn\.relative_k_proj", "self_attn.linear_pos"),
    ]
    mel, lengths = torch.randn(2, 40, 16, generator=torch.Generator().manual_seed(1)), torch.tensor([40, 40])
    port = carried(port, reference, names)
    turned = lambda out: out[0].transpose(1, 2)  # noqa: E731
    own = {"audio_signal": mel.transpose(1, 2), "length": lengths}
    return Case(reference, port, (), {"input_features": mel}, (), own, arranged=turned)


def rt_detr(load):
    from transformers import ResNetConfig, RTDetrConfig, RTDetrForObjectDetection

    backbone = ResNetConfig(
        embedding_size=8,
        hidden_sizes=[16, 32, 64],
        depths=[1, 2, 1],
        layer_type="bottleneck",
        out_features=["stage2", "stage3"],
    )
    config = RTDetrConfig(
        backbone_config=backbone,
        encoder_hidden_dim=32,
        encoder_in_channels=[32, 64],
        feat_strides=[8, 16],
        encoder_layers=1,
        encoder_ffn_dim=48,
        encoder_attention_heads=4,
        encode_proj_layers=[1],
        num_feature_levels=2,
        decoder_in_channels=[32, 32],
        d_model=32,
        num_queries=6,
        decoder_ffn_dim=48,
        decoder_n_points=3,
        decoder_layers=2,
        decoder_attention_heads=4,
        num_denoising=0,
        num_labels=5,
    )
    reference, pixels = shaken(RTDetrForObjectDetection(config)), picture(64)
    for module in reference.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():
        reference.train()(pixel_values=pixels)  # gives it the running statistics of these pictures
    reference.eval()
    os.environ.setdefault("YOLO_CONFIG_DIR", tempfile.gettempdir())
    bare("ultralytics", "ultralytics.models")
    sys.modules["ultralytics"].__version__ = "8"
    layers = [
        [-1, 1, "ResNetLayer", [3, 8, 1, True, 1]],
        [-1, 1, "ResNetLayer", [8, 4, 1, False, 1]],
        [-1, 1, "ResNetLayer", [16, 8, 2, False, 2]],
        [-1, 1, "ResNetLayer", [32, 16, 2, False, 1]],
        [-1, 1, "Conv", [32, 1, 1, None, 1, 1, False]],
        [-1, 1, "AIFI", [48, 4]],
        [-1, 1, "Conv", [32, 1, 1]],
        [-1, 1, "nn.Upsample", [None, 2, "nearest"]],
        [2, 1, "Conv", [32, 1, 1, None, 1, 1, False]],
        [[-2, -1], 1, "Concat", [1]],
        [-1, 3, "RepC3", [32]],
        [-1, 1, "Conv", [32, 3, 2]],
        [[-1, 6], 1, "Concat", [1]],
        [-1, 3, "RepC3", [32]],
        [[10, 13], 1, "RTDETRDecoder", [5, 32, 6, 3, 4, 2, 48]],
    ]
    with patch("importlib.metadata.version", return_value="9.9"):
        package = load("ultralytics.nn.tasks")
    load("ultralytics.models.utils.ops")  # its forward imports it
    port = package.RTDETRDetectionModel(
        {"nc": 5, "backbone": layers[:4], "head": layers[4:], "channels": 3}, verbose=False
    )
    for module in port.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eps = 1e-5
    for module in port.model[:4].modules():
        if hasattr(module, "act"):
            module.act = torch.nn.ReLU() if isinstance(module.act, torch.nn.SiLU) else module.act
    names = [
        (r"^(model\.decoder\.)?class_embed", "model.14.dec_score_head"),
        (r"^(model\.decoder\.)?bbox_embed", "model.14.dec_bbox_head"),
        (r"^model\.backbone\.model\.embedder\.embedder", "model.0.layer.0"),
        (
            r"^model\.backbone\.model\.encoder\.stages\.(\d)\.layers\.(\d)",
            lambda m: f"model.{int(m[1]) + 1}.layer.{m[2]}",
        ),
        (r"layer\.(\d)\.layer\.(\d)", lambda m: f"layer.{m[1]}.cv{int(m[2]) + 1}"),
        (r"shortcut", "shortcut.0"),
        (r"convolution", "conv"),
        (r"normalization", "bn"),
        (r"^model\.encoder_input_proj\.(\d)\.", lambda m: f"model.{8 - 4 * int(m[1])}."),
        (r"^(model\.[48])\.0", r"\1.conv"),
        (r"^(model\.[48])\.1", r"\1.bn"),
        (r"^model\.encoder\.aifi\.0\.layers\.0", "model.5"),
        (r"model\.5\.self_attn\.in_proj\.", "model.5.ma.in_proj_"),
        (r"model\.5\.self_attn\.o_proj", "model.5.ma.out_proj"),
        (r"model\.5\.self_attn_layer_norm", "model.5.norm1"),
        (r"model\.5\.final_layer_norm", "model.5.norm2"),
        (r"model\.5\.mlp\.", "model.5."),
        (r"^model\.encoder\.lateral_convs\.0", "model.6"),
        (r"^model\.encoder\.fpn_blocks\.0", "model.10"),
        (r"^model\.encoder\.downsample_convs\.0", "model.11"),
        (r"^model\.encoder\.pan_blocks\.0", "model.13"),
        (r"^(model\.1[03])\.conv(\d)", r"\1.cv\2"),
        (r"bottlenecks", "m"),
        (r"^(model\.(6|10|11|13).*)\.norm", r"\1.bn"),
        (r"^model\.decoder_input_proj", "model.14.input_proj"),
        (r"^model\.decoder\.query_pos_head", "model.14.query_pos_head"),
        (r"^model\.decoder", "model.14.decoder"),
        (r"^model\.enc_", "model.14.enc_"),
        (r"self_attn\.in_proj\.", "self_attn.in_proj_"),
        (r"o_proj", "out_proj"),
        (r"encoder_attn_layer_norm", "norm2"),
        (r"encoder_attn", "cross_attn"),
        (r"self_attn_layer_norm", "norm1"),
        (r"final_layer_norm", "norm3"),
        (r"mlp\.fc(\d)", r"linear\1"),
    ]
    cut = lambda weights: fused(weights, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.in_proj")  # noqa: E731
    port = carried(port, reference, names, cut, kept=("denoising",))
    return Case(
        reference,
        port,
        (),
        {"pixel_values": pixels},
        (pixels,),
        arranged=lambda out: out[1][1][-1],
        main=lambda out: out.logits,
    )


def blip2_vision(load):
    from transformers import Blip2VisionConfig, Blip2VisionModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    reference = shaken(Blip2VisionModel(Blip2VisionConfig(**sizes, image_size=32, patch_size=8)))
    bare("lavis", "lavis.models")
    vision = load("lavis.models.eva_vit").VisionTransformer(
        img_size=32,
        patch_size=8,
        embed_dim=32,
        depth=2,
        num_heads=4,
        mlp_ratio=2,
        qkv_bias=True,
        norm_layer=partial(torch.nn.LayerNorm, eps=1e-6),
    )
    port = torch.nn.Sequential(vision, torch.nn.LayerNorm(32, eps=1e-6))
    names = [
        (r"^embeddings\.class_embedding", "0.cls_token"),
        (r"^embeddings\.position_embedding", "0.pos_embed"),
        (r"^embeddings\.patch_embedding", "0.patch_embed.proj"),
        (r"^encoder\.layers", "0.blocks"),
        (r"self_attn\.projection", "attn.proj"),
        (r"self_attn", "attn"),
        (r"layer_norm(\d)", r"norm\1"),
        (r"^post_layernorm", "1"),
    ]

    def cut(weights):  # the port has no biases of keys
        for name in [name for name in weights if name.endswith("qkv.bias")]:
            query, key, value = weights.pop(name).chunk(3)
            key.zero_()
            weights |= {name.replace("qkv.bias", "q_bias"): query, name.replace("qkv.bias", "v_bias"): value}
        return weights

    pixels = picture(32)
    return Case(reference, carried(port, reference, names, cut), (), {"pixel_values": pixels}, (pixels,))


def deepseek_v3(load):
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 512}
    yarn |= {"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.7, "mscale_all_dim": 0.7}
    config = DeepseekV3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        first_k_dense_replace=2,  # the port's experts compute in bfloat16
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=16,
        kv_lora_rank=12,
        qk_nope_head_dim=6,
        qk_rope_head_dim=8,
        v_head_dim=10,
        rms_norm_eps=1e-5,
        max_position_embeddings=2048,
        rope_parameters=yarn,
    )
    reference = shaken(DeepseekV3ForCausalLM(config))
    package, common = load("torchtitan.models.deepseek_v3"), load("torchtitan.models.common")
    layers = package._build_dsv3_layers(
        n_layers=2,
        n_dense_layers=2,
        dim=32,
        n_heads=4,
        q_lora_rank=16,
        kv_lora_rank=12,
        qk_nope_head_dim=6,
        qk_rope_head_dim=8,
        v_head_dim=10,
        mscale=0.7,
        dense_hidden_dim=48,
        moe_hidden_dim=0,
        num_experts=0,
        num_shared_experts=0,
        router_top_k=0,
        router_score_func="sigmoid",
        attn_backend="flex",
        moe_comm_backend="standard",
        non_blocking_capacity_factor=None,
        rope=common.ComplexRoPE.Config(
            dim=8, max_seq_len=2048, theta=10000.0, scaling="yarn", rope_factor=4.0, original_seq_len=512
        ),
    )
    for layer in layers:
        layer.attention.inner_attention = load("torchtitan.models.common.attention").ScaledDotProductAttention.Config()
        layer.attention.q_norm.eps = layer.attention.kv_norm.eps = 1e-6
    settings = package.DeepSeekV3Model.Config(
        vocab_size=64,
        dim=32,
        tok_embeddings=common.Embedding.Config(num_embeddings=64, embedding_dim=32),
        norm=common.RMSNorm.Config(normalized_shape=32),
        lm_head=common.Linear.Config(in_features=32, out_features=64),
        layers=layers,
    )
    port = settings.build()
    names = [
        (r"^model\.", ""),
        (r"^embed_tokens", "tok_embeddings"),
        (r"self_attn\.kv_a_proj_with_mqa", "attention.wkv_a"),
        (r"self_attn\.(q|kv)_a_layernorm", r"attention.\1_norm"),
        (r"self_attn\.(q|kv)_([ab])_proj", r"attention.w\1_\2"),
        (r"self_attn\.o_proj", "attention.wo"),
        (r"input_layernorm", "attention_norm"),
        (r"post_attention_layernorm", "ffn_norm"),
        (r"mlp\.gate_proj", "feed_forward.w1"),
        (r"mlp\.down_proj", "feed_forward.w2"),
        (r"mlp\.up_proj", "feed_forward.w3"),
    ]
    ids = tokens(64)
    return Case(reference, carried(port, reference, names), (), {"input_ids": ids, "use_cache": False}, (ids,))


def pixtral_vision(load):
    from transformers import PixtralVisionConfig, PixtralVisionModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    sizes |= {"image_size": 64, "patch_size": 8}
    config = PixtralVisionConfig(
        **sizes, hidden_act="silu", rope_parameters={"rope_type": "default", "rope_theta": 10000.0}
    )
    reference = shaken(PixtralVisionModel(config))

    def attend(query, key, value, mask):
        turned = (each.transpose(1, 2) for each in (query, key, value))
        return torch.nn.functional.scaled_dot_product_attention(*turned).transpose(1, 2).contiguous()

    masks = dict.fromkeys(
        (
            "AttentionBias",
            "BlockDiagonalCausalMask",
            "BlockDiagonalCausalWithOffsetPaddedKeysMask",
            "BlockDiagonalMask",
        ),
        type("Mask", (), {"from_seqlens": lambda lengths: None}),  # its blocks pass none on
    )
    sys.modules["xformers.ops.fmha"] = SimpleNamespace(memory_efficient_attention=attend)
    sys.modules["xformers.ops.fmha.attn_bias"] = SimpleNamespace(**masks)
    package = load("mistral_inference.vision_encoder")
    del sys.modules["xformers.ops.fmha"], sys.modules["xformers.ops.fmha.attn_bias"]  # other packages look for it
    settings = load("mistral_inference.args").VisionEncoderArgs(
        **sizes, num_channels=3, rope_theta=10000.0, image_token_id=0
    )
    port = package.VisionTransformer(settings)
    names = [
        (r"attention\.([qkvo])_proj", r"attention.w\1"),
        (r"feed_forward\.gate_proj", "feed_forward.w1"),
        (r"feed_forward\.down_proj", "feed_forward.w2"),
        (r"feed_forward\.up_proj", "feed_forward.w3"),
    ]

    def cut(weights):  # the port turns neighbours, the reference halves
        for name in [name for name in weights if name.endswith(("q_proj.weight", "k_proj.weight"))]:
            weights[name] = weights[name].view(4, 2, 4, 32).transpose(1, 2).reshape(32, 32)
        return weights

    pixels = picture(48, batch=1)[..., :32]
    port = carried(port, reference, names, cut)
    return Case(reference, port, (), {"pixel_values": pixels}, (list(pixels),), arranged=lambda out: out[None])


def patchtst(load):
    from transformers import PatchTSTConfig, PatchTSTForPrediction

    config = PatchTSTConfig(
        num_input_channels=3,
        context_length=24,
        prediction_length=6,
        patch_length=6,
        patch_stride=3,
        num_hidden_layers=2,
        d_model=16,
        num_attention_heads=4,
        ffn_dim=32,
        norm_type="batchnorm",
        pre_norm=False,
        use_cls_token=False,
        pooling_type=None,
        scaling="std",
        loss="mse",
        do_mask_input=False,
    )
    reference = experienced(shaken(PatchTSTForPrediction(config)))
    bare("basicts")
    sys.modules["basicts.configs"] = SimpleNamespace(BasicTSModelConfig=object)
    package = load("basicts.models.PatchTST")
    settings = package.PatchTSTConfig(
        input_len=24,
        output_len=6,
        num_features=3,
        patch_len=6,
        patch_stride=3,
        padding=False,
        hidden_size=16,
        n_heads=4,
        intermediate_size=32,
        num_layers=2,
        norm_type="batch_norm",
        affine=False,
    )
    port = package.PatchTSTForForecasting(settings)
    port.revin.eps = 1e-5
    names = [
        (r"^model\.encoder\.embedder\.input_embedding", "backbone.patch_embedding.value_embedding"),
        (r"^model\.encoder\.positional_encoder\.position_enc", "backbone.patch_embedding.position_embedding.pe"),
        (r"^model\.encoder", "backbone.encoder"),
        (r"norm_sublayer1\.batchnorm", "post_attn_norm.batch_norm"),
        (r"norm_sublayer3\.batchnorm", "post_ffn_norm.batch_norm"),
        (r"ff\.0", "ffn_layer.fc1"),
        (r"ff\.3", "ffn_layer.fc2"),
        (r"^head\.projection", "forecasting_head.linear"),
    ]

    def cut(weights):  # the port's table is longer
        at = "model.encoder.positional_encoder.position_enc"
        return {**weights, at: torch.nn.functional.pad(weights[at], (0, 0, 0, 5000 - len(weights[at])))[None]}

    series = torch.randn(2, 24, 3, generator=torch.Generator().manual_seed(1)).cumsum(1)
    return Case(reference, carried(port, reference, names, cut), (), {"past_values": series}, (series,))


PORTS = (
    to_edit("basicts-patchtst", "basicts", patchtst),
    to_edit("gemma4-codex-text", "gemma4_pt_codex", gemma4),
    to_edit("gpt-oss", "gpt_oss", gpt_oss),
    to_edit("lavis-blip2-vision", "lavis", blip2_vision),
    to_edit("mistral-pixtral-vision", "mistral_inference", pixtral_vision),
    to_edit("nemo-parakeet", "nemo", parakeet, "nemo.collections.asr"),
    to_edit("pocket-tts-encoder", "pocket_tts", pocket_tts),
    to_edit("pytext-xlm-roberta", "pytext", xlm_roberta),
    to_edit("sam2-vision", "sam2", sam2_vision),
    to_edit("torchtext-t5", "torchtext", t5),
    to_edit("torchtitan-deepseek-v3", "torchtitan", deepseek_v3, "torchtitan.models"),
    to_edit("ultralytics-rt-detr", "ultralytics", rt_detr, "ultralytics.nn"),
)
