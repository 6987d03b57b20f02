"""A tensor's numbers are known by their fingerprint, whatever its layout."""

import math
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfdebug import values
from pytest_tfdebug.values import Fingerprint, distance

#: Distance that the rounding of sums in float64 makes.
ROUNDING = 1e-9
seeds, shapes = st.integers(0, 2**16), st.lists(st.integers(1, 5), min_size=1, max_size=4)


def print_of(tensor):
    return Fingerprint.of(tensor)


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
    assert [number for _, number in one] == pytest.approx([number for _, number in other], abs=ROUNDING)


@given(seeds, shapes, st.integers(1, 4))
def test_repeated_elements_have_the_same_moments(seed, shape, count):
    tensor = random(seed, shape)

    assert distance(print_of(tensor), print_of(tensor.repeat_interleave(count, 0))) <= ROUNDING
    assert distance(print_of(tensor), print_of(tensor.expand(count, *shape))) <= ROUNDING


@given(seeds, st.lists(st.integers(2, 5), min_size=1, max_size=3), st.data())
def test_changed_element_and_another_scale_are_seen(seed, shape, data):
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
    moved = [not math.isclose(a, b, abs_tol=ROUNDING) for (_, a), (_, b) in zip(one.axes, other.axes, strict=True)]
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


@given(seeds, shapes, st.integers(1, 40))
def test_tensor_read_in_pieces_has_the_print_of_one_read_at_once(seed, shape, piece):
    tensor = random(seed, shape)
    tensor.view(-1)[:: piece + 1] = -math.inf
    whole = print_of(tensor)

    with patch.object(values, "_PIECE", piece):
        found = print_of(tensor)

    assert found[:2] == whole[:2]
    assert found[2:9] == pytest.approx(whole[2:9], abs=ROUNDING)
    assert np.array(found.axes) == pytest.approx(np.array(whole.axes), abs=ROUNDING)


def test_print_does_not_hang_on_what_was_read_before():
    tensors = [random(seed, [seed % 7 + 1, seed % 5 + 1, 300]) for seed in range(20)]

    assert [Fingerprint.of(tensor) for tensor in tensors] == [print_of(tensor) for tensor in tensors]


def test_view_takes_the_moments_of_what_it_shows():
    tensor = random(0, [4, 6])
    tensor[1, 2] = math.inf
    base = print_of(tensor)

    view = Fingerprint.of(tensor.view(2, 2, 6), base)

    assert view == print_of(tensor.view(2, 2, 6))


def test_infinity_that_became_an_integer_is_a_hole():
    tensor = torch.tensor([1.0, 2.0, -math.inf, 4.0]).long()
    tensor[2] = torch.iinfo(torch.int64).min  # what x86 makes of it

    found = print_of(tensor)

    assert (found.elements, found.finite, found.low, found.high) == (4, 3, 1.0, 4.0)
    assert distance(found, print_of(torch.tensor([1, 3, tensor[2], 4]))) > 0.1


def test_lazy_conjugate_has_the_fingerprint_of_its_numbers():
    values = torch.complex(random(0, (3, 4)), random(1, (3, 4)))

    assert values.conj().is_conj()
    assert Fingerprint.of(values.conj()) == Fingerprint.of(values.conj().resolve_conj())
