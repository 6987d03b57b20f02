"""A tensor's numbers are known by their fingerprint, whatever its layout."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfdebug.tracing.fingerprints import Pending, distance

#: Distance that the rounding of sums in float64 makes.
ROUNDING = 1e-9
#: The numbers of axes are added up in float32.
IN_ORDER = 1e-6
seeds, shapes = st.integers(0, 2**16), st.lists(st.integers(1, 5), min_size=1, max_size=4)


def print_of(tensor):
    pending = Pending()
    pending.add(tensor)
    return pending.read()[0]


def random(seed, shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@given(seeds, shapes, st.randoms())
def test_axes_in_another_order_and_other_shapes_have_the_same_moments(seed, shape, order):
    tensor = random(seed, shape)
    axes = list(range(len(shape)))
    order.shuffle(axes)

    turned = tensor.permute(axes)

    assert distance(print_of(tensor), print_of(turned)) <= ROUNDING
    assert distance(print_of(tensor), print_of(turned.reshape(-1))) <= ROUNDING
    one, other = sorted(print_of(tensor).axes), sorted(print_of(turned).axes)
    assert [length for length, _ in one] == [length for length, _ in other]
    assert [number for _, number in one] == pytest.approx([number for _, number in other], abs=IN_ORDER)


@given(seeds, shapes, st.integers(1, 4))
def test_repeated_elements_have_the_same_moments(seed, shape, count):
    tensor = random(seed, shape)

    assert distance(print_of(tensor), print_of(tensor.repeat_interleave(count, 0))) <= ROUNDING
    assert distance(print_of(tensor), print_of(tensor.expand(count, *shape))) <= ROUNDING


@given(seeds, st.lists(st.integers(2, 5), min_size=1, max_size=3), st.data())
def test_a_changed_element_and_another_scale_are_seen(seed, shape, data):
    tensor = random(seed, shape)
    changed = tensor.clone()
    changed.view(-1)[data.draw(st.integers(0, tensor.numel() - 1))] += 0.5

    assert distance(print_of(tensor), print_of(changed)) > 1e-3
    assert distance(print_of(tensor), print_of(tensor * 1.01)) > 1e-3
    assert distance(print_of(tensor), print_of(-tensor)) > 1e-3


@given(seeds, st.integers(3, 8), st.integers(0, 2))
def test_another_order_along_an_axis_is_seen_in_that_axis_alone(seed, length, axis):
    tensor = random(seed, [length] * 3)

    one, other = print_of(tensor), print_of(tensor.roll(1, axis))

    assert distance(one, other) <= ROUNDING
    moved = [not math.isclose(a, b, abs_tol=IN_ORDER) for (_, a), (_, b) in zip(one.axes, other.axes, strict=True)]
    assert moved == [place == axis for place in range(3)]


@pytest.mark.parametrize("hole", [math.inf, -math.inf, math.nan, -1e38, torch.finfo(torch.float32).min])
def test_holes_are_counted_and_change_nothing_else(hole):
    tensor = random(0, (4, 6))
    tensor[1, 2] = hole

    found, same = print_of(tensor), print_of(torch.where(tensor == tensor[1, 2], -math.inf, tensor))

    assert (found.elements, found.finite) == (24, 23)
    assert all(map(math.isfinite, (*found[2:9], *(number for _, number in found.axes))))
    assert distance(found, print_of(tensor.T)) <= ROUNDING
    assert math.isnan(hole) or distance(found, same) <= ROUNDING
    assert distance(found, print_of(torch.where(tensor.isfinite(), 0.1, tensor))) > 1e-3


def test_nothing_but_holes_is_a_constant():
    found = print_of(torch.full((2, 3), -math.inf))

    assert (found.elements, found.finite, found.is_constant) == (6, 0, True)
    assert distance(found, print_of(torch.zeros(2, 3))) == math.inf


@pytest.mark.parametrize(
    ("tensor", "count", "mean", "axes"),
    [
        (torch.zeros(0, 3), 0, 0.0, 0),
        (torch.tensor(2.5), 1, 2.5, 0),
        (torch.tensor([True, False]), 2, 0.5, 1),
        (torch.tensor([[1, 2, 3]]), 3, 2.0, 1),
        (torch.tensor([1 + 3j, 3 + 1j]), 4, 2.0, 2),
        (torch.tensor([1.0, 2.0]).half(), 2, 1.5, 1),
        (torch.tensor([1.0, 2.0]).bfloat16(), 2, 1.5, 1),
        (torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn), 2, 1.5, 1),
        (torch.tensor([1.0, 2.0], requires_grad=True), 2, 1.5, 1),
    ],
    ids=["empty", "scalar", "bool", "int", "complex", "half", "bfloat16", "float8", "grad"],
)
def test_every_kind_of_tensor_has_one(tensor, count, mean, axes):
    found = print_of(tensor)

    assert (found.elements, found.mean, len(found.axes)) == (count, mean, axes)


def test_empty_tensors_and_other_counts_are_like_nothing():
    empty, three, four = (print_of(torch.ones(count)) for count in (0, 3, 4))

    assert distance(empty, empty) == distance(empty, three) == distance(three, four) == math.inf


@pytest.mark.parametrize("size", [1e-100, 1e-40, 1e20])
def test_tiny_and_large_numbers_are_told_apart_by_their_size(size):
    tensor = random(0, (8,)).double() * size

    assert distance(print_of(tensor), print_of(tensor * 2)) > 0.1
    assert distance(print_of(tensor), print_of(tensor)) == 0.0


def test_many_tensors_are_read_back_in_the_order_in_which_they_came():
    pending = Pending()
    places = [pending.add(torch.full((size + 1,), float(size))) for size in range(20)]

    assert [found.mean for found in pending.read()] == places == list(range(20))
    assert Pending().read() == []
