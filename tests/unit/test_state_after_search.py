"""A search for a change that mends a port leaves both models as they were."""

import copy

import pytest
import torch
from torch import nn

from pytest_tfdebug import compare, fill, trace
from pytest_tfdebug.parity.proof import prove


class Seen(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.low, self.norm, self.high, self.act = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 4, 3), act

    def forward(self, x):
        return self.high(self.act(self.norm(self.low(x))))


@pytest.mark.usefixtures("one_thread")
def test_running_statistics_are_as_they_were(monkeypatch):
    monkeypatch.setattr(prove, "SECONDS", 5.0)
    right = fill(Seen(torch.relu), seed=0).eval()
    wrong = copy.deepcopy(right)
    wrong.act = lambda x: x.abs() + 0.1 * x**3
    before = [{name: each.clone() for name, each in model.state_dict().items()} for model in (right, wrong)]
    x = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(0))

    report = compare(trace(right, x), trace(wrong, x))

    assert not report.ok
    assert report.search
    for model, state in zip((right, wrong), before, strict=True):
        assert [name for name, each in model.state_dict().items() if not torch.equal(each, state[name])] == []
