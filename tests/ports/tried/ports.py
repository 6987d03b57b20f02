"""Twelve implementations of other people, each with the reference's weights; see ``utils/first_try.py``.

They were sealed until they had given the figures of a first try; now they may be looked at. ``Port.reloaded`` names the packages whose forward code is edited at random.
"""

from __future__ import annotations

import collections
import collections.abc
import sys
from types import SimpleNamespace

import packaging.version
import torch
from cases import Case, Port, shaken, tokens
from conversion import carried, fused, picture


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


def _port(name, package, build, *reloaded):
    return Port(name, package, reloaded or (package,), build, ())


PORTS = (
    _port("bark-fine", "bark", bark_fine),
    _port("clip-vision", "clip", clip_vision),
    _port("deberta", "DeBERTa", deberta),
    _port("efficientnet", "efficientnet_pytorch", efficientnet),
    _port("fms-mpnet", "fms", mpnet),
    _port("hiera", "hiera", hiera),
    _port("monai-vit", "monai", monai_vit, "monai.networks"),
    _port("pretrained-vit", "pytorch_pretrained_vit", pretrained_vit),
    _port("pytorchcv-resnet", "pytorchcv", resnet),
    _port("smp-segformer", "segmentation_models_pytorch", segformer),
    _port("transformer-lens-gpt2", "transformer_lens", hooked_gpt2),
    _port("transformers1-xlnet", "pytorch_transformers", xlnet),
)
