"""Fixes of attention-is-all-you-need-pytorch."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, made

_IDS, _PLACES = torch.arange(2, 18).view(2, 8), torch.arange(1, 9).repeat(2, 1)
_SIZES: dict[str, Any] = {"d_word_vec": 16, "d_model": 16, "n_layers": 2, "n_head": 2, "d_k": 4, "d_v": 4}
_MID = {**_SIZES, "d_inner": 32, "tgt_emb_prj_weight_sharing": False, "emb_src_tgt_weight_sharing": False}
_NEW = {**_SIZES, "d_inner": 32, "trg_emb_prj_weight_sharing": False, "emb_src_trg_weight_sharing": False}


def _new() -> Build:
    return made("Models", "Transformer", {"src_seq": _IDS, "trg_seq": _IDS.flip(1)}, 20, 20, 0, 0, **_NEW)


def _mid() -> Build:
    inputs = {"src_seq": _IDS, "src_pos": _PLACES, "tgt_seq": _IDS.flip(1), "tgt_pos": _PLACES}
    return made("Models", "Transformer", inputs, 20, 20, 8, **_MID)


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("attention-is-all-you-need-pytorch", commit, f"transformer/{file}.py", build)


FIXES = (
    _fix("e108f0f", "SubLayers", _mid()),
    _fix("49906df", "SubLayers", _new()),
    _fix("5e41304", "Models", _new()),
)
