"""Fixes of x-transformers."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, numbers

_FILE = "x_transformers/x_transformers.py"
_IDS = {"x": torch.arange(2, 18).view(2, 8)}


def _decoder(more: dict[str, Any] | None = None, *, kind: str = "Decoder", **layers: Any) -> Build:
    given, wrapper = {**_IDS, **(more or {})}, {"num_tokens": 64, "max_seq_len": 16}
    wrapper.update(layers.pop("wrapper", {}))

    def build(package: Any) -> Any:
        made = getattr(package, kind)(**{"dim": 32, "depth": 2, "heads": 4, **layers})
        return package.TransformerWrapper(**wrapper, attn_layers=made), given

    return build


def _mems(package: Any) -> Any:
    made = package.Decoder(dim=32, depth=2, heads=4, rel_pos_bias=True)
    model = package.TransformerWrapper(num_tokens=64, max_seq_len=16, max_mem_len=8, attn_layers=made)
    return model, {**_IDS, "mems": [numbers(2, 6, 32), numbers(2, 6, 32)]}


def _cross(package: Any) -> Any:
    made = package.Decoder(dim=32, depth=2, heads=4, cross_attend=True)
    mask = torch.ones(2, 8, dtype=torch.bool)
    mask[1, 5:] = False
    model = package.TransformerWrapper(num_tokens=64, max_seq_len=16, attn_layers=made)
    return model, {**_IDS, "mask": mask, "context": numbers(2, 8, 32)}


def _fix(commit: str, build: Build, file: str = _FILE) -> Fix:
    return Fix("x-transformers", commit, file, build)


FIXES = (
    _fix("d88537d", _decoder(depth=3, add_value_residual=True)),
    _fix("d1f5d6b", _decoder(attn_sparse_topk=2), "x_transformers/attend.py"),
    _fix("0c6266e", _decoder(attn_use_cope=True, attn_cope_talking_heads=True)),
    _fix("013e60a", _decoder({"seq_start_pos": torch.tensor([0, 3])})),
    _fix("dcae403", _mems),
    _fix("4ed4d0a", _decoder(kind="Encoder", alibi_pos_bias=True, alibi_learned=True)),
    _fix("64ee68b", _decoder(gate_residual=True)),
    _fix("6cb3299", _decoder(attn_talking_heads=True)),
    _fix("08cc84e", _decoder()),
    _fix("b0715f2", _cross),
)
