import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from measuring.figures import peak
from pytest_tfdebug.parity.tensors import metrics
from pytest_tfdebug.parity.tensors.metrics import compare_leaf
from pytest_tfdebug.parity.tensors.tolerance import DEFAULTS, NOISE_REACH, Tolerance
from pytest_tfdebug.records import TensorRecord

EXACT = Tolerance(0.0, 0.0)
values = st.one_of(
    st.floats(width=32), st.sampled_from([0.0, -0.0, 1.0, 1.0001, math.inf, -math.inf, math.nan, 1e-30, 3e38, -3e38])
)


def leaf(tensor):
    return TensorRecord("[0]", tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor)


def compare(expected, actual, tolerance=EXACT):
    return compare_leaf("output", leaf(actual), leaf(expected), tolerance)


def agree(expected, actual, rtol, atol):
    """Tell whether two numbers agree, in plain Python."""
    if math.isfinite(expected) and math.isfinite(actual):
        return abs(actual - expected) <= atol + rtol * abs(expected)
    return expected == actual or (math.isnan(expected) and math.isnan(actual))


@given(
    st.lists(st.tuples(values, values), min_size=1, max_size=12),
    st.sampled_from([0.0, 1e-3, 0.5]),
    st.sampled_from([0.0, 1e-3, 1.0]),
    st.booleans(),
)
def test_verdict_is_that_of_a_plain_loop(pairs, rtol, atol, same):
    pairs = [(e, e if same and place % 2 else a) for place, (e, a) in enumerate(pairs)]
    expected, actual = (torch.tensor(side, dtype=torch.float64) for side in zip(*pairs, strict=True))

    found = compare(expected, actual, Tolerance(rtol, atol))

    wrong = sum(not agree(e, a, rtol, atol) for e, a in pairs)
    assert found.problem == ("values" if wrong else "")
    if found.metrics is not None:
        assert found.metrics.mismatched == wrong
        assert found.metrics.total == len(pairs)
        assert found.metrics.non_finite_expected in (0, sum(not math.isfinite(e) for e, _ in pairs))


@given(st.lists(st.tuples(*[st.floats(-1e3, 1e3)] * 2), min_size=1, max_size=12))
def test_numbers_are_those_of_a_plain_loop(pairs):
    expected, actual = (torch.tensor(side, dtype=torch.float64) for side in zip(*pairs, strict=True))
    differences = [abs(a - e) for e, a in pairs]

    found = compare(expected, actual).metrics

    if not any(differences):
        assert found is None
        return
    norm = math.sqrt(sum(e * e for e, _ in pairs))
    assert found.max_abs == max(differences)
    assert found.max_abs_index == (differences.index(max(differences)),)
    assert found.max_rel == pytest.approx(
        max((d / abs(e) for (e, _), d in zip(pairs, differences, strict=True) if e), default=0.0)
    )
    assert found.rmse == pytest.approx(math.sqrt(sum(d * d for d in differences) / len(pairs)))
    if norm > 1e-100:
        assert found.relative_l2 == pytest.approx(math.sqrt(sum(d * d for d in differences)) / norm)


def laid_out(tensor, layout):
    """Return a tensor as it is, transposed, or a slice of it."""
    return {"whole": tensor, "transposed": tensor.transpose(0, -1), "a slice": tensor[..., :1]}[layout]


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(1, 40),
    st.tuples(*[st.sampled_from(["whole", "transposed", "a slice"])] * 2),
    st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64]),
    st.lists(st.tuples(st.booleans(), st.integers(0), st.sampled_from([math.inf, -math.inf, math.nan])), max_size=3),
)
def test_large_tensor_is_measured_in_pieces_to_the_same_end(shape, piece, layouts, dtype, holes):
    generator = torch.Generator().manual_seed(0)
    error = 10.0 ** -(piece % 7)
    sides = [torch.randn(*shape, 2, generator=generator).to(dtype) for _ in range(2)]
    sides[1] = (sides[0] + error * sides[1]).to(dtype)
    for is_actual, place, hole in holes:
        sides[is_actual].view(-1)[place % sides[0].numel()] = hole
    expected, actual = (laid_out(side, layouts[0]) for side in sides)
    if layouts[1] == "transposed":  # one side alone
        actual = actual.transpose(0, -1).contiguous().transpose(0, -1)
    whole = compare(expected, actual, DEFAULTS["float32"])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(metrics, "PIECE", piece)
        found = compare(expected, actual, DEFAULTS["float32"])

    assert_same(found, whole)


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(1, 40),
    st.sampled_from(["whole", "transposed", "a slice"]),
    st.sampled_from([torch.int64, torch.int32, torch.uint8, torch.bool]),
    st.sampled_from([0, 2**60]),
)
def test_large_integers_are_measured_in_pieces_to_the_same_end(shape, piece, layout, dtype, offset):
    generator = torch.Generator().manual_seed(0)
    base = torch.randint(0, 2, (*shape, 2), generator=generator)
    far = offset if dtype == torch.int64 else 0
    expected, actual = (laid_out((far + each).to(dtype), layout) for each in (base, base.flip(0)))
    whole = compare(expected, actual)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(metrics, "PIECE", piece)
        found = compare(expected, actual)

    assert_same(found, whole)


def assert_same(found, whole):
    """Hold what pieces gave to what the whole gave; sums are those of another order."""
    assert found.problem == whole.problem
    assert (found.metrics is None) == (whole.metrics is None)
    for number, other in zip(found.metrics or (), whole.metrics or (), strict=True):
        assert number == (other if isinstance(other, tuple) else pytest.approx(other, rel=1e-5, nan_ok=True))


@pytest.mark.parametrize("layout", ["whole", "transposed"])
@pytest.mark.parametrize(
    ("dtype", "hole"),
    [(torch.float32, None), (torch.bfloat16, math.nan), (torch.complex64, math.nan), (torch.int64, None)],
    ids=str,
)
def test_memory_of_a_failure_does_not_grow_with_the_tensor(dtype, layout, hole, monkeypatch):
    monkeypatch.setattr(metrics, "PIECE", 2**10)

    def extra(rows):
        expected = torch.ones(rows, 2**6, dtype=dtype)
        actual = expected * 2
        if hole is not None:
            expected[0, 0] = hole
        expected, actual = laid_out(expected, layout), laid_out(actual, layout)
        return peak(lambda: compare(expected, actual))

    small, large = extra(2**6), extra(2**9)

    assert large <= 1.1 * small
    assert large <= 120 * metrics.PIECE


def test_one_wrong_element_far_into_a_large_tensor_is_found():
    expected = torch.zeros(3, 7, 40_000).transpose(0, 1)
    actual = expected.clone()
    actual[5, 2, 39_999] = 1.0

    found = compare(expected, actual)

    assert found.metrics.mismatched == 1
    assert found.metrics.max_abs_index == (5, 2, 39_999)


def test_equal_tensors_have_no_metrics():
    tensor = torch.randn(3, 4)

    assert compare(tensor, tensor.clone()).metrics is None
    assert compare(tensor, tensor.clone()).problem == ""


def test_index_of_the_greatest_difference_has_every_axis():
    expected = torch.zeros(2, 3, 4)
    actual = expected.clone()
    actual[1, 2, 3] = 5

    found = compare(expected, actual, Tolerance(0.0, 1e-5)).metrics

    assert (found.max_abs, found.max_abs_index, found.mismatched, found.allowed) == (5.0, (1, 2, 3), 1, 1e-5)
    assert found.relative_l2 == math.inf


def test_shapes_and_dtypes_that_differ_are_said_so():
    assert compare(torch.ones(2, 1), torch.ones(1, 2)).problem == "shape"
    assert compare(torch.ones(2, 1), torch.ones(1, 2)).metrics is None
    found = compare(torch.ones(2), torch.ones(2, dtype=torch.float64) * 2)
    assert (found.problem, found.metrics.max_abs) == ("dtype", 1.0)


@pytest.mark.parametrize("shape", [(3,), (2,), (2, 2)])
def test_complex_tensor_beside_a_real_one_is_another_dtype(shape):
    assert compare(torch.ones(shape, dtype=torch.complex64), torch.ones(shape)).problem == "dtype"
    assert compare(torch.ones(shape), torch.ones(shape, dtype=torch.complex64)).problem == "dtype"


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
def test_integers_are_exact(dtype):
    expected = torch.tensor([0, 1, 1]).to(dtype)

    assert compare(expected, expected.clone()).problem == ""
    found = compare(expected, torch.tensor([0, 1, 0]).to(dtype))
    assert (found.problem, found.metrics.mismatched, found.metrics.max_abs_index) == ("values", 1, (2,))


def test_integers_beyond_float64_are_exact_too():
    expected = torch.tensor([[5, 2**60]])

    found = compare(expected, expected + torch.tensor([0, 1]))

    assert found.problem == "values"
    assert (found.metrics.mismatched, found.metrics.max_abs, found.metrics.max_abs_index) == (1, 1.0, (0, 1))


def test_same_inf_and_nan_agree_and_are_counted():
    expected = torch.tensor([1.0, math.inf, math.nan])

    found = compare(expected, expected.clone())

    assert found.problem == ""
    assert (found.metrics.non_finite_expected, found.metrics.non_finite_actual) == (2, 2)


@pytest.mark.parametrize("other", [1.0, -math.inf, math.nan])
def test_another_pattern_of_inf_and_nan_is_a_mismatch_whatever_the_tolerance(other):
    found = compare(torch.tensor([1.0, math.inf]), torch.tensor([1.0, other]), Tolerance(10.0, math.inf))

    assert found.problem == "values"
    assert (found.metrics.max_abs, found.metrics.max_abs_index, found.metrics.mismatched) == (math.inf, (1,), 1)


def test_absolute_tolerance_grows_with_a_large_tensor_where_it_is_scaled():
    expected = torch.full((4,), 1000.0)
    expected[0] = 0.0
    actual = expected.clone()
    actual[0] = 5e-3

    assert compare(expected, actual, Tolerance(0.0, 1e-5, scaled=True)).problem == ""
    assert compare(expected, actual, Tolerance(0.0, 1e-5)).problem == "values"
    assert compare(expected / 1e6, actual / 1e2, Tolerance(0.0, 1e-5, scaled=True)).problem == "values"


def test_rounding_over_a_tensor_is_noise_and_one_far_element_is_not():
    generator = torch.Generator().manual_seed(0)
    expected = torch.randn(10_000, generator=generator)
    actual = expected * (1 + 5e-6 * torch.randn(10_000, generator=generator))
    far = expected.clone()
    far[0] += 1.5 * NOISE_REACH * (1e-5 + 1.3e-6 * float(expected[0].abs()))

    assert compare(expected, actual, DEFAULTS["float32"]._replace(noise=0.0)).problem == "values"
    assert compare(expected, actual, DEFAULTS["float32"]).problem == ""
    assert compare(expected, far, DEFAULTS["float32"]).problem == "values"


@pytest.mark.parametrize("scale", [1e25, 1e-25], ids=["overflow", "underflow"])
def test_squares_that_leave_float32_excuse_nothing(scale):
    expected = torch.tensor([1.0, 2.0, 3.0]) * scale
    actual = expected * torch.tensor([1.0, 1.0, 1.01])

    found = compare(expected, actual, Tolerance(1e-3, 0.0))

    assert found.problem == "values"
    assert found.metrics.relative_l2 == pytest.approx(0.03 / math.sqrt(14), rel=1e-3)
    assert found.metrics.cosine == pytest.approx(14.09 / math.sqrt(14 * 14.1809))


def test_cosine_is_that_of_torch_at_every_scale():
    expected, actual = torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([3.0, 2.0, -1.0]).double()

    for scale in (1e-200, 1.0, 1e200):
        found = compare(expected * scale, actual * scale).metrics.cosine
        assert found == pytest.approx(float(torch.cosine_similarity(expected, actual, dim=0)))
    assert compare(expected, torch.zeros(3).double()).metrics.cosine == 0.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64], ids=str)
def test_narrow_and_complex_dtypes_are_measured(dtype):
    expected = torch.tensor([1.0, 2.0]).to(dtype)
    actual = torch.tensor([1.0, 4.0]).to(dtype)

    assert compare(expected, actual).metrics.max_abs == 2.0


def test_what_is_empty_agrees_and_what_has_no_values_is_not_measured():
    assert compare(torch.empty(0, 2), torch.empty(0, 2)).problem == ""
    bare = TensorRecord("[0]", (2,), "float32", None)
    assert compare_leaf("output", bare, leaf(torch.ones(2)), EXACT).problem == ""


@pytest.mark.parametrize("low", [-1e4, -1e9, torch.finfo(torch.float32).min])
def test_masks_number_gives_no_scale_to_the_rest(low):
    expected = torch.linspace(-1, 1, 2 * 10 * 31).view(2, 10, 31).clone()
    expected[..., -3:] = low
    off, zeros = expected.clone(), torch.zeros_like(expected)
    off[..., :-3] *= 0.99
    zeros[..., -3:] = low

    for actual in (off, zeros):
        assert compare(expected, actual, DEFAULTS["float32"]).problem == "values"
    near = expected.clone()
    near[..., :-3] *= 1 + 1e-7
    assert not compare(expected, near, DEFAULTS["float32"]).problem


def test_row_that_is_far_larger_gives_no_scale_to_the_rest():
    expected = torch.linspace(-1, 1, 2 * 10 * 32).view(2, 10, 32).clone()
    off = expected.clone()
    off[:, 1:] *= 1.01
    for each in (expected, off):
        each[:, 0] *= 1e4

    found = compare(expected, off, DEFAULTS["float32"])

    assert found.problem == "values"
    assert found.metrics.max_abs_index[1] > 0
