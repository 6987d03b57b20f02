import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_tfdebug.records import TensorRecord
from pytest_tfdebug.tensors import widen
from pytest_tfdebug.tracing.values.digest import statistics, summarize

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.int64, torch.bool]


@given(st.lists(floats, min_size=1, max_size=30))
@example([0.0, 1.509010081844003e-21])
@example([1e-44, 0.0])
@example([3e38, -3e38])
@example([3e38, 3e38])
def test_summaries_equal_those_of_plain_torch_in_float64(values):
    tensor = torch.tensor(values, dtype=torch.float32)

    found = statistics(tensor)

    exact = tensor.double()
    scale = float(exact.abs().max())
    assert (found.min, found.max, found.non_finite) == (float(exact.min()), float(exact.max()), 0)
    assert found.mean == pytest.approx(float(exact.mean()), rel=1e-5, abs=1e-6 * scale)
    if len(values) == 1:
        assert math.isnan(found.std)
    else:
        assert found.std == pytest.approx(float(exact.std()), rel=1e-4, abs=1e-5 * scale)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_summarized(dtype):
    tensor = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]).to(dtype).t()

    found = statistics(tensor)

    assert found[:4] == pytest.approx((0.0, 1.0, 4 / 6, math.sqrt(4 / 15)), rel=1e-6)
    assert found.non_finite == 0


def test_complex_tensors_are_summarized_by_their_parts():
    found = statistics(torch.tensor([1 + 2j, 3 - 4j]).conj())

    assert found[:3] == (-2.0, 4.0, 1.5)


def test_masks_of_the_lowest_number_have_a_finite_deviation():
    lowest = torch.finfo(torch.float32).min
    tensor = torch.full((8, 8), lowest).tril()

    found = statistics(tensor)

    assert (found.min, found.non_finite) == (lowest, 0)
    assert found.mean == pytest.approx(float(tensor.double().mean()), rel=1e-6)
    assert found.std == pytest.approx(float(tensor.double().std()), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float8_e5m2, torch.complex64], ids=str)
def test_non_finite_elements_are_counted(dtype):
    tensor = torch.tensor([1.0, math.inf, -math.inf, math.nan]).to(dtype)

    found = statistics(tensor)

    assert found.non_finite == 3


def test_empty_tensor_has_no_numbers():
    found = statistics(torch.empty(0, 3))

    assert all(map(math.isnan, found[:4]))
    assert found.non_finite == 0


def test_results_come_in_the_order_of_the_tensors():
    found = [statistics(each) for each in (torch.ones(1), torch.empty(0), torch.full((2,), 3.0))]

    assert [item.max for item in found][::2] == [1.0, 3.0]


def test_shared_tensors_are_summarized_once_and_known_ones_left_alone():
    tensor = torch.ones(2)
    known = statistics(torch.zeros(1))
    records = [TensorRecord("", (2,), "float32", tensor) for _ in range(2)]
    records += [TensorRecord("", (2,), "float32", tensor, known), TensorRecord("", (2,), "float32", None)]

    summarize(records)

    assert records[0].statistics is records[1].statistics
    assert records[2].statistics is known
    assert records[3].statistics is None


def test_widening_keeps_float32_and_float64_as_they_are():
    for dtype in (torch.float32, torch.float64):
        tensor = torch.ones(2, dtype=dtype)
        assert widen(tensor) is tensor


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64], ids=str)
def test_what_is_summarized_in_pieces_has_the_numbers_of_the_whole(monkeypatch, dtype):
    tensor = (torch.randn(7, 31, generator=torch.Generator().manual_seed(0)) * 3 + 5).to(dtype)
    whole = statistics(tensor)

    monkeypatch.setattr("pytest_tfdebug.tracing.values.digest._PIECE", 10)
    found = statistics(tensor.T)

    assert found == pytest.approx(whole, rel=1e-5)
