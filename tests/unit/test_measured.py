"""What a report says of what it compared, and what becomes of differences that change no output."""

import pytest
import torch
from torch import nn

from pytest_tfdebug import TFDebugError, compare, trace
from pytest_tfdebug.records import Coverage

X = torch.linspace(-1, 1, 8).view(2, 4)


class Model(nn.Module):
    """Two layers, of which the second changes nothing."""

    def __init__(self, shift=0.0, unused_shift=0.0, result=lambda y: y):
        super().__init__()
        torch.manual_seed(0)
        self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)
        self.shift, self.unused_shift, self.result = shift, unused_shift, result

    def forward(self, x):
        y = self.used(x) + self.shift
        self.unused(y + self.unused_shift)
        return self.result(y)


class Cached(Model):
    """The same, and what the second layer gives is kept in a list that the caller handed in."""

    def forward(self, x):
        return super().forward(x), self.unused(x + self.unused_shift)


def held(port, reference=None, **options):
    return compare(trace(reference or Model(), X), trace(port, X), **options)


def test_equal_forwards_are_compared_whole_and_use_nothing_of_the_tolerance():
    report = held(Model())

    assert report.coverage == Coverage(3, 3, root=True)
    assert report.coverage.share == 1
    assert report.worst.share == 0
    assert report


def test_worst_tensor_is_named():
    report = held(Model(shift=3e-6))

    assert report.ok
    assert 0.1 < report.worst.share < 1
    assert report.worst.path in {"Model", "unused"}


def test_failed_report_is_false():
    report = held(Model(shift=1.0))

    assert not report
    assert report.worst.share == 0


def test_root_that_returns_an_object_was_not_compared():
    report = held(Model(result=lambda _y: object()), Model(result=lambda _y: object()))

    assert report.ok
    assert report.coverage == Coverage(2, 2, root=False)


@pytest.mark.parametrize("result", [lambda y: y.sum().item(), lambda y: y.numpy()])
def test_number_or_an_array_that_a_root_returns_was_compared(result):
    report = held(Model(result=result), Model(result=result))

    assert report.ok
    assert report.coverage.root


def test_difference_that_changes_no_output_is_a_note():
    report = held(Model(unused_shift=1.0))

    assert report.ok
    assert report.internal.startswith("Outputs equal, 1 internal value differs: the first at 'Model' (Model), test_")
    assert report.internal.endswith('internal="fail" makes this a failure.')
    assert report.notes[0] == report.internal
    assert [item.path for item in report.divergences if item.direction == "output"] == ["unused"]


def test_it_fails_where_that_is_asked():
    report = held(Model(unused_shift=1.0), internal="fail")

    assert (report.culprit.path, report.culprit.kind, report.internal) == ("Model", "glue", "")


def test_difference_in_what_the_root_returns_fails_as_ever():
    assert not held(Cached(unused_shift=1.0), Cached()).ok


def test_other_inputs_fail_as_ever():
    report = compare(trace(Model(result=lambda y: y * 0), X), trace(Model(result=lambda y: y * 0), X + 1))

    assert report.culprit.kind == "inputs"


def test_another_word_for_internal_is_refused():
    with pytest.raises(TFDebugError) as caught:
        held(Model(), internal="ignore")

    assert str(caught.value) == "internal='ignore' is not one of 'warn', 'fail'."
