"""Qwen3 without submodules: stacked parameters, functions for every step, rotary tables made in the root.

Query, key and value are one matrix per layer whose rows are grouped by key-value head, and within each query head the
two halves that a rotation pairs lie side by side. Gate and up are one matrix as well, up first.
"""

import torch
from torch import nn


def rms(h, scale, eps):
    power = h.square().mean(-1, keepdim=True)
    return h * (power + eps).rsqrt() * scale


def rotary_tables(length, width, base):
    exponents = torch.arange(width // 2) / (width // 2)
    angles = torch.arange(length)[:, None] * base**-exponents
    return angles.cos(), angles.sin()


def spin(vectors, cos, sin):
    even, odd = vectors[..., 0::2], vectors[..., 1::2]
    turned_even = even * cos - odd * sin
    turned_odd = odd * cos + even * sin
    return torch.stack((turned_even, turned_odd), -1).flatten(-2)


def mix_tokens(h, w, groups, tables, eps):
    batch, length, _ = h.shape
    fused = (h @ w["wqkv"].T).view(batch, length, groups, -1, w["q_scale"].numel())
    q = fused[..., :-2, :]
    k = fused[..., -2:-1, :]
    v = fused[..., -1:, :]
    q = rms(q, w["q_scale"], eps)
    k = rms(k, w["k_scale"], eps)
    q, k = (x.permute(0, 2, 3, 1, 4) for x in (q, k))
    v = v.permute(0, 2, 3, 1, 4)
    q = spin(q, *tables)
    k = spin(k, *tables)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = scores.masked_fill(hidden, float("-inf"))
    mixed = scores.softmax(-1) @ v
    merged = mixed.permute(0, 3, 1, 2, 4).reshape(batch, length, -1)
    return merged @ w["wo"].T


def mix_channels(h, w):
    up, gate = (h @ w["wug"].T).chunk(2, -1)
    active = nn.functional.silu(gate) * up
    return active @ w["wd"].T


class BareQwen3(nn.Module):
    """Everything in one module; ``weights`` holds one matrix per name and layer."""

    def __init__(self, weights, *, layers, groups, base, eps):
        super().__init__()
        self.weights = nn.ParameterDict(weights)
        self.layers, self.groups, self.base, self.eps = layers, groups, base, eps

    def forward(self, ids):
        h = self.weights["embedding"][ids]
        width = self.weights["0_q_scale"].numel()
        cos, sin = rotary_tables(ids.shape[1], width, self.base)
        for layer in range(self.layers):
            names = ("n1", "wqkv", "q_scale", "k_scale", "wo", "n2", "wug", "wd")
            w = {name: self.weights[f"{layer}_{name}"] for name in names}
            normed = rms(h, w["n1"], self.eps)
            h = h + mix_tokens(normed, w, self.groups, (cos, sin), self.eps)
            normed = rms(h, w["n2"], self.eps)
            h = h + mix_channels(normed, w)
        h = rms(h, self.weights["final"], self.eps)
        return h @ self.weights["unembedding"].T
