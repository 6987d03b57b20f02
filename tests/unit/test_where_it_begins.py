"""What a constructor or a line before makes is told there: a module of torch, a table, positions."""

import linecache

import pytest
import torch
from torch import nn

import pytest_tfdebug
from pytest_tfdebug.parity.proof import prove

X = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _as_long_as_it_takes(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 60.0)


def culprit_of(reference, port):
    with torch.no_grad():
        for seed, weight in enumerate(reference.parameters()):
            weight.normal_(generator=torch.Generator().manual_seed(seed)).mul_(0.3)
    port.load_state_dict(reference.state_dict())
    traces = (pytest_tfdebug.trace(model.eval(), X) for model in (reference, port))
    return pytest_tfdebug.compare(*traces).culprit


def lines_of(culprit):
    source = culprit.source
    return [linecache.getline(source.file, line).strip() for line in range(source.first, source.last + 1)]


class Enlarged(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv1d(8, 8, 1), nn.Conv1d(8, 8, 1)
        self.enlarge = nn.Upsample(scale_factor=2, mode="linear", align_corners=True)

    def forward(self, x):
        return self.last(torch.tanh(self.enlarge(self.first(x))))


class EnlargedByDefault(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv1d(8, 8, 1), nn.Conv1d(8, 8, 1)
        self.enlarge = nn.Upsample(scale_factor=2, mode="linear")

    def forward(self, x):
        return self.last(torch.tanh(self.enlarge(self.first(x))))


def test_flag_of_a_module_of_torch_is_told_where_that_is_made():
    culprit = culprit_of(Enlarged(), EnlargedByDefault())

    assert lines_of(culprit) == ['self.enlarge = nn.Upsample(scale_factor=2, mode="linear")']


def angles(width, length):
    steps = torch.arange(0, width, 2) / width
    turns = torch.outer(torch.arange(float(length)), 10.0**-steps)
    return turns.cos()


def angles_of_half_the_steps(width, length):
    steps = torch.arange(width // 2) / width
    turns = torch.outer(torch.arange(float(length)), 10.0**-steps)
    return turns.cos()


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 8), nn.Linear(8, 16)
        self.register_buffer("table", angles(16, 32), persistent=False)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)) * self.table[: x.shape[1]])


class TurnedByHalf(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 8), nn.Linear(8, 16)
        table = angles_of_half_the_steps(16, 32)
        self.register_buffer("table", table, persistent=False)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)) * self.table[: x.shape[1]])


def test_table_of_a_constructor_is_told_at_its_line_of_the_function_that_makes_it():
    culprit = culprit_of(Turned(), TurnedByHalf())

    assert lines_of(culprit) == ["steps = torch.arange(width // 2) / width"]
    assert not culprit.certain  # another base does the same, at another line


class TurnedOnce(TurnedByHalf):
    def __init__(self, _once):
        super().__init__()


def test_table_of_a_constructor_that_cannot_run_again_is_told_in_the_function_that_makes_it():
    culprit = culprit_of(Turned(), TurnedOnce(1))

    assert "steps = torch.arange(width // 2) / width" in lines_of(culprit)
    assert len(lines_of(culprit)) == 3


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        count = torch.arange(1, x.shape[1] + 1)
        return self.last(torch.tanh(self.first(x)) * (1 + torch.log(count // 3 + 1.0))[:, None])


class CountedFromZero(Counted):
    def forward(self, x):
        count = torch.arange(x.shape[1])
        return self.last(torch.tanh(self.first(x)) * (1 + torch.log(count // 3 + 1.0))[:, None])


def test_positions_that_begin_elsewhere_are_told_where_they_are_made():
    culprit = culprit_of(Counted(), CountedFromZero())

    assert lines_of(culprit) == ["count = torch.arange(x.shape[1])"]
