"""Which line is blamed in a port that is written in functions, with fused weights: one bug for each rule."""

import linecache

import pytest
import torch
from torch import nn

from pytest_tfdebug import compare, fill, trace
from pytest_tfdebug.parity.proof import prove

WIDTH, HEADS = 16, 2
IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])


def turned(x):
    angles = torch.arange(x.shape[-2])[:, None] / 10.0 ** torch.arange(x.shape[-1] // 2)
    one, other = x.chunk(2, -1)
    return torch.cat([one * angles.cos() - other * angles.sin(), one * angles.sin() + other * angles.cos()], -1)


class Layer(nn.Module):
    def __init__(self, *, turns):
        super().__init__()
        self.norm, self.turns = nn.LayerNorm(WIDTH), turns
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        h = self.norm(x)
        q, k, v = (part(h).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        if self.turns:
            q, k = turned(q), turned(k)
        weights = (q @ k.transpose(2, 3) / 8**0.5).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).flatten(2))


class Reference(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.first = nn.Embedding(32, WIDTH), nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList([Layer(turns=True), Layer(turns=False)])

    def forward(self, ids):
        x = self.first(self.embed(ids))
        for layer in self.layers:
            x = layer(x)
        return {"last": x}


def normed(x, weight, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight + bias


class Port(nn.Module):
    """Every weight is its own; what is done with them stands in functions."""

    def __init__(self, reference):
        super().__init__()
        table, *first = reference.embed.weight, *reference.first.parameters()
        self.table, self.first = nn.Parameter(table), nn.ParameterList(first)
        self.norms = nn.ModuleList(nn.ParameterList(each.norm.parameters()) for each in reference.layers)
        self.asks = nn.ModuleList(each.query for each in reference.layers)
        self.tells = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in reference.layers)
        self.ends = nn.ModuleList(each.out for each in reference.layers)
        with torch.no_grad():
            for tell, layer in zip(self.tells, reference.layers, strict=True):
                tell.weight.copy_(torch.cat([layer.key.weight, layer.value.weight]))
                tell.bias.copy_(torch.cat([layer.key.bias, layer.value.bias]))

    def begin(self, ids):
        return normed(self.table[ids], *self.first)

    def read(self, h, number):
        return self.tells[number](h).unflatten(-1, (2, HEADS, -1)).transpose(1, 3).unbind(2)

    def place(self, q, k, number):
        return (turned(q), turned(k)) if number == 0 else (q, k)

    def block(self, x, number):
        h = normed(x, *self.norms[number])
        k, v = self.read(h, number)
        q, k = self.place(self.asks[number](h).unflatten(-1, (HEADS, -1)).transpose(1, 2), k, number)
        weights = (q @ k.transpose(2, 3) / 8**0.5).softmax(-1)
        return x + self.ends[number]((weights @ v).transpose(1, 2).flatten(2))

    def forward(self, ids):
        x = self.begin(ids)
        for number in range(2):
            x = self.block(x, number)
        return {"last": x}


class WithoutFirstNorm(Port):
    def begin(self, ids):
        return self.table[ids]  # BUG


class ExchangedParts(Port):
    def block(self, x, number):
        h = normed(x, *self.norms[number])
        v, k = self.tells[number](h).unflatten(-1, (2, HEADS, -1)).transpose(1, 3).unbind(2)  # BUG
        q, k = self.place(self.asks[number](h).unflatten(-1, (HEADS, -1)).transpose(1, 2), k, number)
        weights = (q @ k.transpose(2, 3) / 8**0.5).softmax(-1)
        return x + self.ends[number]((weights @ v).transpose(1, 2).flatten(2))


class AlwaysTurns(Port):
    def place(self, q, k, number):
        return turned(q), turned(k)  # BUG


def blamed(reference, port, *inputs):
    """Return the culprit and its lines."""
    report = compare(trace(reference, *inputs), trace(port, *inputs))
    assert report.culprit is not None, report
    source = report.culprit.source
    return report.culprit, linecache.getlines(source.file)[source.first - 1 : source.last]


@pytest.fixture
def reference():
    return fill(Reference().eval(), seed=0)


def test_right_port_has_no_culprit(reference):
    assert compare(trace(reference, IDS), trace(Port(reference).eval(), IDS)).culprit is None


@pytest.mark.parametrize(
    ("wrong", "seconds"),
    [
        (WithoutFirstNorm, 0.0),
        (WithoutFirstNorm, 60.0),
        (ExchangedParts, 60.0),
        (AlwaysTurns, 0.0),
        (AlwaysTurns, 60.0),
    ],
)
def test_function_that_does_it_is_named_and_no_helper_of_it(monkeypatch, one_thread, reference, wrong, seconds):
    monkeypatch.setattr(prove, "SECONDS", seconds)

    _, lines = blamed(reference, wrong(reference).eval(), IDS)

    assert len(lines) == 1
    assert "# BUG" in lines[0]


class Image(nn.Module):
    """A convolution with a bias, of which a norm takes the mean off; then tokens of patches that attend."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(3, 6, 2, 2), nn.LayerNorm(12), nn.Linear(12, 5)
        self.skip = nn.Conv2d(3, 6, 2, 2, bias=False)

    def tokens(self, x):
        return x.flatten(2).transpose(1, 2)

    def joined(self, x):
        return torch.cat([self.conv(x), self.skip(x)], 1)

    def forward(self, x):
        tokens = self.norm(self.tokens(self.joined(x)))
        return {"last": self.out((tokens @ tokens.transpose(1, 2)).softmax(-1) @ tokens)}


class OtherNames(nn.Module):
    def __init__(self, image):
        super().__init__()
        self.patches, self.past, self.scale, self.end = image.conv, image.skip, image.norm, image.out

    def tokens(self, x):
        return x.flatten(2).transpose(1, 2)

    def joined(self, x):
        return torch.cat([self.patches(x), self.past(x)], 1)

    def forward(self, x):
        t = self.scale(self.tokens(self.joined(x)))
        return {"last": self.end((t @ t.transpose(1, 2)).softmax(-1) @ t)}


class WithoutBias(OtherNames):
    def joined(self, x):
        return torch.cat([nn.functional.conv2d(x, self.patches.weight, stride=2), self.past(x)], 1)  # BUG


class OtherOrder(OtherNames):
    def joined(self, x):
        return torch.cat([self.past(x), self.patches(x)], 1)  # BUG


@pytest.mark.parametrize(
    ("wrong", "proved"),
    [
        (WithoutBias, "your port lacks the bias of test_functional_ports.py:"),
        (OtherOrder, "with what it puts together in the order (1, 0) at test_functional_ports.py:"),
    ],
)
def test_change_that_mends_it_is_told(monkeypatch, one_thread, wrong, proved):
    monkeypatch.setattr(prove, "SECONDS", 60.0)
    image = fill(Image().eval(), seed=0)

    culprit, lines = blamed(image, wrong(image).eval(), torch.linspace(-1, 1, 96).view(2, 3, 4, 4).sin())

    assert culprit.proved.startswith(proved)
    assert "# BUG" in lines[0]


class Grouped(nn.Module):
    """Attends among tokens of one place in all patches."""

    def __init__(self):
        super().__init__()
        self.read, self.end = nn.Linear(6, 6), nn.Linear(6, 6)

    def grouped(self, x):
        return x.unflatten(1, (3, 2)).transpose(1, 2).flatten(0, 1)

    def forward(self, x):
        tokens = self.read(self.grouped(x))
        return {"last": self.end((tokens @ tokens.transpose(1, 2)).softmax(-1) @ tokens)}


class GroupedByPatch(Grouped):
    def grouped(self, x):
        return x.unflatten(1, (2, 3)).flatten(0, 1)  # BUG


def test_what_puts_elements_into_another_order_is_named_and_not_where_it_matters():
    reference = fill(Grouped().eval(), seed=0)
    port = GroupedByPatch().eval()
    port.load_state_dict(reference.state_dict())

    culprit, lines = blamed(reference, port, torch.linspace(-2, 3, 72).view(2, 6, 6).cos())

    assert culprit.wrong == "puts elements in another order than the reference"
    assert "# BUG" in lines[0]


class TwoNorms(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.one, self.two, self.last = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x):
        x = x + self.one(self.before(x)).relu()
        x = x + self.two(self.after(x)).relu()
        return {"last": self.last(x)}


class OfWeights(nn.Module):
    """Takes its weights out of a dict of the reference's names, by names of its own."""

    NAMES = {"gain": "before", "later": "after", "in": "one", "out": "two", "end": "last"}  # noqa: RUF012 - read alone

    def __init__(self, reference):
        super().__init__()
        held = reference.state_dict()
        self.held = nn.ParameterDict(
            {
                f"{own}_{kind}": held[f"{there}.{kind}"].clone()
                for own, there in self.NAMES.items()
                for kind in ("weight", "bias")
            }
        )

    def pair(self, name):
        return self.held[f"{name}_weight"], self.held[f"{name}_bias"]

    def forward(self, x):
        x = x + nn.functional.linear(normed(x, *self.pair("gain")), *self.pair("in")).relu()  # before
        x = x + nn.functional.linear(normed(x, *self.pair("later")), *self.pair("out")).relu()
        return {"last": nn.functional.linear(x, *self.pair("end"))}


class ExchangedWeights(OfWeights):
    NAMES = {**OfWeights.NAMES, "gain": "after", "later": "before"}  # noqa: RUF012


class TwiceTheSame(OfWeights):
    NAMES = {**OfWeights.NAMES, "out": "one"}  # noqa: RUF012


def of_weights(wrong):
    reference = fill(TwoNorms().eval(), seed=0)
    return blamed(reference, wrong(reference).eval(), torch.linspace(-2, 3, 160).view(2, 5, WIDTH).cos())


def test_weights_in_each_others_place_are_told_where_the_first_is_used(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 60.0)

    culprit, lines = of_weights(ExchangedWeights)

    assert culprit.wrong == "uses weights in each other's place"
    assert not culprit.certain
    assert lines[0].rstrip().endswith("# before")


def test_weights_that_were_loaded_twice_are_named(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 0.0)

    culprit, _ = of_weights(TwiceTheSame)

    assert (culprit.kind, culprit.weights) == ("weights", ("held.out_bias", "held.out_weight"))
    assert "'held.out_weight' holds the numbers of 'one.weight', which belong elsewhere." in culprit.why
