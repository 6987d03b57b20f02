"""Fixes of egnn-pytorch."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Fix, made, numbers

_POINTS = {"feats": numbers(2, 5, 6), "coors": numbers(2, 5, 3, seed=4)}
_RING = {"adj_mat": torch.eye(5, dtype=torch.bool).roll(1, 0)}


def _fix(commit: str, inputs: dict[str, Any], **given: Any) -> Fix:
    build = made("egnn_pytorch", "EGNN", {**_POINTS, **inputs}, 6, m_dim=4, **given)
    return Fix("egnn-pytorch", commit, "egnn_pytorch/egnn_pytorch.py", build)


FIXES = (
    _fix("99426ac", {}),
    _fix("878dd8e", _RING, num_nearest_neighbors=3),
)
