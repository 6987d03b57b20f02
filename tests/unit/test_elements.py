"""Tensors as grids that a page can draw."""

import pytest
import torch

from pytest_tfdebug.parity.tensors.elements import axis_names, element_grid
from pytest_tfdebug.parity.tensors.tolerance import Tolerance

ALLOWED = Tolerance(0.1, 1e-3)


def test_small_tensor_is_shown_element_by_element():
    expected = torch.arange(6.0).view(1, 2, 3)
    actual = expected.clone()
    actual[0, 1, 2] = 7.0

    grid = element_grid("output", expected, actual, ALLOWED)

    assert (grid.rows, grid.columns, grid.block) == (2, 3, (1, 1))
    assert grid.expected == (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
    assert grid.actual == (0.0, 1.0, 2.0, 3.0, 4.0, 7.0)
    assert grid.allowed[5] == pytest.approx(0.501)
    assert sum(grid.histogram.expected) == sum(grid.histogram.actual) == 6
    assert sum(grid.differences.expected) == 1


def test_large_tensor_is_shown_by_the_worst_element_of_each_block():
    expected = torch.zeros(250, 1000)
    actual = expected.clone()
    actual[137, 641] = -4.0

    grid = element_grid("output", expected, actual, ALLOWED)

    assert (grid.rows, grid.columns, grid.block) == (84, 91, (3, 11))
    assert grid.actual[137 // 3 * 91 + 641 // 11] == -4.0
    assert sum(value != 0 for value in grid.actual) == 1


def test_nan_of_one_side_is_worse_than_any_number():
    expected = torch.zeros(1, 200)
    actual = torch.ones(1, 200)
    actual[0, 3] = torch.nan

    grid = element_grid("output", expected, actual, ALLOWED)

    assert str(grid.actual[1]) == "nan"


@pytest.mark.parametrize(
    ("expected", "actual"),
    [(torch.zeros(2), torch.zeros(3)), (torch.zeros(0), torch.zeros(0)), (torch.zeros(2) + 1j, torch.zeros(2) + 1j)],
)
def test_what_cannot_be_laid_side_by_side_is_not_shown(expected, actual):
    assert element_grid("output", expected, actual, ALLOWED) is None


def test_whole_numbers_and_scalars_are_shown():
    assert element_grid("output", torch.tensor(3), torch.tensor(4), Tolerance(0.0, 0.0)).actual == (4.0,)


@pytest.mark.parametrize(
    ("shape", "ids", "names"),
    [
        ((2, 8, 32), (2, 8), ("batch", "token", "feature")),
        ((2, 4, 8, 8), (2, 8), ("batch", "axis 1", "token", "key token")),
        ((16, 32), (2, 8), ("axis 0", "axis 1")),
        ((2, 32), (), ("axis 0", "axis 1")),
        ((), (2, 8), ()),
    ],
)
def test_axes_are_named_after_the_shape_of_the_ids(shape, ids, names):
    assert axis_names(shape, ids) == names
