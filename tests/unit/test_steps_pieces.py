"""A value that is used whole and in pieces: the use that sends a wrong gradient is told, and not a piece of it."""

from pathlib import Path

import torch
from torch import nn

from pytest_tfdebug import compare_steps


class Turned(torch.autograd.Function):
    """Gives what it is given, as a view, and turns the gradient."""

    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.strength * gradient, None


class Kept(Turned):
    """Forgets to turn it."""

    @staticmethod
    def backward(ctx, gradient):
        return ctx.strength * gradient, None


class Domains(nn.Module):
    def __init__(self, turned):
        super().__init__()
        self.features, self.label, self.domain, self.turned = (
            nn.Linear(8, 16),
            nn.Linear(16, 3),
            nn.Linear(16, 1),
            turned,
        )

    def forward(self, x):
        found = torch.relu(self.features(x)).flatten(1)
        labels = self.label(found[:4])
        return labels.square().mean() + self.domain(self.turned.apply(found, 0.5)).square().mean()  # TURNED


def domains(turned):
    torch.manual_seed(0)
    return Domains(turned)


def test_function_that_gives_a_view_is_told_where_its_backward_is_another():
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))

    report = compare_steps(domains(Turned), domains(Kept), x, run=lambda model, batch: model(batch))

    assert report.culprit.wrong == "Kept has another backward than its forward"
    lines = Path(__file__).read_text().splitlines()
    assert lines[report.culprit.source.first - 1].endswith("# TURNED")


def test_function_that_gives_a_view_agrees_with_itself():
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))

    assert compare_steps(domains(Turned), domains(Turned), x, run=lambda model, batch: model(batch))
