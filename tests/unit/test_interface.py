"""The Python interface: public names, short representations, and records on what is raised."""

import inspect
from importlib.metadata import version

import pytest
import torch
from torch import nn

import pytest_tfdebug
from pytest_tfdebug import records

X = torch.linspace(-1, 1, 8).view(2, 4)


def traced(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(8)))
    return pytest_tfdebug.trace(model, X)


@pytest.mark.parametrize("name", pytest_tfdebug.__all__)
def test_every_public_name_can_be_imported_and_is_documented(name):
    assert inspect.getdoc(getattr(pytest_tfdebug, name))


def test_version_is_that_of_the_distribution():
    assert pytest_tfdebug.__version__ == version("pytest-tfdebug")


def test_what_is_returned_is_of_a_public_class():
    report = pytest_tfdebug.compare(traced(), traced(1))

    assert isinstance(report.culprit, records.Culprit)
    assert isinstance(report.culprit.source, records.SourceRange)
    assert isinstance(report.divergences[0], records.Divergence)
    assert isinstance(report.divergences[0].comparison, records.LeafComparison)
    assert isinstance(report.coverage, records.Coverage)
    assert isinstance(report.calls[0].call, records.Call)
    assert isinstance(traced().calls[0].inputs[0], records.TensorRecord)


def test_representations_are_short_and_say_what_it_is():
    expected, actual = traced(), traced(1)
    failed, passed = pytest_tfdebug.compare(expected, actual), pytest_tfdebug.compare(expected, expected)

    assert repr(expected) == "<Trace of Sequential: 25 calls, 50 tensors>"
    assert repr(passed) == "<ParityReport ok=True: 50 tensors agree>"
    assert repr(failed).startswith("<ParityReport ok=False: Culprit(path='0.0', kind='weights', ")
    assert all(len(repr(thing)) < 1000 for thing in (failed, failed.culprit, expected.calls[0], failed.calls[0]))
