"""Nothing is lost: a smaller form of ``utils/harden.py``, which kills and writes at once more often."""

import os

import pytest

from safety.goldens import play_kills, play_many, play_two_updates

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there is no fork, and no kill, on Windows")


def test_killed_writer_leaves_the_old_golden_or_the_new_alone(tmp_path):
    assert play_kills(tmp_path, 25) == []


@pytest.mark.nightly
def test_two_runs_that_update_at_once_lose_nothing(tmp_path):
    assert play_two_updates(tmp_path, 6) == []


@pytest.mark.nightly
def test_many_tests_leave_nothing_behind_and_take_no_longer_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr("safety.goldens.SLOWER", 2)  # of few tests, on a machine that does other things

    assert play_many(tmp_path, 150, modes=["update"]) == []
