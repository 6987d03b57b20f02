"""A search for a proof counts its work: it tries the same on a busy machine, and says how it ended."""

import time

import pytest
import torch
from torch import nn

import pytest_tfdebug
from pytest_tfdebug.parity.proof import budget, prove
from pytest_tfdebug.parity.proof.forward import Replay


class Norm(nn.Module):
    def __init__(self, power=2.0):
        super().__init__()
        self.power = power
        self.weight = nn.Parameter(torch.linspace(0.5, 2, 16))

    def forward(self, hidden):
        scale = torch.rsqrt(hidden.abs().pow(self.power).mean(-1, keepdim=True) + 1e-6)
        return hidden * scale * self.weight


class Another(Norm):
    """Computes something else: no change of it gives what the reference gives."""

    def forward(self, hidden):
        mixed = (hidden.exp() * self.weight.flip(0)).sin().cumsum(-1)
        return mixed * 1.37 + hidden.abs().sqrt().cumsum(0)


def report_on(port):
    hidden = torch.linspace(-1, 1, 5 * 16).view(5, 16).sin()
    expected, actual = (pytest_tfdebug.trace(each.eval(), hidden=hidden) for each in (Norm(), port))
    return pytest_tfdebug.compare(expected, actual)


@pytest.fixture(autouse=True)
def _with_a_search(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 5.0)


def test_change_that_mends_is_told_as_proved():
    report = report_on(Norm(power=1.0))

    assert report.search == "proved"
    assert "was cut" not in str(report)


def test_what_no_single_change_mends_is_told_as_exhausted(monkeypatch):
    monkeypatch.setattr(prove, "SECONDS", 60.0)
    report = report_on(Another())

    assert report.search == "exhausted"
    assert report.told_of_search == (
        "No single change that was tried makes every output agree: likely a second fault, or one of several places."
    )


def test_search_that_was_cut_says_which_setting_goes_on(monkeypatch):
    monkeypatch.setattr(prove, "SECONDS", 0.01)
    monkeypatch.setattr(prove, "FORWARDS", 0)

    report = report_on(Another())

    assert report.search == "cut"
    assert report.told_of_search == (
        "The search for a change that mends it was cut after 0.01 s of work: -o tf_explain_seconds=20 goes on."
    )


def test_slow_machine_tries_the_same_changes(monkeypatch):
    monkeypatch.setattr(prove, "SECONDS", 0.1)
    monkeypatch.setattr(budget, "WAITING", 1e6)
    run, tried = Replay.run, []

    def slowly(self, *args):
        tried[-1] += 1
        time.sleep(0.002 * (len(tried) - 1))
        return run(self, *args)

    monkeypatch.setattr(Replay, "run", slowly)
    ends = []
    for _ in range(2):
        tried.append(0)
        ends.append(report_on(Another()).search)

    assert tried[0] == tried[1] > 10
    assert ends[0] == ends[1]


def test_limit_holds_for_the_whole_explanation():
    counted = budget.Budget(1.0, begun=time.monotonic() - budget.WAITING)

    assert counted.spent() >= 1


def test_forward_that_takes_long_is_searched_for_ten_of_it():
    tape = pytest_tfdebug.tracing.values.tape.Tape()
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))
    pytest_tfdebug.tracing.values.rerun.Rerun(model, (torch.randn(4096, 512),), {}).values(tape=tape)

    assert 0.2 < budget.work_of_forward(tape) < 5


def test_budget_of_nothing_is_spent():
    assert budget.Budget(0.0).spent() >= 1
