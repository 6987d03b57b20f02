"""``-p scan_truth.plugin``: what a run really collected and skipped."""

import json
import os
from pathlib import Path

import pytest

#: Where the plugin is, for a process of its own.
UTILS = str(Path(__file__).parents[2] / "utils")

COMMON = """
class ModelTesterMixin:
    def test_forward(self):
        assert True

    def test_backward(self):
        assert True
"""
MODEL = """
import unittest
import pytest
from ...test_modeling_common import ModelTesterMixin


class MTest(ModelTesterMixin, unittest.TestCase):
    @unittest.skip("why")
    def test_forward(self):
        pass

    test_backward = None


class NTest(ModelTesterMixin, unittest.TestCase):
    def test_forward(self):
        if True:
            self.skipTest("while running")

    def test_own(self):
        pass
"""


@pytest.fixture
def models(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([UTILS, *filter(None, [os.environ.get("PYTHONPATH")])]))
    for directory in ("tests", "tests/models", "tests/models/m"):
        pytester.mkpydir(directory)
    pytester.path.joinpath("tests/test_modeling_common.py").write_text(COMMON)
    pytester.path.joinpath("tests/models/m/test_modeling_m.py").write_text(MODEL)
    return pytester


def report_of(pytester, *options, run="runpytest"):
    result = getattr(pytester, run)("-p", "scan_truth.plugin", "--skip-report=out/skips.json", *options)
    return result, json.loads((pytester.path / "out" / "skips.json").read_text())


def rows(report, test):
    return [row for row in report["rows"] if row["test"] == test]


def states(report, test):
    """Return the state of each class that has a test."""
    return {row["cls"]: row["state"] for row in rows(report, test)}


def test_skips_are_reported_with_their_reasons(models):
    result, report = report_of(models)

    result.assert_outcomes(passed=2, skipped=2)
    assert {row["origin"] for row in report["rows"]} == {"common"}
    assert states(report, "test_backward") == {"MTest": "vanished", "NTest": "ran"}
    skipped = [[row[key] for key in ("cls", "state", "reason")] for row in rows(report, "test_forward")]
    assert skipped == [["MTest", "skipped", "why"], ["NTest", "skipped", "while running"]]
    assert rows(report, "test_forward")[1]["file"] == "tests/models/m/test_modeling_m.py"
    assert rows(report, "test_forward")[1]["line"] == 16


@pytest.mark.parametrize(
    ("skip", "reason"),
    [
        ('@pytest.mark.skip("Skipped on this device")', "Skipped on this device"),
        ('@unittest.skip("Skipped: later")', "Skipped: later"),
        ('@unittest.skip("Skipped")', "Skipped"),
        ('@unittest.skip("")', ""),
    ],
)
def test_reason_that_begins_with_the_word_of_pytest_is_whole(models, skip, reason):
    file = models.path / "tests/models/m/test_modeling_m.py"
    file.write_text(file.read_text().replace('@unittest.skip("why")', skip))

    assert rows(report_of(models)[1], "test_forward")[0]["reason"] == reason


def test_collecting_alone_reports_decorators_and_says_that_the_rest_was_not_run(models):
    _, report = report_of(models, "--collect-only")

    assert states(report, "test_forward") == {"MTest": "skipped", "NTest": "collected"}
    assert states(report, "test_backward") == {"MTest": "vanished", "NTest": "collected"}


def test_deselected_test_is_told_apart_from_one_that_is_not_there(models):
    _, report = report_of(models, "--deselect", "tests/models/m/test_modeling_m.py::NTest::test_forward")

    assert states(report, "test_forward") == {"MTest": "skipped", "NTest": "deselected"}


def test_classes_of_one_name_in_two_files_are_told_apart(models):
    head, _, _ = MODEL.partition("    @unittest.skip")
    source = f"{head}    pass"
    models.path.joinpath("tests", "models", "m", "test_modeling_m_text.py").write_text(source)

    _, report = report_of(models)

    assert [(row["cls"], row["state"]) for row in rows(report, "test_backward")] == [
        ("MTest", "vanished"),
        ("NTest", "ran"),
        ("MTest", "ran"),
    ]


FAILING = """
import pytest
from ...test_modeling_common import ModelTesterMixin


class TestFirst(ModelTesterMixin):
    def test_backward(self):
        {}


class TestSecond(ModelTesterMixin):
    @pytest.mark.skip("known beforehand")
    def test_backward(self):
        pass
"""


def after(models, statement):
    """Put a model after the first whose first test does something."""
    models.mkpydir("tests/models/n")
    file = models.path / "tests" / "models" / "n" / "test_modeling_n.py"
    file.write_text(FAILING.format(statement))
    models.path.joinpath("tests", "models", "m", "test_modeling_m.py").unlink()
    return models


def test_what_a_stopped_run_did_not_reach_is_not_said_to_run(models):
    _, report = report_of(after(models, "assert False"), "-x")

    assert states(report, "test_backward") == {"TestFirst": "ran", "TestSecond": "skipped"}
    assert states(report, "test_forward") == {"TestFirst": "ran", "TestSecond": "collected"}


@pytest.mark.parametrize("statement", ["raise KeyboardInterrupt", 'pytest.exit("enough")'])
def test_test_that_was_interrupted_has_not_run(models, statement):
    _, report = report_of(after(models, statement), run="runpytest_subprocess")

    assert states(report, "test_backward") == {"TestFirst": "collected", "TestSecond": "skipped"}
    assert states(report, "test_forward") == {"TestFirst": "ran", "TestSecond": "collected"}


def test_test_whose_setup_failed_has_not_run(models):
    fixture = "@pytest.fixture(autouse=True)\n    def broken(self):\n        raise OSError\n"
    source = FAILING.format("pass").replace("    def test_backward", f"    {fixture}\n    def test_backward", 1)
    after(models, "pass").path.joinpath("tests", "models", "n", "test_modeling_n.py").write_text(source)

    result, report = report_of(models)

    result.assert_outcomes(passed=1, skipped=1, errors=2)
    assert states(report, "test_backward") == {"TestFirst": "collected", "TestSecond": "skipped"}
    assert states(report, "test_forward") == {"TestFirst": "collected", "TestSecond": "ran"}


def test_model_of_which_a_file_cannot_be_collected_is_incomplete(models):
    models.path.joinpath("tests", "models", "m", "test_modeling_m_text.py").write_text("import no_such_module")

    _, report = report_of(models, "--continue-on-collection-errors")

    assert states(report, "test_backward") == {"MTest": "vanished", "NTest": "ran"}
    assert report["broken"] == ["m"]


def test_without_the_flag_nothing_is_loaded(models):
    result = models.runpytest_subprocess("--collect-only", "-q", "-p", "no:cacheprovider")

    assert result.ret == 0
    assert not models.path.joinpath("out").exists()
