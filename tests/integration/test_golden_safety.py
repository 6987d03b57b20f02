"""Nothing is lost: a smaller form of ``utils/harden.py``, which kills, damages and writes at once more often."""

import os

import pytest

from safety.kills import play_kills
from safety.malformed import play_malformed
from safety.suites import growth_of_run, play_two_updates

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there is no fork, and no kill, on Windows")


def test_a_killed_writer_leaves_the_old_golden_or_the_new_one_and_nothing_else(tmp_path):
    assert play_kills(tmp_path, 25) == []


def test_a_malformed_golden_is_one_clear_line_and_takes_no_longer_than_a_whole_one_many_times(tmp_path):
    assert play_malformed(tmp_path, 120) == []


def test_two_runs_that_update_at_once_lose_nothing(tmp_path):
    assert play_two_updates(tmp_path, 6) == []


def test_a_golden_costs_no_more_at_the_end_of_a_run_than_at_its_start(tmp_path):
    assert growth_of_run(tmp_path, 150).slower < 2
