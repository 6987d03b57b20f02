"""Trainings that differ from the reference's in one thing: that thing is told, and proved by the steps that it gives."""

import linecache

import pytest
import test_steps_backward
import torch
from test_steps_backward import load_port, port_loss, reference_loss
from torch.nn.utils import clip_grad_norm_

from pytest_tfdebug import TFDebugError, compare_steps


def load_reference():
    """Return the Llama with one layer of its three."""
    reference = test_steps_backward.load_reference()
    reference.model.layers = reference.model.layers[:1]
    reference.config.num_hidden_layers = 1
    return reference


BATCHES = [torch.randint(0, 99, (2, 6), generator=torch.Generator().manual_seed(number)) for number in range(4)]


class OwnAdam(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, eps, weight_decay=0.0, **otherwise):
        self.otherwise = otherwise
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                self.move(weight, group, self.state[weight], **self.otherwise)

    def move(self, weight, group, state, *, corrected=True, inside=False, coupled=False):
        if not state:
            state.update(count=0, first=torch.zeros_like(weight), second=torch.zeros_like(weight))
        state["count"] += 1
        lr, eps, (beta1, beta2) = group["lr"], group["eps"], group["betas"]
        gradient = weight.grad + group["weight_decay"] * weight * coupled
        state["first"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        state["second"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        biases = (1 - beta1 ** state["count"], 1 - beta2 ** state["count"]) if corrected else (1, 1)
        second = state["second"] / biases[1]
        weight.mul_(1 - lr * group["weight_decay"] * (not coupled))
        weight.sub_(lr * (state["first"] / biases[0]) / ((second + eps).sqrt() if inside else second.sqrt() + eps))


def training(  # noqa: C901, PLR0913 - each argument is a thing that a trainer may do otherwise
    loss,
    *,
    optimizer=torch.optim.AdamW,
    decay=0.01,
    decay_of_norms=0.0,
    betas=(0.9, 0.95),
    clip=1.0,
    divided=2,
    zeroed="step",
    scheduled="after",
    without="nothing",
    **more,
):
    """Return a run of two steps of two batches each."""

    def run(model, batches):
        named = [(name, each) for name, each in model.named_parameters() if without not in name]
        groups = [
            {"params": [each for _, each in named if each.dim() > 1], "weight_decay": decay},
            {"params": [each for _, each in named if each.dim() == 1], "weight_decay": decay_of_norms},
        ]
        held = optimizer(groups, lr=1e-3, betas=betas, eps=1e-8, **more)  # MADE
        schedule = torch.optim.lr_scheduler.LambdaLR(held, lambda step: 1 / (1 + step))
        for first in (0, 2):
            if zeroed == "step":
                held.zero_grad()
            for batch in batches[first : first + 2]:
                if zeroed == "batch":
                    held.zero_grad()
                (loss(model, batch) / divided).backward()  # BACK
            if clip == "each":
                for each in model.parameters():
                    clip_grad_norm_([each], 1.0)
            elif clip:
                clip_grad_norm_(model.parameters(), clip)
            if scheduled == "before":
                schedule.step()
            held.step()  # STEP
            if scheduled == "after":
                schedule.step()

    return run


def held(**otherwise):
    run = training(reference_loss)
    return compare_steps(
        load_reference(), load_port(load_reference()), BATCHES, run=run, port_run=training(port_loss, **otherwise)
    )


#: What is done otherwise, what is said, what proves it, and what the line ends in.
FAULTS = [
    ({"decay": 0.1}, "AdamW has weight_decay 0.1", "", "MADE"),
    ({"decay_of_norms": 0.01}, "AdamW has weight_decay 0.01 for blocks.0.attention_norm.scale", "", "MADE"),
    ({"betas": (0.9, 0.999)}, "AdamW has betas (0.9, 0.999); the reference has (0.9, 0.95)", "", "MADE"),
    ({"without": "head"}, "AdamW does not have head.weight", "", "MADE"),
    ({"clip": 0}, "does not clip the gradients", "", "STEP"),
    ({"clip": "each"}, "clips or scales each parameter's gradient alone", "", "clip_grad_norm_([each], 1.0)"),
    ({"divided": 1}, "gives 2 times the gradient: the loss is not divided by 2", "", "BACK"),
    ({"zeroed": ""}, "does not zero the gradients", "", "BACK"),
    ({"zeroed": "batch"}, "zeroes the gradients between two batches of a step", "", "held.zero_grad()"),
    (
        {"optimizer": OwnAdam, "corrected": False},
        "does not correct the bias of its moments",
        "gives the port's steps",
        "",
    ),
    ({"optimizer": OwnAdam, "inside": True}, "adds epsilon under the root", "gives the port's steps", ""),
    (
        {"optimizer": OwnAdam, "coupled": True},
        "adds the weight decay to the gradient (L2)",
        "gives the port's steps",
        "",
    ),
]


@pytest.mark.parametrize(("otherwise", "said", "proved", "line"), FAULTS, ids=lambda each: str(each)[:40])
def test_training_that_does_one_thing_otherwise_is_told(otherwise, said, proved, line):
    report = held(**otherwise)

    culprit = report.culprit
    assert not report
    assert culprit.kind == "step"
    assert culprit.certain
    assert said in str(report).splitlines()[0]
    assert proved in culprit.proved
    assert line in linecache.getline(culprit.source.file, culprit.source.first)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_scheduler_that_steps_too_early_is_told_by_its_right_step():
    report = held(scheduled="before")

    assert "AdamW has lr 0.0005; the reference has 0.001" in str(report).splitlines()[0]
    assert "the reference's lr of step 2" in report.culprit.explanation


@pytest.mark.parametrize("otherwise", [{}, {"optimizer": OwnAdam}], ids=["torch", "own"])
def test_training_that_does_the_same_agrees(otherwise):
    report = held(**otherwise)

    assert report
    assert "So do 2 steps of" in str(report)


def test_training_leaves_weights_as_they_were():
    port = load_port(load_reference())
    before = {name: value.clone() for name, value in port.state_dict().items()}
    run = training(reference_loss), training(port_loss)

    compare_steps(load_reference(), port, BATCHES, run=run[0], port_run=run[1])

    assert all(torch.equal(value, before[name]) for name, value in port.state_dict().items())


def test_training_against_a_loss_is_refused():
    run = training(reference_loss)

    with pytest.raises(TFDebugError, match="makes steps by itself, and the port's returns a loss"):
        compare_steps(
            load_reference(),
            load_port(load_reference()),
            BATCHES,
            run=run,
            port_run=lambda model, batches: port_loss(model, batches[0]),
        )
