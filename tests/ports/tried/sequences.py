"""What reads texts, sound or series."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace

import torch
from cases import Case, shaken, tokens
from conversion import carried, fused
from stubs import bare, stubbed


def baby_bert(load):
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=12,
        layer_norm_eps=1e-5,
    )
    reference = shaken(BertModel(config, add_pooling_layer=False))
    package = load("babybert.model")
    port = package.BabyBERT(package.BabyBERTConfig(64, 12, hidden_size=32, n_blocks=3, n_heads=4))
    port.dropout = torch.nn.LayerNorm(32)  # the port has none after its embeddings
    names = [
        (r"^embeddings\.word_embeddings", "token_embeddings"),
        (r"^embeddings\.token_type_embeddings", "segment_embeddings"),
        (r"^embeddings\.position_embeddings", "positional_embeddings"),
        (r"^embeddings\.LayerNorm", "dropout"),
        (r"^encoder\.layer\.", "transformer_blocks."),
        (r"attention\.self\.(\d)\.(query|key|value)", r"mhsa.attention_heads.\1.\2_embedding"),
        (r"attention\.output\.dense", "mhsa.output_projection"),
        (r"attention\.output\.LayerNorm", "layer_norm_1"),
        (r"intermediate\.dense", "mlp.0"),
        (r"output\.dense", "mlp.2"),
        (r"output\.LayerNorm", "layer_norm_2"),
    ]

    def cut(weights):  # each head of the port has its own
        for name in [name for name in weights if ".self." in name]:
            parts = weights.pop(name).chunk(4)
            weights |= {name.replace(".self.", f".self.{head}."): each for head, each in enumerate(parts)}
        return weights

    ids, seen, kinds = tokens(64), torch.ones(2, 12, dtype=torch.long), torch.zeros(2, 12, dtype=torch.long)
    seen[1, 9:], kinds[:, 6:] = 0, 1
    inputs = {"input_ids": ids, "attention_mask": seen, "token_type_ids": kinds}
    return Case(reference, carried(port, reference, names, cut), (), inputs, (ids, seen, kinds))


def neucodec(load):
    from transformers import NeuCodecConfig, Wav2Vec2BertConfig
    from transformers.models.neucodec.modeling_neucodec import NeuCodecDecoder

    config = NeuCodecConfig(
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        downsampling_ratios=[2, 2],
        semantic_model_config=Wav2Vec2BertConfig(hidden_size=32, num_hidden_layers=1).to_dict(),
        attn_implementation="sdpa",
    )
    reference = shaken(NeuCodecDecoder(config))
    bare("neucodec")
    package = load("neucodec.codec_decoder_vocos")
    backbone = package.VocosBackbone(hidden_dim=64, depth=2, heads=4, pos_meb_dim=16)
    port = torch.nn.Sequential(torch.nn.Linear(96, 64), backbone, package.ISTFTHead(64, 24, 6))
    names = [
        (r"^fc\.", "0."),
        (r"^head\.linear", "2.out"),
        (r"^(embed|prior_net|post_net)", r"1.\1"),
        (r"^norm", "1.final_layer_norm"),
        (r"^layers", "1.transformers"),
        (r"input_layernorm", "att_norm"),
        (r"post_attention_layernorm", "ffn_norm"),
        (r"self_attn\.qkv", "att.c_attn"),
        (r"self_attn\.o_proj", "att.c_proj"),
    ]

    def cut(weights):  # the port turns neighbours, and the reference the halves of a head
        for name in [name for name in weights if name.endswith(("q_proj.weight", "k_proj.weight"))]:
            weights[name] = weights[name].unflatten(0, (4, 2, 8)).transpose(1, 2).flatten(0, 2)
        return fused(weights, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.qkv")

    hidden = torch.randn(2, 10, 96, generator=torch.Generator().manual_seed(1))
    return Case(reference, carried(port, reference, names, cut), (), {"hidden_states": hidden}, (hidden,))


def gemma4_audio(load):
    from transformers import Gemma4AudioConfig, Gemma4AudioModel

    config = Gemma4AudioConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        subsampling_conv_channels=[8, 4],
        attention_chunk_size=4,
        attention_context_left=5,
        attention_logit_cap=2.0,
        output_proj_dims=24,
    )
    reference = shaken(Gemma4AudioModel(config))
    settings = load("gemma4_pt_claude.config").AudioConfig(
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        chunk_size=4,
        context_left=5,
        attn_logit_cap=2.0,
        input_feat_size=8,
        sscp_channels=(8, 4),
        lm_model_dims=24,
    )
    port = load("gemma4_pt_claude.audio_encoder").AudioEncoder(settings)
    port.subsample.norm1.eps = port.subsample.norm2.eps = 1e-6  # the port has 1e-5
    names = [
        (r"^subsample_conv_projection\.layer0\.(conv|norm)", r"subsample.\g<1>1"),
        (r"^subsample_conv_projection\.layer1\.(conv|norm)", r"subsample.\g<1>2"),
        (r"^subsample_conv_projection\.input_proj_linear", "subsample.proj"),
        (r"^layers", "conformer"),
        (r"feed_forward1", "ffw_start"),
        (r"feed_forward2", "ffw_end"),
        (r"ffw_layer_1", "up"),
        (r"ffw_layer_2", "down"),
        (r"(pre|post)_layer_norm", r"\1_norm"),
        (r"self_attn\.post\.", "attn.o_proj."),
        (r"self_attn\.relative_k_proj", "attn.attn.rel_pos_emb.pos_proj"),
        (r"self_attn", "attn.attn"),
        (r"norm_(pre|post)_attn", r"attn.\1_norm"),
        (r"norm_out", "norm"),
        (r"lconv1d\.depthwise_conv1d", "lconv.dwconv"),
        (r"lconv1d", "lconv"),
    ]
    for layer in port.conformer:  # the reference looks back one step less
        layer.attn.attn.local_causal_mask.triu_(1)
    mel = torch.randn(2, 40, 8, generator=torch.Generator().manual_seed(1))
    heard = torch.zeros(2, 40, dtype=torch.bool)  # nothing is padded
    return Case(reference, carried(port, reference, names), (), {"input_features": mel}, (mel, heard))


class _Translator(torch.nn.Module):
    """What reads a text and writes another: that of fairseq is made by its tasks."""

    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, read, lengths, written):
        encoded = self.encoder(read, src_lengths=lengths)
        return self.decoder(written, encoder_out=encoded)[0], encoded["encoder_out"][0]


def fsmt(load):
    from transformers import FSMTConfig, FSMTForConditionalGeneration

    sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes |= {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "d_model": 32, "max_position_embeddings": 32}
    config = FSMTConfig(langs=["en", "de"], src_vocab_size=64, tgt_vocab_size=64, tie_word_embeddings=False, **sizes)
    reference = FSMTForConditionalGeneration(config)
    waves = {name: each.clone() for name, each in reference.state_dict().items() if "embed_positions" in name}
    shaken(reference).load_state_dict(waves, strict=False)
    half = {"layers": 2, "embed_dim": 32, "input_dim": 32, "output_dim": 32, "ffn_embed_dim": 48, "attention_heads": 4}
    half |= {"normalize_before": False, "learned_pos": False, "layerdrop": 0.0, "xformers_att_config": None}
    zero = ("dropout", "attention_dropout", "activation_dropout", "relu_dropout", "base_layers", "min_params_to_wrap")
    false = ("no_scale_embedding", "no_token_positional_embeddings", "layernorm_embedding", "export", "adaptive_input")
    false += ("checkpoint_activations", "offload_activations", "share_decoder_input_output_embed")
    false += ("cross_self_attention", "no_decoder_final_norm", "tie_adaptive_weights")
    settings = SimpleNamespace(
        encoder=SimpleNamespace(**half),
        decoder=SimpleNamespace(**half),
        quant_noise=SimpleNamespace(pq=0, pq_block_size=8),
        activation_fn="relu",
        max_source_positions=32,
        max_target_positions=32,
        adaptive_softmax_cutoff=None,
        **dict.fromkeys(zero, 0),
        **dict.fromkeys(false, False),
    )
    package = load("fairseq.models.transformer")
    known = ["word"] * 64
    with stubbed():  # it asks for OmegaConf as it makes its layers
        encoder = package.TransformerEncoderBase(settings, known, torch.nn.Embedding(64, 32, 1))
        decoder = package.TransformerDecoderBase(settings, known, torch.nn.Embedding(64, 32, 1))
    ids, made = tokens(64), tokens(64, length=7).flip(0)
    inputs = {"input_ids": ids, "decoder_input_ids": made, "use_cache": False}
    port = carried(_Translator(encoder, decoder), reference, [(r"^model\.", "")])
    return Case(reference, port, (), inputs, (ids, torch.tensor([12, 12]), made))


class _Ended(torch.nn.Module):
    """A decomposition with a norm after it, which the reference has beyond the paper."""

    def __init__(self, decomposition, norm):
        super().__init__()
        self.decomposition, self.norm = decomposition, norm

    def forward(self, hidden):
        season, trend = self.decomposition(hidden)
        return self.norm(season), trend


class _Seasons(torch.nn.Module):
    """The half of Autoformer that tells the future: the reference decomposes other features before it."""

    def __init__(self, embedding, decoder):
        super().__init__()
        self.embedding, self.decoder = embedding, decoder

    def forward(self, season, encoded, trend):
        return self.decoder(self.embedding(season, None), encoded, trend=trend)


def autoformer(load):
    from transformers import AutoformerConfig
    from transformers.models.autoformer.modeling_autoformer import AutoformerDecoder

    config = AutoformerConfig(
        prediction_length=6,
        context_length=14,
        label_length=6,
        lags_sequence=[1],
        num_time_features=2,
        d_model=32,
        decoder_layers=2,
        decoder_attention_heads=4,
        decoder_ffn_dim=48,
        moving_average=5,
        autocorrelation_factor=2,
    )
    size = config.feature_size
    reference = shaken(AutoformerDecoder(config))
    bare("torch_timeseries")
    parts, attention = load("torch_timeseries.nn.Autoformer_EncDec"), load("torch_timeseries.nn.AutoCorrelation")
    with redirect_stdout(StringIO()):  # it prints
        own = [attention.AutoCorrelationLayer(attention.AutoCorrelation(factor=2), 32, 4) for _ in range(4)]
    layers = [parts.DecoderLayer(*own[n : n + 2], 32, size, 48, 5, activation="gelu") for n in (0, 2)]
    for layer in layers:
        layer.decomp1 = _Ended(layer.decomp1, torch.nn.LayerNorm(32))
        layer.decomp2 = _Ended(layer.decomp2, torch.nn.LayerNorm(32))
        layer.decomp3 = _Ended(layer.decomp3, parts.my_Layernorm(32))
    embedding = load("torch_timeseries.nn.embedding").DataEmbedding(size, 32, time_embed=False)
    embedding.dropout = torch.nn.LayerNorm(32)
    port = _Seasons(embedding, parts.Decoder(layers, projection=torch.nn.Linear(32, size)))
    names = [
        (r"^embed_positions\.weight", "embedding.position_embedding.pe"),
        (r"^value_embedding\.value_projection", "embedding.value_embedding.tokenConv"),
        (r"^layernorm_embedding", "embedding.dropout"),
        (r"^seasonality_projection", "decoder.projection"),
        (r"^layers", "decoder.layers"),
        (r"trend_projection", "projection"),
        (r"self_attn_layer_norm", "decomp1.norm"),
        (r"encoder_attn_layer_norm", "decomp2.norm"),
        (r"final_layer_norm", "decomp3.norm"),
        (r"self_attn", "self_attention"),
        (r"encoder_attn", "cross_attention"),
        (r"([qkv])_proj\.", lambda m: {"q": "query", "k": "key", "v": "value"}[m[1]] + "_projection."),
        (r"out_proj\.", "out_projection."),
        (r"fc(\d)\.", r"conv\1."),
    ]

    def cut(weights):  # the port has convolutions without biases
        weights = {name: each for name, each in weights.items() if not name.endswith(("fc1.bias", "fc2.bias"))}
        for name in [name for name in weights if "fc" in name]:
            weights[name] = weights[name][..., None]
        value = "value_embedding.value_projection.weight"
        weights[value] = torch.nn.functional.pad(weights[value][..., None], (1, 1))
        places = weights["embed_positions.weight"][8:]
        weights["embed_positions.weight"] = torch.nn.functional.pad(places, (0, 0, 0, 5000 - len(places)))[None]
        return weights

    with torch.no_grad():
        for layer in reference.layers:
            layer.fc1.bias.zero_(), layer.fc2.bias.zero_()
    generator = torch.Generator().manual_seed(1)
    season, trend = (torch.randn(1, 12, size, generator=generator) for _ in range(2))
    encoded = torch.randn(1, 14, 32, generator=generator)
    inputs = {"inputs_embeds": season, "encoder_hidden_states": encoded, "trend": trend, "use_cache": False}
    return Case(reference, carried(port, reference, names, cut), (), inputs, (season, encoded, trend))


def qwen25_vl(load):
    from transformers import Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel

    sizes = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6}
    turns = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
    config = Qwen2_5_VLTextConfig(**sizes, rope_parameters=turns, pad_token_id=1)
    reference = shaken(Qwen2_5_VLTextModel(config))
    bare("diffsynth_engine", *(f"diffsynth_engine.{name}" for name in ("models", "models.basic", "models.qwen_image")))
    bare("diffsynth_engine.utils", "diffsynth_engine.utils.memory")
    package = load("diffsynth_engine.models.qwen_image.qwen2_5_vl")
    settings = package.Qwen2_5_VLConfig(**sizes, mrope_section=[2, 3, 3], pad_token_id=1, attn_impl="sdpa")
    port = package.Qwen2_5_VLModel(settings, device="cpu", dtype=torch.float32)
    ids = tokens(64)
    places = torch.arange(12).expand(3, 2, 12).clone()
    places[:, :, 4:8] = torch.tensor([[4, 4, 4, 4], [4, 4, 5, 5], [4, 5, 4, 5]])[:, None]  # a picture of four patches
    places[:, :, 8:] -= 2
    port = carried(port, reference, [(r"^", "")])
    inputs = {"input_ids": ids, "position_ids": places}
    return Case(reference, port, (), inputs | {"use_cache": False}, (), inputs)


def hooked_mamba(load):
    from transformers import MambaConfig, MambaForCausalLM

    sys.modules["transformers"].TRANSFORMERS_CACHE = ""  # as it was before version 5
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "conv_kernel": 4, "time_step_rank": 4}
    reference = shaken(MambaForCausalLM(MambaConfig(**sizes, vocab_size=64, tie_word_embeddings=False)))
    package = load("mamba_lens.HookedMamba")
    settings = package.MambaCfg(d_model=32, n_layers=2, vocab_size=64, d_state=8, dt_rank=4, device="cpu")
    port = package.HookedMamba(settings, tokenizer=None)
    cut = lambda weights: package.convert_original_state_dict_to_hooked_state_dict(settings, weights)  # noqa: E731
    ids = tokens(64)
    port = carried(port, reference, [(r"^embeddings", "embedding")], cut)
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids,))
