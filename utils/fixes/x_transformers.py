"""Fixes of x-transformers."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, numbers

_FILE = "x_transformers/x_transformers.py"
_IDS = {"x": torch.arange(2, 18).view(2, 8)}
_FOUR = {"x": torch.arange(2, 34).view(4, 8), "pos": torch.arange(8) * torch.arange(1, 5)[:, None]}


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
    _fix("71bb33a", _decoder({"pos": torch.arange(0, 16, 2)}, rotary_pos_emb=True)),
    _fix("d41cffd", _decoder(_FOUR, rotary_pos_emb=True, rotary_xpos=True)),
    _fix("b46949b", _decoder(rel_pos_bias=True, attn_num_mem_kv=2)),
    _fix("9665f74", _decoder(use_scalenorm=True)),
    _fix("4cbf014", _decoder({"in_attn_cond": numbers(2, 32)})),
    _fix("b8a9add", _decoder(use_dynamic_tanh=True, dynamic_tanh_init_alpha=1.5)),
    _fix("b720245", _decoder(rotary_pos_emb=True, attn_dim_head=48)),
    _fix("90a7454", _decoder(attn_qk_norm=True, attn_qk_norm_dim_scale=True)),
    _fix("6d0c641", _decoder({"x": torch.arange(2, 34).view(2, 16)}, rel_pos_bias=True, heads=8)),
    _fix("acb4c65", _decoder(residual_attn=True, depth=3)),
    _fix("9cf7001", _decoder(ff_glu=True)),
)
