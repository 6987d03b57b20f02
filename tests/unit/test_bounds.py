"""Files that are too large to be read in seconds are refused, and files like them are not written."""

import io
import struct
import zipfile

import pytest
import torch
from torch import nn

from pytest_tfdebug import GoldenError, TFDebugError, Trace, trace
from pytest_tfdebug.repro.inputs import load_inputs, save_inputs
from pytest_tfdebug.repro.module_file import load_module, save_module
from pytest_tfdebug.tracing import bounds
from pytest_tfdebug.tracing.values_file import encode_values


@pytest.fixture
def recorded():
    torch.manual_seed(0)
    return trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.ones(2, 3))


def with_header(path, size):
    path.write_bytes(struct.pack("<Q", size) + b"{}".ljust(size) + b"\0")
    return path


def test_a_golden_with_a_long_header_is_refused(tmp_path):
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


def test_a_golden_of_many_values_is_refused(recorded, tmp_path, monkeypatch):
    recorded.save(tmp_path / "it.safetensors")
    monkeypatch.setattr(bounds, "MOST_MARKS", 10)

    with pytest.raises(GoldenError, match=r"it\.safetensors .*: a document holds more than 10 values\."):
        Trace.load(tmp_path / "it.safetensors")


def test_a_table_of_operators_that_would_not_be_read_is_left_out(monkeypatch):
    model = nn.Linear(3, 3)
    values = trace(model, torch.ones(2, 3)).again.values()
    monkeypatch.setattr(bounds, "MOST_MARKS", 10)

    assert encode_values(values) == {}


def test_inputs_of_millions_of_numbers_are_refused(tmp_path, monkeypatch):
    save_inputs(tmp_path, ([1, 2, 3, 4, 5, 6],), {})
    monkeypatch.setattr(bounds, "MOST_MARKS", 10)

    with pytest.raises(
        TFDebugError, match=r"inputs\.json cannot be read: TooLargeError: a document holds more than 10"
    ):
        load_inputs(tmp_path)
    with pytest.raises(TFDebugError, match=r"the inputs cannot be written: a document holds more than 10 values"):
        save_inputs(tmp_path, ([1, 2, 3, 4, 5, 6],), {})


@pytest.mark.parametrize("name", ["inputs.safetensors", "model.safetensors"])
def test_a_repro_with_a_long_header_is_refused(tmp_path, name):
    save_inputs(tmp_path, (torch.ones(2),), {})
    names = save_module(tmp_path, nn.Linear(2, 2))
    with_header(tmp_path / name, 9_000_000)

    with pytest.raises(TFDebugError, match=rf"{name} cannot be read: TooLargeError: its header takes 9,000,000 bytes"):
        load_inputs(tmp_path) if name.startswith("inputs") else load_module(tmp_path, names)


@pytest.mark.parametrize(
    ("content", "compression", "told"),
    [
        (b"\x80\x02" + b"]" * 3_000_000 + b".", zipfile.ZIP_STORED, "its modules take 3,000,003 bytes"),
        (
            b"\x80\x02].",
            zipfile.ZIP_DEFLATED,
            r"its part model/data\.pkl is compressed, as torch\.save compresses none",
        ),
    ],
    ids=["large", "compressed"],
)
def test_modules_that_take_long_to_unpack_are_refused(tmp_path, content, compression, told):
    names = save_module(tmp_path, nn.Linear(2, 2))
    packed = io.BytesIO()
    with zipfile.ZipFile(tmp_path / "model.pt") as old, zipfile.ZipFile(packed, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, content if name.endswith("data.pkl") else old.read(name))
    (tmp_path / "model.pt").write_bytes(packed.getvalue())

    with pytest.raises(TFDebugError, match=rf"model\.pt cannot be read: \w+: {told}"):
        load_module(tmp_path, names)


def test_modules_that_would_not_be_read_are_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("pytest_tfdebug.repro.module_file._LONGEST_TREE", 10)

    with pytest.raises(
        TFDebugError, match=r"Linear cannot be written: its modules take [\d,]+ bytes; up to 10 are read"
    ):
        save_module(tmp_path, nn.Linear(2, 2))
