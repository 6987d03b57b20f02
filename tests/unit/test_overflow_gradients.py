"""A forward that is clean and a gradient that is not."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from pytest_tfdebug import ActivationOverflowError, overflow_guard


class Root(nn.Module):
    """Infinite slope at 0, where all its inputs land."""

    def forward(self, x):
        x = x * 0
        return x.sqrt()


def network(middle):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), middle, nn.Linear(4, 2))


def report_of(model, backward, **settings):
    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(model, gradients=True, **settings):
        backward()
    return str(caught.value)


def test_module_of_the_first_nan_in_the_backward_is_named_with_parameters():
    model = network(Root())

    lines = report_of(model, lambda: model(torch.randn(5, 4)).sum().backward()).splitlines()

    frames = lines.index("last 5 frames:")
    assert lines[0].startswith("test_overflow_gradients.py:")
    assert lines[0].endswith(" in 1 (Root): gradient of input[0] has nans")
    assert lines[1].startswith("  Where: 1 (Root), test_overflow_gradients.py:")
    assert lines[1].endswith(": its backward; every gradient before it is finite.")
    assert " ".join(line.strip() for line in lines[2:4]).startswith(
        "Parameters whose gradients are not finite, in the order of the backward: 0.bias (Linear), 0.weight (Linear)."
    )
    assert "  Not finite: 20 / 20 elements (100.0%), first at index (0, 0)." in lines
    assert lines[frames + 1] == "abs_max= 1.00e+00 ^ [0] 2: Linear: gradient of output"
    assert lines[frames + 5] == "abs_max=      nan ^ [0] 1: Root: gradient of input[0]"


def test_parameter_whose_gradient_overflows_in_the_sum_is_named_itself():
    model = nn.Sequential(nn.Linear(4, 2)).half()

    report = report_of(model, lambda: (model(torch.ones(100, 4).half()) * 3e4).sum().backward())

    assert "^ [0] 0: Linear: gradient of bias has infs" in report
    assert "0.bias (Linear), 0.weight (Linear)." in report
    assert "  Hint: float16 ends at 6.55e+04: scale the loss down, or use bfloat16 or float32.\n" in report


def test_gradient_that_comes_from_the_loss_is_said_to():
    model = network(nn.ReLU())

    report = report_of(model, lambda: (model(torch.randn(5, 4)) * 0).sqrt().sum().backward())

    assert "^ [0] 2: Linear: gradient of output has nans" in report
    assert "Where: 2 (Linear): glue after it, or the loss: no module took this output." in report


def test_gradients_are_not_watched_unless_asked():
    model = network(Root())

    with overflow_guard(model):
        model(torch.randn(5, 4)).sum().backward()

    assert model[0].weight.grad.isnan().all()


def test_number_in_brackets_is_the_batch():
    model = network(nn.ReLU())

    def train():
        for scale in (1.0, 1.0, float("inf")):
            (model(torch.ones(5, 4)).sum() * scale).backward()

    assert "^ [2] 2: Linear: gradient of output has infs" in report_of(model, train)


def test_frozen_parameters_and_forwards_without_gradients_are_no_obstacle():
    model = network(nn.ReLU()).requires_grad_(requires_grad=False)

    with overflow_guard(model, gradients=True):
        model(torch.ones(5, 4))
        with torch.no_grad():
            network(nn.ReLU())
            model(torch.ones(5, 4))
        model(torch.ones(5, 4, requires_grad=True)).sum().backward()


def test_gradients_that_were_asked_for_and_never_came_are_a_failure():
    model = network(nn.ReLU())

    assert report_of(model, lambda: model(torch.ones(5, 4))) == (
        "overflow_guard(gradients=True) checked no gradient: no backward reached the model.\n"
        "Call backward() on an output of the watched model, or leave out gradients=True."
    )


def test_gradients_that_cannot_be_looked_at_are_counted():
    model = nn.Sequential(nn.Embedding(8, 4, sparse=True), nn.Linear(4, 4))

    with overflow_guard(model, gradients=True) as guard:
        model(torch.tensor([1, 2])).sum().backward()

    assert guard.skipped == {"torch.sparse_coo": 1}


def test_ignored_module_has_no_gradient_to_judge():
    model = nn.Sequential(Root(), nn.Linear(4, 4))
    x = torch.ones(5, 4, requires_grad=True)

    with overflow_guard(model, gradients=True, ignore=("0", "Sequential")):
        model(x).sum().backward()

    assert x.grad.isnan().all()


def test_activation_checkpoint_that_is_computed_again_belongs_to_its_batch():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network(Root())

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    model = Checkpointed()

    report = report_of(model, lambda: model(torch.randn(5, 4)).sum().backward())

    assert "^ [0] inner.1: Root: gradient of input[0] has nans" in report


def test_hooks_of_parameters_are_removed():
    model = network(nn.ReLU())

    with overflow_guard(model, gradients=True):
        model(torch.ones(5, 4)).sum().backward()

    assert all(not parameter._post_accumulate_grad_hooks for parameter in model.parameters())
