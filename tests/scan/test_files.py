import os

import pytest

from pytest_tfdebug.scan import files

CONTENT = b"first" + b"x" * (2 * files._CHUNK + 7) + b"last" * files._CHUNK


def test_a_file_that_holds_the_same_is_left_alone(tmp_path):
    path = tmp_path / "report.json"
    files.replace(path, CONTENT)
    os.utime(path, (1, 1))

    files.replace(path, CONTENT)

    assert path.stat().st_mtime == 1
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("at", [0, 5, files._CHUNK + 9, -1])
def test_one_other_byte_replaces_the_file(tmp_path, at):
    path = tmp_path / "report.json"
    other = bytearray(CONTENT)
    other[at] ^= 1
    path.write_bytes(other)

    files.replace(path, CONTENT)

    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("extra", [b"", b"longer"])
def test_another_length_replaces_the_file(tmp_path, extra):
    path = tmp_path / "report.json"
    path.write_bytes(b"first" + extra)

    files.replace(path, b"firs")

    assert path.read_bytes() == b"firs"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "report.json"
    path.write_bytes(b"old")

    with pytest.raises(TypeError):
        files.replace(path, "no bytes")

    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]
