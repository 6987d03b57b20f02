"""Which module of a port is which, from what they give."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from pytest_tfdebug import compare, trace

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


def compared(reference, port, rename=None, **picked):
    """Compare two models that are alive, of the reference a part where one is picked."""
    return compare(trace(reference, X, **picked), trace(port, X), rename=rename)


def test_modules_of_equal_outputs_are_paired_unless_these_are_one_number():
    report = compared(Reference(), Port(off))

    assert report.suggested == {"a": "left", "b": "right", "c": "last"}


def test_nothing_is_suggested_where_all_is_well_or_has_the_same_name():
    changed = Reference()
    changed.right.second.weight.data += 1

    assert compared(Reference(), Port()).suggested == {}
    assert compared(Reference(), changed).suggested == {}


def test_module_called_in_the_place_of_a_sibling_is_not_renamed():
    class Mistaken(Reference):
        def forward(self, x):
            return self.left(self.right(self.left(x))) + self.flat(x) + self.low(x)

    report = compared(Reference(), Mistaken())

    assert not report.ok
    assert report.suggested == {}


def test_what_is_named_already_is_left_alone_and_the_rest_is_added():
    report = compared(Reference(), Port(off), rename={"c": "last"})

    assert report.suggested == {"a": "left", "b": "right"}


def test_suggestions_stop_where_most_modules_are_named_or_of_other_classes():
    class Own(Inner):
        """Another class: values decide."""

    port = Port(off)
    port.a.__class__ = port.b.__class__ = Own

    named = compared(Reference(), Port(off), rename={"a": "left", "c": "last"})

    assert (named.suggested, named.culprit.path) == ({}, "Port")
    assert compared(Reference(), port).suggested == {}


def test_module_is_paired_by_its_output_before_a_name_inside():
    """A rule on a caller holds for what is below it too: ``a.first`` would be ``left.first``."""
    port = Port(off)
    port.a.first, port.a.second = port.a.second, port.a.first
    port.a.forward = lambda x: port.a.first(port.a.second(x))

    report = compared(Reference(), port)

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

    assert compared(Reference(), Broken()).suggested.items() <= TRUTH.items()


@pytest.mark.parametrize("picked", [{"level": "leaves"}, {"include": "left.*"}, {"exclude": "left"}])
def test_reference_of_which_a_part_is_recorded_misleads_nobody(picked):
    report = compared(Reference(), Port(off), **picked)

    assert report.suggested.items() <= TRUTH.items()
