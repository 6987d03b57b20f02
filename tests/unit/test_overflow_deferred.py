"""Devices that make the host wait: every number stays there until the forward ends, then all come at once.

There is no such device in most test runs, so one is played: tensors of the CPU count as being elsewhere, and what the
host reads is counted.
"""

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from pytest_tfdebug import ActivationOverflowError, overflow_guard
from pytest_tfdebug.overflow import extremes
from pytest_tfdebug.report.overflow import place

IDS = torch.tensor([[5, 17, 3, 42, 8, 21, 60], [9, 1, 33, 2, 7, 50, 11]])


class Exploding(nn.Module):
    def forward(self, x):
        return (x + 1) * float("inf")


class Keeping(Exploding):
    def forward(self, x):
        self.kept = super().forward(x)
        return self.kept


@pytest.fixture
def elsewhere(monkeypatch):
    """Play a device that is read only in one go; return the reads, each a list of numbers."""
    monkeypatch.setattr(extremes, "is_read_at_once", lambda _: False)
    reads = []
    tolist = torch.Tensor.tolist

    def counted(tensor):
        reads.append(tolist(tensor))
        return reads[-1]

    def refused(_):
        pytest.fail("a number was read in the middle of a forward")

    monkeypatch.setattr(torch.Tensor, "tolist", counted)
    monkeypatch.setattr(torch.Tensor, "__float__", refused)
    monkeypatch.setattr(torch.Tensor, "__bool__", refused)
    monkeypatch.setattr(torch.Tensor, "item", refused)
    return reads


def llama(**config):
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, **config)).eval()


def test_forward_is_read_back_once(elsewhere):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    with overflow_guard(model):
        model(torch.ones(2, 4))
        before = len(elsewhere)
        model(torch.ones(2, 4))

    assert before == 2  # the parameters once, and the forward
    assert len(elsewhere) == 3
    assert len(elsewhere[-1]) == 2 * 4  # the input and three outputs, smallest and largest of each


def test_origin_is_the_one_that_is_found_on_the_cpu(monkeypatch):
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(Exploding()), nn.Linear(4, 4))
    now = report_of(model)

    monkeypatch.setattr(extremes, "is_read_at_once", lambda _: False)
    later = report_of(model)

    assert now.splitlines()[0].endswith(" in 1.0 (Exploding): output has infs")
    assert later.splitlines()[:3] == now.splitlines()[:3]
    assert later.partition("last ")[2] == now.partition("last ")[2]
    assert "Its elements could not be counted on this device; a run on the CPU counts them." in later
    assert "Not finite" in now


def test_culprit_that_is_still_alive_is_counted(monkeypatch):
    monkeypatch.setattr(extremes, "is_read_at_once", lambda _: False)

    report = report_of(nn.Sequential(Keeping(), nn.Linear(4, 4)))

    assert "Not finite: 8 / 8 elements (100.0%), first at index (0, 0)." in report


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_masks_of_minus_infinity_are_no_fault(attention, monkeypatch):
    monkeypatch.setattr(extremes, "is_read_at_once", lambda _: False)
    model = llama(attn_implementation=attention)
    mask = torch.triu(torch.full((7, 7), float("-inf")), 1).expand(2, 1, 7, 7)

    with torch.no_grad(), overflow_guard(model, dtype="float16", headroom=2.0) as guard:
        model(IDS, attention_mask=mask)

    assert guard.tightest[0].ratio > 1000


def test_same_modules_are_tightest(monkeypatch):
    model = llama()
    with torch.no_grad(), overflow_guard(model, dtype="float16", headroom=2.0) as now:
        model(IDS)

    monkeypatch.setattr(extremes, "is_read_at_once", lambda _: False)
    with torch.no_grad(), overflow_guard(model, dtype="float16", headroom=2.0) as later:
        model(IDS)

    assert later.tightest == now.tightest


def test_gradients_are_read_back_once_a_backward(elsewhere):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    with overflow_guard(model, gradients=True):
        model(torch.ones(2, 4)).sum().backward()
        before = len(elsewhere)
        model(torch.ones(2, 4)).sum().backward()

    assert len(elsewhere) - before == 2  # the forward, and the backward


def test_non_finite_gradient_is_found_at_the_end_of_the_backward(monkeypatch):
    monkeypatch.setattr(extremes, "is_read_at_once", lambda _: False)
    model = nn.Sequential(nn.Linear(4, 2)).half()

    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(model, gradients=True):
        (model(torch.ones(100, 4).half()) * 3e4).sum().backward()

    assert place(caught.value.fault.frame) == "^ [0] 0: Linear: gradient of bias"


def report_of(model):
    with torch.no_grad(), pytest.raises(ActivationOverflowError) as caught, overflow_guard(model):
        model(torch.ones(2, 4))
    return str(caught.value)
