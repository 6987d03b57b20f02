"""Fixes of speechbrain."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, made, module_of, numbers


def _transformer(package: Any) -> Any:
    layer = module_of(package, "lobes.models.transformer.TransformerASR").TransformerASR
    model = layer(12, 16, d_model=16, nhead=2, num_encoder_layers=2, num_decoder_layers=1, d_ffn=32, causal=True)
    return model, {"src": numbers(2, 8, 16), "tgt": torch.arange(1, 9).repeat(2, 1)}


def _block(package: Any) -> Any:
    norm = module_of(package, "nnet.normalization").BatchNorm2d
    block = module_of(package, "lobes.models.convolution").ConvBlock
    shape = (2, 8, 6, 4)
    return block(2, 4, input_shape=shape, residual=True, norm=norm), {"x": numbers(*shape)}


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("speechbrain", commit, f"speechbrain/{file}", build)


FIXES = (
    _fix(
        "d628d1894",
        "nnet/CNN.py",
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
    _fix("4c124fb05", "lobes/models/convolution.py", _block),
    _fix(
        "cb5216313",
        "nnet/pooling.py",
        made("nnet.pooling", "StatisticsPooling", {"x": numbers(2, 8, 6), "lengths": torch.tensor([1.0, 0.5])}),
    ),
    _fix("c7a82129f", "lobes/models/transformer/TransformerASR.py", _transformer),
)
