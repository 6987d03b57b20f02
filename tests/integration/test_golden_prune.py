"""Pruning deletes what certainly has no test any more, and nothing else."""

import time
from pathlib import Path

import pytest

import pytest_tfdebug.goldens.fixture  # noqa: F401 - kept between the runs in this process
from prunes import SCENARIOS, Golden, Scenario, play


@pytest.fixture
def run(pytester, monkeypatch):
    def run_pytest(folder, arguments):
        monkeypatch.chdir(folder)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments).stdout.str()

    return run_pytest


@pytest.mark.parametrize("name", SCENARIOS)
def test_pruning_loses_nothing(name, pytester, run):
    started = time.process_time()

    problems = play(SCENARIOS[name], pytester.path, run)

    assert problems == []
    assert time.process_time() - started < 5


def test_a_golden_that_cannot_be_deleted_is_named(pytester, run, monkeypatch):
    real, printed = Path.unlink, []

    def unlink(path, **arguments):
        if path.name == "test_gone.safetensors":
            raise PermissionError(13, "Permission denied", str(path))
        real(path, **arguments)

    def listen(folder, arguments):
        printed.append(run(folder, arguments))
        return printed[0]

    monkeypatch.setattr(Path, "unlink", unlink)
    problems = play(SCENARIOS["all tests of a file are gone"], pytester.path, listen)

    assert problems == ["goldens/test_one/test_gone.safetensors is left"]
    assert "test_gone.safetensors cannot be deleted: Permission denied." in printed[0]
    assert "Deleted" not in printed[0]


def test_a_name_of_a_golden_cannot_steer_the_terminal(pytester, run):
    name = "goldens/test_one/\x1b[2Jtest.safetensors"
    printed = []

    def listen(folder, arguments):
        printed.append(run(folder, arguments))
        return printed[0]

    problems = play(Scenario(goldens={name: Golden()}, deleted=frozenset({name})), pytester.path, listen)

    assert problems == []
    assert "  goldens/test_one/\\x1b[2Jtest.safetensors" in printed[0]
    assert "\x1b" not in printed[0]


def test_under_xdist_the_same_goldens_are_deleted(pytester, monkeypatch):
    def run_spread(folder, arguments):
        monkeypatch.chdir(folder)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-n", "2", *arguments).stdout.str()

    assert play(SCENARIOS["a class is gone"], pytester.path, run_spread) == []
