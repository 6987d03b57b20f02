"""Trainings that move parameters and buffers without an optimiser of torch, or beside it, held to a reference."""

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from pytest_tfdebug import compare_steps

BATCHES = [torch.randn(6, 8, generator=torch.Generator().manual_seed(number)) for number in range(3)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 8)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


class Taught(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = Net()
        self.teacher = copy.deepcopy(self.student).requires_grad_(requires_grad=False).eval()

    def forward(self, x):
        return (self.student(x) - self.teacher(x)).square().mean()


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.made, self.judged = nn.Linear(8, 8), nn.Linear(8, 1)


def seeded(kind):
    torch.manual_seed(0)
    return kind()


def loss_of(model, batch):
    return (model(batch) - batch).square().mean()


def by_torch(model, batches, clip=100.0):
    held = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in batches:
        held.zero_grad()
        loss_of(model, batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        held.step()


def by_hand(model, batches, *, momentum=0.9, zeroes=True, clip=100.0):
    kept = {}
    for batch in batches:
        if zeroes:
            model.zero_grad()
        loss_of(model, batch).backward()  # BACK
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                kept[name] = momentum * kept.get(name, 0) + weight.grad
                weight.sub_(0.1 * kept[name])


@pytest.mark.parametrize("clip", [100.0, 0.1], ids=["not clipped", "clipped"])
@pytest.mark.parametrize("run", [by_torch, by_hand])
def test_loop_without_an_optimiser_agrees_with_what_does_the_same(run, clip):
    runs = partial(run, clip=clip), partial(by_hand, clip=clip)
    report = compare_steps(seeded(Net), seeded(Net), BATCHES, run=runs[0], port_run=runs[1])

    assert report.ok, report
    assert "So do 3 steps of own code." in report.agreement


def test_loop_without_an_optimiser_is_told_by_what_it_moves_otherwise():
    def wrong(model, batches):
        by_hand(model, batches, momentum=0.0)

    report = compare_steps(seeded(Net), seeded(Net), BATCHES, run=by_hand, port_run=wrong)

    assert report.culprit.wrong == "first.weight is moved otherwise than the reference's after this backward"
    assert "In step 2, 5 parameters: first.weight, norm.weight," in str(report)  # BatchNorm takes a bias away
    assert not report.culprit.certain


def test_gradients_that_a_loop_does_not_zero_are_told():
    def wrong(model, batches):
        by_hand(model, batches, zeroes=False)

    report = compare_steps(seeded(Net), seeded(Net), BATCHES, run=by_hand, port_run=wrong)

    assert report.culprit.wrong == "does not zero the gradients"


def taught(*, averages_buffers=True, decay=0.9):
    def run(model, batches):
        held = torch.optim.SGD(model.student.parameters(), lr=0.1)
        for batch in batches:
            held.zero_grad()
            model(batch + 1).backward()
            held.step()
            with torch.no_grad():
                source = model.student.state_dict()
                held_there = model.teacher.state_dict() if averages_buffers else dict(model.teacher.named_parameters())
                for name, value in held_there.items():
                    if value.is_floating_point():
                        value.lerp_(source[name], 1 - decay)

    return run


def held_to_taught(**otherwise):
    return compare_steps(seeded(Taught), seeded(Taught), BATCHES, run=taught(), port_run=taught(**otherwise))


def test_averages_of_weights_that_do_the_same_agree():
    assert held_to_taught()


def test_buffers_that_an_average_leaves_out_are_told():
    report = held_to_taught(averages_buffers=False)

    assert report.culprit.wrong == "teacher.norm.running_mean is not updated"
    assert "2 buffers: teacher.norm.running_mean, teacher.norm.running_var." in str(report)


def test_average_of_another_decay_is_told():
    report = held_to_taught(decay=0.5)

    assert report.culprit.wrong == "teacher.first.weight moves 5 times as far as the reference's before step 2"
    assert "5 parameters, outside of the optimiser's steps" in str(report)


def against_each_other(zeroes="judged"):
    def run(model, batches):
        held = {name: torch.optim.Adam(getattr(model, name).parameters(), lr=1e-2) for name in ("made", "judged")}
        for batch in batches:
            held["made"].zero_grad()
            model.judged(model.made(batch)).mean().backward()
            held["made"].step()
            held[zeroes].zero_grad()
            (model.judged(batch) - model.judged(model.made(batch).detach())).mean().backward()
            held["judged"].step()  # STEP

    return run


def test_optimiser_that_sees_gradients_of_another_one_is_told():
    runs = against_each_other(), against_each_other(zeroes="made")
    report = compare_steps(seeded(Both), seeded(Both), BATCHES, run=runs[0], port_run=runs[1])

    assert report.culprit.wrong == "does not zero the gradients of 2 parameters before step 2"
    assert "Adam sees more than the backwards of this step have added: judged.weight," in " ".join(str(report).split())
    assert report.culprit.source.first == line_of("# STEP")


def test_optimiser_of_a_parameter_that_the_model_has_replaced_is_told():
    def replaced(model, batches):
        held = torch.optim.SGD(model.parameters(), lr=0.1)  # MADE
        model[2].weight = nn.Parameter(model[2].weight.detach().clone())
        for batch in batches:
            held.zero_grad()
            loss_of(model, batch).backward()
            held.step()

    report = compare_steps(seeded(Plain), seeded(Plain), BATCHES, run=whole, port_run=replaced)

    assert report.culprit.wrong == "SGD has parameters that the model has replaced: 2.weight"
    assert report.culprit.source.first == line_of("# MADE")


def whole(model, batches):
    held = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        held.zero_grad()
        loss_of(model, batch).backward()
        held.step()


def in_parts(*, divided=True):
    def run(model, batches):
        held = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in batches:
            held.zero_grad()
            for part in batch.split([4, 2]):
                share = len(part) / len(batch) if divided else 1.0
                (loss_of(model, part) * share).backward()
            held.step()

    return run


def test_batch_in_two_parts_agrees_with_the_whole():
    report = compare_steps(seeded(Plain), seeded(Plain), BATCHES, run=whole, port_run=in_parts())

    assert report.agreement == (
        "Parity: the gradients of 4 parameters agree, of 2 backwards here and 1 backward there; the values behind them "
        "were not compared. So do 3 steps of SGD."
    )


def test_parts_that_are_not_weighted_are_told():
    report = compare_steps(seeded(Plain), seeded(Plain), BATCHES, run=whole, port_run=in_parts(divided=False))

    assert report.culprit.wrong == "makes 2 backwards before step 1; the reference makes 1 backward"
    assert "The gradient of all batches of step 1 is another for 4 parameters" in " ".join(str(report).split())


class Plain(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))


def line_of(mark):
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(mark))
