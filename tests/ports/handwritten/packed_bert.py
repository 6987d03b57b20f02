"""A BERT without a batch: all tokens of all texts are one list, and attention is told where a text ends."""

import math

import torch
from torch import nn


class Normalise(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.factor, self.shift, self.eps = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width)), eps

    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
        centred = x - mean
        return centred / torch.sqrt(variance + self.eps) * self.factor + self.shift


class Talk(nn.Module):
    """Attention of tokens to those of the same text."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.matrix, self.offset = nn.Parameter(torch.empty(width, 3, width)), nn.Parameter(torch.empty(3, width))
        self.close = nn.Linear(width, width)

    def forward(self, x, text_of):
        parts = torch.einsum("tw,wpv->ptv", x, self.matrix) + self.offset[:, None]
        asked, offered, told = (part.view(x.shape[0], self.heads, -1).transpose(0, 1) for part in parts)
        affinity = asked @ offered.mT
        affinity = affinity / math.sqrt(offered.shape[-1])
        apart = text_of[:, None] != text_of[None, :]
        affinity = affinity.masked_fill(apart, -1e9)
        heard = torch.softmax(affinity, dim=-1) @ told
        heard = heard.transpose(0, 1).reshape(x.shape)
        return self.close(heard)


class Think(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.open, self.close = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        x = self.open(x)
        x = nn.functional.gelu(x)
        return self.close(x)


class Floor(nn.Module):
    def __init__(self, width, heads, inner, eps):
        super().__init__()
        self.talk, self.after_talk = Talk(width, heads), Normalise(width, eps)
        self.think, self.after_think = Think(width, inner), Normalise(width, eps)

    def forward(self, x, text_of):
        x = self.after_talk(x + self.talk(x, text_of))
        return self.after_think(x + self.think(x))


class PackedBert(nn.Module):
    def __init__(self, words, positions, width, *, heads, inner, floors, eps):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.kinds, self.entrance = nn.Embedding(2, width), Normalise(width, eps)
        self.floors = nn.ModuleList(Floor(width, heads, inner, eps) for _ in range(floors))

    def forward(self, words, kinds, text_of):
        """Return hidden states (tokens, width) of three lists of integers, one entry for each token."""
        starts = torch.searchsorted(text_of, text_of)
        places = torch.arange(len(words)) - starts
        x = self.words(words) + self.places(places) + self.kinds(kinds)
        x = self.entrance(x)
        for floor in self.floors:
            x = floor(x, text_of)
        return x
