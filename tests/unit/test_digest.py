"""What is kept of a tensor that is not kept whole, and what a comparison with it sees."""

import math
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_tfdebug import compare, trace
from pytest_tfdebug.goldens.golden_file import load, save
from pytest_tfdebug.parity.tensors import sampled
from pytest_tfdebug.parity.tensors.metrics import compare_leaf
from pytest_tfdebug.parity.tensors.tolerance import DEFAULTS, Tolerance
from pytest_tfdebug.records import Part, TensorRecord
from pytest_tfdebug.tracing.values.digest import (
    digest_of,
    digest_of_part,
    elements_of,
    place_of,
    places,
    rows_of,
    summarize,
    sums_and_norm,
    top_places,
)

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def whole(tensor):
    return TensorRecord("", tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor)


def kept(tensor, count=64, **options):
    record = whole(tensor)
    summarize([record])
    record.digest, record.tensor = digest_of(tensor, count, **options), None
    return record


def compared(expected, actual, tolerance=None):
    return compare_leaf("output", whole(actual), expected, tolerance or DEFAULTS.get(expected.dtype, Tolerance(0, 0)))


def activations(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_places_and_sums_are_those_of_every_version():
    """A file that was written by this version is read by later ones: what follows from no file must not change."""
    assert places(1000, 6).tolist() == [776, 655, 121, 959, 551, 186]
    squares = torch.arange(100.0) ** 2
    assert sums_and_norm(squares)[0][:4].tolist() == [-4096.0, -4096.0, -4096.0, -4096.0]
    assert sums_and_norm(squares)[1] == pytest.approx(math.sqrt(sum(n**4 for n in range(100))))
    assert sums_and_norm(torch.arange(6))[0].tolist() == [
        -5052342058641680428,
        755408806501731192,
        -4305071314101888162,
        -6457606971152832243,
    ]


def test_smaller_digest_holds_the_first_elements_of_a_larger_one():
    tensor = activations(30, 40)

    assert torch.equal(elements_of(tensor, 64), elements_of(tensor, 200)[:64])
    assert torch.equal(elements_of(tensor, 1200), tensor.flatten())


@pytest.mark.parametrize("count", [5, 64, 10_000])
def test_index_of_a_kept_element_is_where_it_stands(count):
    tensor = torch.arange(4 * 7 * 6.0).view(4, 7, 6)
    elements = elements_of(tensor, count)

    assert [tensor[place_of(n, (4, 7, 6), len(elements))] for n in range(len(elements))] == elements.tolist()


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.int64, torch.bool])
def test_equal_tensors_agree_without_a_difference(dtype):
    tensor = (activations(50, 60) * 3).to(dtype)

    found = compared(kept(tensor), tensor.clone())

    assert (found.problem, found.metrics, found.is_measured) == ("", None, True)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), place=st.integers(0, 64 * 512 - 1), sign=st.sampled_from([-1, 1]))
def test_one_element_that_changed_is_seen_wherever_it_stands(seed, place, sign):
    tensor = activations(64, 512, seed=seed)
    changed = tensor.clone()
    changed.view(-1)[place] += 0.01 * sign

    found = compared(kept(tensor), changed)

    assert found.problem == "values"
    assert found.metrics.mismatched >= 1
    assert found.metrics.max_abs == pytest.approx(0.01, rel=0.01)
    assert found.metrics.relative_l2 == pytest.approx(0.01 / float(tensor.norm()), rel=0.01)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool])
def test_one_whole_number_that_changed_is_seen(dtype):
    tensor = (activations(100, 100) * 5).to(dtype)
    for place in (0, 4_999, 9_999):
        changed = tensor.clone().view(-1)
        changed[place] = ~changed[place] if dtype is torch.bool else changed[place] + 1

        assert compared(kept(tensor), changed.view(100, 100)).problem == "values"


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint64])
def test_dtypes_that_few_operators_take_are_kept_and_compared(dtype):
    tensor = (activations(64, 64) * 3).abs().to(dtype)

    assert compared(kept(tensor), tensor.clone()).problem == ""
    assert compared(kept(tensor), (activations(64, 64, seed=1) * 3).abs().to(dtype)).problem == "values"


@pytest.mark.parametrize("hole", [math.nan, math.inf, -math.inf])
def test_hole_that_moved_is_seen_and_one_that_did_not_agrees(hole):
    tensor = activations(64, 512)
    tensor[3, 100] = hole
    moved = tensor.clone()
    moved[3, 100], moved[5, 200] = moved[5, 200].clone(), hole

    assert compared(kept(tensor), tensor.clone()).problem == ""
    assert compared(kept(tensor), moved).problem == "values"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("seed", range(5))
def test_differences_that_are_allowed_of_every_element_agree(dtype, seed):
    """Each element moves by almost what it may; a sum of so many moves far more than one element may."""
    tensor = activations(64, 512, seed=seed, dtype=dtype)
    tolerance = DEFAULTS[str(dtype).removeprefix("torch.")]
    allowed = tolerance.atol + tolerance.rtol * tensor.double().abs()
    spread = torch.rand(64, 512, generator=torch.Generator().manual_seed(seed + 1)).double() * 1.6 - 0.8
    moved = (tensor.double() + allowed * spread).to(dtype)

    assert compared(whole(tensor), moved).problem == ""
    assert compared(kept(tensor), moved).problem == ""


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1])
def test_few_elements_that_move_by_what_they_may_agree(share):
    tensor = activations(256, 512)
    picked = torch.rand(256, 512, generator=torch.Generator().manual_seed(3)) < share
    moved = tensor + picked * 0.9e-5

    assert compared(kept(tensor), moved).problem == ""


def test_what_is_estimated_is_close_to_what_is_measured():
    tensor = activations(256, 512)
    noise = activations(256, 512, seed=9) * 1e-2
    moved = tensor + noise

    estimated, measured = compared(kept(tensor, 400), moved).metrics, compared(whole(tensor), moved).metrics

    assert estimated.sampled == 400
    assert measured.sampled == 0
    assert estimated.relative_l2 == pytest.approx(measured.relative_l2, rel=0.5)
    assert estimated.rmse == pytest.approx(measured.rmse, rel=0.5)
    assert estimated.mismatched == pytest.approx(measured.mismatched, rel=0.05)
    assert estimated.cosine == pytest.approx(measured.cosine, abs=1e-3)
    assert estimated.max_abs <= measured.max_abs
    assert abs(float((moved - tensor)[estimated.max_abs_index])) == pytest.approx(estimated.max_abs)


def test_largest_elements_of_rows_are_compared_too():
    logits = activations(32, 1000)
    expected = kept(logits, at=top_places(logits, 32, 4))
    best = logits.argmax(1)
    changed = logits.clone()
    changed[7, best[7]] -= 0.5

    found = compared(expected, changed)

    assert len(expected.digest.tops) == 128
    assert found.metrics.max_abs_index == (7, int(best[7]))
    assert found.metrics.max_abs == pytest.approx(0.5)


def test_another_shape_or_dtype_is_told_as_ever():
    expected = kept(activations(64, 512))

    assert compared(expected, activations(512, 64)).problem == "shape"
    assert compared(expected, activations(64, 512).double()).problem == "dtype"
    assert compared(expected, activations(64, 512).long()).problem == "dtype"


def test_rows_in_another_order_differ():
    tensor = activations(64, 512)

    assert compared(kept(tensor), tensor.flip(0).contiguous()).problem == "values"
    assert compared(kept(tensor), tensor.T.contiguous().T).problem == ""


def test_two_digests_are_compared_by_what_both_hold():
    tensor = activations(64, 512)
    changed = tensor.clone()
    changed[40, 7] += 0.01

    def held_to(actual):
        return compare_leaf("output", actual, kept(tensor, 64), DEFAULTS["float32"])

    assert held_to(kept(tensor, 200)).problem == ""
    assert held_to(kept(tensor, 200)).is_measured
    assert held_to(kept(changed, 200)).problem == "values"
    assert compare_leaf("output", kept(changed), whole(tensor), DEFAULTS["float32"]).problem == "values"


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("sizes", [(4, 6, 64), (2, 4, 6)], ids=["in rows of sums", "across them"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int32])
def test_digests_of_parts_make_up_that_of_the_whole(axis, sizes, dtype):
    torch.manual_seed(0)
    whole = (torch.randn(sizes) * 8).to(dtype)
    at = torch.tensor([0, 17, whole.numel() - 1])
    starts = [place * (sizes[axis] // 2) for place in (0, 1)]
    parts = [Part(sizes, tuple(start if each == axis else 0 for each in range(3))) for start in starts]

    digests = [digest_of_part(held, part, 40, at) for held, part in zip(whole.chunk(2, axis), parts, strict=True)]
    expected = digest_of(whole, 40, at=at)

    (first, owned), (second, other) = digests
    assert torch.equal(owned, ~other)
    assert torch.equal(
        torch.cat((first.elements, first.tops)).where(owned, torch.cat((second.elements, second.tops))),
        torch.cat((expected.elements, expected.tops)),
    )
    assert torch.allclose((first.sums + second.sums).double(), expected.sums.double(), rtol=1e-5, atol=1e-4)


def test_allowance_is_summed_only_where_a_sum_is_further_off(monkeypatch):
    tensor = activations(64, 1024)
    expected, rounded, wrong = kept(tensor), tensor + 1e-6 * activations(64, 1024, seed=1).sign(), tensor.clone()
    wrong[5, 7] += 50
    asked = []
    monkeypatch.setattr(sampled, "rows_of", lambda *given: asked.append(1) or rows_of(*given))

    assert (compared(expected, rounded).problem, asked) == ("", [])
    assert (compared(expected, wrong).problem, asked) == ("values", [1])


def test_holes_are_counted_where_they_cancel_and_where_a_sum_overflows():
    tensor = activations(64, 64)
    torn = tensor.clone()
    torn[0, :3] = torch.tensor([math.inf, -math.inf, math.nan])
    large = torch.full((64, 64), 3e38)

    assert compared(kept(torn), torn + 0.1).metrics.non_finite_actual == 3
    assert compared(kept(large), large * 0.9).metrics.non_finite_actual == 0


def test_norm_of_numbers_whose_squares_leave_float64_is_one():
    tensor = torch.full((700,), 1e300, dtype=torch.float64)

    digest = digest_of(tensor, 64)

    assert digest.norm == pytest.approx(1e300 * 700**0.5)
    assert sums_and_norm(tensor)[1] == digest.norm


@pytest.mark.parametrize("value", [1e200, 1e300, -1e308])
def test_golden_of_numbers_whose_squares_leave_float64_has_their_norm(tmp_path, value):
    model = torch.nn.Linear(1, 70_000, bias=False, dtype=torch.float64)
    torch.nn.init.constant_(model.weight, value)
    recorded = trace(model, torch.ones(1, 1, dtype=torch.float64))
    save(tmp_path / "golden", recorded, model, "test_it.py::test_it")

    golden = load(tmp_path / "golden").trace
    (norm,) = (record.digest.norm for call in golden for record in call.outputs)

    assert norm == pytest.approx(min(abs(value) * 70_000**0.5, sys.float_info.max))
    assert compare(golden, recorded).ok
