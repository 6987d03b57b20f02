"""An independent port, with modules of its own, is held to transformers' BERT on the real MiniLM weights."""

import copy
import functools

import pytest

import pytest_tfdebug
from minilm_bugs import MINILM_BUGS
from minilm_port import RENAME, encode, load_port, load_reference


@functools.cache
def sides():
    inputs = encode()
    return load_port(), inputs, pytest_tfdebug.trace(load_reference(), **inputs)


def test_clean_port_agrees_with_the_reference():
    port, inputs, expected = sides()

    report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(port, **inputs), rename=RENAME)

    assert report.ok, str(report)
    assert report.tensors > 60


@pytest.mark.parametrize("bug", MINILM_BUGS, ids=lambda bug: bug.name)
def test_culprit_in_the_port_is_named(bug):
    port, inputs, expected = sides()
    port = copy.deepcopy(port)
    bug.inject(port)

    report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(port, **inputs), rename=RENAME)

    assert not report.ok
    assert (report.culprit.path, report.culprit.kind) == (bug.culprit, bug.kind), str(report)
