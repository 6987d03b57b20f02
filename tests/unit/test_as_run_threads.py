"""Threads: a forward is what one of them calls."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from pytest_tfdebug import ActivationOverflowError, TFDebugError, compare, record, trace
from pytest_tfdebug.overflow.guard import overflow_guard

X = torch.arange(8.0).view(2, 4) / 8


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)) for _ in range(4))

    def forward(self, x):
        def run(expert):
            with torch.no_grad():
                return expert(x)

        with ThreadPoolExecutor(3) as pool:
            return torch.stack(list(pool.map(run, self.experts))).sum(0)


class Model(nn.Module):
    def __init__(self, wrong=None):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Experts() for _ in range(2))
        if wrong is not None:
            self.get_submodule(wrong).weight.data += 1

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


@pytest.mark.as_run(
    "threads",
    works="Outputs are compared, and overflow is found in every thread.",
    limits="What other threads call is not recorded.",
)
def test_bug_in_a_thread_belongs_to_the_module_that_started_it():
    expected, actual = trace(Model(), X), trace(Model("blocks.0.experts.3.2"), X)

    assert compare(expected, trace(Model(), X)).ok
    assert [call.path for call in expected] == ["Model", "blocks.0", "blocks.1"]
    report = compare(expected, actual)
    assert not report.ok
    assert report.culprit.path == "blocks.0"


def test_calls_in_threads_are_watched():
    model = Model()
    model.get_submodule("blocks.0.experts.3.2").weight.data *= float("inf")

    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(model), torch.no_grad():
        model(X)

    assert "blocks.0.experts.3.2" in str(caught.value)


def test_models_that_run_in_several_threads_are_forwards_of_their_own():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with record(model) as recorded, ThreadPoolExecutor(2) as pool:
        list(pool.map(model, [X, X]))

    assert sum(call.parent is None for call in recorded) == 2


class Waits(nn.Module):
    """Waits inside its forward until another thread has done something."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 4), nn.Linear(4, 4)
        self.waits, self.inside, self.goes_on = True, threading.Event(), threading.Event()

    def forward(self, x):
        x = self.up(x)
        if threading.current_thread() is threading.main_thread() and self.waits:
            self.inside.set()
            assert self.goes_on.wait(20)
        return self.down(x)


def beside(model, function):
    """Trace a model, and call a function in another thread while its forward is under way."""
    found = []

    def other():
        assert model.inside.wait(20)
        try:
            found.append(function())
        except TFDebugError as error:
            found.append(error)
        model.goes_on.set()

    thread = threading.Thread(target=other)
    thread.start()
    recorded = trace(model, X)
    thread.join()
    return recorded, found[0]


def test_forward_that_another_thread_makes_meanwhile_is_not_of_the_trace():
    model = Waits()

    recorded, output = beside(model, lambda: model(2 * X))

    assert [call.path for call in recorded] == ["Waits", "up", "down"]
    assert torch.equal(recorded["Waits"].inputs[0].tensor, X)
    assert not torch.equal(output, recorded["Waits"].outputs[0].tensor)


class Overtaken(Waits):
    """Begins in another thread, and goes on there when this thread is inside its own forward."""

    def forward(self, x):
        x = self.up(x)
        if threading.current_thread() is threading.main_thread():
            self.goes_on.set()
            assert self.done.wait(20)
            return self.down(x)
        self.inside.set()
        assert self.goes_on.wait(20)
        x = self.down(self.down(x))
        self.done.set()
        return x


def test_forward_that_another_thread_began_before_is_not_of_the_trace():
    model = Overtaken()
    model.done = threading.Event()
    thread = threading.Thread(target=lambda: model(2 * X))
    thread.start()
    assert model.inside.wait(20)

    recorded = trace(model, X)

    thread.join()
    assert [call.path for call in recorded] == ["Overtaken", "up", "down"]
    assert recorded.notes == ()


def test_second_tracer_in_another_thread_is_refused_and_leaves_nothing_behind():
    model = Waits()

    recorded, error = beside(model, lambda: trace(model, X))

    assert isinstance(error, TFDebugError)
    assert str(error) == (
        "Waits is already traced or checked in another thread.\n"
        "Trace one after the other, or give each thread a copy of the model."
    )
    assert len(recorded) == 3
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    model.waits = False
    assert len(trace(model, X)) == 3
