"""What looks at pictures, sound or series."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

import torch
from cases import Case, shaken
from conversion import carried, experienced, fused, picture
from stubs import bare


def passt(load):
    from transformers import ASTConfig, ASTForAudioClassification

    config = ASTConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        layer_norm_eps=1e-5,
        patch_size=8,
        frequency_stride=6,
        time_stride=6,
        max_length=32,
        num_mel_bins=16,
        num_labels=5,
    )
    reference = shaken(ASTForAudioClassification(config))
    generator = torch.Generator().manual_seed(2)
    pitch, time = torch.randn(1, 32, 2, 1, generator=generator), torch.randn(1, 32, 1, 5, generator=generator)
    with torch.no_grad():  # the port adds up a place of the pitch and one of the time
        places = (pitch + time).flatten(2).transpose(1, 2)
        reference.audio_spectrogram_transformer.embeddings.position_embeddings[:, 2:] = places
    package = load("hear21passt.models.passt")
    package.first_RUN = False  # it prints
    port = package.PaSST(
        img_size=(16, 32),
        patch_size=8,
        stride=6,
        num_classes=5,
        embed_dim=32,
        depth=3,
        num_heads=4,
        mlp_ratio=2,
        distilled=True,
        norm_layer=torch.nn.LayerNorm,
    )
    names = [
        (r"^audio_spectrogram_transformer\.", ""),
        (r"^embeddings\.cls_token", "cls_token"),
        (r"^embeddings\.distillation_token", "dist_token"),
        (r"^embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
        (r"^layers", "blocks"),
        (r"attention\.qkv", "attn.qkv"),
        (r"attention\.o_proj", "attn.proj"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"^layernorm", "norm"),
        (r"^classifier\.layernorm", "head.0"),
        (r"^classifier\.dense", "head.1"),
    ]

    def cut(weights):
        tokens = weights.pop("audio_spectrogram_transformer.embeddings.position_embeddings")[:, :2]
        weights |= {"new_pos_embed": tokens, "freq_new_pos_embed": pitch, "time_new_pos_embed": time}
        return fused(weights, [f"attention.{kind}_proj" for kind in "qkv"], "attention.qkv")

    port = carried(port, reference, names, cut, kept=("head_dist",))
    mel = torch.randn(2, 32, 16, generator=generator)
    return Case(reference, port, (), {"input_values": mel}, (mel.transpose(1, 2)[:, None],))


def depth_anything(load):
    from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation, Dinov2Config

    backbone = Dinov2Config(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        mlp_ratio=2,
        image_size=56,
        patch_size=14,
        out_indices=[1, 2, 3, 4],
        reshape_hidden_states=False,
    )
    sizes = [8, 12, 16, 24]
    config = DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=32,
        patch_size=14,
        neck_hidden_sizes=sizes,
        fusion_hidden_size=16,
    )
    reference = shaken(DepthAnythingForDepthEstimation(config))
    with torch.no_grad():
        reference.head.conv3.bias.fill_(1.5)  # else nearly all depths are cut off at zero
    package = load("depth_anything_v2.dpt")
    small = partial(
        load("depth_anything_v2.dinov2").DinoVisionTransformer,
        img_size=56,
        patch_size=14,
        embed_dim=32,
        depth=4,
        num_heads=4,
        mlp_ratio=2,
        init_values=1.0,
        block_chunks=0,
    )
    with patch.object(package, "DINOv2", lambda model_name: small()):
        port = package.DepthAnythingV2("vits", 16, sizes)
    port.intermediate_layer_idx["vits"] = [0, 1, 2, 3]
    names = [
        (r"^backbone\.embeddings\.patch_embeddings\.projection", "pretrained.patch_embed.proj"),
        (r"^backbone\.embeddings\.position_embeddings", "pretrained.pos_embed"),
        (r"^backbone\.embeddings", "pretrained"),
        (r"^backbone\.encoder\.layer", "pretrained.blocks"),
        (r"^backbone\.layernorm", "pretrained.norm"),
        (r"attention\.qkv", "attn.qkv"),
        (r"attention\.o_proj", "attn.proj"),
        (r"layer_scale(\d)\.lambda1", r"ls\1.gamma"),
        (r"^neck\.reassemble_stage\.layers\.(\d)\.projection", r"depth_head.projects.\1"),
        (r"^neck\.reassemble_stage\.layers\.(\d)\.resize", r"depth_head.resize_layers.\1"),
        (r"^neck\.convs\.(\d)", lambda m: f"depth_head.scratch.layer{int(m[1]) + 1}_rn"),
        (r"^neck\.fusion_stage\.layers\.(\d)", lambda m: f"depth_head.scratch.refinenet{4 - int(m[1])}"),
        (r"residual_layer(\d)\.convolution", r"resConfUnit\1.conv"),
        (r"(refinenet\d)\.projection", r"\1.out_conv"),
        (r"^head\.conv1", "depth_head.scratch.output_conv1"),
        (r"^head\.conv2", "depth_head.scratch.output_conv2.0"),
        (r"^head\.conv3", "depth_head.scratch.output_conv2.2"),
    ]
    cut = lambda weights: fused(weights, [f"attention.{kind}_proj" for kind in "qkv"], "attention.qkv")  # noqa: E731
    pixels = picture(56)
    return Case(reference, carried(port, reference, names, cut), (), {"pixel_values": pixels}, (pixels,))


def informer(load):
    from transformers import InformerConfig, InformerModel

    kinds = {"month": 13, "day": 32, "weekday": 7, "hour": 24}
    config = InformerConfig(
        input_size=3,
        context_length=12,
        prediction_length=6,
        lags_sequence=[0],
        scaling=None,
        num_time_features=sum(kinds.values()),
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        attention_type="full",
    )
    reference = experienced(shaken(InformerModel(config)))
    port = load("flood_forecast.transformer_xl.informer").Informer(
        3, 3, 3, 12, 0, 6, d_model=32, n_heads=4, e_layers=2, d_layers=2, d_ff=48, attn="full", embed="learned"
    )
    port.encoder.norm = port.decoder.norm = None  # the reference has its norms after the embeddings
    port.enc_embedding.dropout, port.dec_embedding.dropout = torch.nn.LayerNorm(32), torch.nn.LayerNorm(32)
    port.encoder.conv_layers[0].downConv = torch.nn.Conv1d(32, 32, 3, padding=1, padding_mode="circular")
    port.projection = torch.nn.Identity()
    names = [
        (r"^encoder\.layers", "encoder.attn_layers"),
        (r"^(enc|dec)oder\.embed_positions\.weight", r"\1_embedding.position_embedding.pe"),
        (r"^(enc|dec)oder\.layernorm_embedding", r"\1_embedding.dropout"),
        (r"attn_layers\.(\d)\.self_attn_layer_norm", r"attn_layers.\1.norm1"),
        (r"attn_layers\.(\d)\.final_layer_norm", r"attn_layers.\1.norm2"),
        (r"attn_layers\.(\d)\.self_attn", r"attn_layers.\1.attention"),
        (r"self_attn_layer_norm", "norm1"),
        (r"encoder_attn_layer_norm", "norm2"),
        (r"final_layer_norm", "norm3"),
        (r"self_attn", "self_attention"),
        (r"encoder_attn", "cross_attention"),
        (r"q_proj", "query_projection"),
        (r"k_proj", "key_projection"),
        (r"v_proj", "value_projection"),
        (r"out_proj\.", "out_projection."),
        (r"fc(\d)", r"conv\1"),
    ]

    def cut(weights):
        for name in [name for name in weights if "fc" in name and name.endswith("weight")]:
            weights[name] = weights[name][..., None]
        for side, first in (("enc", 0), ("dec", 12)):  # the port's decoder counts its places from zero
            at, own = f"{side}oder.embed_positions.weight", f"{side}_embedding"
            weights[at] = torch.nn.functional.pad(weights[at][first:], (0, 0, 0, 5000 - 18 + first))[None]
            values, _, times = weights.pop(f"{side}oder.value_embedding.value_projection.weight").split([3, 6, 76], 1)
            weights[f"{own}.value_embedding.tokenConv.weight"] = torch.nn.functional.pad(values[..., None], (1, 1))
            weights[f"{own}.value_embedding.tokenConv.bias"] = torch.zeros(32)
            for kind, table in zip(kinds, times.split(list(kinds.values()), 1), strict=True):
                weights[f"{own}.temporal_embedding.{kind}_embed.weight"] = table.T
        return weights

    port = carried(port, reference, names, cut)
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(2, 18, 3, generator=generator)
    times = torch.stack([torch.randint(size, (2, 18), generator=generator) for size in kinds.values()], -1)
    marks = [torch.nn.functional.one_hot(times[..., k], size) for k, size in enumerate(kinds.values())]
    marks = torch.cat(marks, -1).float()
    inputs = {"past_values": values[:, :12], "past_time_features": marks[:, :12]}
    inputs |= {"past_observed_mask": torch.ones(2, 12, 3)}
    inputs |= {"future_values": values[:, 12:], "future_time_features": marks[:, 12:]}
    own = (values[:, :12], times[:, :12], values[:, 12:], times[:, 12:])
    return Case(reference, port, (), inputs, own, main=lambda out: out.last_hidden_state)


def mobile_text_detector(load):
    from transformers import PPLCNetV3Config, PPOCRV5MobileDetConfig, PPOCRV5MobileDetForObjectDetection

    stages = ["stage2", "stage3", "stage4", "stage5"]
    backbone = PPLCNetV3Config(scale=0.5, divisor=16, conv_symmetric_num=2, out_features=stages)
    sizes = {"layer_list_out_channels": [8, 12, 28, 240], "neck_out_channels": 48}
    config = PPOCRV5MobileDetConfig(backbone_config=backbone, **sizes)
    reference = experienced(shaken(PPOCRV5MobileDetForObjectDetection(config)))
    bare("rapidocr.inference_engine.pytorch")
    port = load("rapidocr.inference_engine.pytorch.networks.architectures.base_model").BaseModel(
        {
            "model_type": "det",
            "Backbone": {"name": "PPLCNetV3", "scale": 0.5, "conv_kxk_num": 2, "det": True},
            "Neck": {"name": "RSEFPN", "out_channels": 48},
            "Head": {"name": "DBHead"},
        }
    )
    names = [
        (r"^model\.backbone\.encoder\.convolution", "backbone.conv1"),
        (r"^model\.backbone\.encoder\.blocks\.(\d)\.layers", lambda m: f"backbone.blocks{int(m[1]) + 2}"),
        (r"depthwise_convolution", "dw_conv"),
        (r"pointwise_convolution", "pw_conv"),
        (r"conv_symmetric", "conv_kxk"),
        (r"conv_small_symmetric", "conv_1x1"),
        (r"squeeze_excitation_module\.convolutions\.0", "se.conv1"),
        (r"squeeze_excitation_module\.convolutions\.2", "se.conv2"),
        (r"^(backbone.*)convolution", r"\1conv"),
        (r"normalization", "bn"),
        (r"^model\.layer", "backbone.layer_list"),
        (r"^model\.neck\.insert_conv", "neck.ins_conv"),
        (r"^model\.neck\.input_conv", "neck.inp_conv"),
        (r"squeeze_excitation_block", "se_block"),
        (r"^head\.conv_down\.convolution", "head.binarize.conv1"),
        (r"^head\.conv_down\.norm", "head.binarize.conv_bn1"),
        (r"^head\.conv_up\.convolution", "head.binarize.conv2"),
        (r"^head\.conv_up\.norm", "head.binarize.conv_bn2"),
        (r"^head\.conv_final", "head.binarize.conv3"),
    ]
    pixels = picture(64)
    port = carried(port, reference, names, kept=("thresh",))
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,))


def focalnet(load):
    from transformers import FocalNetConfig, FocalNetForImageClassification

    settings = {"depths": [1, 2, 1], "embed_dim": 16, "focal_levels": [2, 2, 1], "focal_windows": [3, 3, 5]}
    settings |= {"normalize_modulator": True, "drop_path_rate": 0.0}
    config = FocalNetConfig(
        **settings,
        image_size=64,
        hidden_sizes=[16, 32, 64],
        use_conv_embed=True,
        use_layerscale=True,
        layerscale_value=0.5,
        use_post_layernorm=True,
        num_labels=5,
    )
    reference = shaken(FocalNetForImageClassification(config))
    bare("birder", "birder.net")
    settings |= {"layer_scale_value": 0.5, "use_overlap_down": True}
    settings |= {"use_post_norm": True, "use_post_norm_in_modulation": False}
    port = load("birder.net.focalnet").FocalNet(3, 5, config=settings, size=(64, 64))
    names = [
        (r"^focalnet\.embeddings\.patch_embeddings\.projection", "stem.proj"),
        (r"^focalnet\.embeddings\.norm", "stem.norm"),
        (r"^focalnet\.encoder\.stages\.(\d)\.downsample", lambda m: f"body.stage{int(m[1]) + 2}.downsample"),
        (r"downsample\.projection", "downsample.proj"),
        (r"^focalnet\.encoder\.stages\.(\d)\.layers", lambda m: f"body.stage{int(m[1]) + 1}.blocks"),
        (r"norm(\d)", r"norm\1_post"),
        (r"gamma_(\d)", r"ls\1.gamma"),
        (r"projection_in", "f"),
        (r"projection_context", "h"),
        (r"projection_out", "proj"),
        (r"^focalnet\.layernorm", "features.0"),
    ]

    def cut(weights):  # the port has its channels first
        turned = ("gamma_1", "gamma_2", "fc1.weight", "fc2.weight", "projection_in.weight", "projection_out.weight")
        return {name: w[..., None, None] if name.endswith(turned) else w for name, w in weights.items()}

    pixels = picture(64)
    return Case(reference, carried(port, reference, names, cut), (), {"pixel_values": pixels}, (pixels,))


def dinov3(load):
    from transformers import DINOv3ViTConfig, DINOv3ViTModel

    config = DINOv3ViTConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=2,
        patch_size=8,
        image_size=32,
        num_register_tokens=2,
    )
    reference = shaken(DINOv3ViTModel(config))
    bare("lightly_train")
    port = load("lightly_train._models.dinov3.dinov3_src.models.vision_transformer").DinoVisionTransformer(
        img_size=32,
        patch_size=8,
        pos_embed_rope_dtype="fp32",
        embed_dim=32,
        depth=3,
        num_heads=2,
        ffn_ratio=2,
        layerscale_init=1.0,
        norm_layer="layernormbf16",
        n_storage_tokens=2,
        mask_k_bias=True,
    )
    port.init_weights()
    names = [
        (r"^embeddings\.patch_embeddings", "patch_embed.proj"),
        (r"^embeddings\.register_tokens", "storage_tokens"),
        (r"^embeddings\.", ""),
        (r"^model\.layer", "blocks"),
        (r"attention\.qkv", "attn.qkv"),
        (r"attention\.o_proj", "attn.proj"),
        (r"layer_scale(\d)\.lambda1", r"ls\1.gamma"),
        (r"up_proj", "fc1"),
        (r"down_proj", "fc2"),
    ]

    def cut(weights):  # the port hides its biases of keys
        for name in [name for name in weights if name.endswith("q_proj.bias")]:
            weights[name.replace("q_proj", "k_proj")] = torch.zeros(32)
        weights["embeddings.mask_token"] = weights["embeddings.mask_token"][0]
        return fused(weights, [f"attention.{kind}_proj" for kind in "qkv"], "attention.qkv")

    pixels = picture(48)[..., :32]
    port = carried(port, reference, names, cut)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,), main=lambda out: out.pooler_output)


def vibevoice(load):
    from transformers import AutoModel, VibeVoiceAcousticTokenizerConfig, VibeVoiceAcousticTokenizerModel

    config = VibeVoiceAcousticTokenizerConfig(
        hidden_size=6,
        num_filters=8,
        downsampling_ratios=[2, 4],
        depths=[1, 2, 1],
        layer_scale_init_value=0.5,
    )
    reference = shaken(VibeVoiceAcousticTokenizerModel(config))
    with patch.object(AutoModel, "register"):  # transformers has taken its names since
        package = load("vibevoice.modular.modular_vibevoice_tokenizer")
    settings = SimpleNamespace(
        channels=1,
        dimension=6,
        n_filters=8,
        ratios=[4, 2],
        depths=[1, 2, 1],
        causal=True,
        pad_mode="constant",
        layernorm="RMSNorm",
        layernorm_eps=1e-5,
        disable_last_norm=True,
        mixer_layer="depthwise_conv",
        layer_scale_init_value=0.5,
    )
    port = torch.nn.Sequential(package.TokenizerEncoder(settings), package.TokenizerDecoder(settings))
    names = [
        (r"^(en|de)coder\.stem\.conv\.conv", r"\1coder.sample.0.0.conv.conv"),
        (r"^(en|de)coder\.stem\.stage", r"\1coder.stages.0"),
        (r"conv_layers\.(\d)\.(conv|convtr)\.", lambda m: f"sample.{int(m[1]) + 1}.0.{m[2]}."),
        (r"conv_layers\.(\d)\.stage", lambda m: f"stages.{int(m[1]) + 1}"),
        (r"mixer\.conv", "mixer.conv.conv.conv"),
        (r"head\.conv", "head.conv.conv"),
        (r"^encoder\.sample", "encoder.downsample_layers"),
        (r"^decoder\.sample", "decoder.upsample_layers"),
        (r"^encoder", "0"),
        (r"^decoder", "1"),
    ]
    sound = torch.randn(2, 1, 64, generator=torch.Generator().manual_seed(1))
    port = carried(port, reference, names)
    return Case(reference, port, (), {"input_values": sound, "sample": False}, (sound,), main=lambda out: out.audio)


def hubert(load):
    from transformers import HubertConfig, HubertModel

    config = HubertConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        conv_dim=[16, 16, 16],
        conv_kernel=[10, 3, 2],
        conv_stride=[5, 2, 2],
        num_conv_pos_embeddings=32,
        num_conv_pos_embedding_groups=4,
        feat_extract_norm="layer",
        do_stable_layer_norm=True,
    )
    reference = shaken(HubertModel(config))
    package = load("spidr.models.components")
    settings = load("spidr.config").DinoSRConfig(
        extractor_conv_layer_config=[(16, 10, 5), (16, 3, 2), (16, 2, 2)],
        encoder_embed_dim=32,
        encoder_pos_conv_kernel=32,
        encoder_pos_conv_groups=4,
        encoder_pos_conv_depth=1,
        encoder_num_layers=3,
        encoder_num_heads=4,
        encoder_ff_interm_features=48,
        encoder_layer_norm_first=True,
        encoder_qkv_bias=True,
    )
    port = torch.nn.Sequential(*package.get_components(settings)[:3])
    places = port[2].pos_conv_embed
    places.convs[0] = torch.nn.utils.parametrizations.weight_norm(places.convs[0], dim=2)
    places.layer_norm = torch.nn.Identity()  # the reference has its weights normed instead
    names = [
        (r"^feature_extractor", "0"),
        (r"^feature_projection", "1"),
        (r"^encoder\.pos_conv_embed\.conv", "2.pos_conv_embed.convs.0"),
        (r"^encoder", "2"),
        (r"attention\.(?:out|o)_proj", "attention.proj"),
    ]
    cut = lambda weights: fused(weights, [f"attention.{kind}_proj" for kind in "qkv"], "attention.qkv")  # noqa: E731
    sound = torch.randn(2, 400, generator=torch.Generator().manual_seed(1))
    return Case(reference, carried(port, reference, names, cut), (), {"input_values": sound}, (sound,))
