"""A disk that is full from a test's call on: the failure comes first, the disk is a line, and the old files stay."""

import pytest

#: Refuses what a disk without a free byte refuses, in the folder of the run.
CONFTEST = """
import errno, os, sys

HERE = os.path.join(os.getcwd(), "")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def full(event, arguments):
    is_write = event == "os.mkdir" or (event == "open" and arguments[2] & WRITES)
    if is_write and os.path.abspath(os.fsdecode(arguments[0])).startswith(HERE):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

def pytest_runtest_call():
    if "FULL" in os.environ:
        sys.addaudithook(full)
"""
SUITE = """
import os
import torch

def test_it(tf_golden):
    model = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.constant_(model.weight, float(os.environ.get("FULL", 1)))
    tf_golden.check(model, torch.ones(1, 2))
"""
FAILED = "E  *Linear (Linear): has other weights: weight"
#: The option of a run -> what is told of the test, and what of the disk.
RUNS = {
    "--tf-repro=made": (FAILED, "*No repro: *made/* cannot be written: No space left on device. Name another*"),
    "--tf-json=made.json": (FAILED, "tfdebug: *made.json cannot be written: No space left on device.*"),
    "--tf-html=made": (FAILED, "tfdebug: *made/* cannot be written: No space left on device.*"),
    "--tf-golden=update": (
        "FAILED test_it.py::test_it*",
        "*GoldenError: *test_it.safetensors cannot be written: No space left*",
    ),
}


@pytest.mark.parametrize("option", RUNS)
def test_a_full_disk_hides_no_failure_and_loses_no_file(pytester, monkeypatch, option):
    failure, disk = RUNS[option]
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_it=SUITE)

    def run(*options):
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rf", *options)

    run("--tf-golden=update").assert_outcomes(passed=1)
    (golden,) = pytester.path.rglob("*.safetensors")
    before = golden.read_bytes()
    monkeypatch.setenv("FULL", "2")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    ended = run(option)

    ended.assert_outcomes(failed=1)
    told = ["::error *title=parity*"] if option in ("--tf-json=made.json", "--tf-html=made") else []
    ended.stdout.fnmatch_lines_random([failure, disk, *told])
    ended.stdout.no_fnmatch_line("*INTERNALERROR*")
    assert golden.read_bytes() == before
    assert list(golden.parent.iterdir()) == [golden]
