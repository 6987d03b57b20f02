"""``pytest_tfdebug.scan.scan`` and its result."""

import json

import pandas as pd
import pytest

from pytest_tfdebug.scan import ScanError, scan


@pytest.fixture
def result(repo):
    return scan(
        repo(
            m='class MTest(ModelTesterMixin, unittest.TestCase):\n    @unittest.skip("why")\n    def test_forward(self): pass\n',
            n="class NTest(ModelTesterMixin, unittest.TestCase): pass\n",
        )
    )


def test_row_for_each_test(result, tmp_path):
    table = result.to_dataframe()

    assert list(table.index) == ["test_attentions", "test_forward"]
    assert table.loc["test_forward", "models_skipped"] == ["m"]
    written = pd.read_json(result.to_json(tmp_path / "out.json")).T
    assert list(written.columns) == list(table.columns)
    assert written.loc["test_forward", "tests"] == table.loc["test_forward", "tests"]


def test_row_for_each_class(result):
    table = result.to_dataframe(by="class")

    assert list(table.columns) == ["test", "model", "class", "state", "form", "reason", "condition", "file", "line"]
    assert table[["test", "class", "state"]].to_numpy().tolist() == [
        ["test_attentions", "MTest", "ran"],
        ["test_attentions", "NTest", "ran"],
        ["test_forward", "MTest", "skipped"],
        ["test_forward", "NTest", "ran"],
    ]


def test_rows_of_something_else_are_refused(result):
    with pytest.raises(ValueError, match="by='model' is not one of 'test', 'class'"):
        result.to_dataframe(by="model")


def test_one_test(repo):
    root = repo(m="class MTest(ModelTesterMixin, unittest.TestCase): pass\n")

    assert list(scan(root, "test_forward")) == ["test_forward"]
    with pytest.raises(ScanError, match="did you mean test_forward"):
        scan(root, "test_forwards")


def test_file_is_json_with_a_line_for_each_class(result, tmp_path):
    path = result.to_json(tmp_path / "out.json")

    assert json.loads(path.read_text()) == result.to_dict()
    assert sum('"class": "MTest"' in line for line in path.read_text().splitlines()) == 1


def test_result_knows_its_tests_by_name(result):
    assert len(result) == 2
    assert result["test_forward"].skipped_proportion == 0.5
    assert result["test_forward"].models_ran == ["n"]
    assert result.models == ["m", "n"]
