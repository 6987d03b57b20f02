import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfdebug.invariance.calls.alignment import Alignment
from pytest_tfdebug.invariance.calls.repetition import extend

SIZES = st.integers(1, 5)


def first(alignment, actual, expected):
    return next(iter(alignment.candidates(actual, expected)))


@given(batch=SIZES, real=SIZES, width=SIZES, before=SIZES, after=st.integers(0, 4))
def test_what_was_padded_is_narrowed_to_what_it_was(batch, real, width, before, after):
    hidden, total = torch.randn(batch, real, width), real + before + after
    alignment = Alignment(real, before, total, batch)

    aligned = first(alignment, extend(hidden, 1, before, after), hidden)

    assert torch.equal(aligned.tensor, hidden)
    assert aligned.axes == (1,)
    assert len(list(alignment.candidates(extend(hidden, 1, before, after), hidden))) == 1


@given(batch=SIZES, real=SIZES, width=SIZES, before=SIZES, after=st.integers(0, 4))
def test_what_does_not_lie_beside_anything_is_what_was_added(batch, real, width, before, after):
    hidden, total = torch.zeros(batch, real, width), real + before + after
    alignment = Alignment(real, before, total, batch)

    parts = list(
        alignment.unseen(extend(hidden, 1, before, after).index_fill(1, torch.arange(before), 1.0), hidden.shape)
    )

    assert sum(part.numel() for part in parts) == batch * (before + after) * width
    assert sum(part.sum() for part in parts) == batch * before * width
    assert not list(alignment.unseen(hidden, hidden.shape))


def test_all_of_a_tensor_is_unseen_where_its_place_is_not_plain():
    weights, tokens = torch.zeros(2, 3, 7, 7), torch.zeros(14, 5)

    assert [part.shape for part in Alignment(4, 2, 7, 2).unseen(weights, (2, 3, 4, 4))] == [weights.shape]
    assert [part.shape for part in Alignment(4, 2, 7, 2).unseen(tokens, (8, 5))] == [tokens.shape]
    assert [part.shape for part in Alignment(4, 2, 7, 2, rows=(1,)).unseen(tokens, (4, 5))] == [tokens.shape]


def test_attentions_are_narrowed_on_both_axes():
    weights = torch.randn(2, 3, 4, 4)
    padded = extend(extend(weights, 2, 2, 1), 3, 2, 1)

    aligned = first(Alignment(4, 2, 7, 2), padded, weights)

    assert torch.equal(aligned.tensor, weights)
    assert aligned.axes == (2, 3)


def test_batch_and_sequence_in_one_axis_are_split():
    tokens = torch.randn(2, 4, 5)

    aligned = first(Alignment(4, 3, 7, 2), extend(tokens, 1, 3, 0).flatten(0, 1), tokens.flatten(0, 1))

    assert torch.equal(aligned.tensor, tokens.flatten(0, 1))
    assert aligned.axes == (0,)


@given(prompt=st.integers(0, 3), image=st.integers(0, 3), pads=SIZES, side=st.booleans(), dtype=st.booleans())
def test_other_positions_may_stand_around_the_sequence(prompt, image, pads, side, dtype):
    kind = torch.complex64 if dtype else torch.float32
    before, tokens, behind = (torch.randn(1, length, 2, dtype=kind) for length in (prompt, 4, image))
    start = pads if side else 0
    padded = extend(tokens, 1, start, pads - start, torch.nan)
    expected, actual = (torch.cat([before, each, behind], 1) for each in (tokens, padded))

    ways = list(Alignment(4, start, 4 + pads, 1).candidates(actual, expected))

    assert torch.equal(ways[0].tensor, expected)
    assert len(ways) == 1


def test_other_positions_in_two_axes_stand_on_one_side():
    weights = torch.randn(1, 7, 7)
    padded = extend(extend(weights, 1, 0, 2), 2, 0, 2)

    ways = list(Alignment(4, 0, 6, 1).candidates(padded, weights))

    assert torch.equal(ways[1].tensor, weights)


def test_row_is_picked_from_its_batch():
    batch = torch.randn(3, 5, 2)
    expected = batch[1:2, 2:]

    aligned = first(Alignment(3, 2, 5, 3, rows=(1,)), batch, expected)

    assert torch.equal(aligned.tensor, expected)
    assert aligned.tensor.untyped_storage().data_ptr() == batch.untyped_storage().data_ptr()


def test_pooled_tensor_is_taken_as_it_is():
    pooled = torch.randn(2, 6)

    aligned = first(Alignment(4, 1, 5, 2), pooled, pooled)

    assert torch.equal(aligned.tensor, pooled)
    assert aligned.axes == ()


def test_sizes_that_no_pad_explains_cannot_be_aligned():
    assert list(Alignment(4, 1, 5, 2).candidates(torch.ones(2, 9), torch.ones(2, 4))) == []
    assert list(Alignment(4, 1, 5, 2).candidates(torch.ones(2, 4, 1), torch.ones(2, 4))) == []


def test_masked_positions_are_blanked_on_every_sequence_axis():
    mask = torch.tensor([[True, True, False], [True, True, True]])
    alignment = Alignment(3, 1, 4, 2, mask=mask)

    hidden = alignment.blank(torch.ones(2, 3, 2), (1,))
    weights = alignment.blank(torch.ones(2, 1, 3, 3), (2, 3))

    assert hidden[..., 0].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert weights[0, 0].tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert bool(weights[1].all())


def test_masked_positions_are_blanked_where_a_row_has_several_sequences():
    mask = torch.tensor([[True, False], [True, True], [False, True], [True, True]])

    ids = Alignment(2, 1, 3, 2, mask=mask).blank(torch.ones(2, 2, 2), (2,))

    assert ids.flatten(0, 1).tolist() == mask.float().tolist()


def test_rows_may_be_the_second_axis():
    memory = torch.randn(5, 3, 2)

    ways = list(Alignment(5, 0, 5, 3, rows=(2, 1, 0)).candidates(memory, memory))

    assert any(torch.equal(way.tensor, memory.flip(1)) for way in ways)


def test_patches_of_a_larger_image_are_those_of_its_corner():
    patches = torch.randn(2, 3, 3, 5)
    larger = extend(extend(patches, 1, 0, 2), 2, 0, 2)

    ways = Alignment(24, 0, 40, 2, is_exact=False).candidates(larger.flatten(1, 2), patches.flatten(1, 2))

    assert any(torch.equal(way.tensor, patches.flatten(1, 2)) for way in ways)


def test_distances_of_more_frames_lie_around_those_of_fewer():
    fewer, more = torch.arange(-3.0, 4.0), torch.arange(-5.0, 6.0)

    ways = Alignment(4, 0, 6, 1, is_exact=False).candidates(more[None], fewer[None])

    assert any(torch.equal(way.tensor, fewer[None]) for way in ways)
