"""``--tf-golden=pending`` and ``python -m pytest_tfdebug.review``; who may record on a CI server."""

import pytest

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs
from pytest_tfdebug.goldens import review

SUITE = """
import os
import pytest
import torch

def build(scale=1.0):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    with torch.no_grad():
        model[2].weight.mul_(scale)
    return model

SCALE = float(os.environ.get("SCALE", "1"))
ONES = torch.ones(2, 4)

def test_same(tf_golden):
    tf_golden.check(build(), ONES)

@pytest.mark.parametrize("rows", [1, 2])
def test_scaled(tf_golden, rows):
    tf_golden.check(build(SCALE), ONES[:rows], reference=lambda: build(SCALE))
"""
ONE = "goldens/test_it/test_scaled[1].safetensors"
TWO = "goldens/test_it/test_scaled[2].safetensors"


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest on the suite; keyword arguments are environment variables."""
    pytester.makepyfile(test_it=SUITE)

    def run_pytest(*arguments, **environment):
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    return run_pytest


@pytest.fixture
def moved(pytester, run):
    """A project in which two of three goldens wait to be reviewed; their bytes before."""
    run("--tf-golden=update").assert_outcomes(passed=3)
    before = contents(pytester)
    result = run("--tf-golden=pending", SCALE="2")
    result.assert_outcomes(passed=1, failed=2)
    return before, result


@pytest.fixture
def answer(monkeypatch):
    """Return a function that gives the review a terminal with these answers."""

    def give(*answers):
        left = list(answers)
        for stream in ("stdin", "stdout"):
            monkeypatch.setattr(getattr(review.sys, stream), "isatty", lambda: True, raising=False)
        monkeypatch.setattr("builtins.input", lambda prompt: left.pop(0))
        return left

    return give


def contents(pytester):
    folder = pytester.path
    files = sorted(path for path in folder.glob("goldens/*/*") if path.suffix != ".json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_what_would_change_is_written_beside_the_golden_and_the_check_is_as_before(pytester, moved):
    before, result = moved

    after = contents(pytester)
    assert after.keys() - before.keys() == {f"{ONE}.pending", f"{TWO}.pending"}
    assert {name: after[name] for name in before} == before
    result.stdout.fnmatch_lines(
        [
            "*container.py:* in 2 (Linear): has other weights: 2.weight",
            "*Next: to accept the new values, run: python -m pytest_tfdebug.review",
            "2 pending",
            f"  pending  {ONE}.pending".replace("[", "[[]"),
            "To review what is pending, run: python -m pytest_tfdebug.review",
        ]
    )


def test_what_changes_nothing_is_not_pending(pytester, run, moved):
    before, _ = moved

    result = run("--tf-golden=pending")

    result.assert_outcomes(passed=3)
    assert contents(pytester) == before


def test_a_golden_that_is_missing_waits_and_its_test_fails(pytester, run):
    result = run("--tf-golden=pending", "-k", "same")
    accepted = review.main(["--accept", "*"])

    result.assert_outcomes(failed=1, deselected=2)
    result.stdout.fnmatch_lines(
        [
            "*MissingGoldenError: test_it.py::test_same has no golden yet: goldens/test_it/test_same.safetensors does not*",
            "*What would be recorded waits beside it. To review it, run: python -m pytest_tfdebug.review",
        ]
    )
    assert accepted == 0
    assert list(contents(pytester)) == ["goldens/test_it/test_same.safetensors"]
    run("-k", "same").assert_outcomes(passed=1, deselected=2)


def test_without_a_terminal_it_lists_what_moved_and_decides_nothing(pytester, moved, capsys):
    before = contents(pytester)
    capsys.readouterr()

    status = review.main([])

    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert status == 0
    assert lines[:2] == [ONE, "test: test_it.py::test_scaled[1]"]
    assert lines[2] == "moved: 2 of 4 outputs, first '2' (Linear)"
    assert lines[3].startswith("outside tolerance: 2 tensors, from '2' (")
    assert lines[4].startswith("2 output: greatest difference ")
    assert lines[6].startswith("the port with the golden in use: outside tolerance: ")
    assert lines[7] == "the port with the new golden: inside tolerance: at most 0 of it, at 'Sequential'"
    assert lines[8:10] == ["weights: '2.weight' differ", "environment: the same"]
    assert lines[-1].startswith("2 goldens to be reviewed. To decide, run it in a terminal, or with --accept GLOB")
    assert contents(pytester) == before


@pytest.mark.parametrize("glob", ["*test_scaled[1]*", "test_it.py::test_scaled[1]", ONE])
def test_a_glob_accepts_by_path_or_node_id(pytester, run, moved, glob):
    assert review.main(["--accept", glob]) == 0

    assert list(contents(pytester)) == [
        "goldens/test_it/test_same.safetensors",
        ONE,
        TWO,
        f"{TWO}.pending",
    ]
    run(SCALE="2").assert_outcomes(passed=2, failed=1)


def test_a_glob_rejects(pytester, moved):
    before, _ = moved

    assert review.main(["--reject", "*"]) == 0

    assert contents(pytester) == before
    assert all(path.suffix == ".safetensors" for path in pytester.path.glob("goldens/*/*"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--accept", "*other*"], "error: '*other*' names none of the 2 goldens to be reviewed."),
        (["--accept", "*", "--reject", "*2*"], "test_scaled[2].safetensors is to be accepted and to be rejected."),
        (["nowhere"], "error: nowhere is no directory."),
    ],
)
def test_a_mistake_is_told_and_nothing_is_decided(pytester, moved, capsys, arguments, told):
    before = contents(pytester)

    assert review.main(arguments) == 2

    assert told in capsys.readouterr().err
    assert contents(pytester) == before


def test_in_a_terminal_it_asks_for_each(pytester, moved, answer, capsys):
    before, _ = moved
    waiting = contents(pytester)
    answer("what?", "a", "r")

    assert review.main([]) == 0

    after = contents(pytester)
    assert capsys.readouterr().out.endswith("1 accepted, 1 rejected\n")
    assert after == {**before, ONE: waiting[f"{ONE}.pending"]}


@pytest.mark.parametrize(
    ("answers", "told"),
    [(("s", "q"), "1 skipped, 1 left"), (("all",), "2 accepted"), (("s", "all"), "1 skipped, 1 accepted")],
)
@pytest.mark.usefixtures("moved")
def test_some_may_be_left_or_all_be_accepted(answer, capsys, answers, told):
    left = answer(*answers)

    assert review.main([]) == 0

    assert capsys.readouterr().out.endswith(f"{told}\n")
    assert left == []


def test_a_damaged_one_is_not_accepted(pytester, moved, capsys):
    before, _ = moved
    (pytester.path / f"{ONE}.pending").write_bytes(b"half")

    assert review.main(["--accept", f"*{ONE[-15:]}"]) == 2

    assert "is empty, truncated or not a safetensors file" in capsys.readouterr().err
    assert contents(pytester)[ONE] == before[ONE]


def test_an_update_drops_what_was_pending(pytester, run, moved):
    run("--tf-golden=update", SCALE="2").assert_outcomes(passed=3)

    assert all(path.suffix == ".safetensors" for path in pytester.path.glob("goldens/*/*"))


@pytest.mark.parametrize("how", ["ini", "addopts", "PYTEST_ADDOPTS"])
def test_on_a_ci_server_nothing_but_a_typed_flag_records(pytester, run, how):
    lines = {"ini": "tf_golden = missing", "addopts": "addopts = --tf-golden=missing"}
    pytester.makeini(f"[pytest]\n{lines.get(how, '')}")
    environment = {"PYTEST_ADDOPTS": "--tf-golden=missing"} if how == "PYTEST_ADDOPTS" else {}

    refused = run("-k", "same", CI="true", **environment)
    kept = list(contents(pytester))
    typed = run("-k", "same", "--tf-golden=missing", CI="true")

    refused.assert_outcomes(failed=1, deselected=2)
    refused.stdout.fnmatch_lines(
        [
            "*test_it.py::test_same has no golden yet: *",
            "*--tf-golden=missing that nobody typed records nothing on a CI server (CI=true).",
            "*To record it, run: pytest test_it.py::test_same --tf-golden=missing",
        ]
    )
    assert kept == []
    typed.assert_outcomes(passed=1, deselected=2)
    assert list(contents(pytester)) == ["goldens/test_it/test_same.safetensors"]


def test_elsewhere_the_ini_file_records(pytester, run):
    pytester.makeini("[pytest]\ntf_golden = missing")

    run("-k", "same", CI="false").assert_outcomes(passed=1, deselected=2)


def test_a_worker_of_xdist_knows_what_was_typed(pytester, run, monkeypatch):
    pytester.makeini("[pytest]\ntf_golden = update")
    monkeypatch.setenv("CI", "true")

    refused = run("-n", "1", "-k", "same")
    typed = run("-n", "1", "-k", "same", "--tf-golden=update")

    refused.assert_outcomes(failed=1)
    typed.assert_outcomes(passed=1)
