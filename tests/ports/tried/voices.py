"""What hears and speaks."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO

import torch
from cases import Case, shaken, tokens
from conversion import carried, experienced
from stubs import bare


def parakeet(load):
    from transformers import ParakeetEncoder, ParakeetEncoderConfig

    config = ParakeetEncoderConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        num_mel_bins=16,
        attention_bias=False,
        convolution_bias=False,
        scale_input=False,
    )
    reference = experienced(shaken(ParakeetEncoder(config)))
    package = load("nano_parakeet.model")
    port = package.FastConformerEncoder(d_model=32, n_layers=3, n_heads=4, d_ff=48, n_mels=16)
    names = [
        (r"^subsampling\.layers", "pre_encode.conv"),
        (r"^subsampling\.linear", "pre_encode.out"),
        (r"bias_([uv])$", r"pos_bias_\1"),
        (r"relative_k_proj", "linear_pos"),
        (r"([qkvo])_proj", lambda m: f"linear_{'out' if m[1] == 'o' else m[1]}"),
        (r"conv\.norm", "conv.batch_norm"),
    ]
    sound = torch.randn(2, 64, 16, generator=torch.Generator().manual_seed(1))
    inputs = (sound.transpose(1, 2), torch.tensor([64, 64]))
    return Case(reference, carried(port, reference, names), (), {"input_features": sound}, inputs)


def vits_flow(load):
    from transformers import VitsConfig
    from transformers.models.vits.modeling_vits import VitsResidualCouplingBlock

    config = VitsConfig(
        hidden_size=24,
        flow_size=16,
        speaker_embedding_size=6,
        prior_encoder_num_flows=3,
        prior_encoder_num_wavenet_layers=3,
        wavenet_kernel_size=5,
        wavenet_dilation_rate=2,
    )
    reference = shaken(VitsResidualCouplingBlock(config))
    bare("piper", "piper.train")
    package = load("piper.train.vits.models")
    port = package.ResidualCouplingBlock(16, 24, 5, 2, 3, n_flows=3, gin_channels=6)
    names = [
        (r"^flows\.(\d)", lambda m: f"flows.{2 * int(m[1])}"),
        (r"conv_pre", "pre"),
        (r"conv_post", "post"),
        (r"wavenet", "enc"),
        (r"parametrizations\.weight\.original0", "weight_g"),
        (r"parametrizations\.weight\.original1", "weight_v"),
    ]
    generator = torch.Generator().manual_seed(1)
    sound, speaker = torch.randn(2, 16, 12, generator=generator), torch.randn(2, 6, 1, generator=generator)
    mask = torch.ones(2, 1, 12)
    mask[1, :, 9:] = 0
    port = carried(port, reference, names)
    inputs = (sound * mask, mask, speaker)
    return Case(reference, port, (*inputs, True), {}, (*inputs, True))


class _Told(torch.nn.Module):
    """A decoder that is told what it has written so far."""

    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, ids, heard):
        decoder = self.decoder
        seen = decoder.ignored_target_position_is_0(ids, decoder.pad_id)
        hidden = decoder.dropout(decoder.tgt_word_emb(ids) * decoder.scale + decoder.positional_encoding(ids))
        for layer in decoder.layer_stack:
            hidden = layer(hidden, heard, seen, None)
        return decoder.layer_norm_out(hidden)


def whisper_decoder(load):
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperDecoder

    config = WhisperConfig(
        vocab_size=64,
        d_model=32,
        decoder_layers=3,
        decoder_attention_heads=4,
        decoder_ffn_dim=128,
        max_target_positions=16,
        pad_token_id=2,
        bos_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    reference = shaken(WhisperDecoder(config))
    package = load("fireredasr.models.module.transformer_decoder")
    port = _Told(package.TransformerDecoder(0, 1, 2, 64, 3, 4, 32, pe_maxlen=16))
    port.decoder.scale = 1.0
    names = [
        (r"^", "decoder."),
        (r"embed_tokens", "tgt_word_emb"),
        (r"embed_positions\.weight", "positional_encoding.pe"),
        (r"layers\.", "layer_stack."),
        (r"self_attn_layer_norm", "self_attn_norm"),
        (r"encoder_attn_layer_norm", "cross_attn_norm"),
        (r"final_layer_norm", "mlp_norm"),
        (r"decoder\.layer_norm", "decoder.layer_norm_out"),
        (r"encoder_attn", "cross_attn"),
        (r"([qkv])_proj", r"w_\1s"),
        (r"out_proj", "fc"),
        (r"fc(\d)\.", r"mlp.w_\1."),
    ]

    def cut(weights):
        weights["embed_positions.weight"] = weights["embed_positions.weight"][None]
        return weights | {"tgt_word_prj.weight": weights["embed_tokens.weight"]}

    ids = tokens(64)
    ids[1, 9:] = 2
    heard = torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(1))
    inputs = {"input_ids": ids, "attention_mask": ids != 2, "encoder_hidden_states": heard, "use_cache": False}
    return Case(reference, carried(port, reference, names, cut), (), inputs, (ids, heard))


class _Loud(torch.nn.Module):
    """A vocoder that is given logarithms of amplitudes, and hears decibels between -1 and 1."""

    def __init__(self, vocoder):
        super().__init__()
        self.vocoder = vocoder

    def forward(self, bands):
        decibels = 20 * torch.log10(torch.exp(bands).clamp(min=10 ** (-115 / 20))) - 20
        return self.vocoder((2 * (decibels + 115) / 115 - 1).clamp(-1, 1))


def bigvgan(load):
    from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import Qwen2_5OmniBigVGANConfig
    from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniToken2WavBigVGANModel

    sizes = {"upsample_initial_channel": 32, "resblock_kernel_sizes": [3, 5], "upsample_rates": [3, 2]}
    sizes |= {"resblock_dilation_sizes": [[1, 3, 5], [1, 2, 3]], "upsample_kernel_sizes": [7, 4]}
    reference = shaken(Qwen2_5OmniToken2WavBigVGANModel(Qwen2_5OmniBigVGANConfig(mel_dim=12, **sizes)))
    bare("bigvgan")
    settings = {"num_mels": 12, "resblock": "1", "activation": "snakebeta", "snake_logscale": True}
    settings |= {"use_bias_at_final": False, "use_tanh_at_final": False}
    port = load("bigvgan.bigvgan").BigVGAN(load("bigvgan.env").AttrDict(settings | sizes))
    with redirect_stdout(StringIO()):  # it prints
        port.remove_weight_norm()
    with torch.no_grad():
        reference.conv_post.weight.mul_(0.1)  # what is too loud is cut
    bands = torch.randn(2, 12, 10, generator=torch.Generator().manual_seed(1))
    port = carried(_Loud(port), reference, [(r"^", "vocoder.")])
    return Case(reference, port, (), {"mel_spectrogram": bands}, (bands,), arranged=lambda out: out[:, 0])
