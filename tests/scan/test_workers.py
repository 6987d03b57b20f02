"""Several processes for one scan."""

import os

import pytest

from pytest_tfdebug.scan import scanner
from pytest_tfdebug.scan.cli import main

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


@pytest.mark.parametrize("cache", [(), ("--no_cache",)])
def test_two_processes_give_the_answer_of_one(fixture_repo, tmp_path, monkeypatch, cache):
    answers = []
    for name, least in (("one", 10_000), ("two", 2)):
        monkeypatch.setattr(scanner, "SHARED", least)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache of {name}"))

        assert main(["--repo", str(fixture_repo), "--output_dir", str(tmp_path / name), *cache]) == 0
        answers.append((tmp_path / name / "all_tests_scan_result.json").read_bytes())

    assert answers[0] == answers[1]


def test_what_two_processes_learnt_answers_the_next_scan(fixture_repo, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scanner, "SHARED", 2)
    arguments = ["--repo", str(fixture_repo), "--output_dir", str(tmp_path)]
    main(arguments)
    first = capsys.readouterr()

    main(arguments)

    second = capsys.readouterr()
    assert second.out == first.out
    assert "Parsing" in first.err
    assert "Parsing" not in second.err


def test_where_no_process_is_to_be_had_one_does_it_all(fixture_repo, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no more processes")

    monkeypatch.setattr(scanner, "SHARED", 2)
    monkeypatch.setattr(scanner, "_in_processes", refuse)

    assert main(["--repo", str(fixture_repo), "--output_dir", str(tmp_path)]) == 0
