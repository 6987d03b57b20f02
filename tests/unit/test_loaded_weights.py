"""Weights that are wrong are told with the line that loads them, and by what the reference makes of its own."""

import linecache

import pytest
import torch
from torch import nn

import pytest_tfdebug
from pytest_tfdebug.parity.proof import prove

X = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _as_long_as_it_takes(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 20.0)


class Gated(nn.Module):
    """A query and a gate of each of four heads, side by side in one projection."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.both, self.last = nn.Linear(16, 16), nn.Linear(16, 32, bias=False), nn.Linear(16, 16)

    def forward(self, x):
        query, gate = self.both(self.first(x)).unflatten(-1, (4, 8)).chunk(2, -1)
        return self.last((torch.tanh(query) * torch.sigmoid(gate)).flatten(-2))


class OwnGated(nn.Module):
    def __init__(self):
        super().__init__()
        self.begin, self.end = nn.Linear(16, 16), nn.Linear(16, 16)
        self.asks, self.opens = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)

    def forward(self, x):
        x = self.begin(x)
        return self.end(torch.tanh(self.asks(x)) * torch.sigmoid(self.opens(x)))


def converted(reference, cut):
    port = OwnGated()
    port.begin.load_state_dict(reference.first.state_dict())
    port.end.load_state_dict(reference.last.state_dict())
    asks, opens = cut(reference.both.weight)
    put(port.asks, asks)
    put(port.opens, opens)
    return port.eval()


def put(layer, weight):
    layer.weight = nn.Parameter(weight.clone())


def side_by_side(weight):
    return [each.flatten(0, 1) for each in weight.unflatten(0, (4, 8)).chunk(2, 1)]


def in_halves(weight):
    return weight.chunk(2)


def exchanged(weight):
    return side_by_side(weight)[::-1]


def compared(cut):
    reference = Gated().eval()
    traces = (pytest_tfdebug.trace(model, X) for model in (reference, converted(reference, cut)))
    return pytest_tfdebug.compare(*traces)


def text_of(source):
    return [linecache.getline(source.file, line).strip() for line in range(source.first, source.last + 1)]


def test_parts_that_are_cut_as_the_reference_does_agree():
    assert compared(side_by_side).ok


def test_parts_of_a_weight_that_are_cut_otherwise_are_told_at_the_line_that_cuts_them():
    culprit = compared(in_halves).culprit

    assert culprit.kind == "weights"
    assert culprit.weights == ("asks.weight", "opens.weight")
    assert "'asks.weight', 'opens.weight' hold the numbers of 'both.weight', cut otherwise." in culprit.explanation
    assert text_of(culprit.source) == ["asks, opens = cut(reference.both.weight)"]


def test_parts_in_each_others_place_are_told_as_that():
    culprit = compared(exchanged).culprit

    assert culprit.wrong == "uses weights in each other's place"
    assert culprit.weights == ("asks.weight", "opens.weight")
    assert text_of(culprit.source) == ["asks, opens = cut(reference.both.weight)"]


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(nn.Conv1d(8, 8, 3, bias=False) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm1d(8) for _ in range(3))
        for norm in self.norms:
            for tensor in (norm.weight.data, norm.bias.data, norm.running_mean, norm.running_var):
                tensor.uniform_(0.5, 1.5)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = torch.tanh(norm(conv(nn.functional.pad(x, (1, 1)))))
        return x


class Folded(nn.Module):
    """Its convolutions hold what they and the norms behind them do."""

    def __init__(self, reference):
        super().__init__()
        self.kernels, self.shifts = nn.ParameterList(), nn.ParameterList()
        for conv, norm in zip(reference.convs, reference.norms, strict=True):
            gain = norm.weight / (norm.running_var + norm.eps).sqrt()
            self.kernels.append(conv.weight * gain[:, None, None])
            self.shifts.append(norm.bias - norm.running_mean * gain)

    def forward(self, x):
        for place, (kernel, shift) in enumerate(zip(self.kernels, self.shifts, strict=True)):
            margins = (2, 0) if place == 2 else (1, 1)
            x = torch.tanh(nn.functional.conv1d(nn.functional.pad(x, margins), kernel, shift))
        return x


def test_weights_that_a_port_computes_itself_are_not_blamed_where_others_of_them_are_right():
    reference = Normed().eval()
    with torch.no_grad():
        traces = [pytest_tfdebug.trace(model, X) for model in (reference, Folded(reference).eval())]
    culprit = pytest_tfdebug.compare(*traces).culprit

    assert culprit.weights == ()
    assert culprit.proved.startswith("with pad (1, 1), as the reference has, instead of (2, 0) at")
    assert text_of(culprit.source) == ["margins = (2, 0) if place == 2 else (1, 1)"]


class WithHead(OwnGated):
    def head(self):
        """Return what ``embed`` ties: self.end."""
        return self.end

    def twice(self, x):
        return 2 * self.end(x)


def test_line_that_returns_or_calls_a_module_does_not_load_its_weight():
    reference = Gated().eval()
    port = converted(reference, side_by_side)
    port.__class__ = WithHead
    with torch.no_grad():
        [*port.parameters()][2].normal_()
        traces = [pytest_tfdebug.trace(model, X) for model in (reference, port.eval())]
    culprit = pytest_tfdebug.compare(*traces).culprit

    assert culprit.weights == ("end.weight",)
    assert text_of(culprit.source) == ["port.end.load_state_dict(reference.last.state_dict())"]
