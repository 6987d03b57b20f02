"""What hears and speaks."""

from __future__ import annotations

import torch
from cases import Case, shaken, to_edit
from conversion import carried
from stubs import bare


class _Coded(torch.nn.Module):
    """What codes a sound, and what sounds it, without the codes between."""

    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, sound, meaning):
        heard = self.encoder(sound).transpose(1, 2)
        return self.decoder(torch.cat([heard, meaning], -1))


class _Sounded(torch.nn.Module):
    def __init__(self, package):
        super().__init__()
        self.fc = torch.nn.Linear(80, 64)
        self.backbone = package.VocosBackbone(hidden_dim=64, depth=2, heads=4, pos_meb_dim=16)
        self.head = package.ISTFTHead(dim=64, n_fft=24, hop_length=6, padding="same")

    def forward(self, heard):
        return self.head(self.backbone(self.fc(heard)))[0]


def xcodec2(load):
    from transformers import Wav2Vec2BertConfig, Xcodec2Config
    from transformers.models.xcodec2.modeling_xcodec2 import Xcodec2Decoder, Xcodec2Encoder

    config = Xcodec2Config(
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        encoder_hidden_size=8,
        downsampling_ratios=[2, 3],
        semantic_model_config=Wav2Vec2BertConfig(hidden_size=16, num_attention_heads=2),
    )
    config._attn_implementation = "eager"
    reference = shaken(_Coded(Xcodec2Encoder(config), Xcodec2Decoder(config)))
    bare("xcodec2", "xcodec2.vq")
    encoder = load("xcodec2.vq.codec_encoder").CodecEncoder(ngf=8, use_rnn=False, up_ratios=(2, 3), out_channels=64)
    for module in encoder.modules():
        if torch.nn.utils.parametrize.is_parametrized(module):
            torch.nn.utils.parametrize.remove_parametrizations(module, "weight")
    port = _Coded(encoder, _Sounded(load("xcodec2.vq.codec_decoder_vocos")))
    names = [
        (r"^encoder\.conv1", "encoder.block.0"),
        (r"^encoder\.snake1", "encoder.block.3"),
        (r"^encoder\.conv2", "encoder.block.4"),
        (r"^encoder\.block\.([01])\.(?=[rsc])", lambda m: f"encoder.block.{int(m[1]) + 1}.block."),
        (r"res_unit(\d)", lambda m: f"{int(m[1]) - 1}.block"),
        (r"(block\.[12]\.block\.\d\.block)\.snake([12])", lambda m: f"{m[1]}.{2 * int(m[2]) - 2}"),
        (r"(block\.[12]\.block\.\d\.block)\.conv([12])", lambda m: f"{m[1]}.{2 * int(m[2]) - 1}"),
        (r"(block\.[12]\.block)\.snake1", r"\1.3"),
        (r"(block\.[12]\.block)\.conv1", r"\1.4"),
        (r"act\.beta", "act.bias"),
        (r"^decoder\.(embed|prior_net|post_net)", r"decoder.backbone.\1"),
        (r"^decoder\.norm", "decoder.backbone.final_layer_norm"),
        (r"^decoder\.layers", "decoder.backbone.transformers"),
        (r"head\.linear", "head.out"),
        (r"input_layernorm", "att_norm"),
        (r"post_attention_layernorm", "ffn_norm"),
        (r"self_attn\.o_proj", "att.c_proj"),
        (r"self_attn\.qkv", "att.c_attn"),
    ]

    def cut(weights):
        for name in [name for name in weights if name.endswith("q_proj.weight")]:
            parts = [weights.pop(name.replace("q_proj", f"{kind}_proj")) for kind in "qkv"]
            weights[name.replace("q_proj", "qkv")] = torch.cat(parts)
        return weights

    generator = torch.Generator().manual_seed(1)
    sound, meaning = torch.randn(2, 1, 60, generator=generator), torch.randn(2, 10, 16, generator=generator)
    return Case(reference, carried(port, reference, names, cut), (sound, meaning), {}, (sound, meaning))


def nemotron(load):
    from transformers import NemotronAsrStreamingEncoder, NemotronAsrStreamingEncoderConfig

    config = NemotronAsrStreamingEncoderConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        subsampling_factor=4,
        subsampling_conv_channels=8,
        num_mel_bins=16,
        conv_kernel_size=5,
        sliding_window=5,
        default_num_lookahead_tokens=1,
    )
    reference = shaken(NemotronAsrStreamingEncoder(config))
    package = load("nemoasr2pytorch.models.asr.conformer")
    settings = package.ConformerEncoderConfig(
        feat_in=16,
        n_layers=3,
        d_model=32,
        subsampling_factor=4,
        subsampling_conv_channels=8,
        causal_downsampling=True,
        ff_expansion_factor=2,
        n_heads=4,
        att_context_size=[4, 1],
        att_context_style="chunked_limited",
        xscaling=True,
        conv_kernel_size=5,
        conv_norm_type="layer_norm",
        conv_context_size=[4, 0],
        use_bias=True,
    )
    names = [
        (r"^subsampling\.conv_in", "pre_encode.conv.0"),
        (r"^subsampling\.layers\.(\d)\.depthwise_conv", lambda m: f"pre_encode.conv.{3 * int(m[1]) + 2}"),
        (r"^subsampling\.layers\.(\d)\.pointwise_conv", lambda m: f"pre_encode.conv.{3 * int(m[1]) + 3}"),
        (r"^subsampling\.linear", "pre_encode.out"),
        (r"bias_([uv])$", r"pos_bias_\1"),
        (r"relative_k_proj", "linear_pos"),
        (r"([qkvo])_proj", lambda m: f"linear_{'out' if m[1] == 'o' else m[1]}"),
        (r"conv\.norm", "conv.batch_norm"),
    ]
    sound = torch.randn(2, 48, 16, generator=torch.Generator().manual_seed(1))
    inputs = {"input_features": sound, "attention_mask": torch.ones(2, 48, dtype=torch.long)}
    return Case(
        reference,
        carried(package.ConformerEncoder(settings), reference, names),
        (),
        inputs | {"num_lookahead_tokens": 1},
        (sound.transpose(1, 2), torch.tensor([48, 48])),
        arranged=lambda out: out[0].transpose(1, 2),
    )


PORTS = (
    to_edit("nemoasr2pytorch-nemotron", "nemoasr2pytorch", nemotron),
    to_edit("xcodec2", "xcodec2", xcodec2),
)
