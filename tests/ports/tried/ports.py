"""Implementations of other people, each with the reference's weights; see ``utils/first_try.py``.

They were sealed until they had given the figures of a first try; now they may be looked at. ``Port.reloaded`` names the
packages whose forward code is edited at random.
"""

from __future__ import annotations

import collections
import collections.abc
import re
import sys
from types import SimpleNamespace

import packaging.version
import torch
from cases import Case, shaken, to_edit, tokens
from conversion import carried, fused, picture

#: A module of CLIP's vision model -> its name in OpenAI's own code.
_VISION_OF_CLIP = (
    (r"embeddings\.class_embedding", "class_embedding"),
    (r"embeddings\.patch_embedding\.weight", "conv1.weight"),
    (r"embeddings\.position_embedding\.weight", "positional_embedding"),
    (r"pre_layrnorm", "ln_pre"),
    (r"post_layernorm", "ln_post"),
    (r"encoder\.layers", "transformer.resblocks"),
    (r"self_attn\.in_proj\.", "attn.in_proj_"),
    (r"self_attn\.", "attn."),
    (r"layer_norm", "ln_"),
    (r"fc1", "c_fc"),
    (r"fc2", "c_proj"),
)


def vision(**more):
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=5, **more)
    return shaken(ViTForImageClassification(config))


def clip_vision(load):
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    sizes = {"hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = CLIPVisionConfig(**sizes, image_size=32, patch_size=8, projection_dim=16)
    reference = shaken(CLIPVisionModelWithProjection(config))
    names = [
        (r"^vision_model\.", ""),
        *_VISION_OF_CLIP,
    ]

    def cut(weights):
        weights["proj"] = weights.pop("visual_projection.weight").T
        return fused(weights, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], "self_attn.in_proj")

    sys.modules.setdefault("pkg_resources", SimpleNamespace(packaging=packaging))  # as it was before setuptools 70
    port = carried(load("clip.model").VisionTransformer(32, 8, 32, 3, 4, 16), reference, names, cut)
    pixels = picture(32)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,))


def pretrained_vit(load):
    reference = vision(layer_norm_eps=1e-6)
    package = load("pytorch_pretrained_vit.model")
    sizes = {"patches": (8, 8), "dim": 32, "ff_dim": 64, "num_heads": 4, "num_layers": 3, "classifier": "token"}
    sizes |= {"attention_dropout_rate": 0.0, "dropout_rate": 0.1, "representation_size": None}
    package.PRETRAINED_MODELS["tiny"] = {"config": sizes, "image_size": (32, 32), "num_classes": 5}
    names = [
        (r"^vit\.", ""),
        (r"embeddings\.cls_token", "class_token"),
        (r"embeddings\.position_embeddings", "positional_embedding.pos_embedding"),
        (r"embeddings\.patch_embeddings\.projection", "patch_embedding"),
        (r"(?:encoder\.layer|layers)\.", "transformer.blocks."),
        (r"attention\.(?:attention\.)?(q|k|v)(?:uery|ey|alue|_proj)\.", r"attn.proj_\1."),
        (r"attention\.(?:output\.dense|o_proj)", "proj"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"(?:intermediate\.dense|mlp\.fc1)", "pwff.fc1"),
        (r"(?:output\.dense|mlp\.fc2)", "pwff.fc2"),
        (r"^layernorm", "norm"),
        (r"^classifier", "fc"),
    ]
    port = carried(package.ViT("tiny"), reference, names)
    pixels = picture(32)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,))


def monai_vit(load):
    reference = vision(layer_norm_eps=1e-5)
    port = load("monai.networks.nets.vit").ViT(
        3,
        32,
        8,
        32,
        64,
        3,
        4,
        classification=True,
        num_classes=5,
        spatial_dims=2,
        qkv_bias=True,
        post_activation="none",
    )
    names = [
        (r"^vit\.", ""),
        (r"embeddings\.cls_token", "cls_token"),
        (r"embeddings\.patch_embeddings\.projection", "patch_embedding.patch_embeddings"),
        (r"(?:encoder\.layer|layers)\.", "blocks."),
        (r"attention\.qkv", "attn.qkv"),
        (r"attention\.(?:output\.dense|o_proj)", "attn.out_proj"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"(?:intermediate\.dense|mlp\.fc1)", "mlp.linear1"),
        (r"(?:output\.dense|mlp\.fc2)", "mlp.linear2"),
        (r"^layernorm", "norm"),
        (r"^classifier", "classification_head"),
    ]

    def cut(weights):
        places = weights.pop("vit.embeddings.position_embeddings")
        weights["patch_embedding.position_embeddings"] = places[:, 1:]
        weights["vit.embeddings.cls_token"] = weights["vit.embeddings.cls_token"] + places[:, :1]  # the port adds none
        kinds = (
            ["q_proj", "k_proj", "v_proj"] if any("q_proj" in name for name in weights) else ["query", "key", "value"]
        )
        weights = {name.replace("attention.attention.", "attention."): weight for name, weight in weights.items()}
        return fused(weights, [f"attention.{kind}" for kind in kinds], "attention.qkv")

    port = carried(port, reference, names, cut, kept=("norm_cross_attn",))
    pixels = picture(32)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,))


def hiera(load):
    from transformers import HieraConfig, HieraForImageClassification

    config = HieraConfig(embed_dim=16, image_size=[64, 64], depths=[1, 2, 1, 1], num_heads=[1, 2, 4, 8], num_labels=7)
    reference = shaken(HieraForImageClassification(config))
    port = load("hiera.hiera").Hiera(input_size=(64, 64), embed_dim=16, num_classes=7, stages=(1, 2, 1, 1))
    port.head.act_func = torch.nn.Identity()  # the reference returns logits
    pixels = picture(64)
    return Case(reference, carried(port, reference), (), {"pixel_values": pixels}, (pixels,))


def segformer(load):
    from transformers import SegformerConfig, SegformerModel

    sizes, heads, reductions = [16, 16, 32, 32], [1, 2, 2, 4], [4, 2, 2, 1]
    config = SegformerConfig(depths=[1, 2, 1, 1], sr_ratios=reductions, hidden_sizes=sizes, num_attention_heads=heads)
    reference = shaken(SegformerModel(config))
    port = load("segmentation_models_pytorch.encoders.mix_transformer").MixVisionTransformer(
        img_size=64,
        embed_dims=sizes,
        num_heads=heads,
        qkv_bias=True,
        depths=[1, 2, 1, 1],
        sr_ratios=reductions,
    )
    kind = r"^stages\.{0}\."
    names = [
        pair
        for stage in range(4)
        for pair in (
            (kind.format(stage) + r"patch_embeddings\.layer_norm", f"patch_embed{stage + 1}.norm"),
            (kind.format(stage) + r"patch_embeddings", f"patch_embed{stage + 1}"),
            (kind.format(stage) + r"layer_norm", f"norm{stage + 1}"),
            (kind.format(stage) + r"blocks", f"block{stage + 1}"),
        )
    ] + [
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"attention\.sequence_reduction\.sequence_reduction", "attn.sr"),
        (r"attention\.sequence_reduction\.layer_norm", "attn.norm"),
        (r"attention\.q_proj", "attn.q"),
        (r"attention\.kv", "attn.kv"),
        (r"attention\.o_proj", "attn.proj"),
    ]
    port = carried(port, reference, names, lambda w: fused(w, ["attention.k_proj", "attention.v_proj"], "attention.kv"))
    pixels = picture(64)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,), arranged=lambda out: out[-1])


def efficientnet(load):
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    shape = {
        "kernel_sizes": [3, 5, 3],
        "in_channels": [32, 16, 24],
        "out_channels": [16, 24, 24],
        "depthwise_padding": [],
        "strides": [1, 2, 1],
        "num_block_repeats": [1, 2, 1],
        "expand_ratios": [1, 6, 6],
    }
    config = EfficientNetConfig(
        image_size=64, width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280, num_labels=7, **shape
    )
    reference = shaken(EfficientNetForImageClassification(config))
    utils = load("efficientnet_pytorch.utils")
    blocks = ["r1_k3_s11_e1_i32_o16_se0.25", "r2_k5_s22_e6_i16_o24_se0.25", "r1_k3_s11_e6_i24_o24_se0.25"]
    _, settings = utils.get_model_params("efficientnet-b0", {"num_classes": 7, "image_size": 64})
    port = load("efficientnet_pytorch.model").EfficientNet(utils.BlockDecoder.decode(blocks), settings)
    pixels = picture(64)
    return Case(reference, carried(port, reference), (), {"pixel_values": pixels}, (pixels,))


def deberta(load):
    from transformers import DebertaConfig, DebertaModel

    collections.Sequence = collections.abc.Sequence  # as it was before Python 3.10
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    sizes |= {"max_position_embeddings": 32, "vocab_size": 64, "relative_attention": True, "pos_att_type": "c2p|p2c"}
    sizes |= {"position_biased_input": False, "type_vocab_size": 0}
    reference = shaken(DebertaModel(DebertaConfig(**sizes)))
    config = load("DeBERTa.deberta.config").ModelConfig()
    vars(config).update(sizes)
    port = load("DeBERTa.deberta.deberta").DeBERTa(config)
    names = [
        (r"self\.pos_proj\.", "self.pos_key_proj."),
        (r"self\.pos_q_proj", "self.pos_query_proj"),
    ]

    def cut(weights):
        heads, width = 4, 8
        for layer in range(3):
            at = f"encoder.layer.{layer}.attention.self."
            whole = weights.pop(f"{at}in_proj.weight").view(heads, 3, width, 32)
            for place, kind in enumerate(("query", "key", "value")):
                weights[f"{at}{kind}_proj.weight"] = whole[:, place].reshape(32, 32)
            weights[f"{at}query_proj.bias"] = weights.pop(f"{at}q_bias")
            weights[f"{at}value_proj.bias"] = weights.pop(f"{at}v_bias")
            weights[f"{at}key_proj.bias"] = torch.zeros(32)
            weights[f"{at}pos_key_proj.bias"] = torch.zeros(32)
        return weights

    port = carried(port, reference, names, cut)
    ids = tokens(64)
    return Case(reference, port, (), {"input_ids": ids}, (ids,), arranged=lambda out: out[-1])


def resnet(load):
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128], depths=[1, 2], layer_type="bottleneck", num_labels=3
    )
    reference = shaken(ResNetForImageClassification(config))
    port = load("pytorchcv.models.resnet").ResNet([[64], [128, 128]], 64, True, False, num_classes=3)  # noqa: FBT003
    names = [
        (r"resnet\.embedder\.embedder", "features.init_block.conv"),
        (
            r"resnet\.encoder\.stages\.(\d+)\.layers\.(\d+)",
            lambda m: f"features.stage{int(m[1]) + 1}.unit{int(m[2]) + 1}",
        ),
        (r"\.layer\.(\d)", lambda m: f".body.conv{int(m[1]) + 1}"),
        (r"shortcut", "identity_conv"),
        (r"convolution", "conv"),
        (r"normalization", "bn"),
        (r"classifier\.1", "output"),
    ]
    pixels = picture(56)
    return Case(reference, carried(port, reference, names), (), {"pixel_values": pixels}, (pixels,))


def bark_fine(load):
    from transformers import BarkFineConfig, BarkFineModel

    sizes = {"block_size": 32, "input_vocab_size": 64, "output_vocab_size": 64, "n_codes_total": 3, "n_codes_given": 1}
    reference = shaken(BarkFineModel(BarkFineConfig(**sizes, num_layers=3, num_heads=4, hidden_size=32, bias=True)))
    package = load("bark.model_fine")
    port = package.FineGPT(package.FineGPTConfig(**sizes, n_layer=3, n_head=4, n_embd=32))
    names = [
        (r"input_embeds_layers", "transformer.wtes"),
        (r"position_embeds_layer", "transformer.wpe"),
        (r"^layers\.", "transformer.h."),
        (r"layernorm_final", "transformer.ln_f"),
        (r"layernorm_", "ln_"),
        (r"att_proj", "c_attn"),
        (r"attn\.out_proj", "attn.c_proj"),
        (r"in_proj", "c_fc"),
        (r"mlp\.out_proj", "mlp.c_proj"),
    ]
    port = carried(port, reference, names)
    ids = torch.stack([tokens(64), tokens(64).flip(0), tokens(64).flip(1)], -1)
    return Case(reference, port, (), {"codebook_idx": 2, "input_ids": ids}, (2, ids))


def xlnet(load):
    from transformers import XLNetConfig, XLNetModel

    sizes = {"d_model": 32, "n_layer": 3, "n_head": 4, "d_inner": 64}
    reference = shaken(XLNetModel(XLNetConfig(vocab_size=64, ff_activation="gelu_new", **sizes)))
    package = load("pytorch_transformers.modeling_xlnet")
    port = package.XLNetModel(package.XLNetConfig(vocab_size_or_config_json_file=64, **sizes))
    ids = tokens(64)
    kinds = torch.arange(12).ge(5).long().expand(2, 12).contiguous()
    inputs = {"input_ids": ids, "token_type_ids": kinds}
    return Case(reference, carried(port, reference), (), {**inputs, "use_mems": False}, (), inputs)


def mpnet(load):
    from transformers import MPNetConfig, MPNetModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    config = MPNetConfig(**sizes, vocab_size=64, max_position_embeddings=32, layer_norm_eps=1e-12)
    reference = shaken(MPNetModel(config))
    package = load("fms.models.mpnet")
    sizes = {"src_vocab_size": 64, "emb_dim": 32, "nheads": 4, "nlayers": 3, "hidden_grow_factor": 2.0}
    port = package.Mpnet(package.MpnetConfig(**sizes, max_expected_seq_len=32))
    names = [
        (r"embeddings\.word_embeddings", "base_model.word_embedding"),
        (r"embeddings\.position_embeddings", "base_model.position_embeddings"),
        (r"embeddings\.LayerNorm", "base_model.enc_norm"),
        (r"encoder\.relative", "base_model.relative"),
        (r"encoder\.layer", "base_model.layers"),
        (r"attention\.LayerNorm", "ln"),
        (r"attention\.attn\.o\.", "attn.dense."),
        (r"attention\.attn\.qkv", "attn.in_proj.qkv_fused"),
        (r"intermediate\.dense", "ff_sub_layer.w1"),
        (r"output\.dense", "ff_sub_layer.w2"),
        (r"output\.LayerNorm", "ff_ln"),
        (r"pooler\.dense", "den"),
    ]
    port = carried(
        port, reference, names, lambda w: fused(w, [f"attention.attn.{k}" for k in "qkv"], "attention.attn.qkv")
    )
    ids = tokens(64)
    return Case(reference, port, (), {"input_ids": ids}, (ids,))


def hooked_gpt2(load):
    from transformers import GPT2Config, GPT2LMHeadModel

    sys.modules["transformers"].TRANSFORMERS_CACHE = ""  # as it was before version 5
    config = GPT2Config(n_layer=3, n_embd=32, n_head=4, vocab_size=64, n_positions=32)
    reference = shaken(GPT2LMHeadModel(config))
    package = load("transformer_lens")
    sizes = {"n_layers": 3, "d_model": 32, "n_ctx": 32, "d_head": 8, "n_heads": 4, "d_mlp": 128, "d_vocab": 64}
    cfg = package.HookedTransformerConfig(**sizes, act_fn="gelu_new", normalization_type="LN", seed=0, device="cpu")
    port = package.HookedTransformer(cfg, move_to_device=False)
    weights = load("transformer_lens.pretrained.weight_conversions").convert_gpt2_weights(reference, cfg)
    port.load_state_dict({**port.state_dict(), **weights, "unembed.b_U": torch.zeros(64)})
    ids = tokens(64)
    return Case(reference, port.eval(), (), {"input_ids": ids, "use_cache": False}, (ids,))


def swin2sr(load):
    from transformers import Swin2SRConfig, Swin2SRForImageSuperResolution

    sizes = {"embed_dim": 12, "depths": [2, 2], "num_heads": [2, 3], "window_size": 4, "mlp_ratio": 2.0, "upscale": 2}
    reference = shaken(Swin2SRForImageSuperResolution(Swin2SRConfig(image_size=16, **sizes)))
    package = load("spandrel.architectures.Swin2SR.__arch.Swin2SR")
    port = package.Swin2SR(img_size=16, upsampler="pixelshuffle", **sizes)
    names = [
        (r"^swin2sr\.", ""),
        (r"first_convolution", "conv_first"),
        (r"embeddings\.patch_embeddings", "patch_embed"),
        (r"patch_embed\.layernorm", "patch_embed.norm"),
        (r"projection", "proj"),
        (r"encoder\.stages\.(\d+)\.layers", r"layers.\1.residual_group.blocks"),
        (r"encoder\.stages", "layers"),
        (r"attention\.self\.(q|v)(?:uery|alue)\.bias", r"attn.\1_bias"),
        (r"attention\.self\.continuous_position_bias_mlp", "attn.cpb_mlp"),
        (r"attention\.self", "attn"),
        (r"attention\.output\.dense", "attn.proj"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"intermediate\.dense", "mlp.fc1"),
        (r"output\.dense", "mlp.fc2"),
        (r"^layernorm", "norm"),
        (r"upsample\.conv_before_upsample", "conv_before_upsample.0"),
        (r"upsample\.final_convolution", "conv_last"),
        (r"upsample\.upsample\.convolution_0", "upsample.0"),
    ]

    def cut(weights):
        for name in [name for name in weights if name.endswith("self.query.weight")]:
            parts = [weights.pop(name.replace("query", kind)) for kind in ("query", "key", "value")]
            weights[name.replace("query", "qkv")] = torch.cat(parts)
        return weights

    pixels = picture(16)
    return Case(reference, carried(port, reference, names, cut), (), {"pixel_values": pixels}, (pixels,))


def chinese_clip(load):
    from transformers import ChineseCLIPConfig, ChineseCLIPModel

    text = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    text |= {"vocab_size": 64, "max_position_embeddings": 32}
    pixels = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
    pixels |= {"image_size": 32, "patch_size": 8}
    reference = shaken(ChineseCLIPModel(ChineseCLIPConfig(text_config=text, vision_config=pixels, projection_dim=16)))
    package = load("cn_clip.clip.model")
    port = package.CLIP(16, 32, 2, 64, 8, 64, 0.0, "gelu", 0.0, 32, 0.02, 64, 32, 4, 2, 2, vision_head_width=32)
    names = [
        (r"^text_model", "bert"),
        (r"^vision_model\.", "visual."),
        *_VISION_OF_CLIP,
    ]

    def cut(weights):
        weights["visual.proj"] = weights.pop("visual_projection.weight").T
        weights["text_projection"] = weights.pop("text_projection.weight").T
        return fused(weights, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], "self_attn.in_proj")

    port = carried(port, reference, names, cut)
    ids, seen = tokens(64), torch.ones(2, 12, dtype=torch.long)
    ids[1, 8:], seen[1, 8:] = 0, 0
    inputs = {"input_ids": ids, "attention_mask": seen, "pixel_values": picture(32)}
    similarity = lambda out: out[2] * out[0] @ out[1].T  # noqa: E731 - the port returns the embeddings alone
    return Case(reference, port, (), inputs, (inputs["pixel_values"], ids), arranged=similarity)


def conformer(load):
    from transformers import FastSpeech2ConformerConfig
    from transformers.models.fastspeech2_conformer.modeling_fastspeech2_conformer import FastSpeech2ConformerEncoder

    config = FastSpeech2ConformerConfig(
        hidden_size=32,
        vocab_size=64,
        encoder_num_attention_heads=4,
        encoder_layers=2,
        encoder_linear_units=48,
        encoder_kernel_size=7,
    )
    reference = shaken(FastSpeech2ConformerEncoder(config, config.encoder_config, use_encoder_input_layer=True))
    port = load("espnet.nets.pytorch_backend.conformer.encoder").Encoder(
        64,
        attention_dim=32,
        attention_heads=4,
        linear_units=48,
        num_blocks=2,
        input_layer="embed",
        normalize_before=False,
        positionwise_layer_type="conv1d",
        positionwise_conv_kernel_size=3,
        macaron_style=True,
        pos_enc_layer_type="rel_pos",
        selfattention_layer_type="rel_selfattn",
        use_cnn_module=True,
        cnn_module_kernel=7,
        padding_idx=0,
    )
    for norm in (module for module in port.modules() if isinstance(module, torch.nn.LayerNorm)):
        norm.eps = 1e-5  # the reference's; the package has 1e-12
    names = [
        (r"^embed\.", "embed.0."),
        (r"conformer_layers", "encoders"),
        (r"attention_layer_norm", "norm_mha"),
        (r"self_attn_layer_norm", "norm_mha"),
        (r"ff_macaron_layer_norm", "norm_ff_macaron"),
        (r"ff_layer_norm", "norm_ff"),
        (r"conv_layer_norm", "norm_conv"),
        (r"final_layer_norm", "norm_final"),
        (r"feed_forward(\w*)\.conv(\d)", r"feed_forward\1.w_\2"),
    ]
    ids = tokens(64)
    return Case(reference, carried(port, reference, names), (), {"input_tensor": ids}, (ids, None))


def kosmos2_text(load):
    from transformers import Kosmos2Config
    from transformers.models.kosmos2.modeling_kosmos2 import Kosmos2TextForCausalLM

    sizes = {"vocab_size": 64, "embed_dim": 32, "layers": 2, "ffn_dim": 64, "attention_heads": 4}
    config = Kosmos2Config(text_config={**sizes, "max_position_embeddings": 32})
    reference = shaken(Kosmos2TextForCausalLM(config.text_config))
    args = load("torchscale.architecture.config").DecoderConfig(
        vocab_size=64,
        decoder_embed_dim=32,
        decoder_layers=2,
        decoder_ffn_embed_dim=64,
        decoder_attention_heads=4,
        share_decoder_input_output_embed=True,
        subln=True,
        no_scale_embedding=False,
    )
    embedding = load("torchscale.component.embedding")
    places = reference.model.embed_positions.weights
    port = load("torchscale.architecture.decoder").Decoder(
        args, embedding.TextEmbedding(64, 32), embedding.PositionalEmbedding(*places.shape)
    )
    cut = lambda weights: {**weights, "embed_positions.weight": places}  # noqa: E731 - the reference's are no weights
    port = carried(port, reference, [(r"^model\.", ""), (r"^lm_head", "output_projection")], cut)
    ids = tokens(64)
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids,))


def blenderbot(load):
    from transformers import BlenderbotConfig, BlenderbotForConditionalGeneration

    sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes |= {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "d_model": 32, "vocab_size": 64}
    special = {"pad_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": 1, "eos_token_id": 2}
    config = BlenderbotConfig(**sizes, **special, max_position_embeddings=32, scale_embedding=True)
    reference = shaken(BlenderbotForConditionalGeneration(config))
    options = {"n_layers": 2, "n_heads": 4, "ffn_size": 64, "embedding_size": 32, "n_positions": 32}
    options |= {"variant": "prelayernorm", "activation": "gelu", "learn_positional_embeddings": True}
    options |= {"embeddings_scale": True}
    sys.modules.setdefault("pkg_resources", SimpleNamespace(packaging=packaging))  # as it was before setuptools 82
    port = load("parlai.agents.transformer.modules").TransformerGeneratorModel(options, _Words())
    port.start_idx = slice(0, 0)  # the score of the start token stays: the reference computes one
    names = [
        (r"^model\.", ""),
        (r"^shared", "embeddings"),
        (r"embed_tokens", "embeddings"),
        (r"embed_positions", "position_embeddings"),
        (r"self_attn_layer_norm", "norm1"),
        (r"encoder_attn_layer_norm", "norm2"),
        (r"(encoder\.layers.*)final_layer_norm", r"\1norm2"),
        (r"final_layer_norm", "norm3"),
        (r"coder\.layer_norm", "coder.norm_embeddings"),
        (r"encoder\.layers\.(\d)\.self_attn", r"encoder.layers.\1.attention"),
        (r"self_attn", "self_attention"),
        (r"encoder_attn", "encoder_attention"),
        (r"out_proj", "out_lin"),
        (r"([qkv])_proj", r"\1_lin"),
        (r"fc(\d)", r"ffn.lin\1"),
    ]
    port = carried(port, reference, names)
    ids, seen, said = tokens(64), torch.ones(2, 12, dtype=torch.long), tokens(64).flip(1)[:, :8]
    ids[1, 9:], seen[1, 9:] = 0, 0
    begun = torch.cat([torch.ones(2, 1, dtype=torch.long), said[:, :-1]], 1)
    inputs = {"input_ids": ids, "attention_mask": seen, "decoder_input_ids": begun, "use_cache": False}
    return Case(reference, port, (), inputs, (ids,), {"ys": said})


class _Words(dict):
    """A dictionary of words as ParlAI's models ask for it."""

    null_token, start_token, end_token = "null", "start", "end"

    def __init__(self):
        super().__init__({"null": 0, "start": 1, "end": 2})

    def __len__(self):
        return 64


def olmo2(load):
    from transformers import Olmo2Config, Olmo2ForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    config = Olmo2Config(**sizes, **heads, **special, rms_norm_eps=1e-6, rope_parameters=rope)
    reference = shaken(Olmo2ForCausalLM(config))
    package = load("olmo_core.nn.transformer")
    settings = package.TransformerConfig.llama_like(
        d_model=32,
        vocab_size=64,
        n_layers=2,
        n_heads=4,
        n_kv_heads=2,
        hidden_size_multiple_of=128,
        block_name=package.TransformerBlockType.reordered_norm,
        qk_norm=True,
        layer_norm_eps=1e-6,
        rope_theta=10000,
    )
    port = settings.build(init_device="cpu")
    names = [
        (r"^model\.embed_tokens", "embeddings"),
        (r"^model\.norm", "lm_head.norm"),
        (r"^lm_head\.weight", "lm_head.w_out.weight"),
        (r"^model\.layers", "blocks"),
        (r"self_attn\.([qkv])_proj", r"attention.w_\1"),
        (r"self_attn\.o_proj", "attention.w_out"),
        (r"self_attn", "attention"),
        (r"mlp\.gate_proj", "feed_forward.w1"),
        (r"mlp\.down_proj", "feed_forward.w2"),
        (r"mlp\.up_proj", "feed_forward.w3"),
        (r"post_attention_layernorm", "attention_norm"),
        (r"post_feedforward_layernorm", "feed_forward_norm"),
    ]
    ids = tokens(64)
    return Case(reference, carried(port, reference, names), (), {"input_ids": ids, "use_cache": False}, (ids,))


def flava(load):
    from transformers import FlavaConfig, FlavaModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    pixels, text = {"image_size": 32, "patch_size": 8}, {"vocab_size": 64, "max_position_embeddings": 32}
    parts = {"image_config": {**sizes, **pixels}, "text_config": {**sizes, **text}, "multimodal_config": sizes}
    reference = shaken(FlavaModel(FlavaConfig(**parts, hidden_size=32, projection_dim=16)))
    each = {f"{part}_{name}": size for part in ("image", "text", "multimodal") for name, size in sizes.items()}
    port = load("torchmultimodal.models.flava.model").flava_model(**each, **pixels, **text, text_and_image_proj_size=16)
    names = [
        (r"^(image|text)_model", r"\1_encoder"),
        (r"^multimodal_model", "mm_encoder"),
        (r"embeddings\.LayerNorm", "embeddings.layer_norm"),
        (r"attention\.attention", "attention"),
        (r"attention\.output\.dense", "attention.output"),
        (r"intermediate\.dense", "feedforward.model.0"),
        (r"layer\.(\d)\.output\.dense", r"layer.\1.feedforward.model.2"),
        (r"layernorm_before", "attention_layernorm"),
        (r"layernorm_after", "feedforward_layernorm"),
    ]
    port = carried(port, reference, names)
    ids, pixels = tokens(64), picture(32)
    inputs = {"image": pixels, "text": ids, "text_masked": ids, "skip_unmasked_mm_encoder": True}
    return Case(
        reference,
        port,
        (),
        {"pixel_values": pixels, "input_ids": ids},
        (),
        inputs,
        arranged=lambda out: out.multimodal_masked.last_hidden_state,
        main=lambda out: out.multimodal_embeddings,
    )


def dac(load):
    from transformers import DacConfig, DacModel

    sizes = {"n_codebooks": 2, "codebook_size": 16, "codebook_dim": 4}
    config = DacConfig(
        encoder_hidden_size=4, downsampling_ratios=[2, 4], decoder_hidden_size=16, upsampling_ratios=[4, 2], **sizes
    )
    reference = shaken(DacModel(config))
    with torch.no_grad():
        for snake in (weight for name, weight in reference.named_parameters() if name.endswith("alpha")):
            snake.abs_().add_(0.5)  # a divisor: as in trained models, it is not near zero
    package = load("dac.model.dac")
    port = package.DAC(encoder_dim=4, encoder_rates=[2, 4], decoder_dim=16, decoder_rates=[4, 2], **sizes)
    for module in port.modules():
        if hasattr(module, "weight_g"):
            torch.nn.utils.remove_weight_norm(module)
    names = [
        (r"encoder\.block\.(\d)\.", lambda m: f"encoder.block.{int(m[1]) + 1}.block."),
        (r"(encoder\.block\.\d\.block\.)res_unit(\d)", lambda m: f"{m[1]}{int(m[2]) - 1}.block"),
        (r"(encoder\.block\.\d\.block\.)snake1", r"\g<1>3"),
        (r"(encoder\.block\.\d\.block\.)conv1\.", r"\g<1>4."),
        (r"encoder\.conv1\.", "encoder.block.0."),
        (r"encoder\.snake1", "encoder.block.3"),
        (r"encoder\.conv2\.", "encoder.block.4."),
        (r"decoder\.block\.(\d)\.", lambda m: f"decoder.model.{int(m[1]) + 1}.block."),
        (r"(decoder\.model\.\d\.block\.)res_unit(\d)", lambda m: f"{m[1]}{int(m[2]) + 1}.block"),
        (r"(decoder\.model\.\d\.block\.)snake1", r"\g<1>0"),
        (r"(decoder\.model\.\d\.block\.)conv_t1\.", r"\g<1>1."),
        (r"decoder\.conv1\.", "decoder.model.0."),
        (r"decoder\.snake1", "decoder.model.3"),
        (r"decoder\.conv2\.", "decoder.model.4."),
        (r"\.block\.(snake|conv)(\d)\.", lambda m: f".block.{2 * int(m[2]) - (1 if m[1] == 'conv' else 2)}."),
    ]
    port = carried(port, reference, names)
    sound = torch.randn(2, 1, 64, generator=torch.Generator().manual_seed(1))
    return Case(
        reference,
        port,
        (),
        {"input_values": sound},
        (sound,),
        arranged=lambda out: out["audio"].squeeze(1),
        main=lambda out: out.audio_values,
    )


def hifigan(load):
    from transformers import SpeechT5HifiGan, SpeechT5HifiGanConfig

    kernels, dilations = [3, 5], [[1, 3, 5], [1, 3, 5]]
    config = SpeechT5HifiGanConfig(
        model_in_dim=8,
        upsample_initial_channel=16,
        upsample_rates=[4, 2],
        upsample_kernel_sizes=[8, 4],
        resblock_kernel_sizes=kernels,
        resblock_dilation_sizes=dilations,
        normalize_before=False,
    )
    reference = shaken(SpeechT5HifiGan(config))
    port = load("espnet2.gan_tts.hifigan.hifigan").HiFiGANGenerator(
        8,
        channels=16,
        upsample_scales=[4, 2],
        upsample_kernel_sizes=[8, 4],
        resblock_kernel_sizes=kernels,
        resblock_dilations=dilations,
        use_weight_norm=False,
    )
    names = [
        (r"conv_pre", "input_conv"),
        (r"conv_post", "output_conv.1"),
        (r"upsampler\.(\d)", r"upsamples.\1.1"),
        (r"resblocks\.(\d)\.convs(\d)\.(\d)", r"blocks.\1.convs\2.\3.1"),
    ]
    port = carried(port, reference, names)
    mel = torch.randn(2, 10, 8, generator=torch.Generator().manual_seed(1))
    one = lambda out: out.squeeze(1)  # noqa: E731
    return Case(reference, port, (), {"spectrogram": mel}, (mel.transpose(1, 2),), arranged=one)


def protein_bert(load):
    from transformers import BertConfig, BertModel

    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 64, "max_position_embeddings": 32}
    reference = shaken(BertModel(BertConfig(**sizes)))
    package = load("tape.models.modeling_bert")
    port = carried(package.ProteinBertModel(package.ProteinBertConfig(**sizes)), reference, [(r"^", "")])
    ids, seen = tokens(64), torch.ones(2, 12, dtype=torch.long)
    ids[1, 8:], seen[1, 8:] = 0, 0
    return Case(reference, port, (), {"input_ids": ids, "attention_mask": seen}, (ids, seen))


def mobilenet(load):
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(
        image_size=64, depth_multiplier=0.35, num_labels=7, tf_padding=False, finegrained_output=False
    )
    reference = shaken(MobileNetV2ForImageClassification(config))
    generator = torch.Generator().manual_seed(2)
    for name, buffer in reference.named_buffers():
        if "running" in name:
            buffer.add_(torch.rand(buffer.shape, generator=generator))
    package = load("geffnet.gen_efficientnet")
    port = package._gen_mobilenet_v2("tiny", 0.35, num_classes=7, bn_eps=config.layer_norm_eps)
    pixels = picture(64)
    return Case(reference, carried(port, reference), (), {"pixel_values": pixels}, (pixels,))


def decision_transformer(load):
    from transformers import DecisionTransformerConfig, DecisionTransformerModel

    sizes = {"state_dim": 5, "act_dim": 3, "hidden_size": 32, "max_ep_len": 16, "n_layer": 2, "n_head": 4}
    config = DecisionTransformerConfig(**sizes, activation_function="relu", layer_norm_epsilon=0.003, n_positions=32)
    reference = shaken(DecisionTransformerModel(config))
    with torch.no_grad():
        reference.encoder.wpe.weight.zero_()  # every token is given the first of them; the port has none
    package = load("d3rlpy.models.torch.transformers")
    port = package.ContinuousDecisionTransformer(
        torch.nn.Linear(5, 32),
        embed_size=32,
        position_encoding=package.SimplePositionEncoding(32, 16),
        action_size=3,
        num_heads=4,
        context_size=4,
        num_layers=2,
        attn_dropout=0.0,
        resid_dropout=0.0,
        embed_dropout=0.0,
        activation=torch.nn.ReLU(),
    )
    names = [
        (r"^embed_timestep", "_position_encoding._embed"),
        (r"^embed_return", "_rtg_embed"),
        (r"^embed_state", "_encoder"),
        (r"^embed_action", "_action_embed"),
        (r"^embed_ln", "_embed_ln"),
        (r"^predict_action\.0", "_output"),
        (r"^encoder\.h", "_gpt2._transformer"),
        (r"^encoder\.ln_f", "_gpt2._layer_norm"),
        (r"ln_(\d)", r"_layer_norm\1"),
        (r"attn\.c_proj", "_attention._proj"),
        (r"attn\.([qkv])\.", r"_attention._\1."),
        (r"mlp\.c_fc", "_mlp._l1"),
        (r"mlp\.c_proj", "_mlp._l2"),
    ]

    def cut(weights):
        turned = {name: w.T if re.search(r"c_\w+\.weight", name) else w for name, w in weights.items()}
        for name in [name for name in turned if "c_attn" in name]:
            for kind, part in zip("qkv", turned.pop(name).chunk(3), strict=True):
                turned[name.replace("c_attn", kind)] = part
        return turned

    port = carried(port, reference, names, cut)
    generator = torch.Generator().manual_seed(1)
    states, actions, gains = (torch.randn(2, 4, size, generator=generator) for size in (5, 3, 1))
    times = torch.arange(3, 7).expand(2, 4)
    inputs = {"states": states, "actions": actions, "returns_to_go": gains, "timesteps": times}
    inputs["attention_mask"] = torch.ones(2, 4)
    return Case(
        reference,
        port,
        (),
        inputs,
        (states, actions, gains, times, torch.zeros(2, 4)),
        main=lambda out: out.action_preds,
    )


def perceiver(load):
    from transformers import PerceiverConfig, PerceiverForMaskedLM

    sizes = {"num_latents": 8, "d_latents": 16, "d_model": 32, "vocab_size": 64, "max_position_embeddings": 16}
    config = PerceiverConfig(
        num_self_attends_per_block=2,
        num_blocks=2,
        num_self_attention_heads=4,
        num_cross_attention_heads=4,
        qk_channels=16,
        v_channels=16,
        **sizes,
    )
    reference = shaken(PerceiverForMaskedLM(config))
    package = load("perceiver.model.text.mlm")
    encoder = package.TextEncoderConfig(
        vocab_size=64,
        max_seq_len=16,
        num_input_channels=32,
        num_cross_attention_heads=4,
        num_cross_attention_qk_channels=16,
        num_cross_attention_v_channels=16,
        num_self_attention_heads=4,
        num_self_attention_qk_channels=16,
        num_self_attention_v_channels=16,
        num_self_attention_layers_per_block=2,
        num_self_attention_blocks=2,
    )
    decoder = package.TextDecoderConfig(
        vocab_size=64,
        max_seq_len=16,
        num_cross_attention_heads=8,
        num_cross_attention_qk_channels=256,
        num_cross_attention_v_channels=32,
        cross_attention_residual=False,
    )
    port = package.MaskedLanguageModel(package.PerceiverConfig(encoder, decoder, num_latents=8, num_latent_channels=16))
    package.copy_encoder_params(reference, port.encoder)
    package.copy_decoder_params(reference, port.decoder)
    ids, seen = tokens(64, length=16), torch.ones(2, 16, dtype=torch.long)
    ids[1, 12:], seen[1, 12:] = 0, 0
    return Case(reference, port.eval(), (), {"inputs": ids, "attention_mask": seen}, (ids, seen == 0))


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
        positional_encoding_type="random",
    )
    reference = shaken(PatchTSTForPrediction(config))
    generator = torch.Generator().manual_seed(1)
    for name, buffer in reference.named_buffers():
        if "running" in name:
            buffer.add_(torch.rand(buffer.shape, generator=generator))
    port = load("neuralforecast.models.patchtst").PatchTST_backbone(
        c_in=3,
        c_out=1,
        input_size=24,
        h=6,
        patch_len=6,
        stride=3,
        n_layers=2,
        hidden_size=16,
        n_heads=4,
        linear_hidden_size=32,
        res_attention=False,
        affine=False,
    )
    names = [
        (r"^model\.encoder\.embedder\.input_embedding", "backbone.W_P"),
        (r"^model\.encoder\.positional_encoder\.position_enc", "backbone.W_pos"),
        (r"^model\.encoder\.layers", "backbone.encoder.layers"),
        (r"self_attn\.([qkv])_proj", lambda m: f"self_attn.W_{m[1].upper()}"),
        (r"self_attn\.out_proj", "self_attn.to_out.0"),
        (r"norm_sublayer1\.batchnorm", "norm_attn.1"),
        (r"norm_sublayer3\.batchnorm", "norm_ffn.1"),
        (r"^head\.projection", "head.linear"),
    ]

    def cut(weights):
        whole = weights["head.projection.weight"].view(6, 7, 16)
        return {
            **weights,
            "head.projection.weight": whole.transpose(1, 2).reshape(6, 7 * 16),
        }  # the port's has it turned

    port = carried(port, reference, names, cut, kept=("sdp_attn.scale",))
    series = torch.randn(2, 24, 3, generator=generator).cumsum(1)
    turned = lambda out: out.transpose(1, 2)  # noqa: E731
    return Case(reference, port, (), {"past_values": series}, (series.transpose(1, 2),), arranged=turned)


def recurrent_gemma(load):
    from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM

    sizes = {"vocab_size": 64, "lru_width": 32}
    config = RecurrentGemmaConfig(
        attention_window_size=8,
        num_hidden_layers=3,
        hidden_size=32,
        intermediate_size=96,
        num_attention_heads=4,
        num_key_value_heads=1,
        pad_token_id=0,
        **sizes,
    )
    reference = shaken(RecurrentGemmaForCausalLM(config))
    sys.modules.setdefault("recurrentgemma.jax", SimpleNamespace(complex_lib=None, layers=None, scan=None))
    common = load("recurrentgemma.common")
    kinds = common.TemporalBlockType
    settings = common.GriffinConfig(
        width=32,
        mlp_expanded_width=48,
        num_heads=4,
        block_types=(kinds.RECURRENT, kinds.RECURRENT, kinds.ATTENTION),
        embeddings_scale_by_sqrt_dim=True,
        logits_soft_cap=30.0,
        attention_window_size=7,  # a window holds as many tokens as this before its own
        **sizes,
    )
    port = load("recurrentgemma.torch.griffin").Griffin(settings, dtype=torch.float32)
    names = [
        (r"^model\.embed_tokens\.weight", "embedder.input_embedding"),
        (r"^model\.final_norm\.weight", "final_norm.scale"),
        (r"^model\.layers", "blocks"),
        (r"pre_norm\.weight", "pre_norm.scale"),
        (r"temporal_block\.([qkv])_proj", r"attention_block.proj_\1"),
        (r"temporal_block\.o_proj", "attention_block.proj_final"),
        (r"temporal_block", "recurrent_block"),
        (r"conv_1d\.(w|b)\w+", r"conv_1d.\1"),
        (r"recurrent_param", "a_param"),
        (r"recurrent_gate_(w|b)\w+", r"a_gate.\1"),
        (r"input_gate_(w|b)\w+", r"input_gate.\1"),
        (r"down_proj", "ffw_down"),
    ]

    def cut(weights):
        for name in [name for name in weights if "conv_1d.weight" in name]:
            weights[name] = weights[name].squeeze(1).T
        for name in [name for name in weights if "gate_proj" in name]:
            both = torch.stack([weights.pop(name), weights.pop(name.replace("gate_proj", "up_proj"))])
            is_weight = name.endswith("weight")
            at = name.replace("gate_proj.weight", "ffw_up.w").replace("gate_proj.bias", "ffw_up.b")
            weights[at] = both.transpose(1, 2) if is_weight else both[:, None, None]
        return weights

    ids = tokens(64)
    places = torch.arange(12).expand(2, 12)
    port = carried(port, reference, names, cut)
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids, places))


PORTS = (
    to_edit("bark-fine", "bark", bark_fine),
    to_edit("chinese-clip", "cn_clip", chinese_clip),
    to_edit("clip-vision", "clip", clip_vision),
    to_edit("d3rlpy-decision", "d3rlpy", decision_transformer, "d3rlpy.models"),
    to_edit("dac", "dac", dac, "dac.model", "dac.nn"),
    to_edit("deberta", "DeBERTa", deberta),
    to_edit("efficientnet", "efficientnet_pytorch", efficientnet),
    to_edit("espnet-conformer", "espnet", conformer, "espnet.nets"),
    to_edit("espnet-hifigan", "espnet2", hifigan, "espnet2.gan_tts"),
    to_edit("fms-mpnet", "fms", mpnet),
    to_edit("geffnet-mobilenet", "geffnet", mobilenet),
    to_edit("hiera", "hiera", hiera),
    to_edit("monai-vit", "monai", monai_vit, "monai.networks"),
    to_edit("neuralforecast-patchtst", "neuralforecast", patchtst, "neuralforecast.models", "neuralforecast.common"),
    to_edit("olmo-core-olmo2", "olmo_core", olmo2, "olmo_core.nn"),
    to_edit(
        "parlai-blenderbot",
        "parlai",
        blenderbot,
        "parlai.agents",
        "parlai.core.torch_generator_agent",
        "parlai.utils.torch",
    ),
    to_edit("perceiver-io", "perceiver", perceiver),
    to_edit("pretrained-vit", "pytorch_pretrained_vit", pretrained_vit),
    to_edit("pytorchcv-resnet", "pytorchcv", resnet),
    to_edit("recurrentgemma", "recurrentgemma", recurrent_gemma, "recurrentgemma.torch"),
    to_edit("smp-segformer", "segmentation_models_pytorch", segformer),
    to_edit("spandrel-swin2sr", "spandrel", swin2sr),
    to_edit("tape-bert", "tape", protein_bert),
    to_edit("torchmultimodal-flava", "torchmultimodal", flava),
    to_edit("torchscale-kosmos2", "torchscale", kosmos2_text),
    to_edit("transformer-lens-gpt2", "transformer_lens", hooked_gpt2),
    to_edit("transformers1-xlnet", "pytorch_transformers", xlnet),
)
