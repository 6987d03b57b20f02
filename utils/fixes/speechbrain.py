"""Fixes of speechbrain."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, made, module_of, numbers

_WAVES = {"x": numbers(2, 8, 16), "lengths": torch.tensor([1.0, 0.5])}
_NAME = "lobes.models.transformer.TransformerASR"


def _transformer(package: Any) -> Any:
    layer = module_of(package, _NAME).TransformerASR
    model = layer(12, 16, d_model=16, nhead=2, num_encoder_layers=2, num_decoder_layers=1, d_ffn=32, causal=True)
    return model, {"src": numbers(2, 8, 16), "tgt": torch.arange(1, 9).repeat(2, 1)}


def _block(package: Any) -> Any:
    norm = module_of(package, "nnet.normalization").BatchNorm2d
    block = module_of(package, "lobes.models.convolution").ConvBlock
    shape = (2, 8, 6, 4)
    return block(2, 4, input_shape=shape, residual=True, norm=norm), {"x": numbers(*shape)}


def _asr(**inputs: Any) -> Build:
    def build(package: Any) -> Any:
        layer = module_of(package, _NAME).TransformerASR
        model = layer(12, 16, d_model=16, nhead=2, num_encoder_layers=2, num_decoder_layers=2, d_ffn=32)
        return model, {"src": numbers(2, 8, 16), "tgt": torch.arange(1, 9).repeat(2, 1), **inputs}

    return build


def _relative(positions: str, **more: Any) -> Build:
    states = numbers(2, 6, 16)
    given = {"query": states, "key": states, "value": states, positions: numbers(1, 11, 16, seed=4)}
    return made("nnet.attention", "RelPosMHAXL", {**given, **more}, embed_dim=16, num_heads=2)


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("speechbrain", commit, f"speechbrain/{file}.py", build)


FIXES = (
    _fix(
        "d628d1894",
        "nnet/CNN",
        made(
            "nnet.CNN",
            "Conv2d",
            {"x": numbers(2, 6, 8, 3)},
            4,
            (3, 5),
            input_shape=(2, 6, 8, 3),
            padding="causal",
        ),
    ),
    _fix("4c124fb05", "lobes/models/convolution", _block),
    _fix(
        "cb5216313",
        "nnet/pooling",
        made("nnet.pooling", "StatisticsPooling", {"x": numbers(2, 8, 6), "lengths": torch.tensor([1.0, 0.5])}),
    ),
    _fix("c7a82129f", "lobes/models/transformer/TransformerASR", _transformer),
    _fix(
        "d9977e388",
        "lobes/models/transformer/Transformer",
        made(
            "lobes.models.transformer.Transformer",
            "TransformerDecoderLayer",
            {"tgt": numbers(2, 6, 16), "memory": numbers(2, 6, 16, seed=4)},
            32,
            2,
            embed_dim=16,
        ),
    ),
    _fix("e071bcc08", "lobes/models/transformer/TransformerASR", _asr()),
    _fix("f541989c7", "lobes/models/transformer/TransformerASR", _asr(wav_len=torch.tensor([1.0, 0.5]))),
    _fix(
        "2feae9cb8",
        "nnet/attention",
        _relative("pos_emb", key_padding_mask=torch.tensor([[False] * 6, [False] * 4 + [True] * 2])),
    ),
    _fix("4f378f185", "nnet/attention", _relative("pos_embs")),
    _fix("b26a0537b", "nnet/attention", _relative("pos_embs")),
    _fix(
        "8c9a71f7f",
        "lobes/models/ECAPA_TDNN",
        made(
            "lobes.models.ECAPA_TDNN",
            "AttentiveStatisticsPooling",
            _WAVES,
            8,
            attention_channels=4,
        ),
    ),
    _fix(
        "37b64c5a4",
        "lobes/features",
        made(
            "lobes.features",
            "MFCC",
            {"wav": numbers(2, 800)},
            sample_rate=8000,
            n_fft=200,
            n_mels=8,
            n_mfcc=6,
            left_frames=1,
            right_frames=1,
        ),
    ),
    _fix(
        "9b3b823fa",
        "processing/features",
        made(
            "processing.features",
            "Filterbank",
            {"spectrogram": torch.tensor([1.0, 1e-7])[:, None, None] * numbers(2, 6, 33).square()},
            n_mels=8,
            n_fft=64,
            top_db=40.0,
        ),
    ),
)
