"""Two processes for one scan."""

import os
import time

import pytest

from pytest_tfdebug.scan import fresh
from pytest_tfdebug.scan.beside import beside
from pytest_tfdebug.scan.cli import main
from pytest_tfdebug.scan.report import Column

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


def test_two_processes_share_the_items_and_meet():
    def work(_, items):
        return os.getpid(), [item for item in items if time.sleep(0.005) is None]

    (mine, front), (theirs, back) = beside(range(100), work)

    assert mine == os.getpid() != theirs
    assert [*front, *reversed(back)] == list(range(100))
    assert front
    assert back


def test_the_process_that_is_through_takes_what_the_slow_one_leaves():
    def work(number, items):
        return [item for item in items if time.sleep(0.05 * number) is None]

    front, back = beside(range(50), work)

    assert [*front, *reversed(back)] == list(range(50))
    assert len(front) > len(back)


def test_more_items_than_a_pipe_holds_are_shared():
    front, back = beside(list(range(100_000)), lambda _, items: list(items))

    assert sorted([*front, *back]) == list(range(100_000))


def test_no_items_are_no_work():
    assert beside([], lambda number, items: (number, list(items))) == ((0, []), (1, []))


def test_what_is_too_long_for_a_pipe_comes_back_whole():
    assert beside([], lambda number, _: "ab"[number] * 3_000_000) == ("a" * 3_000_000, "b" * 3_000_000)


def test_buffers_come_back_as_they_were():
    content = os.urandom(100_000)

    _, column = beside([], lambda _, __: Column({"models_ran": 1}, {"models_ran": [b'"bert"']}, [content, b"", b"x"]))

    assert column[:2] == ({"models_ran": 1}, {"models_ran": [b'"bert"']})
    assert [bytes(piece) for piece in column.classes] == [content, b"", b"x"]


def test_the_work_of_a_process_that_fails_is_done_here():
    parent = os.getpid()

    def work(number, items):
        found = [next(iter(items))] if os.getpid() != parent else list(items)
        if os.getpid() != parent:
            os._exit(3)
        return number, found

    (_, front), (number, back) = beside(range(100), work)

    assert number == 1
    assert sorted([*front, *back]) == list(range(100))


def test_an_error_of_both_is_raised():
    with pytest.raises(ZeroDivisionError):
        beside([0, 0], lambda _, items: [1 // item for item in items])


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
