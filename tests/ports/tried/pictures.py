"""What looks at pictures and films."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import patch

import torch
from cases import Case, shaken
from conversion import carried, experienced, fused, picture
from stubs import bare


class _Merged(torch.nn.Module):
    """A tower whose patches are also given by four."""

    def __init__(self, tower, shuffle):
        super().__init__()
        self.tower, self.shuffle = tower, shuffle

    def forward(self, pictures):
        out = self.tower(pictures)
        parts = out.last_hidden_state.split([high * wide for high, wide in out.grid_shapes])
        merged = [self.shuffle(part, *shape)[0] for part, shape in zip(parts, out.grid_shapes, strict=True)]
        return out.last_hidden_state, torch.cat(merged).unflatten(-1, (4, -1))


def moonvit(load):
    from transformers import Kimi_K25VisionConfig, Kimi_K25VisionModel

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = Kimi_K25VisionConfig(patch_size=8, pos_emb_height=5, pos_emb_width=5, **sizes)
    reference = shaken(Kimi_K25VisionModel(config))
    package = load("open_moonvit.main")
    settings = package.MoonViTConfig(patch_size=8, abs_pos_embed_grid_size=5, layer_norm_eps=1e-5, **sizes)
    names = [
        (r"^patch_embed\.pos_emb\.position_embeddings", "pos_embed.pos_embed"),
        (r"attn", "self_attn"),
        (r"norm(\d)", r"layer_norm\1"),
        (r"^", "tower."),
        (r"final_layernorm", "post_layernorm"),
    ]

    def cut(weights):  # the port turns by the height in its first half, and the reference by both in turns
        order = torch.cat([torch.arange(first, 16, 2).view(2, 4) for first in (1, 0)]).flatten()
        for name in [name for name in weights if "attn.q_proj" in name or "attn.k_proj" in name]:
            weights[name] = weights[name].unflatten(0, (2, 16))[:, order].flatten(0, 1)
        for name in [name for name in weights if "position_embeddings" in name]:
            weights[name] = weights[name].flatten(0, 1)
        return fused(weights, [f"attn.{kind}_proj" for kind in "qkv"], "attn.qkv")

    wide, high = picture(48, batch=1)[0, :, :32], picture(48, batch=2)[1, :, :, :16]
    patches = [each.unfold(1, 8, 8).unfold(2, 8, 8).flatten(1, 2).transpose(0, 1) for each in (wide, high)]
    inputs = {"pixel_values": torch.cat(patches), "grid_thw": torch.tensor([[1, 4, 6], [1, 6, 2]])}
    port = _Merged(package.MoonViT(settings), package.PixelShuffle2x())
    return Case(reference, carried(port, reference, names, cut), (), inputs, ([wide, high],))


class _Jepa(torch.nn.Module):
    """What sees a part of a film and tells what it would see in another."""

    def __init__(self, encoder, predictor, masked):
        super().__init__()
        self.encoder, self.predictor, self.masked = encoder, predictor, masked

    def forward(self, film, seen, asked):
        hidden = self.encoder(film)
        of_seen, of_asked = self.masked(hidden, [seen]), self.masked(hidden, [asked])
        return self.predictor(of_seen, seen, asked), hidden, of_seen, of_asked


def vjepa2(load):
    from transformers import VJEPA2Config, VJEPA2Model

    config = VJEPA2Config(
        patch_size=8,
        crop_size=24,
        frames_per_clip=4,
        hidden_size=56,
        num_attention_heads=2,
        num_hidden_layers=2,
        mlp_ratio=1.5,
        pred_hidden_size=40,
        pred_num_attention_heads=2,
        pred_num_hidden_layers=2,
        pred_num_mask_tokens=3,
        pred_mlp_ratio=2,
    )
    reference = shaken(VJEPA2Model(config))
    sizes = {"img_size": 24, "patch_size": 8, "num_frames": 4, "embed_dim": 56, "depth": 2, "num_heads": 2}
    sizes |= {"use_rope": True, "norm_layer": lambda width: torch.nn.LayerNorm(width, eps=1e-6)}
    encoder = load("vjepa2.models.vision_transformer").VisionTransformer(**sizes, mlp_ratio=1.5, use_sdpa=False)
    predictor = load("vjepa2.models.predictor").VisionTransformerPredictor(
        **sizes, predictor_embed_dim=40, mlp_ratio=2, use_mask_tokens=True, num_mask_tokens=3
    )
    for block in predictor.predictor_blocks:
        block.attn.use_sdpa = False  # it names a context of PyTorch that is gone
    names = [
        (r"^encoder\.embeddings\.patch_embeddings", "encoder.patch_embed"),
        (r"^encoder\.layernorm", "encoder.norm"),
        (r"^encoder\.layer\.", "encoder.blocks."),
        (r"^predictor\.embeddings\.mask_tokens", "predictor.mask_tokens"),
        (r"^predictor\.embeddings\.predictor_embeddings", "predictor.predictor_embed"),
        (r"^predictor\.layernorm", "predictor.predictor_norm"),
        (r"^predictor\.proj", "predictor.predictor_proj"),
        (r"^predictor\.layer\.", "predictor.predictor_blocks."),
        (r"attention", "attn"),
    ]

    def cut(weights):
        tokens = weights.pop("predictor.embeddings.mask_tokens")
        weights |= {f"predictor.mask_tokens.{n}": each for n, each in enumerate(tokens)}
        return fused(weights, [f"attention.{kind}" for kind in ("query", "key", "value")], "attention.qkv")

    film = torch.randn(2, 4, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    seen, asked = torch.tensor([[0, 2, 4, 5, 9, 11, 13, 16]] * 2), torch.tensor([[1, 3, 10, 17], [6, 7, 14, 17]])
    inputs = {"pixel_values_videos": film, "context_mask": [seen], "target_mask": [asked]}
    port = _Jepa(encoder, predictor, load("vjepa2.masks.utils").apply_masks)
    return Case(
        reference,
        carried(port, reference, names, cut),
        (),
        inputs,
        (film.transpose(1, 2), seen, asked),
        main=lambda out: out.predictor_output.last_hidden_state,
    )


class _Coarse(torch.nn.Module):
    """The first half of a matcher."""

    def __init__(self, backbone, transformer):
        super().__init__()
        self.backbone, self.loftr_coarse = backbone, transformer

    def forward(self, first, second):
        both = self.backbone(torch.cat([first, second]))
        coarse = self.loftr_coarse(*both["feats_c"].chunk(2))
        return torch.stack(coarse, 1), both["feats_x1"], both["feats_x2"]


def loftr(load):
    from transformers import EfficientLoFTRConfig, EfficientLoFTRModel

    config = EfficientLoFTRConfig(
        stage_num_blocks=[1, 1, 2, 2],
        out_features=[16, 16, 24, 32],
        hidden_size=32,
        num_attention_layers=2,
        num_attention_heads=4,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 2.0},
    )
    reference = experienced(shaken(EfficientLoFTRModel(config)))
    bare(*(f"efficientloftr_inference{part}" for part in ("", ".loftr", ".loftr.utils")))
    backbone, modules = (load(f"efficientloftr_inference.loftr.{name}") for name in ("backbone", "loftr_module"))
    small = load("efficientloftr_inference.loftr.backbone.repvgg").RepVGG(
        [1, 2, 2, 1], width_multiplier=[0.25, 0.1875, 0.125, 1]
    )
    settings = load("efficientloftr_inference.config").full_config()
    settings["coarse"] |= {"d_model": 32, "nhead": 4, "layer_names": ["self", "cross"] * 2}
    with patch.object(load("efficientloftr_inference.loftr.backbone.backbone"), "create_RepVGG", lambda _: small):
        port = _Coarse(backbone.build_backbone(settings), modules.LocalFeatureTransformer(settings))
    places = load("efficientloftr_inference.loftr.utils.position_encoding").RoPEPositionEncodingSine
    for layer in port.loftr_coarse.layers[::2]:  # the port's tables are of half precision
        layer.rope_pos_enc = places(32, npe=settings["coarse"]["npe"], ropefp16=False)
    names = [
        (r"^backbone\.stages\.0\.blocks\.0", "backbone.layer0"),
        (r"^backbone\.stages\.(\d)\.blocks", r"backbone.layer\1"),
        (r"conv1\.", "rbr_dense."),
        (r"conv2\.", "rbr_1x1."),
        (r"identity", "rbr_identity"),
        (r"(rbr_\w+)\.norm", r"\1.bn"),
        (r"^local_feature_transformer\.layers\.(\d)\.self_attention", lambda m: f"loftr_coarse.layers.{2 * int(m[1])}"),
        (
            r"^local_feature_transformer\.layers\.(\d)\.cross_attention",
            lambda m: f"loftr_coarse.layers.{2 * int(m[1]) + 1}",
        ),
        (r"aggregation\.q_aggregation", "aggregate"),
        (r"aggregation\.norm", "norm1"),
        (r"attention\.o_proj", "merge"),
        (r"attention\.", ""),
        (r"mlp\.layer_norm", "norm2"),
        (r"mlp\.fc1", "mlp.0"),
        (r"mlp\.fc2", "mlp.2"),
    ]
    first, second = picture(96, channels=1).split(1)
    both = torch.stack([first, second], 1).expand(-1, -1, 3, -1, -1)
    return Case(
        reference,
        carried(port, reference, names),
        (),
        {"pixel_values": both},
        (first, second),
        main=lambda out: out.feature_maps[0],
    )


def regnet(load):
    from transformers import RegNetConfig, RegNetForImageClassification

    sizes = {"depths": [1, 2, 2, 1]}
    config = RegNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 24, 32], groups_width=8, layer_type="y", num_labels=5, **sizes
    )
    reference = experienced(shaken(RegNetForImageClassification(config)))
    package = load("classy_vision.models.anynet")
    settings = package.AnyNetParams(
        **sizes,
        widths=[8, 16, 24, 32],
        group_widths=[8] * 4,
        bottleneck_multipliers=[1.0] * 4,
        strides=[2] * 4,
        stem_width=8,
    )
    names = [
        (r"^classifier\.1", "1.fc"),
        (r"^regnet", "0"),
        (r"embedder\.embedder", "stem.stem"),
        (
            r"encoder\.stages\.(\d)\.layers\.(\d)",
            lambda m: f"trunk_output.block{int(m[1]) + 1}.block{int(m[1]) + 1}-{m[2]}",
        ),
        (r"shortcut\.convolution", "proj"),
        (r"shortcut\.normalization", "bn"),
        (r"layer\.2\.attention", "f.se.excitation"),
        (r"layer\.3\.convolution", "f.c"),
        (r"layer\.3\.normalization", "f.final_bn"),
        (r"layer\.([01])", lambda m: f"f.{'ab'[int(m[1])]}"),
        (r"convolution", "0"),
        (r"normalization", "1"),
    ]
    pixels = picture(64)
    head = load("classy_vision.heads.fully_connected_head").FullyConnectedHead("head", 5, 32)
    port = carried(torch.nn.Sequential(package.AnyNet(settings), head), reference, names)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,))


def swinv2(load):
    from transformers import Swinv2Config, Swinv2ForImageClassification

    sizes = {"patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
    sizes |= {"mlp_ratio": 2.0, "drop_path_rate": 0.0}
    reference = shaken(Swinv2ForImageClassification(Swinv2Config(**sizes, image_size=32, num_labels=5)))
    package = load("flagai.model.vision.swinv2")
    settings = sizes | {"img_size": 32, "num_classes": 5, "checkpoint_activations": False}
    port = package.SwinTransformerV2(SimpleNamespace(json_config=settings), num_classes=5)
    port.config, port.mlp_ratio = settings, 2.0
    names = [
        (r"^swinv2\.embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
        (r"^swinv2\.embeddings\.norm", "patch_embed.norm"),
        (r"^swinv2\.layernorm", "norm"),
        (r"^swinv2\.encoder\.", ""),
        (r"^classifier", "head"),
        (r"attention\.self\.continuous_position_bias_mlp", "attn.cpb_mlp"),
        (r"attention\.self\.logit_scale", "attn.logit_scale"),
        (r"attention\.self\.qkv\.weight", "attn.qkv.weight"),
        (r"attention\.self\.query\.bias", "attn.q_bias"),
        (r"attention\.self\.value\.bias", "attn.v_bias"),
        (r"attention\.output\.dense", "attn.proj"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"intermediate\.dense", "mlp.fc1"),
        (r"output\.dense", "mlp.fc2"),
    ]

    def cut(weights):
        kinds = [f"self.{kind}.weight" for kind in ("query", "key", "value")]
        for name in [name for name in weights if name.endswith(kinds[0])]:
            parts = [weights.pop(name.replace(kinds[0], kind)) for kind in kinds]
            weights[name.replace(kinds[0], "self.qkv.weight")] = torch.cat(parts)
        return weights

    pixels = picture(32)
    return Case(reference, carried(port, reference, names, cut), (), {"pixel_values": pixels}, (pixels,))


def cvt(load):
    from transformers import CvtConfig, CvtModel

    config = CvtConfig(
        embed_dim=[64, 64, 128],
        num_heads=[1, 1, 2],
        depth=[1, 2, 3],
        mlp_ratio=[2.0] * 3,
        qkv_bias=[False] * 3,
        cls_token=[False] * 3,
        patch_padding=[3, 1, 1],
        drop_path_rate=[0.0] * 3,
    )
    reference = experienced(shaken(CvtModel(config)))
    for stage in reference.encoder.stages:
        for layer in stage.layers:  # the port has one convolution for keys and values
            own = layer.attention.attention
            own.convolution_projection_value.load_state_dict(own.convolution_projection_key.state_dict())
    sizes = {"emb_dim": (64, 64, 128), "heads": (1, 1, 2), "depth": (1, 2, 3), "mlp_mult": (2, 2, 2)}
    sizes = {f"s{n + 1}_{name}": each[n] for name, each in sizes.items() for n in range(3)}
    port = load("vit_pytorch.cvt").CvT(num_classes=1, **sizes).layers
    names = [
        (r"^encoder\.stages\.(\d)\.embedding\.convolution_embeddings\.projection", r"\1.0"),
        (r"^encoder\.stages\.(\d)\.embedding\.convolution_embeddings\.normalization", r"\1.1"),
        (r"^encoder\.stages\.(\d)\.layers", r"\1.2.layers"),
        (r"layernorm_before", "0.norm"),
        (r"layernorm_after", "1.net.0"),
        (r"attention\.attention\.convolution_projection_(query|key)\.convolution_projection", r"0.to_\1.net"),
        (r"attention\.attention\.projection_(query|key)", r"0.to_\1.net.2"),
        (r"net\.convolution", "net.0"),
        (r"net\.normalization", "net.1"),
        (r"to_query", "to_q"),
        (r"to_key", "to_kv"),
        (r"attention\.output\.dense", "0.to_out.0"),
        (r"intermediate\.dense", "1.net.1"),
        (r"output\.dense", "1.net.4"),
        (r"(0\.norm|\d\.1|1\.net\.0)\.weight$", r"\1.g"),
        (r"(0\.norm|\d\.1|1\.net\.0)\.bias$", r"\1.b"),
    ]

    def cut(weights):  # the port has its channels first, and scales by the width of a head
        weights = {name: each for name, each in weights.items() if "projection_value.conv" not in name}
        for name in [name for name in weights if "projection_key.weight" in name]:
            parts = weights[name], weights.pop(name.replace("key", "value"))
            weights[name] = torch.cat(parts)
        for name, each in weights.items():
            if name.endswith("projection_query.weight") and len(each) > 64:
                weights[name] = each / 2**0.5
            if "norm" in name and "convolution_projection" not in name:
                weights[name] = each[None, :, None, None]
            elif "dense.weight" in name or "projection_query.weight" in name or "projection_key.weight" in name:
                weights[name] = weights[name][..., None, None]
        return weights

    pixels = picture(64)
    return Case(reference, carried(port, reference, names, cut), (), {"pixel_values": pixels}, (pixels,))


def sam3_vision(load):
    from transformers.models.sam3.configuration_sam3 import Sam3ViTConfig
    from transformers.models.sam3.modeling_sam3 import Sam3ViTModel

    config = Sam3ViTConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=2,
        image_size=40,
        patch_size=8,
        window_size=3,
        global_attn_indexes=[0, 2],
        pretrain_image_size=16,
    )
    reference = shaken(Sam3ViTModel(config))
    bare("sam3", "sam3.model")
    port = load("sam3.model.vitdet").ViT(
        img_size=40,
        patch_size=8,
        embed_dim=32,
        depth=3,
        num_heads=2,
        mlp_ratio=1.5,
        norm_layer=lambda width: torch.nn.LayerNorm(width, eps=1e-6),
        rel_pos_blocks=(),
        window_size=3,
        global_att_blocks=(0, 2),
        use_rope=True,
        use_interp_rope=True,
        pretrain_img_size=16,
        retain_cls_token=False,
        ln_pre=True,
        bias_patch_embed=False,
    )
    names = [
        (r"^embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
        (r"^embeddings\.position_embeddings", "pos_embed"),
        (r"^layer_norm\.", "ln_pre."),
        (r"^layers", "blocks"),
        (r"layer_norm(\d)", r"norm\1"),
        (r"attention\.qkv", "attn.qkv"),
        (r"attention\.o_proj", "attn.proj"),
    ]

    def cut(weights):  # the port has a place for a token that it leaves out
        places = "embeddings.position_embeddings"
        weights[places] = torch.nn.functional.pad(weights[places], (0, 0, 1, 0))
        return fused(weights, [f"attention.{kind}_proj" for kind in "qkv"], "attention.qkv")

    pixels = picture(40)
    return Case(
        reference,
        carried(port, reference, names, cut),
        (),
        {"pixel_values": pixels},
        (pixels,),
        arranged=lambda out: out[-1].flatten(2).transpose(1, 2),
    )


def eomt(load):
    from transformers import EomtConfig, EomtForUniversalSegmentation

    config = EomtConfig(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        mlp_ratio=2,
        image_size=64,
        patch_size=8,
        num_blocks=2,
        num_queries=5,
        num_upscale_blocks=2,
        num_register_tokens=2,
        num_labels=6,
    )
    reference = shaken(EomtForUniversalSegmentation(config))
    reference.attn_mask_probs.zero_()  # after its training no query is masked
    port = carried(load("eomt.model").EoMTEncoder(config), reference, [(r"^", "")])
    pixels = picture(64)
    return Case(
        reference,
        port,
        (),
        {"pixel_values": pixels},
        (pixels,),
        arranged=lambda out: out.masks_queries_logits,
        main=lambda out: out.masks_queries_logits,
    )


def hgnet(load):
    from transformers import HGNetV2Backbone, HGNetV2Config

    channels = {"stage_in_channels": [12, 16, 24, 32], "stage_mid_channels": [6, 8, 10, 12]}
    channels |= {"stage_out_channels": [16, 24, 32, 40]}
    config = HGNetV2Config(
        **channels,
        stem_channels=[3, 8, 12],
        depths=[1, 1, 2, 1],
        stage_num_blocks=[1, 1, 2, 1],
        stage_numb_of_layers=[3, 3, 3, 3],
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    reference = experienced(shaken(HGNetV2Backbone(config)))
    with torch.no_grad():
        for name, weight in reference.named_parameters():
            weight.add_(1.5 * name.endswith("normalization.bias"))  # else nearly all is cut off at zero
    sizes = zip(*channels.values(), strict=True)
    blocks = [(1, False, False, 3), (1, True, False, 3), (2, True, True, 5), (1, True, True, 5)]
    stages = {
        f"stage{n + 1}": (*width, *block, 3, 2) for n, (width, block) in enumerate(zip(sizes, blocks, strict=True))
    }
    bare("mineru", "mineru.model", "mineru.model._internal", "mineru.model._internal.pytorchocr")
    port = load("mineru.model._internal.pytorchocr.modeling.backbones.rec_pphgnetv2").PPHGNetV2(
        stages, stem_channels=[3, 8, 12], use_last_conv=False, det=True
    )
    names = [
        (r"^embedder", "stem"),
        (r"^encoder\.", ""),
        (r"convolution", "conv"),
        (r"normalization", "bn"),
        (r"aggregation\.0", "aggregation_squeeze_conv"),
        (r"aggregation\.1", "aggregation_excitation_conv"),
    ]
    pixels = picture(64)
    port = carried(port, reference, names)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,))
