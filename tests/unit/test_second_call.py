"""A change that mends a port is tried on inputs that were not searched."""

import pytest
import torch
from torch import nn

import pytest_tfdebug
from pytest_tfdebug.parity.proof import prove

IDS = torch.arange(3, 23).view(2, 10)


class Mean(nn.Module):
    """Embeds tokens and takes the mean of what a layer makes of them."""

    def __init__(self):
        super().__init__()
        self.embedding, self.layer, self.last = nn.Embedding(50, 16), nn.Linear(16, 32), nn.Linear(32, 16)

    def states(self, ids):
        return self.last(torch.relu(self.layer(self.embedding(ids))))

    def forward(self, ids):
        return self.states(ids).sum(1) / ids.shape[1]


class OfNine(Mean):
    def forward(self, ids):
        return self.states(ids).sum(1) / 9  # BUG: ids.shape[1]


class WithTanh(Mean):
    def states(self, ids):
        return self.last(torch.tanh(self.layer(self.embedding(ids))))  # BUG: relu


@pytest.fixture(autouse=True)
def _as_long_as_it_takes(monkeypatch):
    monkeypatch.setattr(prove, "SECONDS", 60.0)


@pytest.fixture
def culprit_of(one_thread):
    def culprit(port_class):
        torch.manual_seed(0)
        reference, port = Mean().eval(), port_class().eval()
        port.load_state_dict(reference.state_dict())
        traces = (pytest_tfdebug.trace(model, IDS) for model in (reference, port))
        return pytest_tfdebug.compare(*traces).culprit

    return culprit


def test_change_that_mends_other_inputs_too_is_told_as_that(culprit_of):
    culprit = culprit_of(WithTanh)

    assert culprit.proved.startswith("with relu instead of tanh at test_second_call.py:")
    assert culprit.proved.endswith("every output agrees, also on inputs that were not searched")
    assert culprit.certain


def test_number_that_is_a_size_of_the_inputs_is_told_as_that(culprit_of):
    culprit = culprit_of(OfNine)

    assert culprit.proved.endswith("in the port divisor 10 instead of 9 for this input alone: 10 is its length")
    assert [(each.side, each.old, each.new) for each in culprit.changes] == [("reference", "10", "9")]
    assert culprit.patch == ""
