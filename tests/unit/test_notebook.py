"""What a notebook shows of a trace and of a comparison."""

import copy
import re

import torch
from torch import nn

from pytest_tfdebug import compare, trace
from pytest_tfdebug.check_record import ForwardRecord
from pytest_tfdebug.report.check_text import CheckText
from pytest_tfdebug.report.page import comparison_html


def models():
    torch.manual_seed(0)
    reference = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)))
    port = copy.deepcopy(reference)
    port[1][1] = nn.ReLU()
    return reference, port


def test_comparison_shows_the_culprit_first_then_the_curve_and_the_tree():
    reference, port = models()
    x = torch.ones(2, 4)

    shown = compare(trace(reference, x), trace(port, x))._repr_html_()

    places = [shown.index(part) for part in ("<b>", "1.1 (ReLU)", "<polyline", "<mark>1.1</mark>", "</span> 2 <i>")]
    assert places == sorted(places)
    assert shown.count("<circle") == 10
    assert shown.count("<details open><summary>") == 2  # the root, and what the culprit is in


def test_trace_is_a_tree_that_marks_what_is_not_finite():
    reference, _ = models()
    with torch.no_grad():
        reference[2][0].weight.fill_(torch.inf)

    shown = trace(reference, torch.ones(2, 4))._repr_html_()

    assert "Trace of Sequential" in shown
    assert re.findall(r'class="differs">▲</span> (\S+)', shown) == ["Sequential", "2", "2.0", "2.1"]


def test_what_strangers_write_is_text():
    evil = "<img src=x onerror=alert(1)>"
    module = type(evil, (nn.Linear,), {})(2, 2)
    shown = trace(module, torch.ones(1, 2))._repr_html_()

    assert evil not in shown + comparison_html(CheckText(evil, (evil,), (evil,)), ForwardRecord())
    assert "&lt;img" in shown
