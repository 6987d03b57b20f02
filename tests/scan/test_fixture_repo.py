"""The miniature repository: what is expected of it, what the scanner says, and what pytest really does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_tfdebug.scan import scan
from scan_truth.compare import compare

#: What a class may do in a real run, by the state that is expected of it.
REALLY = {
    "conditional": {"ran", "skipped", "conditional"},
    "empty": {"ran", "skipped"},  # where a condition on the class skips it
    "ran": {"ran"},
    "skipped": {"skipped"},
    "vanished": {"vanished", None},
}


def states_by_class(result):
    return {
        test: {
            model: {case.cls: f"{case.state.state} {case.state.form}".strip() for case in cases}
            for model, cases in report.by_model.items()
        }
        for test, report in result.tests.items()
    }


#: Where the plugin is, for a process of its own.
UTILS = str(Path(__file__).parents[2] / "utils")


def really(report, test, model, cls):
    """Return the state of a class in the report of a run; None where the run has no such test."""
    values = report[test]
    if model not in values["models_ran"] + values["models_skipped"]:
        return None
    for entry in values["tests"]:
        if (entry["model"], entry["class"]) == (model, cls):
            return entry["state"]
    return "ran"


def run_pytest(repo, file, *options):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "scan_truth.plugin",
        f"--skip-report={file}",
        *options,
        "tests",
    ]
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_ADDOPTS": "-p no:hypothesispytest",
        "PYTHONPATH": os.pathsep.join([UTILS, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    done = subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(file.read_text())


@pytest.fixture(scope="module")
def real(tmp_path_factory, request):
    repo = request.config.rootpath / "fixtures" / "scan_repo"
    return run_pytest(repo, tmp_path_factory.mktemp("real") / "real.json")


def test_every_state_is_the_expected_one(fixture_repo):
    expected = json.loads((fixture_repo / "expected.json").read_text())

    assert states_by_class(scan(fixture_repo)) == expected


def test_every_form_is_held_at_least_twice(fixture_repo):
    table = scan(fixture_repo).to_dataframe(by="class")

    forms = table.groupby("form").size()
    assert set(forms.index) == {"", "body", "class-decorator", "decorator", "empty", "guard", "vanished"}
    assert forms.min() >= 2


def test_pytest_really_does_what_is_expected(fixture_repo, real):
    expected = json.loads((fixture_repo / "expected.json").read_text())

    wrong = [
        (test, model, cls, state, really(real, test, model, cls))
        for test, models in expected.items()
        for model, classes in models.items()
        for cls, state in classes.items()
        if really(real, test, model, cls) not in REALLY[state.split()[0]]
    ]
    assert wrong == []


def test_pytest_collects_no_test_or_class_that_is_not_expected(fixture_repo, real):
    expected = json.loads((fixture_repo / "expected.json").read_text())

    seen = {(test, entry["model"], entry["class"]) for test, values in real.items() for entry in values["tests"]}
    known = {
        (test, model, cls) for test, models in expected.items() for model, classes in models.items() for cls in classes
    }
    assert set(real) == set(expected)
    assert seen <= known


def test_the_reasons_are_those_that_pytest_shows(fixture_repo, real):
    scanned = scan(fixture_repo).to_dict()

    entries = {
        (test, entry["model"], entry["class"]): entry["reason"]
        for test, values in scanned.items()
        for entry in values["tests"]
        if entry["state"] == "skipped"
    }
    really_shown = {
        (test, entry["model"], entry["class"]): entry["reason"]
        for test, values in real.items()
        for entry in values["tests"]
        if entry["state"] == "skipped"
    }
    differing = {key: (reason, really_shown[key]) for key, reason in entries.items() if reason != really_shown[key]}
    # pytest has words of its own for a mark without a reason, and a condition that holds skips before a body does
    assert {shown for _, shown in differing.values()} <= {"unconditional skip", "test is slow", "test requires a GPU"}


def test_the_scan_and_the_run_agree_on_every_pair(fixture_repo, real):
    comparison = compare(scan(fixture_repo).to_dict(), real)

    assert comparison.disagreements == []
    assert comparison.pairs > 150


def test_the_origins_are_those_of_the_live_classes(fixture_repo, real):
    scanned = scan(fixture_repo).to_dict()

    assert {test: values["origin"] for test, values in scanned.items()} == {
        test: values["origin"] for test, values in real.items()
    }


def test_two_workers_write_the_report_of_one_process(fixture_repo, real, tmp_path):
    assert run_pytest(fixture_repo, tmp_path / "two.json", "-n", "2") == real


def test_collecting_alone_agrees_as_far_as_it_sees(fixture_repo, tmp_path):
    collected = run_pytest(fixture_repo, tmp_path / "collected.json", "--collect-only")

    assert compare(scan(fixture_repo).to_dict(), collected).disagreements == []
