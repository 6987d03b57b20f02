"""Where the first value that is not finite arose, on modules small enough to know the answer."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from transformers.modeling_outputs import CausalLMOutput

from pytest_tfdebug import ActivationOverflowError, overflow_guard

INF = float("inf")


class Lambda(nn.Module):
    """A module that applies a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


class Exploding(nn.Module):
    def forward(self, x):
        return x * INF


class GlueAfter(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        x = self.second(x)
        return x * INF


class GlueBetween(GlueAfter):
    def forward(self, x):
        kept = self.first(x)
        kept = kept / 0
        return self.second(kept)


def fault_of(model, *args, **kwargs):
    settings = kwargs.pop("settings", {})
    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(model, **settings):
        model(*args, **kwargs)
    return str(caught.value)


def headline(report):
    """Return the line above the frames: the tensor that is to blame."""
    return report.partition("\n\n\nlast ")[0].rpartition("\n")[2]


def x():
    torch.manual_seed(0)
    return torch.randn(2, 4)


def test_module_with_finite_inputs_and_a_non_finite_output_is_the_origin():
    model = nn.Sequential(nn.Linear(4, 4), Exploding(), nn.Linear(4, 4))

    report = fault_of(model, x())

    assert headline(report) == "< [0] 1: Exploding: output has infs"
    assert "Where: 1 (Exploding), test_overflow_origin.py:" in report
    assert ": the module itself; its inputs are finite." in report
    assert "Not finite: 8 / 8 elements (100.0%), first at index (0, 0)." in report


def test_children_are_blamed_before_the_modules_that_hold_them():
    model = nn.Sequential(nn.Sequential(nn.Sequential(Exploding())))

    assert headline(fault_of(model, x())).startswith("< [0] 0.0.0: Exploding:")


def test_glue_after_the_last_child_is_blamed_on_the_parents_lines():
    report = fault_of(nn.Sequential(GlueAfter()), x())

    assert headline(report) == "< [0] 0: GlueAfter: output has infs"
    assert "glue; everything before these lines is finite." in " ".join(report.split())
    first, last = lines_of(report)
    assert "return x * INF" in source(first, last)
    assert "self.first" not in source(first, last)


def test_glue_between_two_children_is_blamed_on_the_parent_with_its_lines():
    report = fault_of(GlueBetween(), x())

    assert headline(report) == "> [0] second: Linear: input[0] has infs"
    assert "Where: GlueBetween (GlueBetween), test_overflow_origin.py:" in report
    first, last = lines_of(report)
    assert "kept / 0" in source(first, last)
    assert last - first <= 2


def test_inputs_that_are_not_finite_are_blamed_on_the_caller():
    report = fault_of(nn.Sequential(nn.Linear(4, 4)), torch.full((2, 4), INF))

    assert headline(report) == "> [0] Sequential: Sequential: input[0] has infs"
    assert "its caller; the model was given these values." in report


@pytest.mark.parametrize(
    ("output", "leaf"),
    [
        (lambda bad: {"logits": bad}, "output['logits']"),
        (lambda bad: CausalLMOutput(logits=bad), "output.logits"),
        (lambda bad: [torch.ones(2), [bad]], "output[1][0]"),
        (lambda bad: (None, bad), "output[1]"),
    ],
)
def test_nested_outputs_are_looked_into(output, leaf):
    model = nn.Sequential(nn.Linear(4, 4), Lambda(lambda value: output(value * INF)))

    assert headline(fault_of(model, x())) == f"< [0] 1: Lambda: {leaf} has infs"


def test_dataclass_outputs_are_looked_into():
    @dataclass
    class Answer:
        score: torch.Tensor

    model = nn.Sequential(Lambda(lambda value: Answer(value * INF)))

    assert headline(fault_of(model, x())) == "< [0] 0: Lambda: output.score has infs"


def test_keyword_inputs_are_looked_into():
    class Caller(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Lambda(lambda *, states: states.new_zeros(2))

        def forward(self, states):
            return self.inner(states=states / 0)

    assert headline(fault_of(Caller(), x())) == "> [0] inner: Lambda: input['states'] has infs"


def test_boolean_integer_and_empty_tensors_are_no_obstacle():
    model = nn.Sequential(
        Lambda(lambda value: (value > 0, value.long(), value[:0], value)), Lambda(lambda values: values[3].sum())
    )

    with overflow_guard(model) as guard:
        model(x())

    assert guard.forwards == 1
    assert guard.skipped == {}


def test_complex_tensors_are_looked_at():
    model = nn.Sequential(Lambda(lambda value: torch.complex(value, value / 0)))

    assert headline(fault_of(model, x())) == "< [0] 0: Lambda: output has infs"


def test_nans_and_infs_are_told_apart():
    def both(value):
        value = value.clone()
        value[0, 1], value[1, 2] = INF, float("nan")
        return value

    report = fault_of(nn.Sequential(Lambda(both)), x())

    assert headline(report) == "< [0] 0: Lambda: output has infs and nans"
    assert "Not finite: 2 / 8 elements (25.0%), first at index (0, 1)." in report
    assert "Finite elements: abs_min= " in report


def test_parameter_that_is_not_finite_is_found_before_it_is_used():
    model = nn.Sequential(nn.Linear(4, 4), nn.Embedding(9, 4))
    with torch.no_grad():
        model[1].weight[7] = float("nan")

    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(model):
        model[1](torch.tensor([1]))
    report = str(caught.value)

    assert headline(report) == "= [0] 1: Embedding: weight has nans"
    assert "Where: 1 (Embedding): its weights, before any forward." in report
    assert "Not finite: 4 / 36 elements (11.1%), first at index (7, 0)." in report


def test_non_finite_buffer_is_told_when_its_module_is_the_culprit():
    model = nn.Sequential(nn.BatchNorm1d(4).eval())
    model[0].running_mean[2] = INF

    report = fault_of(model, x())

    assert headline(report) == "< [0] 0: BatchNorm1d: output has infs"
    assert "The buffer 'running_mean' of this module is not finite itself: 1 / 4 elements." in report


def test_parameters_are_read_once_and_not_at_every_forward(monkeypatch):
    from pytest_tfdebug.overflow.extremes import Reducer

    read = []
    extremes = Reducer.extremes
    monkeypatch.setattr(
        Reducer, "extremes", lambda self, tensor, masks: read.append(tensor) or extremes(self, tensor, masks)
    )
    model = nn.Sequential(nn.Linear(4, 4))

    with overflow_guard(model):
        model(x())
        model(x())

    assert sum(tensor is model[0].weight for tensor in read) == 1


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_input_that_is_changed_in_place_is_judged_as_it_was(mode):
    """Inference tensors have no count of writes: they are read each time."""
    model = nn.Sequential(nn.Linear(4, 4), Lambda(lambda value: value.mul_(INF)))

    with mode():
        report = fault_of(model, x())

    assert headline(report) == "< [0] 1: Lambda: output has infs"
    assert "abs_max=      inf > " not in report


def test_number_in_brackets_counts_forwards():
    model = nn.Sequential(Lambda(lambda value: value / value.clamp(max=0.5)))

    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(model):
        list(map(model, torch.tensor([[[1.0, 1.0]], [[1.0, 2.0]], [[1.0, 0.0]]])))

    assert headline(str(caught.value)) == "< [2] 0: Lambda: output has nans"
    assert "abs_max= 2.00e+00 > [1] 0: Lambda: input[0]" in str(caught.value)


def test_ignored_module_and_what_its_values_flow_into_are_no_fault():
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), Lambda(lambda value: value - INF)), nn.Softplus())

    with overflow_guard(model, ignore="0.1"):
        model(x())


def test_ignored_module_does_not_hide_a_fault_elsewhere():
    class Router(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = Lambda(lambda value: value - INF)
            self.expert = Exploding()

        def forward(self, value):
            self.router(value)
            return self.expert(value)

    assert headline(fault_of(Router(), x(), settings={"ignore": ("*router",)})).startswith("< [0] expert: Exploding")


def test_forward_raising_after_the_overflow_keeps_its_exception_with_the_report():
    def fails(_):
        raise ValueError("my own")

    model = nn.Sequential(Exploding(), Lambda(fails))

    with pytest.raises(ValueError, match="my own") as caught, overflow_guard(model):
        model(x())

    assert "< [0] 0: Exploding: output has infs" in caught.value.__notes__[0]


def lines_of(report):
    where = next(line for line in report.splitlines() if line.startswith("  Where: "))
    first, _, last = where.partition("test_overflow_origin.py:")[2].partition(":")[0].partition("-")
    return int(first), int(last or first)


def source(first, last):
    from pathlib import Path

    return "\n".join(Path(__file__).read_text().splitlines()[first - 1 : last])
