"""What several ranks hold of a tensor, beside the golden's: in its place, put together, and with the rank that is wrong."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfdebug.parity.tensors.compared import Compared
from pytest_tfdebug.parity.tensors.ranks import compare_on_rank, in_recorded_layout, merge_ranks
from pytest_tfdebug.parity.tensors.tolerance import Tolerances
from pytest_tfdebug.records import Call, CallComparison, Part, TensorRecord
from pytest_tfdebug.tracing.record.ranks import STACKED, Group, part_by_shape
from pytest_tfdebug.tracing.values.digest import digest_of


def record(tensor, *, is_digest=False, **more):
    shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
    if is_digest:
        return TensorRecord("", shape, dtype, None, digest=digest_of(tensor, 16), **more)
    return TensorRecord("", shape, dtype, tensor, **more)


def found_on_ranks(expected, held):
    """Return the one comparison of what the ranks hold with what is expected."""
    allowed = Tolerances()
    call = Call(0, "up", "Linear", 0, None, 0)
    expected_call = Call(0, "up", "Linear", 0, None, 0, outputs=(expected,))
    ranks = []
    for rank, own in enumerate(held):
        actual, beside = in_recorded_layout(own, expected, Group(rank, len(held)))
        leaf = compare_on_rank("output", actual, beside, allowed.of("up", beside.dtype), Group(rank, len(held)))
        ranks.append(Compared([CallComparison(call, expected_call, outputs=(leaf,))], [expected_call]))
    told = []
    for own in ranks:
        merge_ranks(own, allowed, lambda value, _shared: told.append(value) or [value])
    (merged,) = merge_ranks(ranks[0], allowed, lambda _value, _shared: told).calls
    return merged.outputs[0]


@pytest.mark.as_run("ranks")
@given(
    axis=st.integers(0, 2),
    count=st.integers(2, 4),
    rank=st.integers(0, 1),
    is_digest=st.booleans(),
    seed=st.integers(0, 99),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64]),
)
def test_part_is_compared_in_place_and_a_wrong_one_names_its_rank(*, axis, count, rank, is_digest, seed, dtype):
    shape = [3, 5, 4]
    shape[axis] *= count
    whole = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 8).to(dtype)
    parts = [part.clone() for part in whole.chunk(count, axis)]

    right = found_on_ranks(record(whole, is_digest=is_digest), [record(part) for part in parts])
    parts[rank] += 3
    wrong = found_on_ranks(record(whole, is_digest=is_digest), [record(part) for part in parts])

    assert (right.problem, right.is_measured, right.ranks) == ("", True, ())
    assert (wrong.problem, wrong.ranks, wrong.shape) == ("values", (rank,), tuple(shape))


@pytest.mark.parametrize("is_digest", [False, True])
def test_element_that_no_digest_keeps_shows_in_the_sums_of_all_ranks(is_digest):
    whole = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    kept = set(digest_of(torch.arange(64.0 * 64).view(64, 64), 16).elements.long().tolist())
    place = next(place for place in range(64 * 64) if place not in kept)
    wrong = whole.clone()
    wrong.view(-1)[place] += 50

    found = found_on_ranks(record(whole, is_digest=is_digest), [record(part) for part in wrong.chunk(2)])

    assert (found.problem, found.ranks) == ("values", (0, 1) if is_digest else (0,))


@pytest.mark.as_run("ranks")
@pytest.mark.parametrize("is_digest", [False, True])
def test_parts_of_a_sum_that_nothing_adds_up_are_said_to_be(is_digest):
    torch.manual_seed(0)
    first, second = torch.randn(2, 8, 8)

    in_parts = found_on_ranks(record(first + second, is_digest=is_digest), [record(first), record(second)])
    wrong = found_on_ranks(record(first + second, is_digest=is_digest), [record(first), record(first)])

    assert (in_parts.problem, in_parts.ranks, in_parts.is_summand) == ("values", (0, 1), True)
    assert (wrong.problem, wrong.ranks, wrong.is_summand) == ("values", (0, 1), False)


@pytest.mark.parametrize("is_digest", [False, True])
def test_summands_that_know_themselves_to_be_ones_are_added_up(is_digest):
    torch.manual_seed(0)
    first, second = torch.randn(2, 8, 8)
    summands = [record(each, part=Part((8, 8), (0, 0), is_summand=True)) for each in (first, second)]

    right = found_on_ranks(record(first + second, is_digest=is_digest), summands)
    wrong = found_on_ranks(record(first - second, is_digest=is_digest), summands)

    assert (right.problem, wrong.problem) == ("", "values")


def test_replica_that_differs_is_on_its_rank_alone():
    whole = torch.randn(4, 4)

    found = found_on_ranks(record(whole), [record(whole), record(whole * 1.01)])

    assert (found.problem, found.ranks, found.is_summand) == ("values", (1,), False)


@pytest.mark.parametrize("is_digest", [False, True])
def test_what_was_recorded_rank_by_rank_holds_one_process_and_ranks(is_digest):
    whole = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    parts = whole.chunk(2, 1)
    stacked = record(torch.stack(parts), is_digest=is_digest, placement=STACKED)

    of_one = in_recorded_layout(record(whole), stacked, None)[0]
    on_ranks = found_on_ranks(stacked, [record(part) for part in parts])
    swapped = found_on_ranks(stacked, [record(part) for part in reversed(parts)])

    assert torch.equal(of_one.tensor, torch.stack(parts))
    assert (on_ranks.problem, on_ranks.is_measured) == ("", True)
    assert (swapped.problem, swapped.ranks) == ("values", (0, 1))


def test_place_follows_from_the_one_axis_that_the_ranks_divide():
    group = Group(1, 2)

    assert part_by_shape((2, 4), (2, 8), group) == Part((2, 8), (0, 4))
    assert part_by_shape((2, 8), (2, 8), group) is None
    assert part_by_shape((1, 4), (2, 8), group) is None
    assert part_by_shape((2, 2), (2, 8), group) is None
    assert part_by_shape((8,), (2, 8), group) is None
