"""The encoder of T5 as functions of parameters: no module but the root, relative positions made once."""

import math

import torch
from torch import nn


def length_of(x):
    return x.pow(2).mean(-1, keepdim=True).sqrt()


def normed(x, weight):
    return x / (length_of(x) ** 2 + 1e-6).sqrt() * weight


def buckets(count, total, furthest):
    """Return the bucket of every pair (query, key) of positions, (count, count)."""
    distance = torch.arange(count)[None] - torch.arange(count)[:, None]
    half = total // 2
    exact = half // 2
    after = (distance > 0) * half
    distance = distance.abs()
    growth = torch.log(distance / exact) / math.log(furthest / exact)
    scaled = exact + (growth * (half - exact)).nan_to_num(neginf=0).long()
    return after + torch.where(distance < exact, distance, scaled.clamp(max=half - 1))


def attention(x, p, bias, heads):
    q, k, v = (torch.einsum("btd,hwd->bhtw", x, p[name].unflatten(0, (heads, -1))) for name in ("q", "k", "v"))
    scores = torch.einsum("bhqw,bhkw->bhqk", q, k)
    scores = scores + bias
    shares = scores.softmax(-1)
    told = torch.einsum("bhqk,bhkw->bqhw", shares, v)
    return told.flatten(2) @ p["o"].T


def feed(x, p):
    gate, value = x @ p["gate"].T, x @ p["value"].T
    return (nn.functional.gelu(gate, approximate="tanh") * value) @ p["out"].T


def layer(x, p, bias, heads):
    x = x + attention(normed(x, p["n1"]), p, bias, heads)
    return x + feed(normed(x, p["n2"]), p)


class PlainT5(nn.Module):
    def __init__(self, parameters, layers, heads):
        super().__init__()
        self.count, self.heads = layers, heads
        for name, value in parameters.items():
            self.register_parameter(name, nn.Parameter(value))

    def forward(self, ids):
        x = self.table[ids]
        bias = self.relative[buckets(ids.shape[1], 32, 128)].permute(2, 0, 1)
        for number in range(self.count):
            prefix = f"layer{number}_"
            p = {name[len(prefix) :]: value for name, value in self.named_parameters() if name.startswith(prefix)}
            x = layer(x, p, bias, self.heads)
        return normed(x, self.last)
