"""``inputs=``: models whose forward has argument names of its own."""

import subprocess
import sys

import pytest
import torch

from pytest_tfdebug import (
    InvarianceError,
    TFDebugError,
    assert_invariant,
    assert_padding_invariant,
)

MODEL = '''
import pytest, torch
from torch import nn

class Pooled(nn.Module):
    """Takes the mean of its tokens, those that the mask hides left out, or not."""
    def __init__(self, leaks=False):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head, self.leaks = nn.Embedding(20, 4), nn.Linear(4, 2), leaks
    def forward(self, tokens, mask=None):
        hidden = self.embed(tokens)
        if mask is None or self.leaks:
            return self.head(hidden.mean(1))
        weights = mask[..., None].float()
        return self.head((hidden * weights).sum(1) / weights.sum(1))

IDS = torch.tensor([[3, 4, 5], [6, 7, 8]])
'''
MARKED = """
NAMES = {"tokens": "input_ids", "mask": "attention_mask"}

@pytest.mark.padding_invariant(inputs=NAMES)
@pytest.mark.invariant("batch", inputs=NAMES)
def test_good():
    Pooled()(IDS)

@pytest.mark.padding_invariant(inputs=NAMES)
def test_bad():
    Pooled(leaks=True)(IDS, mask=torch.ones_like(IDS))

@pytest.mark.padding_invariant
def test_without():
    Pooled()(IDS)

@pytest.mark.padding_invariant(inputs=["tokens"])
def test_no_dict():
    Pooled()(IDS)
"""
NAMES = {"tokens": "input_ids", "mask": "attention_mask"}


class Counting(torch.nn.Module):
    """A decoder under names of its own, whose cache is the sum of the tokens so far."""

    def __init__(self, *, forgets=False):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.is_causal, self.forgets = torch.nn.Embedding(20, 4), True, forgets

    def forward(self, tokens, memory=None):
        states = self.embed(tokens).cumsum(1)
        states = states if memory is None or self.forgets else states + memory
        return Answer(states, states[:, -1:])


class Answer(dict):
    def __init__(self, states, memory):
        super().__init__(states=states)
        self.memory = memory


def test_markers_take_the_names_of_a_forward(pytester):
    pytester.makeini("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    pytester.makepyfile(test_it=MODEL + MARKED)

    result = pytester.runpytest("--tf-repro")

    result.assert_outcomes(passed=1, failed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*Pooled (test_it.py:*) is not invariant to padding: input_ids padded by 1 on the right.",
            "padding_invariant checked nothing: *",
            "*(names of its own: inputs={'tokens': 'input_ids'} of the marker, names= of the function)",
        ]
    )
    (written,) = (path for path in pytester.path.glob("tfdebug-repro/*/repro.py"))
    again = subprocess.run([sys.executable, written], capture_output=True, text=True, check=False)
    assert again.returncode == 1, again.stdout + again.stderr
    assert "is not invariant to padding: input_ids padded by 1 on the right." in " ".join(again.stdout.split())


def test_functions_take_them_too():
    model, ids = Counting(), torch.tensor([[3, 4, 5], [6, 7, 8]])

    assert_padding_invariant(model, {"tokens": ids}, names={"tokens": "input_ids"})
    assert_invariant(model, {"tokens": ids}, "batch", names={"tokens": "input_ids"})


@pytest.mark.parametrize("forgets", [False, True])
def test_cache_may_have_a_name_of_its_own(forgets):
    names = {"tokens": "input_ids", "memory": "past_key_values"}
    model, inputs = Counting(forgets=forgets), {"tokens": torch.tensor([[3, 4, 5, 6], [6, 7, 8, 9]])}

    if not forgets:
        assert_invariant(model, inputs, "cache", names=names)
        return
    with pytest.raises(InvarianceError, match="gives another answer with its cache: 2 tokens of prefill and 2 steps"):
        assert_invariant(model, inputs, "cache", names=names)


def test_name_that_no_forward_takes_is_told():
    with pytest.raises(InvarianceError) as caught:
        assert_padding_invariant(Counting(), {"tokens": torch.tensor([[3, 4]])}, names={"token": "input_ids"})

    told = "padding_invariant: inputs= names 'token', which the forward does not take; it takes tokens, memory."
    assert str(caught.value) == told


def test_list_of_names_is_refused():
    with pytest.raises(TFDebugError, match=r"inputs=\['tokens'\] is not a dict of names"):
        assert_padding_invariant(Counting(), {"tokens": torch.tensor([[3, 4]])}, names=["tokens"])
