"""Two processes for one scan."""

import os

import pytest

from pytest_tfdebug.scan import fresh
from pytest_tfdebug.scan.beside import beside
from pytest_tfdebug.scan.cli import main

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


def test_each_function_runs_in_a_process():
    mine, theirs = beside(os.getpid, os.getpid)

    assert mine == os.getpid() != theirs


def test_what_is_too_long_for_a_pipe_comes_back_whole():
    assert beside(lambda: "a", lambda: "b" * 3_000_000) == ("a", "b" * 3_000_000)


def test_the_work_of_a_process_that_fails_is_done_here():
    parent = os.getpid()

    def work():
        if os.getpid() != parent:
            os._exit(3)
        return "done"

    assert beside(lambda: "mine", work) == ("mine", "done")


def test_an_error_of_both_is_raised():
    with pytest.raises(ZeroDivisionError):
        beside(lambda: 1, lambda: 1 // 0)


@pytest.mark.parametrize("cache", [(), ("--no_cache",)])
def test_two_processes_give_the_answer_of_one(fixture_repo, tmp_path, monkeypatch, cache):
    answers = []
    for name, least, has_second in (("one", 10_000, False), ("two", 2, True)):
        monkeypatch.setattr(fresh, "SHARED", least)
        monkeypatch.setattr(fresh, "HAS_SECOND", has_second)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache of {name}"))

        assert main(["--repo", str(fixture_repo), "--output_dir", str(tmp_path / name), *cache]) == 0
        answers.append((tmp_path / name / "all_tests_scan_result.json").read_bytes())

    assert answers[0] == answers[1]


def test_what_two_processes_learnt_answers_the_next_scan(fixture_repo, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fresh, "SHARED", 2)
    monkeypatch.setattr(fresh, "HAS_SECOND", True)
    arguments = ["--repo", str(fixture_repo), "--output_dir", str(tmp_path)]
    main(arguments)
    first = capsys.readouterr()

    main(arguments)

    second = capsys.readouterr()
    assert second.out == first.out
    assert "Parsing" in first.err
    assert "Parsing" not in second.err
