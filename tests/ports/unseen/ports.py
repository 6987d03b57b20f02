"""Implementations of other people, each with the reference's weights; see ``utils/first_try.py``.

None of them was used to build the tool. ``Port.reloaded`` names the packages whose forward code is edited at random.
"""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import torch
from cases import Case, shaken, to_edit, tokens
from conversion import carried, fused, picture
from tried.sound import beside_hifigan


def granite_speech(load):
    from transformers import GraniteSpeechEncoderConfig
    from transformers.models.granite_speech.modeling_granite_speech import GraniteSpeechCTCEncoder

    config = GraniteSpeechEncoderConfig(
        input_dim=32,
        hidden_dim=32,
        num_layers=2,
        num_heads=4,
        dim_head=8,
        feedforward_mult=2,
        conv_kernel_size=7,
        conv_expansion_factor=2,
        context_size=12,
        max_pos_emb=512,
        output_dim=16,
    )
    reference = shaken(GraniteSpeechCTCEncoder(config))
    generator = torch.Generator().manual_seed(2)
    for name, buffer in reference.named_buffers():
        if "running" in name:
            buffer.add_(torch.rand(buffer.shape, generator=generator))
    with torch.no_grad():  # the port is the layers alone
        reference.input_linear.weight.copy_(torch.eye(32))
        for parameter in (reference.input_linear.bias, *reference.out_mid.parameters()):
            parameter.zero_()
    port = load("conformer.conformer").Conformer(
        32, depth=2, dim_head=8, heads=4, ff_mult=2, conv_expansion_factor=2, conv_kernel_size=7
    )
    names = [
        (r"(ff\d)\.pre_norm", r"\1.fn.norm"),
        (r"(ff\d)\.up_proj", r"\1.fn.fn.net.0"),
        (r"(ff\d)\.down_proj", r"\1.fn.fn.net.3"),
        (r"attn\.pre_norm", "attn.norm"),
        (r"attn\.(to_|rel)", r"attn.fn.\1"),
        (r"conv\.norm", "conv.net.0"),
        (r"conv\.up_conv", "conv.net.2"),
        (r"conv\.depth_conv", "conv.net.4"),
        (r"conv\.batch_norm", "conv.net.5"),
        (r"conv\.down_conv", "conv.net.7"),
    ]
    cut = lambda weights: {**weights, **{f"layers.{n}.conv.depth_conv.conv.bias": torch.zeros(64) for n in range(2)}}  # noqa: E731
    sound = torch.randn(2, 12, 32, generator=generator)
    return Case(reference, carried(port, reference, names, cut), (), {"hidden_states": sound}, (sound,))


def univnet(load):
    from transformers import UnivNetConfig, UnivNetModel

    config = UnivNetConfig(
        model_in_channels=64,
        model_hidden_channels=8,
        num_mel_bins=10,
        resblock_kernel_sizes=[3, 3],
        resblock_stride_sizes=[4, 2],
        resblock_dilation_sizes=[[1, 3], [1, 3]],
        kernel_predictor_hidden_channels=64,
    )
    reference = shaken(UnivNetModel(config))
    port = load("tortoise.models.vocoder").UnivNetGenerator(
        noise_dim=64, channel_size=8, dilations=[1, 3], strides=[4, 2], n_mel_channels=10
    )
    port.remove_weight_norm()
    names = [
        (r"^resblocks\.(\d)\.resblocks\.(\d)\.conv", r"res_stack.\1.conv_blocks.\2.1"),
        (r"^resblocks\.(\d)", r"res_stack.\1"),
        (r"convt_pre", "convt_pre.1"),
        (r"input_conv", "input_conv.0"),
        (r"kernel_predictor\.resblocks\.(\d)\.conv1", r"kernel_predictor.residual_convs.\1.1"),
        (r"kernel_predictor\.resblocks\.(\d)\.conv2", r"kernel_predictor.residual_convs.\1.3"),
        (r"^conv_post", "conv_post.1"),
    ]
    carried(port, reference, names)  # the port's eval() returns nothing
    generator = torch.Generator().manual_seed(1)
    mel, noise = torch.randn(2, 5, 10, generator=generator), torch.randn(2, 5, 64, generator=generator)
    inputs = {"input_features": mel, "noise_sequence": noise}
    one = lambda out: out.squeeze(1)  # noqa: E731
    return Case(reference, port, (), inputs, (mel.transpose(1, 2), noise.transpose(1, 2)), arranged=one)


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


def chameleon_encoder(load):
    from transformers import ChameleonVQVAEConfig
    from transformers.models.chameleon.modeling_chameleon import ChameleonVQVAEEncoder

    config = ChameleonVQVAEConfig(
        base_channels=32,
        channel_multiplier=[1, 2],
        num_res_blocks=1,
        resolution=16,
        attn_resolutions=[8],
        latent_channels=8,
        double_latent=False,
        dropout=0.0,
    )
    reference = shaken(ChameleonVQVAEEncoder(config))
    port = load("taming.modules.diffusionmodules.model").Encoder(
        ch=32,
        out_ch=3,
        ch_mult=(1, 2),
        num_res_blocks=1,
        attn_resolutions=[8],
        in_channels=3,
        resolution=16,
        z_channels=8,
        double_z=False,
    )
    pixels = picture(16)
    return Case(reference, carried(port, reference, [(r"^", "")]), (), {"pixel_values": pixels}, (pixels,))


def vit(load):
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=5, layer_norm_eps=1e-5)
    reference = shaken(ViTForImageClassification(config))
    with torch.no_grad():  # the port's layers share their norms
        first = {}
        for name, parameter in reference.named_parameters():
            if "layernorm_" in name:
                parameter.copy_(first.setdefault(name[name.index("layernorm_") :], parameter))
    package = load("doctr.models.classification.vit.pytorch")
    port = package.VisionTransformer(32, 3, 4, 2, patch_size=(8, 8), input_shape=(3, 32, 32), num_classes=5)
    names = [
        (r"^vit\.layernorm", "1.layer_norm_output"),
        (r"^vit\.", ""),
        (r"^embeddings\.cls_token", "0.cls_token"),
        (r"^embeddings\.position_embeddings", "0.positions"),
        (r"^embeddings\.patch_embeddings\.projection", "0.projection"),
        (r"^(?:encoder\.layer|layers)\.\d\.layernorm_before", "1.layer_norm_input"),
        (r"^(?:encoder\.layer|layers)\.\d\.layernorm_after", "1.layer_norm_attention"),
        (
            r"^(?:encoder\.layer|layers)\.(\d)\.attention\.(?:attention\.)?(q|k|v)(?:uery|ey|alue|_proj)",
            lambda m: f"1.attention.{m[1]}.linear_layers.{'qkv'.index(m[2])}",
        ),
        (
            r"^(?:encoder\.layer|layers)\.(\d)\.attention\.(?:output\.dense|o_proj)",
            r"1.attention.\1.output_linear",
        ),
        (r"^(?:encoder\.layer|layers)\.(\d)\.(?:intermediate\.dense|mlp\.fc1)", r"1.position_feed_forward.\1.0"),
        (r"^(?:encoder\.layer|layers)\.(\d)\.(?:output\.dense|mlp\.fc2)", r"1.position_feed_forward.\1.3"),
        (r"^classifier", "2.head"),
    ]
    pixels = picture(32)
    return Case(reference, carried(port, reference, names), (), {"pixel_values": pixels}, (pixels,))


def gpt2(load):
    from transformers import GPT2Config, GPT2Model

    sizes = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 32}
    reference = shaken(GPT2Model(GPT2Config(vocab_size=64, **sizes)))
    package = load("bertviz.transformers_neuron_view.modeling_gpt2")
    port = package.GPT2Model(package.GPT2Config(vocab_size_or_config_json_file=64, n_ctx=32, **sizes))
    ids = tokens(64)
    kinds = tokens(64).flip(1)
    inputs = {"input_ids": ids, "token_type_ids": kinds}
    port = carried(port, reference, [(r"^", "")])
    return Case(reference, port, (), {**inputs, "use_cache": False}, (), inputs)


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


def hifigan(load):
    def generator(kernels, dilations):
        port = load("speechbrain.lobes.models.HifiGAN").HifiganGenerator(
            8, 1, "1", dilations, kernels, [8, 4], 16, [4, 2]
        )
        strays = [name for name, module in sys.modules.items() if type(module).__name__ == "DeprecatedModuleRedirect"]
        for name in strays:
            del sys.modules[name]  # whoever looks at one imports what is not here
        port.remove_weight_norm()
        for module in port.modules():
            if hasattr(module, "padding_mode") and hasattr(module, "conv"):
                module.padding_mode = "constant"  # the reference's; the package has "reflect"
        return port

    return beside_hifigan(generator, [(r"^upsampler", "ups"), (r"\.(weight|bias)$", r".conv.\1")])


def data2vec(load):
    from transformers import Data2VecAudioConfig, Data2VecAudioModel

    config = Data2VecAudioConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=(16, 16, 16),
        conv_kernel=(10, 3, 2),
        conv_stride=(5, 2, 2),
        num_conv_pos_embeddings=2,
        conv_pos_kernel_size=5,
        num_conv_pos_embedding_groups=4,
        apply_spec_augment=False,
        mask_time_prob=0.0,
    )
    reference = shaken(Data2VecAudioModel(config))
    port = load("funasr.models.data2vec.data2vec_encoder").Data2VecEncoder(
        input_size=1,
        extractor_mode="layer_norm",
        conv_feature_layers="[(16, 10, 5), (16, 3, 2), (16, 2, 2)]",
        encoder_layers=2,
        encoder_embed_dim=32,
        encoder_ffn_embed_dim=64,
        encoder_attention_heads=4,
        conv_pos=10,
        conv_pos_groups=4,
        pos_conv_depth=2,
        required_seq_len_multiple=1,
    )
    port.remove_pretraining_modules()
    names = [
        (r"^masked_spec_embed", "mask_emb"),
        (r"conv_layers\.(\d)\.conv\.", r"conv_layers.\1.0."),
        (r"conv_layers\.(\d)\.layer_norm\.", r"conv_layers.\1.2.1."),
        (r"^feature_projection\.layer_norm", "layer_norm"),
        (r"^feature_projection\.projection", "post_extract_proj"),
        (r"pos_conv_embed\.layers\.(\d)\.conv", r"pos_conv.\1.0"),
        (r"\.attention\.", ".self_attn."),
        (r"(layers\.\d)\.layer_norm", r"\1.self_attn_layer_norm"),
        (r"feed_forward\.intermediate_dense", "fc1"),
        (r"feed_forward\.output_dense", "fc2"),
    ]
    sound = torch.randn(2, 800, generator=torch.Generator().manual_seed(1))
    port = carried(port, reference, names, kept=("mask_emb",))
    return Case(reference, port, (), {"input_values": sound}, (sound, torch.tensor([800, 800])))


def llama3(load):
    from transformers import LlamaConfig, LlamaForCausalLM

    scaled = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaled |= {"original_max_position_embeddings": 8192, "rope_theta": 500000.0}
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        rms_norm_eps=1e-5,
        max_position_embeddings=131072,
        rope_parameters=scaled,
    )
    reference = shaken(LlamaForCausalLM(config))
    package = load("llama_models.llama3.model")
    package.fs_init = SimpleNamespace(get_model_parallel_world_size=lambda: 1)
    for kind in ("ColumnParallelLinear", "RowParallelLinear"):  # on one device they are what torch has
        setattr(package, kind, lambda inner, outer, bias, **_: torch.nn.Linear(inner, outer, bias))
    package.VocabParallelEmbedding = lambda words, size, **_: torch.nn.Embedding(words, size)
    settings = package.ModelArgs(
        dim=32,
        n_layers=2,
        n_heads=4,
        n_kv_heads=2,
        vocab_size=64,
        multiple_of=32,
        use_scaled_rope=True,
        max_batch_size=2,
        max_seq_len=16,
    )
    names = [
        (r"^model\.embed_tokens", "tok_embeddings"),
        (r"^lm_head", "output"),
        (r"^model\.", ""),
        (r"self_attn\.([qkvo])_proj", r"attention.w\1"),
        (r"mlp\.gate_proj", "feed_forward.w1"),
        (r"mlp\.down_proj", "feed_forward.w2"),
        (r"mlp\.up_proj", "feed_forward.w3"),
        (r"input_layernorm", "attention_norm"),
        (r"post_attention_layernorm", "ffn_norm"),
    ]

    def cut(weights):  # rotary pairs are neighbours in the port, halves in the reference
        for name in [name for name in weights if re.search(r"self_attn\.[qk]_proj", name)]:
            weights[name] = weights[name].reshape(-1, 2, 4, 32).transpose(1, 2).reshape(weights[name].shape)
        return weights

    ids = tokens(64)
    port = carried(package.Transformer(settings), reference, names, cut)
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids, 0))


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


PORTS = (
    to_edit("ablang-roberta", "ablang", roberta),
    to_edit("bertviz-bert", "bertviz", bert),
    to_edit("bertviz-gpt2", "bertviz", gpt2),
    to_edit("conformer-granite-speech", "conformer", granite_speech),
    to_edit("doctr-vit", "doctr", vit, "doctr.models"),
    to_edit("funasr-data2vec", "funasr", data2vec, "funasr.models.data2vec", "funasr.models.transformer.utils"),
    to_edit("joeynmt-marian", "joeynmt", marian),
    to_edit("llama-models-llama3", "llama_models", llama3, "llama_models.llama3"),
    to_edit("sockeye-pegasus", "sockeye", pegasus_encoder),
    to_edit("speechbrain-hifigan", "speechbrain", hifigan, "speechbrain.lobes.models.HifiGAN", "speechbrain.nnet"),
    to_edit("taming-chameleon", "taming", chameleon_encoder),
    to_edit("tortoise-univnet", "tortoise", univnet),
)
