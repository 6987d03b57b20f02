"""Texts: encoders, and encoders with a decoder."""

from __future__ import annotations

import collections
import collections.abc
import sys
from types import SimpleNamespace

import numpy as np
import torch
from cases import Case, shaken, tokens
from conversion import carried, fused
from stubs import bare

from tried.past import with_pkg_resources


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
    with_pkg_resources()
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
    with_pkg_resources()
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


def roberta(load):
    from transformers import RobertaConfig, RobertaForMaskedLM

    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    sizes |= {"vocab_size": 24, "max_position_embeddings": 32, "pad_token_id": 0, "hidden_act": "gelu"}
    config = RobertaConfig(**sizes, type_vocab_size=1, layer_norm_eps=1e-12)
    reference = shaken(RobertaForMaskedLM(config))
    settings = SimpleNamespace(
        **sizes,
        layer_norm_eps=1e-12,
        initializer_range=0.02,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    port = load("ablang.model").AbLang(settings)
    names = [
        (r"^lm_head", "AbHead"),
        (r"^roberta\.embeddings", "AbRep.AbEmbeddings"),
        (r"word_embeddings", "AAEmbeddings"),
        (r"position_embeddings", "PositionEmbeddings"),
        (r"^roberta\.encoder\.layer", "AbRep.EncoderBlocks.Layers"),
        (r"attention\.self\.(query|key|value)", lambda m: f"MultiHeadAttention.Attention.{m[1][0]}_proj"),
        (r"attention\.output\.dense", "MultiHeadAttention.Attention.out_proj"),
        (r"attention\.output\.LayerNorm", "MHALayerNorm"),
        (r"intermediate\.dense", "IntermediateLayer.expand_dense"),
        (r"output\.dense", "IntermediateLayer.dense_dense"),
        (r"output\.LayerNorm", "IntermediateLayer.LayerNorm"),
    ]

    def cut(weights):  # the port has one kind of tokens
        kind = weights.pop("roberta.embeddings.token_type_embeddings.weight")
        at = "roberta.embeddings.word_embeddings.weight"
        return {**weights, at: weights[at] + kind}

    ids, seen = tokens(24), torch.ones(2, 12, dtype=torch.long)
    ids[1, 9:], seen[1, 9:] = 0, 0
    port = carried(port, reference, names, cut)
    return Case(reference, port, (), {"input_ids": ids, "attention_mask": seen}, (ids,))


def bert(load):
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    reference = shaken(BertModel(BertConfig(vocab_size=64, max_position_embeddings=32, **sizes)))
    package = load("bertviz.transformers_neuron_view.modeling_bert")
    settings = package.BertConfig(vocab_size_or_config_json_file=64, max_position_embeddings=32, **sizes)
    settings.layer_norm_eps, settings.output_attentions = 1e-12, False
    ids, seen = tokens(64), torch.ones(2, 12, dtype=torch.long)
    ids[1, 9:], seen[1, 9:] = 0, 0
    inputs = {"input_ids": ids, "attention_mask": seen, "token_type_ids": torch.arange(12).ge(5).long().expand(2, 12)}
    port = carried(package.BertModel(settings), reference, [(r"^", "")])
    return Case(reference, port, (), inputs, (), inputs)


def marian(load):
    from transformers import MarianConfig, MarianMTModel

    sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes |= {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "d_model": 32, "vocab_size": 64}
    special = {"pad_token_id": 1, "bos_token_id": 2, "decoder_start_token_id": 2, "eos_token_id": 0}
    config = MarianConfig(
        **sizes, **special, max_position_embeddings=32, scale_embedding=True, activation_function="relu"
    )
    reference = shaken(MarianMTModel(config))
    sizes = {"hidden_size": 32, "ff_size": 64, "num_layers": 2, "num_heads": 4, "layer_norm": "post"}
    words = SimpleNamespace(
        **{f"{name}_index": place for place, name in enumerate(("eos", "pad", "bos", "sep", "unk"))},
        specials=(),
        lang_tags=(),
    )
    package = load("joeynmt.model")
    encoder = load("joeynmt.encoders").TransformerEncoder(**sizes)
    decoder = load("joeynmt.decoders").TransformerDecoder(**sizes, vocab_size=64)
    tables = [load("joeynmt.embeddings").Embeddings(32, scale=True, vocab_size=64) for _ in range(2)]
    port = package.Model(encoder, decoder, *tables, words, words)
    port.loss_function = ("crossentropy", 0.0)
    for norm in (module for module in port.modules() if isinstance(module, torch.nn.LayerNorm)):
        norm.eps = 1e-5  # the reference's; the package has 1e-6
    for part, other in ((encoder, reference.model.encoder), (decoder, reference.model.decoder)):
        part.pe.pe = other.embed_positions.weight.detach()[None].clone()  # sines of another order
    names = [
        (r"^model\.encoder\.embed_tokens", "src_embed.lut"),
        (r"^model\.decoder\.embed_tokens", "trg_embed.lut"),
        (r"^lm_head", "decoder.output_layer"),
        (r"^model\.", ""),
        (r"encoder\.layers\.(\d)\.self_attn_layer_norm", r"encoder.layers.\1.layer_norm"),
        (r"self_attn_layer_norm", "x_layer_norm"),
        (r"encoder_attn_layer_norm", "dec_layer_norm"),
        (r"final_layer_norm", "feed_forward.layer_norm"),
        (r"encoder\.layers\.(\d)\.self_attn", r"encoder.layers.\1.src_src_att"),
        (r"self_attn", "trg_trg_att"),
        (r"encoder_attn", "src_trg_att"),
        (r"out_proj", "output_layer"),
        (r"([qkv])_proj", r"\1_layer"),
        (r"fc1", "feed_forward.pwff_layer.0"),
        (r"fc2", "feed_forward.pwff_layer.3"),
    ]
    ids, seen, said = tokens(64), torch.ones(2, 12, dtype=torch.long), tokens(64).flip(1)[:, :8]
    ids[1, 9:], seen[1, 9:] = 1, 0
    inputs = {"src": ids, "trg_input": said, "src_mask": seen.bool()[:, None], "src_length": torch.tensor([12, 9])}
    inputs |= {"trg": said, "trg_mask": torch.ones(2, 1, 8, dtype=torch.bool), "return_type": "loss"}
    return Case(
        reference,
        carried(port, reference, names),
        (),
        {"input_ids": ids, "attention_mask": seen, "decoder_input_ids": said, "use_cache": False},
        (),
        inputs,
        arranged=lambda out: out[1],
        main=lambda out: out.logits.log_softmax(-1),
    )


def pegasus_encoder(load):
    from transformers import PegasusConfig
    from transformers.models.pegasus.modeling_pegasus import PegasusEncoder

    config = PegasusConfig(
        vocab_size=64,
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=64,
        activation_function="relu",
        max_position_embeddings=32,
        scale_embedding=False,
    )
    reference = shaken(PegasusEncoder(config))
    with torch.no_grad():  # the port's attention has none
        for name, parameter in reference.named_parameters():
            if name.endswith("_proj.bias"):
                parameter.zero_()
    settings = load("sockeye.transformer").TransformerConfig(
        model_size=32,
        attention_heads=4,
        feed_forward_num_hidden=64,
        act_type="relu",
        num_layers=2,
        dropout_attention=0.0,
        dropout_act=0.0,
        dropout_prepost=0.0,
        positional_embedding_type="fixed",
        preprocess_sequence="n",
        postprocess_sequence="dr",
        max_seq_len_source=32,
        max_seq_len_target=32,
    )
    port = load("sockeye.encoder").TransformerEncoder(settings)
    port.pos_embedding.scale_up_input = False
    for norm in (module for module in port.modules() if isinstance(module, torch.nn.LayerNorm)):
        norm.eps = 1e-5  # the reference's; the package has 1e-6
    names = [
        (r"^embed_positions", "pos_embedding"),
        (r"^layer_norm", "final_process.layer_norm"),
        (r"self_attn_layer_norm", "pre_self_attention.layer_norm"),
        (r"self_attn\.qkv_proj\.", "self_attention.ff_in."),
        (r"self_attn\.out_proj", "self_attention.ff_out"),
        (r"final_layer_norm", "pre_ff.layer_norm"),
        (r"fc(\d)", r"ff.ff\1"),
    ]
    cut = lambda weights: fused(weights, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.qkv_proj")  # noqa: E731
    embedded, seen = torch.randn(2, 12, 32, generator=torch.Generator().manual_seed(1)), torch.ones(2, 12)
    seen[1, 9:] = 0
    port = carried(port, reference, names, cut)
    inputs = {"inputs_embeds": embedded, "attention_mask": seen.long()}
    return Case(reference, port, (), inputs, (embedded, torch.tensor([[12, 0], [9, 0]])))


def fnet(load):
    from transformers import FNetConfig, FNetModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 64}
    sizes |= {"max_position_embeddings": 16, "type_vocab_size": 2, "pad_token_id": 0, "layer_norm_eps": 1e-12}
    reference = shaken(FNetModel(FNetConfig(**sizes, hidden_act="gelu")))
    port = load("fnet").FNet({**sizes, "embedding_size": 32, "dropout_rate": 0.0, "fourier": "fft"})
    names = [
        (r"embeddings\.LayerNorm", "embeddings.layer_norm"),
        (r"embeddings\.projection", "embeddings.hidden_mapping"),
        (r"fourier\.output\.LayerNorm", "mixing_layer_norm"),
        (r"intermediate\.dense", "feed_forward"),
        (r"output\.dense", "output_dense"),
        (r"output\.LayerNorm", "output_layer_norm"),
    ]
    ids, kinds = tokens(64), torch.arange(12).ge(5).long().expand(2, 12)
    inputs = {"input_ids": ids, "token_type_ids": kinds}
    return Case(reference, carried(port, reference, names), (), inputs, (ids, kinds))


def clip_text(load):
    from transformers import CLIPTextConfig, CLIPTextModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = CLIPTextConfig(**sizes, vocab_size=64, max_position_embeddings=16, eos_token_id=2, bos_token_id=1)
    reference = shaken(CLIPTextModel(config))
    layers = load("refiners.fluxion.layers")
    port = load("refiners.foundationals.clip.text_encoder").CLIPTextEncoder(
        embedding_dim=32,
        max_sequence_length=16,
        vocabulary_size=64,
        num_layers=2,
        num_attention_heads=4,
        feedforward_dim=64,
        use_quick_gelu=True,
        tokenizer=layers.Identity(),
    )
    names = [
        (r"^text_model\.", ""),
        (r"^embeddings\.token_embedding", "Sum.TokenEncoder"),
        (r"^embeddings\.position_embedding", "Sum.PositionalEncoder.Embedding"),
        (r"^encoder\.layers\.(\d)", lambda m: f"TransformerLayer_{int(m[1]) + 1}"),
        (r"layer_norm(\d)", r"Residual_\1.LayerNorm"),
        (r"self_attn\.out_proj", "Residual_1.SelfAttention.Linear"),
        (r"self_attn\.([qkv])_proj", lambda m: f"Residual_1.SelfAttention.Distribute.Linear_{'qkv'.index(m[1]) + 1}"),
        (r"mlp\.fc(\d)", r"Residual_2.FeedForward.Linear_\1"),
        (r"^final_layer_norm", "LayerNorm"),
    ]
    ids = tokens(64)
    return Case(reference, carried(port, reference, names), (), {"input_ids": ids}, (ids,))


def allennlp_t5(load):
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 64}
    sizes |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 128}
    config = T5Config(**sizes, feed_forward_proj="gated-gelu", decoder_start_token_id=0)
    reference = shaken(T5ForConditionalGeneration(config))
    sys.modules["allennlp.common.push_to_hf"] = SimpleNamespace(push_to_hf=None)  # of an older hub
    package, attention = load("allennlp.modules.transformer.t5"), load("allennlp.modules.transformer.attention_module")
    later = lambda made: SimpleNamespace(construct=made)  # noqa: E731 - its own imports every trainer
    sizes = {"hidden_size": 32, "key_value_proj_dim": 8, "num_heads": 4}
    blocks = {
        "num_blocks": 2,
        "block_self_attention": later(
            lambda **more: attention.T5Attention(**sizes, **more, relative_attention_num_buckets=8)
        ),
        "block_ff": later(
            lambda: package.T5LayerFF(package.T5DenseGatedGeluDense(32, 64), package.T5LayerNorm(32)),
        ),
    }
    across = later(lambda **more: attention.T5Attention(**sizes, **more))
    port = package.T5(
        encoder=later(
            lambda token_embeddings, **_: package.T5EncoderStack.basic_encoder(
                token_embeddings, **blocks, final_layer_norm=package.T5LayerNorm(32)
            )
        ),
        decoder=later(
            lambda token_embeddings, **_: package.T5DecoderStack.basic_decoder(
                token_embeddings, **blocks, block_cross_attention=across, final_layer_norm=package.T5LayerNorm(32)
            )
        ),
        vocab_size=64,
        model_dim=32,
        beam_search=later(lambda **_: SimpleNamespace(search=lambda *_: (None, None))),
    )
    names = [
        (r"shared|embed_tokens", "token_embeddings"),
        (r"\.block\.", ".blocks."),
        (r"SelfAttention", "self_attention"),
        (r"EncDecAttention", "enc_dec_attention"),
        (r"DenseReluDense", "ff_proj"),
        (r"attention\.q\.", "attention.query."),
        (r"attention\.k\.", "attention.key."),
        (r"attention\.v\.", "attention.value."),
        (r"attention\.o\.", "attention.output."),
    ]
    ids, seen, said = tokens(64), torch.ones(2, 12, dtype=torch.long), tokens(64).flip(1)[:, :8].contiguous()
    ids[1, 9:], seen[1, 9:] = 0, 0
    inputs = {"input_ids": ids, "attention_mask": seen, "labels": said}
    return Case(
        reference,
        carried(port, reference, names),
        (),
        {**inputs, "use_cache": False},
        (),
        {**inputs, "attention_mask": seen.bool()},
        arranged=lambda out: out.logits,
        main=lambda out: out.logits,
    )


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
