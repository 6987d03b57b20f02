"""Fixes of enformer-pytorch."""

from __future__ import annotations

from typing import Any

from fixes.fix import Fix, made, module_of, numbers

_FILE = "enformer_pytorch/modeling_enformer.py"
_SIZES: dict[str, Any] = {
    "dim": 24,
    "depth": 1,
    "heads": 2,
    "output_heads": {"human": 5},
    "target_length": -1,
    "attn_dim_key": 8,
    "num_downsamples": 3,
    "dim_divisible_by": 4,
}


def _enformer(package: Any) -> Any:
    return module_of(package, "modeling_enformer").Enformer.from_hparams(**_SIZES), {"x": numbers(2, 64, 4)}


FIXES = (
    Fix("enformer-pytorch", "dcb5751", _FILE, _enformer),
    Fix(
        "enformer-pytorch",
        "ab29196",
        _FILE,
        made("modeling_enformer", "AttentionPool", {"x": numbers(2, 8, 16)}, 8, pool_size=4),
    ),
)
