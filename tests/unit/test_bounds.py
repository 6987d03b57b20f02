"""Files that are too large to be read in seconds are refused, and files like them are not written."""

import struct

import pytest
import torch
from torch import nn

from pytest_tfdebug import GoldenError, Trace, trace
from pytest_tfdebug.tracing.file import document as bounds
from pytest_tfdebug.tracing.file.values_file import encode_values


@pytest.fixture
def recorded():
    torch.manual_seed(0)
    return trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.ones(2, 3))


def with_header(path, size):
    path.write_bytes(struct.pack("<Q", size) + b"{}".ljust(size) + b"\0")
    return path


def test_golden_with_a_long_header_is_refused(tmp_path):
    path = with_header(tmp_path / "it.safetensors", 9_000_000)

    with pytest.raises(GoldenError) as caught:
        Trace.load(path)

    assert str(caught.value) == f"{path} is not read: its header takes 9,000,000 bytes; up to 8,000,000 are read."


@pytest.mark.parametrize("limit", ["MOST_MARKS", "LONGEST_DOCUMENT", "LONGEST_HEADER"])
def test_what_would_not_be_read_is_not_written(recorded, tmp_path, monkeypatch, limit):
    path = tmp_path / "it.safetensors"
    recorded.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(bounds, limit, 10)

    with pytest.raises(GoldenError, match=r"it\.safetensors cannot be written: .* 10 .*\nRecord fewer modules"):
        recorded.save(path)

    assert path.read_bytes() == before


def test_golden_of_many_values_is_refused(recorded, tmp_path, monkeypatch):
    recorded.save(tmp_path / "it.safetensors")
    monkeypatch.setattr(bounds, "MOST_MARKS", 10)

    with pytest.raises(GoldenError, match=r"it\.safetensors .*: a document holds more than 10 values\."):
        Trace.load(tmp_path / "it.safetensors")


def test_table_of_operators_that_would_not_be_read_is_left_out(monkeypatch):
    model = nn.Linear(3, 3)
    values = trace(model, torch.ones(2, 3)).again.values()
    monkeypatch.setattr(bounds, "MOST_MARKS", 10)

    assert encode_values(values) == {}
