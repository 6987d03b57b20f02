"""Which line of a port the values of two forwards blame, where the two share no name: one bug for each rule."""

import linecache

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import nn

from pytest_tfdebug import compare, fill, trace

WIDTH, HEADS = 16, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        weights = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.after, self.feed = nn.LayerNorm(WIDTH), Feed()

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.feed(self.after(x))


class Reference(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers, self.norm = (
            nn.Embedding(32, WIDTH),
            nn.ModuleList([Layer(), Layer()]),
            nn.LayerNorm(WIDTH),
        )

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return {"last": self.norm(x)}


class Parallel(Layer):
    def forward(self, x):
        return self.attention(self.before(x)) + self.feed(self.after(x)) + x


class ParallelReference(Reference):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Parallel(), Parallel()])


class Mix(nn.Module):
    """What attends; it is given everything by its caller."""

    def forward(self, query, key, value):
        scores = query @ key.transpose(-2, -1)
        scores = scores / query.shape[-1] ** 0.5
        weights = scores.softmax(-1)
        return weights @ value


class Att(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.mix, self.o = Mix(), nn.Linear(WIDTH, WIDTH)

    def forward(self, h):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.wq(h), self.wk(h), self.wv(h)))
        mixed = self.mix(q, k, v)
        return self.o(mixed.transpose(1, 2).flatten(2))


class SwapsArguments(Att):
    def forward(self, h):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.wq(h), self.wk(h), self.wv(h)))
        mixed = self.mix(q, v, k)  # BUG
        return self.o(mixed.transpose(1, 2).flatten(2))


class Ffn(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)

    def forward(self, h):
        h = F.gelu(self.w1(h))
        return self.w2(h)


class ForgetsGelu(Ffn):
    def forward(self, h):
        h = self.w1(h)  # BUG: either line is where the step is missing
        return self.w2(h)  # BUG


class Block(nn.Module):
    def __init__(self, att=Att, ffn=Ffn):
        super().__init__()
        self.n1, self.att, self.n2, self.ffn = nn.LayerNorm(WIDTH), att(), nn.LayerNorm(WIDTH), ffn()

    def forward(self, h):
        h = h + self.att(self.n1(h))
        return h + self.ffn(self.n2(h))


class ForgetsResidual(Block):
    def forward(self, h):
        a = self.att(self.n1(h))
        return a + self.ffn(self.n2(a))  # BUG


class ForgetsFeed(Block):
    def forward(self, h):
        return h + self.att(self.n1(h))  # BUG


class ParallelBlock(Block):
    def forward(self, h):
        both = self.att(self.n1(h)) + h
        return self.ffn(self.n2(h)) + both


class Port(nn.Module):
    def __init__(self, block=Block, *, returns_all=False, **parts):
        super().__init__()
        self.tok, self.ln = nn.Embedding(32, WIDTH), nn.LayerNorm(WIDTH)
        self.blocks = nn.Sequential(Block(**({} if block is not ParallelBlock else parts)), block(**parts))
        if block is ParallelBlock:
            self.blocks[0] = ParallelBlock()
        self.returns_all = returns_all

    def forward(self, tokens):
        every = [self.tok(tokens)]
        for block in self.blocks:
            every.append(block(every[-1]))
        every[-1] = self.ln(every[-1])
        return every if self.returns_all else every[-1]


def with_weights_of(reference, port):
    port.tok, port.ln = reference.embed, reference.norm
    for block, layer in zip(port.blocks, reference.layers, strict=True):
        block.n1, block.n2 = layer.before, layer.after
        block.ffn.w1, block.ffn.w2, block.att.o = layer.feed.up, layer.feed.down, layer.attention.out
        block.att.wq, block.att.wk = layer.attention.query, layer.attention.key
        block.att.wv = layer.attention.value
    return port


def report_of(reference, port):
    fill(reference, seed=0)
    ids = torch.arange(12).reshape(2, 6)
    return compare(trace(reference, ids), trace(with_weights_of(reference, port), ids))


@pytest.mark.parametrize("port", [Port(), Port(returns_all=True)], ids=["one output", "all outputs"])
def test_a_port_that_is_right_has_no_culprit(port):
    assert report_of(Reference(), port).culprit is None
    assert report_of(ParallelReference(), Port(ParallelBlock)).culprit is None


@pytest.mark.parametrize("returns_all", [False, True])
@pytest.mark.parametrize(
    ("parts", "path"),
    [
        ({"att": SwapsArguments}, "blocks.1.att"),
        ({"ffn": ForgetsGelu}, "blocks.1.ffn"),
        ({"block": ForgetsResidual}, "blocks.1"),
        ({"block": ForgetsFeed}, "blocks.1"),
    ],
)
def test_the_line_of_a_bug_is_named(parts, path, returns_all):
    culprit = report_of(Reference(), Port(**parts, returns_all=returns_all)).culprit

    shown = [
        linecache.getline(culprit.source.file, line) for line in range(culprit.source.first, culprit.source.last + 1)
    ]
    assert culprit.path == path
    assert any("# BUG" in line for line in shown), shown


def test_a_sum_in_another_order_is_not_blamed_for_a_bug_before_it():
    culprit = report_of(ParallelReference(), Port(ParallelBlock, ffn=ForgetsGelu)).culprit

    assert culprit.path == "blocks.1.ffn"
    assert "# BUG" in linecache.getline(culprit.source.file, culprit.source.first)
