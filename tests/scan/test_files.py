import os

import pytest

from pytest_tfdebug.scan import files

PIECES = [b"first", b"x" * (2 * files._CHUNK + 7), b"", b"last" * files._CHUNK]


def test_a_file_that_holds_the_same_is_left_alone(tmp_path):
    path = tmp_path / "report.json"
    files.replace(path, PIECES)
    os.utime(path, (1, 1))

    files.replace(path, [b"".join(PIECES)])

    assert path.stat().st_mtime == 1
    assert path.read_bytes() == b"".join(PIECES)


@pytest.mark.parametrize("at", [0, 5, files._CHUNK + 9, -1])
def test_one_other_byte_replaces_the_file(tmp_path, at):
    path = tmp_path / "report.json"
    other = bytearray(b"".join(PIECES))
    other[at] ^= 1
    path.write_bytes(other)

    files.replace(path, PIECES)

    assert path.read_bytes() == b"".join(PIECES)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("extra", [b"", b"longer"])
def test_another_length_replaces_the_file(tmp_path, extra):
    path = tmp_path / "report.json"
    path.write_bytes(b"first" + extra)

    files.replace(path, [b"fir", b"s"])

    assert path.read_bytes() == b"firs"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "report.json"
    path.write_bytes(b"old")

    with pytest.raises(TypeError):
        files.replace(path, [b"new", "no bytes"])

    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("taken", [0, 1, 7, 12])
def test_a_write_that_is_cut_short_is_gone_on_with(tmp_path, monkeypatch, taken):
    path = tmp_path / "report.json"
    monkeypatch.setattr(
        os, "writev", lambda file, pieces: os.write(file, b"".join(pieces)[:taken]) if taken else 0, raising=False
    )

    files.replace(path, PIECES)

    assert path.read_bytes() == b"".join(PIECES)


def test_a_system_that_writes_one_piece_at_a_time_writes_them_all(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    monkeypatch.delattr(os, "writev", raising=False)

    files.replace(path, PIECES)

    assert path.read_bytes() == b"".join(PIECES)


def test_more_pieces_than_one_call_takes_are_written_in_order(tmp_path):
    path = tmp_path / "report.json"
    pieces = [str(number).encode() for number in range(2500)]

    files.replace(path, pieces)

    assert path.read_bytes() == b"".join(pieces)
