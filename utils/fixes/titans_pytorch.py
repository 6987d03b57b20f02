"""Fixes of titans-pytorch."""

from __future__ import annotations

from fixes.fix import Fix, made, numbers

_KEYS, _VALUES = ([numbers(2, 2, 4, 8, seed=seed) for seed in seeds] for seeds in (range(3), range(3, 6)))
_CACHE = ((_KEYS, _VALUES), (numbers(2, 2, 4, 8, seed=6), numbers(2, 2, 4, 8, seed=7)))

FIXES = (
    Fix(
        "titans-pytorch",
        "4e4a2ac",
        "titans_pytorch/nested_attention.py",
        made(
            "nested_attention",
            "NestedAttention",
            {"tokens": numbers(2, 2, 16), "cache": _CACHE},
            16,
            dim_head=8,
            heads=2,
        ),
    ),
)
