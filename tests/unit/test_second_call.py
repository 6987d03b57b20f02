"""A change that mends a port is tried on inputs that were not searched."""

from pathlib import Path

import pytest
import torch
from torch import nn

import pytest_tfdebug
from pytest_tfdebug.parity.proof import prove
from pytest_tfdebug.parity.proof.second_call import UnknownFormError, turned

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


class Series(nn.Module):
    """Takes the mean of what is observed of a series off."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 16), nn.Linear(16, 3)

    def count(self, seen):
        return seen.sum(1, keepdim=True)

    def act(self, x):
        return torch.relu(x)

    def forward(self, x, seen):
        mean = (x * seen).sum(1, keepdim=True) / self.count(seen)
        return self.last(self.act(self.first(x - mean))) + mean


class TwoMistakes(Series):
    def count(self, seen):
        return seen.shape[1]  # BUG: counts what is missing

    def act(self, x):
        return torch.tanh(x)  # BUG: relu


SEEN = (torch.arange(60).view(2, 10, 3) % 4 > 0).float()


def test_series_and_their_masks_are_no_longer_than_they_were():
    known = [torch.randn(2, 10, 3), SEEN]

    with pytest.raises(UnknownFormError):
        turned(known, 3, 1)(SEEN)
    assert turned(known, 0, 1)(SEEN).shape == (3, 10, 3)


def test_both_mistakes_of_a_port_that_is_given_series_are_told(one_thread):
    torch.manual_seed(0)
    reference, port, series = Series().eval(), TwoMistakes().eval(), torch.randn(2, 10, 3)
    port.load_state_dict(reference.state_dict())

    report = pytest_tfdebug.compare(*(pytest_tfdebug.trace(model, series, SEEN) for model in (reference, port)))

    lines = Path(__file__).read_text("utf-8").splitlines()
    named = [lines[each.source.first - 1] for each in report.culprits if each.source is not None]
    assert len(named) == 2
    assert named[1].endswith("# BUG: relu")
    assert report.told_of_faults
