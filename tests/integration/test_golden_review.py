"""``tfdebug review``: how goldens differ from a git revision; who may record on a CI server."""

import subprocess
import sys

import pytest

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs
from pytest_tfdebug import review

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
def committed(pytester, run):
    """A git repository whose last commit holds three goldens."""
    run("--tf-golden=update").assert_outcomes(passed=3)
    for command in (["init"], ["add", "goldens"], ["commit", "-m", "goldens"]):
        git(*command)


def git(*arguments):
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    command = ["git", *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def contents(pytester):
    folder = pytester.path
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("goldens/*/*"))}


def told(capsys, *arguments):
    """Return what the review prints, without indentation."""
    capsys.readouterr()
    assert review.main(arguments) == 0
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.usefixtures("committed")
def test_goldens_as_they_were_are_said_to_be(capsys):
    assert told(capsys) == ["No golden here differs from HEAD."]


@pytest.mark.usefixtures("committed")
def test_update_and_the_review_say_the_same_of_what_changed(run, capsys):
    updated = run("--tf-golden=update", SCALE="2")
    lines = told(capsys)

    assert lines[:2] == [ONE, "moved: 2 of 4 outputs, first '2' (Linear)"]
    assert lines[2].startswith("outside tolerance: 2 tensors, from '2' (")
    assert lines[3].startswith("2 output: greatest difference ")
    assert lines[5:7] == ["weights: '2.weight' differ", TWO]
    assert lines[-1] == "2 goldens differ from HEAD."
    printed = [line.strip() for line in updated.outlines]
    assert set(lines[1:6]) <= set(printed)


@pytest.mark.usefixtures("committed")
def test_what_is_new_deleted_or_damaged_is_told(pytester, run, capsys):
    (pytester.path / ONE).unlink()
    (pytester.path / TWO).write_bytes(b"half")
    pytester.makepyfile(test_other=SUITE.partition("@pytest.mark")[0])
    run("--tf-golden=update", "test_other.py").assert_outcomes(passed=1)

    lines = told(capsys)

    assert lines[:3] == [ONE, "deleted", TWO]
    assert lines[3].startswith(f"not compared: {TWO} (4 bytes) is empty, truncated")
    assert lines[4:6] == [
        "goldens/test_other/test_same.safetensors",
        "new: 4 calls, 4 outputs, of test_other.py::test_same",
    ]
    assert lines[-1] == "3 goldens differ from HEAD."


@pytest.mark.usefixtures("committed")
def test_any_revision_can_be_compared_with_and_no_revision_is_said_so(run, capsys):
    run("--tf-golden=update", SCALE="2")
    git("commit", "-a", "-m", "other goldens")

    assert told(capsys) == ["No golden here differs from HEAD."]
    assert told(capsys, "HEAD~1")[-1] == "2 goldens differ from HEAD~1."
    assert review.main(["nowhere"]) == 2
    assert capsys.readouterr().err == "error: nowhere is no revision here: fatal: Needed a single revision\n"


@pytest.mark.nightly
@pytest.mark.usefixtures("committed")
def test_git_shows_a_golden_as_text(pytester, run):
    (pytester.path / ".gitattributes").write_text("*.safetensors diff=tfdebug\n")
    git("config", "diff.tfdebug.textconv", f"{sys.executable} -m pytest_tfdebug.review --text")
    run("--tf-golden=update", SCALE="2")

    lines = git("diff", ONE).splitlines()

    changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert any(line.startswith("-weight 2.weight: ") for line in changed)
    assert any(line.startswith("+  output: float32 (1, 2) min ") for line in changed)
    assert not any("Binary files" in line for line in lines)
    assert " 2 (Linear)" in lines


@pytest.mark.usefixtures("committed")
def test_repository_runs_none_of_its_programs(pytester, run):
    trap = pytester.path / "trap"
    program = f"sh -c 'touch {trap}'"
    for key in (
        "core.fsmonitor",
        "filter.x.clean",
        "filter.x.smudge",
        "diff.x.textconv",
        "diff.external",
        "core.pager",
    ):
        git("config", key, program)
    (pytester.path / ".gitattributes").write_text("* filter=x diff=x\n")
    run("--tf-golden=update", SCALE="2")

    assert review.main([]) == 0
    assert not trap.exists()


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
            "*On a CI server (CI=true) --tf-golden=missing counts only on the command line.",
            "*To record it, run: pytest test_it.py::test_same --tf-golden=missing",
        ]
    )
    assert kept == []
    typed.assert_outcomes(passed=1, deselected=2)
    assert list(contents(pytester)) == ["goldens/test_it/test_same.safetensors"]


@pytest.mark.parametrize(
    "server", ["GITHUB_ACTIONS", "JENKINS_URL", "TF_BUILD", "TEAMCITY_VERSION", "CODEBUILD_BUILD_ID"]
)
def test_ci_server_that_does_not_set_ci_records_nothing_unasked(pytester, run, server):
    pytester.makeini("[pytest]\ntf_golden = update")

    run("-k", "same", **{server: "true"}).assert_outcomes(failed=1, deselected=2)

    assert list(contents(pytester)) == []


def test_elsewhere_the_ini_file_records(pytester, run):
    pytester.makeini("[pytest]\ntf_golden = missing")

    run("-k", "same", CI="false").assert_outcomes(passed=1, deselected=2)


@pytest.mark.nightly
def test_worker_of_xdist_knows_what_was_typed(pytester, run, monkeypatch):
    pytester.makeini("[pytest]\ntf_golden = update")
    monkeypatch.setenv("CI", "true")

    refused = run("-n", "1", "-k", "same")
    typed = run("-n", "1", "-k", "same", "--tf-golden=update")

    refused.assert_outcomes(failed=1)
    typed.assert_outcomes(passed=1)
