"""Weights of a list are used in another order than the reference uses them: told at the loop that loads them."""

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


class Stages(nn.Module):
    """Goes through its stages from the first to the last."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.begin, self.end = nn.Linear(16, 16), nn.Linear(16, 16)
        self.stages = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        x = self.begin(x)
        for stage in self.stages:
            x = torch.tanh(stage(x))
        return self.end(x)


class FromTheLast(Stages):
    """Goes through its stages from the last to the first, which are loaded as if it began with the first."""

    def forward(self, x):
        x = self.begin(x)
        for place in (2, 1, 0):
            x = torch.tanh(self.stages[place](x))
        return self.end(x)


def load_stages(reference):
    port = FromTheLast()
    state = {f"begin.{name}": tensor for name, tensor in reference.begin.state_dict().items()}
    state |= {f"end.{name}": tensor for name, tensor in reference.end.state_dict().items()}
    for place, stage in enumerate(reference.stages):
        state[f"stages.{place}.weight"] = stage.weight
        state[f"stages.{place}.bias"] = stage.bias
    port.load_state_dict(state)
    return port.eval()


def culprit_of(reference, port):
    with torch.no_grad():
        traces = [pytest_tfdebug.trace(model, X) for model in (reference, port)]
    return pytest_tfdebug.compare(*traces).culprit


def test_list_that_is_loaded_in_another_order_than_it_is_used_is_told_at_its_loop():
    reference = Stages().eval()
    culprit = culprit_of(reference, load_stages(reference))

    assert culprit.wrong == "uses the weights of a list in another order than the reference"
    assert culprit.proved.startswith("with the weights of stages in the order in which the reference uses them")
    assert text_of(culprit.source) == ["for place, stage in enumerate(reference.stages):"]
    assert not culprit.certain
