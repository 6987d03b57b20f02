"""Sound: encoders, vocoders and codecs."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import torch
from cases import Case, shaken, tokens
from conversion import carried, experienced, fused
from stubs import bare


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
    def generator(kernels, dilations):
        return load("espnet2.gan_tts.hifigan.hifigan").HiFiGANGenerator(
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
    return beside_hifigan(generator, names)


def beside_hifigan(generator, names):
    """Return the generator that is made of the kernels and dilations of its blocks, with the reference's weights."""
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
    port = carried(generator(kernels, dilations), reference, names)
    mel = torch.randn(2, 10, 8, generator=torch.Generator().manual_seed(1))
    one = lambda out: out.squeeze(1)  # noqa: E731
    return Case(reference, port, (), {"spectrogram": mel}, (mel.transpose(1, 2),), arranged=one)


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


def speechbrain_hifigan(load):
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


def clap_audio(load):
    from transformers import ClapAudioConfig, ClapAudioModel

    config = ClapAudioConfig(
        window_size=4,
        num_mel_bins=16,
        spec_size=32,
        depths=[2, 2],
        num_attention_heads=[2, 4],
        patch_embeds_hidden_size=16,
        hidden_size=32,
        enable_fusion=True,
        fusion_type="aff_2d",
    )
    reference = experienced(shaken(ClapAudioModel(config)))
    sys.modules["laion_clap.hook"] = SimpleNamespace(CLAP_Module=None)  # it asks the hub for tokenizers
    sound = SimpleNamespace(mel_bins=16, window_size=64, hop_size=16, sample_rate=16000, fmin=50, fmax=8000)
    port = load("laion_clap.clap_module.htsat").HTSAT_Swin_Transformer(
        spec_size=32,
        patch_stride=(4, 4),
        num_classes=5,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        config=sound,
        enable_fusion=True,
        fusion_type="aff_2d",
    )
    names = [
        (r"^audio_encoder\.", ""),
        (r"^batch_norm", "bn0"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"attention\.self\.", "attn."),
        (r"attention\.output\.dense", "attn.proj"),
        (r"intermediate\.dense", "mlp.fc1"),
        (r"output\.dense", "mlp.fc2"),
    ]
    kinds = [f"attention.self.{kind}" for kind in ("query", "key", "value")]
    cut = lambda weights: fused(weights, kinds, "attention.self.qkv")  # noqa: E731
    mel, longer = torch.randn(2, 4, 60, 16, generator=torch.Generator().manual_seed(1)), torch.tensor([[True], [False]])
    return Case(
        reference,
        carried(port, reference, names, cut, kept=("tscam_conv", "head")),
        (),
        {"input_features": mel, "is_longer": longer},
        ({"mel_fusion": mel, "longer": longer},),
        arranged=lambda out: out["embedding"],
        main=lambda out: out.pooler_output,
    )


def encodec(load):
    from transformers import EncodecConfig, EncodecModel

    config = EncodecConfig(
        sampling_rate=1600,
        num_filters=4,
        upsampling_ratios=[4, 2],
        hidden_size=16,
        codebook_size=16,
        codebook_dim=16,
        target_bandwidths=[2.4],
        num_lstm_layers=1,
    )
    reference = shaken(EncodecModel(config))
    generator = torch.Generator().manual_seed(2)
    for name, buffer in reference.named_buffers():
        if name.endswith("embed"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator))
    sys.modules["audiocraft.models.multibanddiffusion"] = SimpleNamespace(MultiBandDiffusion=None)  # it takes a trainer
    sizes = {"dimension": 16, "n_filters": 4, "n_residual_layers": 1, "ratios": [4, 2], "norm": "weight_norm"}
    sizes |= {"causal": True, "lstm": 1, "true_skip": False}
    sys.modules["xformers"] = SimpleNamespace(ops=None)  # its attention takes it, and this model has none
    seanet, books = load("audiocraft.modules.seanet"), load("audiocraft.quantization")
    del sys.modules["xformers"]  # another package looks whether it is there
    port = load("audiocraft.models.encodec").EncodecModel(
        seanet.SEANetEncoder(**sizes),
        seanet.SEANetDecoder(**sizes),
        books.ResidualVectorQuantizer(dimension=16, n_q=3, bins=16, kmeans_init=False),
        frame_rate=200,
        sample_rate=1600,
        channels=1,
        causal=True,
    )
    names = [
        (r"^(en|de)coder\.layers", r"\1coder.model"),
        (r"^decoder\.model\.(3|6)\.conv\.", r"decoder.model.\1.convtr.convtr."),
        (r"\.conv\.", ".conv.conv."),
        (r"parametrizations\.weight\.original0", "weight_g"),
        (r"parametrizations\.weight\.original1", "weight_v"),
        (r"^quantizer\.layers\.(\d)\.codebook", r"quantizer.vq.layers.\1._codebook"),
    ]
    sound = torch.randn(2, 1, 66, generator=torch.Generator().manual_seed(1))
    port = carried(port, reference, names)
    return Case(
        reference,
        port,
        (),
        {"input_values": sound},
        (sound,),
        arranged=lambda out: out.x,
        main=lambda out: out.audio_values,
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
