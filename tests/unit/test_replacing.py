import os
import subprocess
import sys

import pytest
import torch

from pytest_tfdebug import GoldenError, trace
from pytest_tfdebug.tracing.record.replacing import PARTIAL, _machine, replace_atomically, sweep


@pytest.fixture
def dead_process():
    """The number of a process that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError(28, "No space left on device")])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "t"
    path.write_text("old")

    def fill(temporary):
        with open(temporary, "w") as file:  # noqa: PTH123
            file.write("half")
        raise error

    with pytest.raises(GoldenError if isinstance(error, OSError) else error) as caught:
        replace_atomically(path, fill)

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    if isinstance(error, OSError):
        assert str(caught.value) == f"{path} cannot be written: No space left on device."


def test_what_a_dead_process_of_this_machine_left_is_swept_at_once(tmp_path, dead_process):
    left = tmp_path / f".{_machine()}-{dead_process}-x{PARTIAL}"
    left.mkdir()
    (left / "golden").write_text("half")
    (left / ".tmpAbC123").write_text("half, of safetensors")

    sweep(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_what_a_writer_may_still_need_is_left_until_it_is_old(tmp_path, dead_process):
    names = [
        f".{_machine()}-{os.getpid()}-x{PARTIAL}",
        f".00000000-{dead_process}-x{PARTIAL}",
        f".older{PARTIAL}",
        ".tmpAbC123",
    ]
    for name in names:
        (tmp_path / name).write_text("half")

    sweep(tmp_path)
    young = {path.name for path in tmp_path.iterdir()}
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    sweep(tmp_path)

    assert young == set(names)
    assert list(tmp_path.iterdir()) == []


def test_other_hidden_files_are_nobody_elses_to_sweep(tmp_path):
    for name in (".gitkeep", ".tmp", ".tmpAbC1234", "tmpAbC123", "t.safetensors", f"plain{PARTIAL}"):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / ".tmpFolder").mkdir()
    before = sorted(tmp_path.iterdir())

    sweep(tmp_path)

    assert sorted(tmp_path.iterdir()) == before


def test_a_directory_that_is_not_there_is_no_error(tmp_path):
    sweep(tmp_path / "none")


def test_a_saved_trace_sweeps_its_directory(tmp_path, dead_process):
    (tmp_path / f".{_machine()}-{dead_process}-x{PARTIAL}").mkdir()

    trace(torch.nn.Linear(2, 2), torch.ones(1, 2)).save(tmp_path / "t")

    assert [path.name for path in tmp_path.iterdir()] == ["t"]
