"""A fork of the reference under the same names: what it writes in another form is not wrong, and hides no bug."""

import linecache

import pytest
import torch
from torch import nn

from pytest_tfdebug import compare, trace
from pytest_tfdebug.parity.tensors.comparator import in_one_form
from pytest_tfdebug.records import TensorRecord

WIDTH, TOKENS = 8, 6


class OfReference:
    """The reference's classes."""

    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x, mask):
            scores = self.query(x) @ x.transpose(1, 2) + mask
            value = self.value(x)
            return scores.softmax(-1) @ value

    class Model(nn.Module):
        def __init__(self, attend, norm):
            super().__init__()
            self.places, self.norm, self.attend = nn.Embedding(TOKENS, WIDTH), norm, attend

        def forward(self, x, seen):
            x = self.norm(x + self.places(torch.arange(TOKENS)[None]))
            mask = torch.zeros(len(x), TOKENS, TOKENS).masked_fill(seen[:, None] == 0, torch.finfo(x.dtype).min)
            return self.attend(x, mask)


class OwnNorm(nn.Module):
    axis = -1

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        mean = x.mean(self.axis, keepdim=True)
        if self.axis == 1:
            mean = x.mean(1, keepdim=True)  # BUG
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        return self.weight * (x - mean) / torch.sqrt(variance + 1e-5) + self.bias


class OfFork:
    """Those of its fork."""

    class Attend(nn.Module):
        is_wrong = False

        def __init__(self):
            super().__init__()
            self.query, self.value, self.dropout = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1)

        def forward(self, x, mask):
            scores = self.query(x) @ x.transpose(1, 2) + mask
            value = self.value(x)
            weights = scores.softmax(-1)
            if self.is_wrong:
                weights = scores.softmax(-2)  # BUG
            return self.dropout(weights) @ value

    class Model(nn.Module):
        def __init__(self, attend, norm):
            super().__init__()
            self.places, self.norm, self.attend = nn.Embedding(TOKENS, WIDTH), norm, attend

        def forward(self, x, seen):
            places = torch.arange(TOKENS).unsqueeze(0).expand(len(x), -1)
            x = self.norm(x + self.places(places))
            mask = (1.0 - seen[:, None].float()) * -10000.0
            return self.attend(x, mask)


def report(**wrong):
    torch.manual_seed(0)
    reference = OfReference.Model(OfReference.Attend(), nn.LayerNorm(WIDTH)).eval()
    fork = OfFork.Model(OfFork.Attend(), OwnNorm()).eval()
    fork.load_state_dict(reference.state_dict())
    for path, (name, value) in wrong.items():
        setattr(fork.get_submodule(path), name, value)
    seen = torch.ones(2, TOKENS, dtype=torch.long)
    seen[1, 4:] = 0
    given = torch.randn(2, TOKENS, WIDTH), seen
    return compare(trace(reference, *given), trace(fork, *given))


def test_fork_that_is_right_agrees():
    assert report().ok


@pytest.mark.parametrize("wrong", [{"attend": ("is_wrong", True)}, {"norm": ("axis", 1)}])
def test_module_of_a_bug_is_named_and_no_change_of_the_fork(wrong):
    culprit = report(**wrong).culprit

    assert culprit.path == next(iter(wrong))
    lines = range(culprit.source.first, culprit.source.last + 1)
    assert "# BUG" in "".join(linecache.getline(culprit.source.file, line) for line in lines)


def record(tensor):
    return TensorRecord("", tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor)


SHOWN = torch.tensor([[True, True, False]])


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        (torch.ones(2, 3), torch.ones(1, 3), True),
        (torch.ones(2, 3), torch.ones(3), False),
        (torch.ones(2, 3), torch.ones(2, 3), False),
        (torch.where(SHOWN, 0.0, -1e4), torch.where(SHOWN, 0.0, -torch.inf), True),
        (torch.where(SHOWN, 0.0, -1e4).expand(2, 3), SHOWN, True),
        (torch.where(SHOWN, 0.0, -1.0), torch.where(SHOWN, 0.0, -1e4), False),
    ],
)
def test_what_is_broadcast_or_a_mask_has_one_form(one, other, is_one):
    found = in_one_form(record(one), record(other))

    assert (found is not None) == is_one
    if found is not None:
        assert torch.equal(found[0].tensor, found[1].tensor)
