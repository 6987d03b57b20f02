"""``--tf-skip-report``: what a run really collected and skipped, in the scanner's form."""

import json

import pytest

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
def models(pytester):
    for directory in ("tests", "tests/models", "tests/models/m"):
        pytester.mkpydir(directory)
    pytester.path.joinpath("tests/test_modeling_common.py").write_text(COMMON)
    pytester.path.joinpath("tests/models/m/test_modeling_m.py").write_text(MODEL)
    return pytester


def report_of(pytester, *options):
    result = pytester.runpytest("--tf-skip-report=out/skips.json", *options)
    file = pytester.path / "out" / "skips.json"
    return result, json.loads(file.read_text()) if file.exists() else None


def test_skips_are_reported_with_their_reasons(models):
    result, report = report_of(models)

    result.assert_outcomes(passed=2, skipped=2)
    assert list(report) == ["test_backward", "test_forward"]
    assert report["test_forward"]["origin"] == "common"
    assert report["test_forward"]["models_skipped"] == ["m"]
    assert [
        (entry["class"], entry["state"], entry["form"], entry["reason"]) for entry in report["test_forward"]["tests"]
    ] == [
        ("MTest", "skipped", "decorator", "why"),
        ("NTest", "skipped", "guard", "while running"),
    ]
    assert report["test_forward"]["tests"][1]["file"] == "tests/models/m/test_modeling_m.py"
    assert report["test_forward"]["tests"][1]["line"] == 16
    assert report["test_backward"]["models_ran"] == ["m"]
    assert report["test_backward"]["models_vanished"] == ["m"]
    assert report["test_backward"]["models_partially_skipped"] == ["m"]


def test_workers_write_the_same_report(models):
    assert report_of(models, "-n", "2")[1] == report_of(models)[1]


def test_collecting_alone_reports_decorators(models):
    _, report = report_of(models, "--collect-only")

    assert [entry["class"] for entry in report["test_forward"]["tests"]] == ["MTest"]
    assert report["test_forward"]["is_run"] is False


def test_a_deselected_test_is_told_apart_from_one_that_is_not_there(models):
    _, report = report_of(models, "-k", "backward")

    assert report["test_forward"]["models_ran"] == []
    assert report["test_forward"]["models_skipped"] == []
    assert report["test_forward"]["models_deselected"] == ["m"]


def test_a_file_that_cannot_be_written_is_an_error_in_one_line(models):
    models.path.joinpath("out").write_text("a file")

    result, report = report_of(models)

    assert report is None
    result.stderr.fnmatch_lines(["*Cannot write out/skips.json:*--tf-skip-report."])


def test_without_the_flag_nothing_is_loaded(models):
    result = models.runpytest_subprocess("--collect-only", "-q", "-p", "no:cacheprovider")

    assert result.ret == 0
    assert not models.path.joinpath("out").exists()
