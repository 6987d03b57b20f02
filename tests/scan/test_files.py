import pytest

from pytest_tfdebug.scan.read import files


def test_file_is_replaced_part_by_part(tmp_path):
    path = tmp_path / "reports" / "report.json"
    parts = [b"first", b"x" * 1_000_000, b"last"]

    files.replace(path, [b"old"])
    stamp = files.replace(path, iter(parts))

    assert path.read_bytes() == b"".join(parts)
    assert stamp == files.stamp(path) != (0, 0)
    assert [entry.name for entry in path.parent.iterdir()] == ["report.json"]


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "report.json"
    path.write_bytes(b"old")

    with pytest.raises(TypeError):
        files.replace(path, [b"new", "no bytes"])

    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]
