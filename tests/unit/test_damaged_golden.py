"""A golden that anyone may have written is read, or refused in words that name it; it runs nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from damaged import damaged_bytes, damaged_json, is_text, read_as_a_strangers
from golden_files import opened, rewritten
from pytest_tfdebug import GoldenError, compare, trace
from pytest_tfdebug.goldens.golden_file import load, save

X = torch.linspace(-1, 1, 8).view(2, 4)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2), nn.LayerNorm(2)))


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    path = tmp_path_factory.mktemp("golden") / "golden.safetensors"
    save(path, trace(model(), X), model(), "test_it.py::test_it")
    return path


@pytest.fixture(scope="module")
def actual():
    return trace(model(), X)


def read_and_compared(path, actual):
    with read_as_a_strangers(path, GoldenError):
        golden = load(path)
        assert is_text(str(compare(golden.trace, actual, internal="fail")))


@given(st.data())
def test_bytes_that_were_changed_are_refused_in_words(golden, actual, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "bytes.safetensors"
    path.write_bytes(data.draw(damaged_bytes(golden.read_bytes())))
    read_and_compared(path, actual)


@given(st.data())
def test_document_with_right_checksums_may_hold_anything(golden, actual, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "document.safetensors"
    document, tensors = opened(golden)
    rewritten(path, data.draw(damaged_json(document)), tensors)
    read_and_compared(path, actual)
