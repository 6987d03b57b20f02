"""No operator runs with an index that is out of range: on an accelerator that would end the process."""

import copy

import pytest
import torch
from torch import nn

import pytest_tfdebug
from bugs import BUGS
from index_errors import IndexErrors
from models import ARCHITECTURES, build
from pytest_tfdebug.parity.proof import prove
from pytest_tfdebug.parity.proof.forward import Replay
from pytest_tfdebug.tracing.values.index_range import InRange, chooses, is_told, out_of_range

aten = torch.ops.aten
TABLE, LINE, MASK = torch.arange(12.0).reshape(4, 3), torch.arange(5.0), torch.tensor([True, False, True, True])


def whole(*numbers):
    return torch.tensor(numbers)


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.embedding.default, (TABLE, whole(0, 3))),
        (aten.embedding.default, (TABLE, whole(0, 4))),
        (aten.embedding.default, (TABLE, whole(-1))),
        (aten.gather.default, (TABLE, 1, whole([0, 2]))),
        (aten.gather.default, (TABLE, 1, whole([0, 3]))),
        (aten.gather.default, (TABLE, 0, whole([3, -1]))),
        (aten.gather.default, (TABLE, 2, whole([0, 0]))),
        (aten.index_select.default, (TABLE, -1, whole(2, 2))),
        (aten.index_select.default, (TABLE, -1, whole(3))),
        (aten.index_add.default, (TABLE, 0, whole(3, 1), torch.ones(2, 3))),
        (aten.index_add.default, (TABLE, 0, whole(4, 1), torch.ones(2, 3))),
        (aten.scatter.value, (TABLE, 0, whole([3, 3]), 1.0)),
        (aten.scatter.value, (TABLE, 0, whole([4, 3]), 1.0)),
        (aten.take.default, (TABLE, whole(11, -12))),
        (aten.take.default, (TABLE, whole(12))),
        (aten.index.Tensor, (TABLE, [whole(-4, 3)])),
        (aten.index.Tensor, (TABLE, [whole(-5)])),
        (aten.index.Tensor, (TABLE, [None, whole(2)])),
        (aten.index.Tensor, (TABLE, [None, whole(3)])),
        (aten.index.Tensor, (TABLE, [MASK, whole(0, 1, 2)])),
        (aten.index.Tensor, (TABLE, [MASK[:3]])),
        (aten.index.Tensor, (TABLE, [whole(0), whole(0), whole(0)])),
        (aten.index.Tensor, (TABLE, [whole(0, 1), whole(0, 1, 2)])),
        (aten.index_put.default, (TABLE, [whole(3)], torch.ones(3))),
        (aten.index_put.default, (TABLE, [whole(4)], torch.ones(3))),
        (aten.nll_loss_forward.default, (TABLE, whole(0, 2, -100, 1), None, 1, -100)),
        (aten.nll_loss_forward.default, (TABLE, whole(0, 3, 1, 1), None, 1, -100)),
        (aten.masked_scatter.default, (LINE, torch.ones(5, dtype=torch.bool), torch.ones(5))),
        (aten.masked_scatter.default, (LINE, torch.ones(5, dtype=torch.bool), torch.ones(4))),
        (aten.binary_cross_entropy.default, (torch.tensor([0.0, 1.0]), torch.ones(2))),
        (aten.binary_cross_entropy.default, (torch.tensor([0.0, 1.5]), torch.ones(2))),
    ],
)
def test_what_is_out_of_range_is_what_a_cpu_refuses(func, args):
    try:
        func(*args)
        is_refused = False
    except (IndexError, RuntimeError):
        is_refused = True

    assert chooses(func)
    assert is_told(func)
    assert bool(out_of_range(func, args, {})) is is_refused


@pytest.mark.parametrize(
    "func", [aten.add.Tensor, aten.where.self, aten.cat.default, aten.sum.default, aten.view.default]
)
def test_what_takes_whole_numbers_as_numbers_chooses_nothing(func):
    assert not chooses(func)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_right_model_gives_the_same_where_indices_are_checked(architecture):
    model, inputs = build(architecture)
    with torch.no_grad():
        torch.manual_seed(0)
        plain = model(**inputs)[0]
        torch.manual_seed(0)
        with InRange():
            checked = model(**inputs)[0]

    torch.testing.assert_close(checked, plain, rtol=0, atol=0, equal_nan=True)


def test_sequence_that_is_too_long_is_an_index_error_before_it_runs():
    model, _ = build("gpt2")
    too_long = torch.zeros(1, model.config.n_positions + 1, dtype=torch.long)

    with IndexErrors() as raised, InRange(), pytest.raises(IndexError, match=r"embedding: index \d+ is out of range"):
        model(too_long)
    assert not raised.count


class Bags(nn.Module):
    """Sums rows of a table in bags whose ends no schema relates to anything."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(5, 4))

    def forward(self, ids, ends):
        return nn.functional.embedding_bag(ids, self.table, ends, mode="sum")


def test_what_no_schema_tells_is_computed_on_the_cpu():
    ids, ends = whole(0, 4, 2, 2), whole(0, 2)

    with torch.no_grad(), InRange():
        found = Bags()(ids, ends)

    assert found.shape == (2, 4)


#: Bugs in the search for which an index used to leave its table.
_LEFT = [pytest.param("t5-encoder-buckets-one-sided", marks=pytest.mark.nightly), "vit-class-token-last"]


@pytest.mark.parametrize("name", _LEFT)
def test_no_trial_of_a_change_raises_an_index_error(name, monkeypatch, one_thread):
    bug, runs = next(bug for bug in BUGS if bug.name == name), []
    run = Replay.run
    monkeypatch.setattr(Replay, "run", lambda self, *args: runs.append(1) or run(self, *args))
    monkeypatch.setattr(prove, "SECONDS", 5.0)
    right, inputs = build(bug.architecture)
    wrong = copy.deepcopy(right)
    bug.inject(wrong)
    expected, actual = pytest_tfdebug.trace(right, **inputs), pytest_tfdebug.trace(wrong, **inputs)

    with IndexErrors() as raised:
        report = pytest_tfdebug.compare(expected, actual)

    assert not report.ok
    assert len(runs) > 100
    assert not raised.count
