"""Which module of a port is which, from what they give."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from pytest_tfdebug import compare, trace
from pytest_tfdebug.parity.suggest import sample
from pytest_tfdebug.records import TensorRecord

X = torch.linspace(-1, 1, 8).view(2, 4)


def seeded(number):
    torch.manual_seed(number)
    return nn.Linear(4, 4)


class Inner(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.first, self.second = seeded(number), seeded(number + 1)

    def forward(self, x):
        return self.second(self.first(x))


class Reference(nn.Module):
    """Two modules with submodules, one without, and two whose output is one number throughout."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.last = Inner(0), Inner(2), seeded(4)
        self.flat, self.low = nn.Threshold(9.0, 0.0), nn.Threshold(8.0, 0.0)

    def forward(self, x):
        return self.last(self.right(self.left(x))) + self.flat(x) + self.low(x)


class Port(nn.Module):
    def __init__(self, change=lambda x: x):
        super().__init__()
        self.a, self.b, self.c, self.d, self.change = Inner(0), Inner(2), seeded(4), nn.Threshold(9.0, 0.0), change

    def forward(self, x):
        return self.change(self.c(self.b(self.a(x))) + self.d(x))


#: What stands for what, part by part.
TRUTH = {
    "a": "left", "a.first": "left.first", "a.second": "left.second",
    "b": "right", "b.first": "right.first", "b.second": "right.second",
    "c": "last", "d": "flat",
}  # fmt: skip


def off(x):
    return x + 1


def test_modules_that_give_the_same_are_paired_and_what_is_one_number_is_not():
    report = compare(trace(Reference(), X), trace(Port(off), X))

    assert report.suggested == {"a": "left", "b": "right", "c": "last"}


def test_nothing_is_suggested_where_all_is_well_or_has_the_same_name():
    changed = Reference()
    changed.right.second.weight.data += 1

    assert compare(trace(Reference(), X), trace(Port(), X)).suggested == {}
    assert compare(trace(Reference(), X), trace(changed, X)).suggested == {}


def test_a_module_that_is_called_in_the_place_of_another_of_the_same_model_is_not_renamed():
    class Mistaken(Reference):
        def forward(self, x):
            return self.left(self.right(self.left(x))) + self.flat(x) + self.low(x)

    report = compare(trace(Reference(), X), trace(Mistaken(), X))

    assert not report.ok
    assert report.suggested == {}


def test_what_is_named_already_is_left_alone_and_the_rest_is_added():
    report = compare(trace(Reference(), X), trace(Port(off), X), rename={"c": "last"})

    assert report.suggested == {"a": "left", "b": "right"}


def test_nothing_is_suggested_where_most_modules_are_named_or_are_of_other_classes():
    class Own(Inner):
        """Another class: values decide."""

    port = Port(off)
    port.a.__class__ = port.b.__class__ = Own

    named = compare(trace(Reference(), X), trace(Port(off), X), rename={"a": "left", "c": "last"})

    assert (named.suggested, named.culprit.path) == ({}, "Port")
    assert compare(trace(Reference(), X), trace(port, X)).suggested == {}


def test_a_module_is_paired_with_what_gives_the_same_and_not_with_what_has_its_name_inside():
    """A rule on a caller holds for what is below it too: ``a.first`` would be ``left.first``."""
    port = Port(off)
    port.a.first, port.a.second = port.a.second, port.a.first
    port.a.forward = lambda x: port.a.first(port.a.second(x))

    report = compare(trace(Reference(), X), trace(port, X))

    assert report.suggested == {
        "a": "left",
        "a.second": "left.first",
        "a.first": "left.second",
        "b": "right",
        "c": "last",
    }


def test_what_two_paired_modules_call_is_paired_in_order():
    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = seeded(0), seeded(1)
            self.one.bias.data += 1

        def forward(self, x):
            return self.two(self.one(x))

    Other.__name__ = "Inner"
    reference, port = (nn.Sequential(OrderedDict(held)) for held in ({"inner": Inner(0)}, {"core": Other()}))
    expected, actual = trace(reference, X), trace(port, X)

    report = compare(expected, actual)

    assert report.suggested == {"core": "inner", "core.one": "inner.first", "core.two": "inner.second"}
    assert (report.culprit.path, report.culprit.kind, report.culprit.weights) == (
        "core.one",
        "weights",
        ("core.one.bias",),
    )
    again = compare(expected, actual, rename=report.suggested)
    assert (again.culprit.path, again.culprit.kind) == ("core.one", "weights")


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_what_is_not_finite_misleads_nobody(number):
    class Broken(Port):
        def forward(self, x):
            return super().forward(torch.where(x > 0.9, number, x))

    assert compare(trace(Reference(), X), trace(Broken(), X)).suggested.items() <= TRUTH.items()


@pytest.mark.parametrize("picked", [{"level": "leaves"}, {"include": "left.*"}, {"exclude": "left"}])
def test_a_reference_of_which_a_part_is_recorded_misleads_nobody(picked):
    report = compare(trace(Reference(), X, **picked), trace(Port(off), X))

    assert report.suggested.items() <= TRUTH.items()


@pytest.mark.parametrize(
    "tensor",
    [
        X > 0,
        X.to(torch.float8_e4m3fn),
        X.to(torch.uint16),
        torch.complex(X, X),
        torch.zeros(0),
    ],
    ids=["bool", "float8", "uint16", "complex", "empty"],
)
def test_no_sample_is_taken_of_what_is_no_activation(tensor):
    assert sample((TensorRecord("", tuple(tensor.shape), "", tensor),)) is None
    assert sample((TensorRecord("", (2,), "", None),)) is None
    assert sample(()) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_sample_is_spread_over_the_whole_tensor_and_keeps_no_other_memory(dtype):
    tensor = torch.arange(1000).to(dtype).view(10, 100).T

    found = sample((TensorRecord("", (100, 10), "", tensor),))

    assert found.shape == (100, 10)
    assert found.elements.dtype is torch.float32
    assert len(found.elements) == 64
    assert found.elements.tolist() == tensor.reshape(-1).float()[torch.arange(64) * 1000 // 64].tolist()
    assert found.elements.untyped_storage().nbytes() == 64 * 4
