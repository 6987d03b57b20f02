"""A disk that is full from a test's call on: the failure comes first, the disk is a line, and the old files stay."""

import pytest

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

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
#: The options of a run -> what is told of the test, and what of the disk.
RUNS = {
    ("--tf-repro=made", "--tf-json=made.json", "--tf-html=page"): [
        FAILED,
        "*No repro: *made/* cannot be written: No space left on device. Name another*",
        "tfdebug: *made.json cannot be written: No space left on device.*",
        "tfdebug: *page/* cannot be written: No space left on device.*",
        "::error *title=parity*",
    ],
    ("--tf-golden=update",): [
        "FAILED test_it.py::test_it*",
        "*GoldenError: *test_it.safetensors cannot be written: No space left*",
    ],
}


@pytest.mark.nightly
@pytest.mark.parametrize("options", RUNS, ids=" ".join)
def test_full_disk_hides_no_failure_and_loses_no_file(pytester, monkeypatch, options):
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_it=SUITE)
    arguments = ("-p", "no:cacheprovider", "-rf")
    pytester.runpytest_inprocess(*arguments, "--tf-golden=update").assert_outcomes(passed=1)
    (golden,) = pytester.path.rglob("*.safetensors")
    before = golden.read_bytes()
    monkeypatch.setenv("FULL", "2")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")

    ended = pytester.runpytest_subprocess(*arguments, *options)  # of its own: a hook of audits stays for good

    ended.assert_outcomes(failed=1)
    ended.stdout.fnmatch_lines_random(RUNS[options])
    ended.stdout.no_fnmatch_line("*INTERNALERROR*")
    assert golden.read_bytes() == before
    assert list(golden.parent.iterdir()) == [golden]
