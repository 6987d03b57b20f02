"""The list of stale goldens names what certainly has no test any more, and nothing else."""

import time

import pytest

import pytest_tfdebug.goldens.fixture  # noqa: F401 - kept between the runs in this process
from stale_goldens import SCENARIOS, Golden, Scenario, play


@pytest.fixture
def run(pytester, monkeypatch):
    def run_pytest(folder, arguments):
        monkeypatch.chdir(folder)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments).stdout.str()

    return run_pytest


@pytest.mark.parametrize("name", SCENARIOS)
def test_stale_goldens_are_listed_and_stay(name, pytester, run):
    started = time.process_time()

    problems = play(SCENARIOS[name], pytester.path, run)

    assert problems == []
    assert time.process_time() - started < 5


def test_name_of_a_golden_cannot_steer_the_terminal(pytester, run):
    name = "goldens/test_one/\x1b[2Jtest.safetensors"
    printed = []

    def listen(folder, arguments):
        printed.append(run(folder, arguments))
        return printed[0]

    problems = play(Scenario(goldens={name: Golden()}, stale=frozenset({name})), pytester.path, listen)

    assert problems == []
    assert "  goldens/test_one/\\x1b[2Jtest.safetensors" in printed[0]
    assert "\x1b" not in printed[0]


@pytest.mark.nightly
def test_under_xdist_the_same_goldens_are_listed(pytester, monkeypatch):
    def run_spread(folder, arguments):
        monkeypatch.chdir(folder)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-n", "2", *arguments).stdout.str()

    assert play(SCENARIOS["a class is gone"], pytester.path, run_spread) == []
