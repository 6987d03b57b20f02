"""A GPT-NeoX that keeps (sequence, batch, width), with one projection for query, key and value, part after part."""

import torch
from torch import nn
from torch.nn import functional


class Attend(nn.Module):
    def __init__(self, dim, n_heads, rotary, table):
        super().__init__()
        self.n_heads, self.rotary, self.table = n_heads, rotary, table
        self.in_proj, self.out_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def positions(self, x):
        """Turn the first ``rotary`` entries of each head; ``x`` is (sequence, batch * heads, head)."""
        steps = torch.arange(x.shape[0], dtype=x.dtype)
        phase = (steps[:, None] * self.table[None]).repeat(1, 2)[:, None]
        part, rest = x.split((self.rotary, x.shape[-1] - self.rotary), dim=-1)
        half = self.rotary // 2
        swapped = torch.cat((-part[..., half:], part[..., :half]), dim=-1)
        part = part * phase.cos() + swapped * phase.sin()
        return torch.cat((part, rest), dim=-1)

    def forward(self, x):
        seq, batch, dim = x.shape
        q, k, v = self.in_proj(x).chunk(3, dim=-1)
        q, k, v = (y.contiguous().view(seq, batch * self.n_heads, -1) for y in (q, k, v))
        q, k = self.positions(q), self.positions(k)
        q, k, v = (y.transpose(0, 1) for y in (q, k, v))
        weights = torch.baddbmm(self.future(seq), q, k.mT, alpha=q.shape[-1] ** -0.5)
        weights = functional.softmax(weights, dim=-1)
        y = torch.bmm(weights, v)
        y = y.transpose(0, 1).reshape(seq, batch, dim)
        return self.out_proj(y)

    def future(self, seq):
        return torch.full((seq, seq), float("-inf")).triu(diagonal=1)


class Stage(nn.Module):
    def __init__(self, dim, n_heads, rotary, table):
        super().__init__()
        self.ln_attend, self.ln_expand = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attend = Attend(dim, n_heads, rotary, table)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def expand(self, x):
        x = self.up(x)
        x = functional.gelu(x)
        return self.down(x)

    def forward(self, x):
        attended = self.attend(self.ln_attend(x))
        expanded = self.expand(self.ln_expand(x))
        return x + attended + expanded


class SequenceFirst(nn.Module):
    def __init__(self, vocab, dim, n_heads, n_stages, rotary):
        super().__init__()
        self.look_up = nn.Embedding(vocab, dim)
        table = 10000 ** (-torch.arange(0, rotary, 2) / rotary)
        self.stages = nn.Sequential(*(Stage(dim, n_heads, rotary, table) for _ in range(n_stages)))
        self.ln_last, self.unembed = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, token_columns):
        """Return logits (sequence, batch, vocab) of ids (sequence, batch)."""
        x = self.look_up(token_columns)
        x = self.stages(x)
        x = self.ln_last(x)
        return self.unembed(x)
