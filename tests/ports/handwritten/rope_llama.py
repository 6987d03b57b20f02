"""A Llama whose root makes the rotary tables once and hands them down as ``cos, sin`` of shape (length, head / 2)."""

import math

import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, t):
        norm = t.pow(2).mean(dim=-1, keepdim=True) + self.eps
        return self.gain * (t / norm.sqrt())


class Mixer(nn.Module):
    """Grouped attention; keys and values come from one projection."""

    def __init__(self, size, heads, groups):
        super().__init__()
        self.heads, self.groups, self.width = heads, groups, size // heads
        self.to_q = nn.Linear(size, size, bias=False)
        self.to_kv = nn.Linear(size, 2 * groups * self.width, bias=False)
        self.back = nn.Linear(size, size, bias=False)

    def turn(self, t, cos, sin):
        left, right = t[..., : self.width // 2], t[..., self.width // 2 :]
        new_left = left * cos - right * sin
        new_right = right * cos + left * sin
        return torch.cat((new_left, new_right), dim=-1)

    def forward(self, t, cos, sin):
        n, length, _ = t.shape
        q = self.to_q(t).view(n, length, self.heads, self.width).transpose(1, 2)
        k, v = self.to_kv(t).view(n, length, 2, self.groups, self.width).permute(2, 0, 3, 1, 4)
        q = self.turn(q, cos, sin)
        k = self.turn(k, cos, sin)
        q = q.unflatten(1, (self.groups, -1))
        k, v = k.unsqueeze(2), v.unsqueeze(2)
        logits = torch.einsum("ngrqd,ngrkd->ngrqk", q, k.expand_as(q))
        logits = logits / math.sqrt(self.width)
        past = torch.arange(length)[:, None] >= torch.arange(length)[None, :]
        logits = torch.where(past, logits, torch.finfo(logits.dtype).min)
        mixed = torch.softmax(logits, dim=-1) @ v
        return self.back(mixed.flatten(1, 2).transpose(1, 2).reshape(n, length, -1))


class Widen(nn.Module):
    def __init__(self, size, inner):
        super().__init__()
        self.both = nn.Linear(size, 2 * inner, bias=False)
        self.narrow = nn.Linear(inner, size, bias=False)

    def forward(self, t):
        gate, value = self.both(t).chunk(2, dim=-1)
        return self.narrow(gate * torch.sigmoid(gate) * value)


class Unit(nn.Module):
    def __init__(self, size, heads, groups, inner, eps):
        super().__init__()
        self.scale_a, self.mixer = Scale(size, eps), Mixer(size, heads, groups)
        self.scale_b, self.widen = Scale(size, eps), Widen(size, inner)

    def forward(self, t, cos, sin):
        t = t + self.mixer(self.scale_a(t), cos, sin)
        return t + self.widen(self.scale_b(t))


class RopeLlama(nn.Module):
    def __init__(self, words, size, *, heads, groups, inner, units, eps, base):
        super().__init__()
        self.words = nn.Embedding(words, size)
        self.units = nn.ModuleList(Unit(size, heads, groups, inner, eps) for _ in range(units))
        self.scale = Scale(size, eps)
        self.out = nn.Linear(size, words, bias=False)
        self.width, self.base = size // heads, base

    def tables(self, length):
        rates = torch.exp(torch.arange(0, self.width, 2) * (-math.log(self.base) / self.width))
        angles = torch.outer(torch.arange(length).float(), rates)
        return angles.cos(), angles.sin()

    def forward(self, words):
        t = self.words(words)
        cos, sin = self.tables(words.shape[1])
        for unit in self.units:
            t = unit(t, cos, sin)
        t = self.scale(t)
        return self.out(t)
