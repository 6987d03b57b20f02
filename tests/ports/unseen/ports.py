"""Implementations of other people, each with the reference's weights; see ``utils/first_try.py``.

None of them was used to build the tool. ``Port.reloaded`` names the packages whose forward code is edited at random.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import packaging.version
import torch
from cases import Case, shaken, to_edit, tokens
from conversion import carried, fused, named, picture


def timesfm(load):
    from transformers import TimesFmConfig, TimesFmModelForPrediction

    sizes = {"hidden_size": 32, "intermediate_size": 48, "head_dim": 8, "rms_norm_eps": 1e-6}
    quantiles = [0.1, 0.5, 0.9]
    config = TimesFmConfig(
        patch_length=8,
        context_length=48,
        horizon_length=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        quantiles=quantiles,
        use_positional_embedding=True,
        **sizes,
    )
    reference = shaken(TimesFmModelForPrediction(config))
    package = load("timesfm.pytorch_patched_decoder")
    settings = package.TimesFMConfig(
        patch_len=8, horizon_len=16, num_layers=2, num_heads=4, num_kv_heads=4, quantiles=quantiles, **sizes
    )
    names = [
        (r"^decoder\.layers", "stacked_transformer.layers"),
        (r"^decoder\.", ""),
        (r"input_layer\.", "hidden_layer.0."),
    ]
    cut = lambda weights: fused(weights, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.qkv_proj")  # noqa: E731
    port = carried(package.PatchedTimeSeriesDecoder(settings), reference, names, cut)
    series = torch.randn(2, 48, generator=torch.Generator().manual_seed(1)).cumsum(1)
    padded = torch.zeros(2, 48)
    return Case(
        reference,
        port,
        (),
        {"past_values": list(series), "freq": [0, 1], "return_forecast_on_context": False},
        (series, padded, torch.tensor([[0], [1]])),
        arranged=lambda out: out[:, -1],
        main=lambda out: out.full_predictions,
    )


def rwkv(load):
    from transformers import RwkvConfig, RwkvForCausalLM

    os.environ.setdefault("RWKV_JIT_ON", "0")
    config = RwkvConfig(
        vocab_size=64, context_length=32, hidden_size=32, num_hidden_layers=3, intermediate_size=64, use_cache=False
    )
    reference = shaken(RwkvForCausalLM(config))
    names = [
        (r"^rwkv\.embeddings", "emb"),
        (r"^rwkv\.ln_out", "ln_out"),
        (r"^rwkv\.", ""),
        (r"attention\.time_mix_(key|value|receptance)", lambda m: f"att.time_mix_{m[1][0]}"),
        (r"feed_forward\.time_mix_(key|receptance)", lambda m: f"ffn.time_mix_{m[1][0]}"),
        (r"attention", "att"),
        (r"feed_forward", "ffn"),
        (r"pre_ln", "ln0"),
    ]
    weights = named(reference.state_dict(), names)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tiny.pth"
        torch.save(weights, file)
        port = load("rwkv.model").RWKV(str(file), "cpu fp32", verbose=False)
    ids = tokens(64, batch=1)
    return Case(
        reference,
        port.eval(),
        (),
        {"input_ids": ids},
        (ids[0].tolist(), None),
        {"full_output": True},
        arranged=lambda out: out[0][None],
    )


def poolformer(load):
    from transformers import PoolFormerConfig, PoolFormerModel

    sizes, depths = [8, 12, 16, 24], [1, 2, 1, 1]
    config = PoolFormerConfig(hidden_sizes=sizes, depths=depths, layer_norm_eps=1e-5)
    reference = shaken(PoolFormerModel(config))
    package = load("mmpretrain.models.backbones.poolformer")
    port = package.PoolFormer({"layers": depths, "embed_dims": sizes, "mlp_ratios": [4.0] * 4})
    names = [
        (r"^encoder\.patch_embeddings\.0\.projection", "patch_embed.proj"),
        (r"^encoder\.patch_embeddings\.(\d)\.projection", lambda m: f"network.{2 * int(m[1]) - 1}.proj"),
        (r"^encoder\.block\.(\d)\.", lambda m: f"network.{2 * int(m[1])}."),
        (r"before_norm", "norm1"),
        (r"after_norm", "norm2"),
        (r"output\.conv(\d)", r"mlp.fc\1"),
    ]
    pixels = picture(64)
    port.norm6 = torch.nn.Identity()  # the reference's model ends before it
    carried(port, reference, names)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,), arranged=lambda out: out[-1])


def timesformer(load):
    from transformers import TimesformerConfig, TimesformerModel

    config = TimesformerConfig(
        image_size=32,
        patch_size=8,
        num_frames=3,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        hidden_dropout_prob=0.0,
    )
    reference = shaken(TimesformerModel(config))
    for name in ("localizers.drn", "localizers.drn.drn", "multimodal"):  # the wheel lacks two, transformers 5 one
        sys.modules[f"mmaction.models.{name}"] = SimpleNamespace(DRN=None)
    attention = load("mmaction.models.common.transformer")
    models = load("mmengine.registry").MODELS
    for kind in ("DividedTemporalAttentionWithNorm", "DividedSpatialAttentionWithNorm", "FFNWithNorm"):
        models.register_module(kind, force=True, module=getattr(attention, kind))
    package = load("mmaction.models.backbones.timesformer")
    port = package.TimeSformer(3, 32, 8, embed_dims=32, num_heads=4, num_transformer_layers=2)
    names = [
        (r"^embeddings\.cls_token", "cls_token"),
        (r"^embeddings\.position_embeddings", "pos_embed"),
        (r"^embeddings\.time_embeddings", "time_embed"),
        (r"^embeddings\.patch_embeddings", "patch_embed"),
        (r"^encoder\.layer\.", "transformer_layers.layers."),
        (r"layernorm_before", "attentions.1.norm"),
        (r"layernorm_after", "ffns.0.norm"),
        (r"temporal_layernorm", "attentions.0.norm"),
        (r"temporal_dense", "attentions.0.temporal_fc"),
        (r"temporal_attention\.attention\.qkv\.", "attentions.0.attn.in_proj_"),
        (r"temporal_attention\.output\.dense", "attentions.0.attn.out_proj"),
        (r"attention\.attention\.qkv\.", "attentions.1.attn.in_proj_"),
        (r"attention\.output\.dense", "attentions.1.attn.out_proj"),
        (r"intermediate\.dense", "ffns.0.layers.0.0"),
        (r"output\.dense", "ffns.0.layers.1"),
        (r"^layernorm", "norm"),
    ]
    frames = torch.randn(2, 3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return Case(
        reference,
        carried(port, reference, names),
        (),
        {"pixel_values": frames},
        (frames.transpose(1, 2),),
        main=lambda out: out.last_hidden_state[:, 0],
    )


def olmo(load):
    from transformers import OlmoConfig, OlmoForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    config = OlmoConfig(**sizes, **heads, **special, clip_qkv=2.0, rope_parameters=rope)
    reference = shaken(OlmoForCausalLM(config))
    settings = load("olmo.config").ModelConfig(
        d_model=32,
        n_heads=4,
        n_kv_heads=2,
        n_layers=2,
        mlp_hidden_size=96,
        clip_qkv=2.0,
        rope=True,
        include_bias=False,
        layer_norm_with_affine=False,
        attention_layer_norm_with_affine=False,
        max_sequence_length=32,
        vocab_size=64,
        embedding_size=64,
        weight_tying=False,
        eos_token_id=2,
        pad_token_id=0,
        init_device="cpu",
    )
    port = load("olmo.model").OLMo(settings)
    names = [
        (r"^model\.embed_tokens", "transformer.wte"),
        (r"^lm_head", "transformer.ff_out"),
        (r"^model\.layers", "transformer.blocks"),
        (r"self_attn\.qkv_proj", "att_proj"),
        (r"self_attn\.o_proj", "attn_out"),
        (r"mlp\.both_proj", "ff_proj"),
        (r"mlp\.down_proj", "ff_out"),
    ]

    def cut(weights):
        weights = fused(weights, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.qkv_proj")
        return fused(weights, ["mlp.up_proj", "mlp.gate_proj"], "mlp.both_proj")

    ids = tokens(64)
    return Case(reference, carried(port, reference, names, cut), (), {"input_ids": ids, "use_cache": False}, (ids,))


def texar_t5(load):
    from transformers import T5Config, T5Model

    config = T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0, pad_token_id=0
    )
    reference = shaken(T5Model(config))
    attention = {"num_heads": 4, "num_units": 32, "output_dim": 32}
    linear = {"type": "Linear"}
    layers = [
        linear | {"kwargs": {"in_features": 32, "out_features": 64, "bias": False}},
        {"type": "ReLU"},
        linear | {"kwargs": {"in_features": 64, "out_features": 32, "bias": False}},
    ]
    part = {"dim": 32, "num_blocks": 2, "multihead_attention": attention, "poswise_feedforward": {"layers": layers}}
    settings = {"pretrained_model_name": None, "embed": {"dim": 32}, "vocab_size": 64, "hidden_size": 32}
    version = SimpleNamespace(packaging=packaging, parse_version=packaging.version.parse)
    sys.modules.setdefault("pkg_resources", version)  # as it was before setuptools 82
    for old, new in (("float_", np.float64), ("unicode_", np.str_)):
        vars(np).setdefault(old, new)  # as it was before NumPy 2
    port = load("texar.torch.modules").T5EncoderDecoder(hparams={**settings, "encoder": part, "decoder": part})
    names = [
        (r"^shared\.weight", "word_embedder._embedding"),
        (r"block\.(\d)\.layer\.0\.SelfAttention", r"self_attns.\1"),
        (r"block\.(\d)\.layer\.0\.layer_norm\.weight", r"self_attn_layer_norm.\1.w"),
        (r"block\.(\d)\.layer\.1\.EncDecAttention", r"enc_dec_attns.\1"),
        (r"(decoder.*)block\.(\d)\.layer\.1\.layer_norm\.weight", r"\1end_dec_attn_layer_norm.\2.w"),
        (r"block\.(\d)\.layer\.\d\.layer_norm\.weight", r"poswise_layer_norm.\1.w"),
        (r"block\.(\d)\.layer\.\d\.DenseReluDense\.wi", r"poswise_networks.\1._layers.0"),
        (r"block\.(\d)\.layer\.\d\.DenseReluDense\.wo", r"poswise_networks.\1._layers.2"),
        (r"final_layer_norm\.weight", "final_layer_norm.w"),
        (r"\.([qkvo])\.weight", lambda m: f".{m[1].upper()}_dense.weight"),
    ]
    spare = "decoder.enc_dec_attns.0.relative_attention_bias.weight"  # of the first checkpoints; nothing in T5
    cut = lambda weights: {**weights, spare: torch.zeros(32, 4)}  # noqa: E731
    ids = tokens(64)
    return Case(
        reference,
        carried(port, reference, names, cut),
        (),
        {"input_ids": ids, "decoder_input_ids": ids, "use_cache": False},
        (ids, torch.tensor([12, 12])),
        arranged=lambda out: out[1].logits,
    )


def roformer(load):
    from transformers import RoFormerConfig, RoFormerModel

    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 64, "hidden_act": "gelu"}
    config = RoFormerConfig(**sizes, embedding_size=32, max_position_embeddings=32, layer_norm_eps=1e-12)
    reference = RoFormerModel(config)
    places = reference.encoder.embed_positions.weight.clone()
    shaken(reference).encoder.embed_positions.weight.data.copy_(places)  # sines, though a parameter
    port = load("bert4torch.models").build_transformer_model(model="roformer", max_position=32, **sizes)
    names = [
        (r"LayerNorm", "layerNorm"),
        (r"token_type_embeddings", "segment_embeddings"),
        (r"^encoder\.layer", "encoderLayer"),
        (r"attention\.self\.(query|key|value)", lambda m: f"multiHeadAttention.{m[1][0]}"),
        (r"attention\.output\.dense", "multiHeadAttention.o"),
        (r"attention\.output\.layerNorm", "attnLayerNorm"),
        (r"intermediate\.dense", "feedForward.intermediateDense"),
        (r"output\.dense", "feedForward.outputDense"),
        (r"output\.layerNorm", "ffnLayerNorm"),
    ]
    ids, seen = tokens(64), torch.ones(2, 12, dtype=torch.long)
    ids[1, 8:], seen[1, 8:] = 0, 0
    port = carried(port, reference, names)
    return Case(reference, port, (), {"input_ids": ids, "attention_mask": seen}, (ids, torch.zeros_like(ids)))


def siglip2(load):
    from transformers import SiglipConfig, SiglipModel

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    pixels, text = {"image_size": 32, "patch_size": 8}, {"vocab_size": 64, "max_position_embeddings": 32}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    parts = {"vision_config": {**sizes, **pixels}, "text_config": {**sizes, **text, **special}}
    reference = shaken(SiglipModel(SiglipConfig(**parts)))
    package = load("kornia.models.siglip2.config")
    config = package.SigLip2Config(
        package.SigLip2VisionConfig(**sizes, **pixels), package.SigLip2TextConfig(**sizes, **text), projection_dim=32
    )
    port = load("kornia.models.siglip2.model").SigLip2Model(config)
    names = [(r"(vision_model.*)position_embedding\.weight", r"\1position_embedding")]
    own = port.state_dict()
    cut = lambda weights: {n: w.reshape(own[n].shape) if n in own else w for n, w in weights.items()}  # noqa: E731
    ids, pixels = tokens(64, length=32), picture(32)
    return Case(
        reference,
        carried(port, reference, names, cut),
        (),
        {"input_ids": ids, "pixel_values": pixels},
        (pixels, ids),
        main=lambda out: out.logits_per_image,
        arranged=lambda out: out.logits_per_image,
    )


def wav2vec2(load):
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        feat_extract_norm="layer",
        conv_dim=(16, 16, 16),
        conv_kernel=(10, 3, 2),
        conv_stride=(5, 2, 2),
        conv_bias=True,
        do_stable_layer_norm=True,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        apply_spec_augment=False,
        mask_time_prob=0.0,
    )
    reference = shaken(Wav2Vec2Model(config))
    package = load("s3prl.upstream.wav2vec2.wav2vec2_model")
    settings = package.Wav2Vec2Config(
        extractor_mode="layer_norm",
        encoder_layers=2,
        encoder_embed_dim=32,
        encoder_ffn_embed_dim=64,
        encoder_attention_heads=4,
        layer_norm_first=True,
        conv_feature_layers="[(16, 10, 5), (16, 3, 2), (16, 2, 2)]",
        conv_bias=True,
        conv_pos=16,
        conv_pos_groups=4,
        required_seq_len_multiple=1,
        final_dim=16,
    )
    port = package.Wav2Vec2Model(settings)
    port.remove_pretraining_modules()
    names = [
        (r"^masked_spec_embed", "mask_emb"),
        (r"conv_layers\.(\d)\.conv\.", r"conv_layers.\1.0."),
        (r"conv_layers\.(\d)\.layer_norm\.", r"conv_layers.\1.2.1."),
        (r"^feature_projection\.layer_norm", "layer_norm"),
        (r"^feature_projection\.projection", "post_extract_proj"),
        (r"pos_conv_embed\.conv\.parametrizations\.weight\.original0", "pos_conv.0.weight_g"),
        (r"pos_conv_embed\.conv\.parametrizations\.weight\.original1", "pos_conv.0.weight_v"),
        (r"pos_conv_embed\.conv", "pos_conv.0"),
        (r"\.attention\.", ".self_attn."),
        (r"(layers\.\d)\.layer_norm", r"\1.self_attn_layer_norm"),
        (r"feed_forward\.intermediate_dense", "fc1"),
        (r"feed_forward\.output_dense", "fc2"),
    ]
    if "encoder.pos_conv.0.parametrizations.weight.original0" in port.state_dict():
        names.append((r"pos_conv\.0\.weight_g", "pos_conv.0.parametrizations.weight.original0"))
        names.append((r"pos_conv\.0\.weight_v", "pos_conv.0.parametrizations.weight.original1"))
    sound = torch.randn(2, 800, generator=torch.Generator().manual_seed(1))
    options = {"mask": False, "features_only": True}
    return Case(
        reference,
        carried(port, reference, names, kept=("mask_emb",)),
        (),
        {"input_values": sound},
        (sound,),
        options,
        arranged=lambda out: out["x"],
    )


def vits_text(load):
    from transformers import VitsConfig
    from transformers.models.vits.modeling_vits import VitsTextEncoder

    config = VitsConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=48,
        flow_size=16,
        window_size=4,
        use_bias=True,
    )
    config._attn_implementation = "eager"
    reference = shaken(VitsTextEncoder(config))
    port = load("TTS.tts.layers.vits.networks").TextEncoder(64, 16, 32, 48, 4, 2, 3, 0.0)
    names = [
        (r"^embed_tokens", "emb"),
        (r"^project", "proj"),
        (r"layers\.(\d)\.attention\.([qkv])_proj", r"attn_layers.\1.conv_\2"),
        (r"layers\.(\d)\.attention\.out_proj", r"attn_layers.\1.conv_o"),
        (r"layers\.(\d)\.attention\.emb", r"attn_layers.\1.emb"),
        (r"layers\.(\d)\.feed_forward", r"ffn_layers.\1"),
        (r"(attn_layers.*\.conv_\w)\.weight", r"\1.weight"),
        (r"\.layers\.(\d)\.layer_norm\.weight", r".norm_layers_1.\1.gamma"),
        (r"\.layers\.(\d)\.layer_norm\.bias", r".norm_layers_1.\1.beta"),
        (r"\.layers\.(\d)\.final_layer_norm\.weight", r".norm_layers_2.\1.gamma"),
        (r"\.layers\.(\d)\.final_layer_norm\.bias", r".norm_layers_2.\1.beta"),
    ]
    cut = lambda weights: {n: w[..., None] if n.endswith("_proj.weight") else w for n, w in weights.items()}  # noqa: E731
    ids, seen = tokens(64), torch.ones(2, 12)
    seen[1, 8:] = 0
    return Case(
        reference,
        carried(port, reference, names, cut),
        (),
        {"input_ids": ids, "padding_mask": seen[..., None], "attention_mask": seen.long()},
        (ids, torch.tensor([12, 8])),
        arranged=lambda out: out[1].transpose(1, 2),
        main=lambda out: out.prior_means,
    )


def mimi(load):
    from transformers import MimiConfig, MimiModel

    sizes = {"num_hidden_layers": 2, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4}
    books = {"num_quantizers": 4, "codebook_size": 16, "codebook_dim": 8, "vector_quantization_hidden_dimension": 8}
    config = MimiConfig(
        sampling_rate=1600,
        frame_rate=100.0,
        hidden_size=32,
        num_filters=4,
        upsampling_ratios=[4, 2],
        upsample_groups=32,
        head_dim=8,
        sliding_window=10,
        use_cache=False,
        **sizes,
        **books,
    )
    reference = shaken(MimiModel(config))
    generator = torch.Generator().manual_seed(2)
    for name, buffer in reference.named_buffers():
        if name.endswith("embed_sum"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator))
        if name.endswith("cluster_usage"):
            buffer.copy_(1 + torch.rand(buffer.shape, generator=generator))
    package = load("moshi.models.loaders")
    seanet = package._seanet_kwargs | {"dimension": 32, "n_filters": 4, "ratios": [4, 2]}
    layers = package._transformer_kwargs | {"d_model": 32, "num_heads": 4, "num_layers": 2, "dim_feedforward": 64}
    layers |= {"context": 10, "input_dimension": 32, "output_dimensions": [32]}
    quantizer = {"dimension": 8, "n_q": 4, "bins": 16, "input_dimension": 32, "output_dimension": 32}
    rates = {"sample_rate": 1600, "channels": 1, "frame_rate": 100}
    settings = {**rates, "seanet": seanet, "transformer": layers, "quantizer": quantizer}
    port = package.get_mimi(None, settings, num_codebooks=4)
    names = [
        (
            r"^(en|de)coder\.\w+_(seanet|transformer)",
            lambda m: f"{m[1]}coder{m[2].replace('seanet', '').replace('t', '_t', 1)}",
        ),
        (r"^\w+\.(down|up)sample", r"\1sample"),
        (r"^(en|de)coder\.layers\.(\d+)\.conv\.", r"\1coder.model.\2.conv.conv."),
        (r"^(en|de)coder\.layers\.(\d+)\.block\.(\d)\.conv\.", r"\1coder.model.\2.block.\3.conv.conv."),
        (r"^decoder\.model\.(2|5)\.conv\.conv\.", r"decoder.model.\1.convtr.convtr."),
        (r"^(en|de)coder_transformer", r"\1coder_transformer.transformer"),
        (r"self_attn\.qkv_proj\.weight", "self_attn.in_projs.0.weight"),
        (r"self_attn\.o_proj", "self_attn.out_projs.0"),
        (r"mlp\.fc", "linear"),
        (r"input_layernorm", "norm1"),
        (r"post_attention_layernorm", "norm2"),
        (r"self_attn_layer_scale", "layer_scale_1"),
        (r"mlp_layer_scale", "layer_scale_2"),
        (r"semantic_residual_vector_quantizer", "rvq_first"),
        (r"acoustic_residual_vector_quantizer", "rvq_rest"),
        (r"(rvq_\w+)\.layers\.(\d)\.codebook\.embed_sum", r"\1.vq.layers.\2._codebook.embedding_sum"),
        (r"(rvq_\w+)\.layers\.(\d)\.codebook\.cluster_usage", r"\1.vq.layers.\2._codebook.cluster_usage"),
        (r"(rvq_\w+)\.layers\.(\d)\.codebook\.initialized", r"\1.vq.layers.\2._codebook._initialized"),
        (r"^downsample\.conv\.", "downsample.conv.conv.conv."),
        (r"^upsample\.conv\.", "upsample.convtr.convtr.convtr."),
    ]

    def cut(weights):  # rotary pairs are neighbours in the port, halves in the reference
        for name in [name for name in weights if re.search(r"self_attn\.[qk]_proj", name)]:
            weights[name] = weights[name].reshape(4, 2, 4, 32).transpose(1, 2).reshape(32, 32)
        return fused(weights, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.qkv_proj")

    port = carried(port, reference, names, cut)
    sound = torch.randn(2, 1, 320, generator=torch.Generator().manual_seed(1))
    return Case(
        reference,
        port,
        (),
        {"input_values": sound},
        (sound,),
        arranged=lambda out: out.x,
        main=lambda out: out.audio_values,
    )


def falcon(load):
    from transformers import FalconConfig, FalconModel

    config = FalconConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        multi_query=True,
        parallel_attn=True,
        new_decoder_architecture=False,
        bias=False,
        alibi=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    reference = shaken(FalconModel(config))
    port = load("onmt.decoders.transformer").TransformerLMDecoder(
        num_layers=2,
        d_model=32,
        heads=4,
        d_ff=128,
        copy_attn=False,
        self_attn_type="scaled-dot",
        dropout=0.0,
        attention_dropout=0.0,
        embeddings=load("onmt.modules").Embeddings(32, 64, 0),
        max_relative_positions=-1,
        relative_positions_buckets=0,
        aan_useffn=False,
        pos_ffn_activation_fn="gelu",
        num_kv=1,
        add_ffnbias=False,
        parallel_residual=True,
        shared_layer_norm=True,
        norm_eps=1e-5,
        rotary_interleave=False,
    )
    names = [
        (r"^word_embeddings", "embeddings.make_embedding.emb_luts.0"),
        (r"^ln_f", "layer_norm"),
        (r"^h\.", "transformer_layers."),
        (r"input_layernorm", "layer_norm_1"),
        (r"self_attention\.dense", "self_attn.final_linear"),
        (r"self_attention", "self_attn"),
        (r"mlp\.dense_h_to_4h", "feed_forward.w_1"),
        (r"mlp\.dense_4h_to_h", "feed_forward.w_2"),
    ]

    def cut(weights):
        for name in [name for name in weights if "query_key_value" in name]:
            for kind, part in zip(("query", "keys", "values"), weights.pop(name).split([32, 8, 8]), strict=True):
                weights[name.replace("query_key_value", f"linear_{kind}")] = part
        return weights

    ids = tokens(64)
    port = carried(port, reference, names, cut)
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids[..., None],))


#: Their registries take a class once.
_MM = ("mmcv", "mmengine")

PORTS = (
    to_edit("bert4torch-roformer", "bert4torch", roformer),
    to_edit("coqui-vits-text", "TTS", vits_text, "TTS.tts"),
    to_edit("kornia-siglip", "kornia", siglip2, "kornia.models"),
    to_edit("mmaction-timesformer", "mmaction", timesformer, "mmaction", *_MM),
    to_edit("mmpretrain-poolformer", "mmpretrain", poolformer, "mmpretrain", *_MM),
    to_edit("moshi-mimi", "moshi", mimi, "moshi.models", "moshi.modules", "moshi.quantization"),
    to_edit("olmo", "olmo", olmo),
    to_edit("onmt-falcon", "onmt", falcon, "onmt.decoders", "onmt.modules"),
    to_edit("rwkv", "rwkv", rwkv),
    to_edit("s3prl-wav2vec2", "s3prl", wav2vec2),
    to_edit("texar-t5", "texar", texar_t5),
    to_edit("timesfm", "timesfm", timesfm),
)
