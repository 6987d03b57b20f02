"""Trees that keep the tests of their models elsewhere than in ``tests/models``."""

import pytest

from pytest_tfdebug.scan import ScanError, scan
from pytest_tfdebug.scan.cli import main

COMMON = "class ModelTesterMixin:\n    def test_config(self): assert 1\n"
MODEL = (
    "import unittest\nfrom {dots}test_modeling_common import ModelTesterMixin\n\n"
    "class MTest(ModelTesterMixin, unittest.TestCase):\n    test_config = None\n"
)


def tree(root, models, common, dots="..."):
    files = {f"{common}/test_modeling_common.py": COMMON, f"{models}/m/test_modeling_m.py": MODEL.format(dots=dots)}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_models_directory_further_below_the_tests_is_found(tmp_path):
    root = tree(tmp_path, "tests/ut/transformers/models", "tests/ut/transformers")

    assert scan(root)["test_config"].models_skipped == ["m"]


def test_one_in_tests_comes_first(tmp_path):
    tree(tmp_path, "tests/ut/transformers/models", "tests/ut/transformers")
    root = tree(tmp_path, "tests/models", "tests")
    (root / "tests/models/m").rename(root / "tests/models/n")
    (root / "tests/models/n/test_modeling_m.py").rename(root / "tests/models/n/test_modeling_n.py")

    assert scan(root).models == ["n"]
    assert scan(root, models_dir="tests/ut/transformers/models").models == ["m"]


@pytest.mark.parametrize("name", ["ported/nets", "ported/nets/", "./ported/nets"])
def test_any_directory_can_be_named(tmp_path, name):
    root = tree(tmp_path, "ported/nets", "ported")

    assert scan(root, models_dir=name)["test_config"].models_skipped == ["m"]


def test_command_line_names_it_too(tmp_path, monkeypatch, capsys):
    root = tree(tmp_path / "repo", "ported/nets", "ported")
    monkeypatch.chdir(tmp_path)

    for _ in range(2):
        assert main(["--repo", str(root), "--models-dir", "ported/nets"]) == 0
        assert "test_config  common    0        1" in capsys.readouterr().out
    assert main(["--repo", str(root)]) == 2


def test_directory_that_is_none(tmp_path):
    root = tree(tmp_path, "ported/nets", "ported")

    with pytest.raises(ScanError, match="--models-dir nets is not a directory of the repository"):
        scan(root, models_dir="nets")
    (root / "ported/nets/m/none").mkdir()
    with pytest.raises(ScanError, match="No model tests in ported/nets/m/none"):
        scan(root, models_dir="ported/nets/m/none")
