"""Fixes of PaLM-rlhf-pytorch."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Fix, made

_IDS = {"x": torch.arange(1, 17).view(2, 8)}
_SIZES: dict[str, Any] = {"num_tokens": 20, "dim": 16, "depth": 2, "heads": 2, "dim_head": 8}


def _fix(commit: str, file: str, **given: Any) -> Fix:
    build = made(file, "PaLM", _IDS, **_SIZES, **given)
    return Fix("PaLM-rlhf-pytorch", commit, f"palm_rlhf_pytorch/{file}.py", build)


FIXES = (_fix("e624afd", "palm"), _fix("6e1baf6", "palm_rlhf_pytorch", causal=False))
