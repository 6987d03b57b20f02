"""What a notebook shows of a trace and of a comparison."""

import copy

import torch
from torch import nn

from pytest_tfdebug import compare, trace


def test_a_comparison_is_its_report_and_a_trace_its_tree():
    torch.manual_seed(0)
    reference = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    port = copy.deepcopy(reference)
    port[1] = nn.ReLU()
    recorded = trace(reference, torch.ones(2, 4))
    report = compare(recorded, trace(port, torch.ones(2, 4)))

    assert " in 1 (ReLU): " in report._repr_html_()
    assert "Drift" in report._repr_html_()
    assert "\n  0 (Linear) -&gt; float32[2, 4]" in recorded._repr_html_()


def test_what_strangers_write_is_text():
    evil = "<img src=x onerror=alert(1)>"

    shown = trace(type(evil, (nn.Linear,), {})(2, 2), torch.ones(1, 2))._repr_html_()

    assert evil not in shown
    assert "&lt;img" in shown
