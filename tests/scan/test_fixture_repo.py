"""The miniature repository: what is expected of it, what the scanner says, and what pytest really does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_tfdebug.scan import ScanResult, scan
from scan_truth.__main__ import _pairs, compare
from scan_truth.plugin import Row

#: What a class may do in a real run, by the state that is expected of it.
REALLY = {
    "conditional": {"ran", "skipped", "conditional"},
    "empty": {"ran", "skipped"},  # where a condition on the class skips it
    "ran": {"ran"},
    "skipped": {"skipped"},
    "vanished": {"vanished", None},
}


def states_by_class(result):
    found = {}
    for test, report in result.tests.items():
        for case in report.cases:
            by_class = found.setdefault(test, {}).setdefault(case.model, {})
            by_class[case.cls] = f"{case.state.state} {case.state.form}".strip()
    return found


#: Where the plugin is, for a process of its own.
UTILS = str(Path(__file__).parents[2] / "utils")


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
def seen(real):
    """What the run did with each test of a model in a class: the state, and the reason of a skip."""
    rows = [Row(**row) for row in real["rows"]]
    none = ScanResult({}, [], {}, [])
    return {both[:3]: both.does for classes in _pairs(none, rows, set()) for both in classes}


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


def test_pytest_really_does_what_is_expected(fixture_repo, seen):
    expected = json.loads((fixture_repo / "expected.json").read_text())

    states = {
        (test, model, cls): state.split()[0]
        for test, models in expected.items()
        for model, classes in models.items()
        for cls, state in classes.items()
    }
    does = {key: seen[key].state if key in seen else None for key in states}
    assert [(key, state, does[key]) for key, state in states.items() if does[key] not in REALLY[state]] == []
    assert seen.keys() <= states.keys()


def test_reasons_are_those_that_pytest_shows(fixture_repo, seen):
    cases = [(test, case) for test, common in scan(fixture_repo).tests.items() for case in common.cases]

    shown = {
        seen[test, case.model, case.cls].reason
        for test, case in cases
        if case.state.is_skipped and seen[test, case.model, case.cls].reason != case.state.reason
    }
    # pytest has words of its own for a mark without a reason, and a condition that holds skips before a body does
    assert shown <= {"unconditional skip", "test is slow", "test requires a GPU"}


def test_scan_and_the_run_agree_on_every_pair(fixture_repo, real):
    comparison = compare(scan(fixture_repo), real)

    assert comparison.disagreements == []
    assert comparison.agreed["decided"] + comparison.agreed["conditional"] > 150


def test_origins_are_those_of_the_live_classes(fixture_repo, real):
    scanned = scan(fixture_repo).tests

    assert {test: common.origin for test, common in scanned.items()} == {
        row["test"]: row["origin"] for row in real["rows"]
    }


def test_collecting_alone_agrees_as_far_as_it_sees(fixture_repo, tmp_path):
    collected = run_pytest(fixture_repo, tmp_path / "collected.json", "--collect-only")

    assert compare(scan(fixture_repo), collected).disagreements == []
