"""Fixes of alphafold2-pytorch."""

from __future__ import annotations

from typing import Any

from fixes.fix import Fix, module_of, numbers


def _evoformer(package: Any) -> Any:
    sizes = {"dim": 16, "depth": 1, "seq_len": 6, "heads": 2, "dim_head": 8, "attn_dropout": 0.0, "ff_dropout": 0.0}
    model = module_of(package, "alphafold2").Evoformer(**sizes)
    return model, {"x": numbers(2, 6, 6, 16), "m": numbers(2, 3, 6, 16, seed=4)}


def _outer(package: Any) -> Any:
    return module_of(package, "alphafold2").OuterMean(16), {"x": numbers(2, 3, 6, 16)}


def _fix(commit: str, build: Any) -> Fix:
    return Fix("alphafold2", commit, "alphafold2_pytorch/alphafold2.py", build)


FIXES = (
    _fix("fee0775", _evoformer),
    _fix("c77e386", _evoformer),
    _fix("da1cab1", _evoformer),
    _fix("f648dde", _evoformer),
    _fix("020321a", _outer),
    _fix("287c5f7", _outer),
)
