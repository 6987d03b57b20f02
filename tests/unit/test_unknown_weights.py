"""A weight that the reference holds nowhere is told where it is made, if all else that is computed with it is right."""

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


def text_of(source):
    return [linecache.getline(source.file, line).strip() for line in range(source.first, source.last + 1)]


def culprit_of(reference, port):
    with torch.no_grad():
        traces = [pytest_tfdebug.trace(model, X) for model in (reference, port)]
    return pytest_tfdebug.compare(*traces).culprit


class Asking(nn.Module):
    """Scales its queries once it has them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.LayerNorm(16)
        self.query, self.key = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        x = self.norm(x)
        return (self.query(x) * 0.25) @ self.key(x).mT


class Packed(nn.Module):
    """Holds scaled queries and keys in one matrix."""

    def __init__(self):
        super().__init__()
        self.norm, self.both = nn.LayerNorm(16), nn.Linear(16, 32)

    def forward(self, x):
        query, key = self.both(self.norm(x)).chunk(2, -1)
        return query @ key.mT


def pack(name, query, key, scale):
    weight, bias = scale * query.weight, query.bias
    return {f"{name}.weight": torch.cat([weight, key.weight]), f"{name}.bias": torch.cat([bias, key.bias])}


def test_weight_that_the_reference_holds_nowhere_is_told_where_it_is_made():
    reference = Asking().eval()
    port = Packed()
    state = {f"norm.{name}": tensor for name, tensor in reference.norm.state_dict().items()}
    state |= pack("both", reference.query, reference.key, 0.25)
    port.load_state_dict(state)
    culprit = culprit_of(reference, port.eval())

    assert "No parameter of the reference holds the numbers of 'both.weight'." in culprit.explanation
    assert not culprit.certain
    assert text_of(culprit.source)[0] == "weight, bias = scale * query.weight, query.bias"
