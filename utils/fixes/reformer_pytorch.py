"""Fixes of reformer-pytorch."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Fix, made

_IDS = {"x": torch.arange(1, 17).view(2, 8)}
_FULL: dict[str, Any] = {"heads": 2, "bucket_size": 4, "use_full_attn": True, "full_attn_thres": 4, "num_mem_kv": 2}

FIXES = (
    Fix(
        "reformer-pytorch",
        "3becb66",
        "reformer_pytorch/reformer_pytorch.py",
        made("reformer_pytorch", "ReformerLM", _IDS, 20, 16, 2, 8, ff_chunks=1, **_FULL),
    ),
)
