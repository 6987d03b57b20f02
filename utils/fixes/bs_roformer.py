"""Fixes of BS-RoFormer."""

from __future__ import annotations

from typing import Any

from fixes.fix import Build, Fix, made, module_of, numbers

_TOKENS = {"x": numbers(2, 6, 32), "value_residual": numbers(2, 4, 6, 8)}
_CHANNELS = {**_TOKENS, "value_residual": numbers(2, 4, 8, 6)}


def _masks(package: Any) -> Any:
    made = module_of(package, "bs_roformer").MaskEstimator(32, (8, 12), depth=2)
    return made, {"x": numbers(2, 6, 2, 32)}


def _separator(package: Any) -> Any:
    model = module_of(package, "bs_roformer").BSRoformer(
        dim=16,
        depth=1,
        time_transformer_depth=1,
        freq_transformer_depth=1,
        freqs_per_bands=(16, 17),
        dim_head=8,
        heads=2,
        flash_attn=False,
        dim_freqs_in=33,
        stft_n_fft=64,
        stft_hop_length=16,
        stft_win_length=64,
    )
    return model, {"raw_audio": numbers(2, 256)}


def _fix(commit: str, build: Build, file: str = "bs_roformer.py") -> Fix:
    return Fix("BS-RoFormer", commit, f"bs_roformer/{file}", build)


FIXES = (
    _fix(
        "1227e18",
        made("mel_band_roformer", "LinearAttention", _CHANNELS, dim=32, heads=4, dim_head=8, add_value_residual=True),
        "mel_band_roformer.py",
    ),
    _fix(
        "87576b9",
        made(
            "bs_roformer", "Attention", _TOKENS, 32, heads=4, dim_head=8, flash=False, learned_value_residual_mix=True
        ),
    ),
    _fix("c9011ee", _separator),
    _fix("88f3b7a", _separator),
    _fix("3e67f27", _masks),
)
