"""After an edit a scan with a cache says what one without it says."""

import json
import re
import shutil

import pytest

from pytest_tfdebug.scan import scan
from pytest_tfdebug.scan.cli import main

CLASS = "class {0}Test(ModelTesterMixin, unittest.TestCase):\n    {1}\n"
SKIP = '@unittest.skip("why")\n    def test_forward(self): pass'


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that scans a repository with the cache, and returns what it tells on the way."""
    monkeypatch.chdir(tmp_path)

    def call(root, *, expected=None):
        assert main(["--repo", str(root)]) == 0
        found = json.loads((tmp_path / "all_tests_scan_result.json").read_text())
        assert found == (expected or scan(root).to_dict())
        return capsys.readouterr().err

    return call


def file_of(root, model):
    return root / "tests" / "models" / model / f"test_modeling_{model}.py"


@pytest.mark.nightly
def test_edit_to_any_file_of_the_miniature_repository(fixture_repo, tmp_path, run):
    root = tmp_path / "repo"
    shutil.copytree(fixture_repo, root, ignore=shutil.ignore_patterns("__pycache__"))
    first = scan(root).to_dict()
    run(root, expected=first)

    changed = []
    for path in sorted((root / "tests").rglob("*.py")):
        text = path.read_text()
        path.write_text(re.sub(r'(skip\w*\(.*")', r"\1now ", text) + "\n    test_forward = None\n")
        edited = scan(root).to_dict()
        run(root, expected=edited)
        changed += [path] * (edited != first)
        path.write_text(text)  # so that the next scan sees two files that have changed

    run(root, expected=first)
    assert len(changed) > 15  # of the files that are not empty


def test_report_that_is_gone_is_made_again(repo, run, tmp_path):
    root = repo(a=CLASS.format("A", SKIP))
    assert "Parsing 1 model" in run(root)
    assert "Parsing" not in run(root)

    (tmp_path / "all_tests_scan_result.json").unlink()
    assert "Parsing 1 model" in run(root)
    assert "Parsing" not in run(root)


def test_edited_file_may_become_unreadable_and_readable_again(repo, run):
    root = repo(a=CLASS.format("A", SKIP), b=CLASS.format("B", "pass"))
    run(root)
    text = file_of(root, "a").read_text()

    file_of(root, "a").write_text(text + "x = (\n")
    assert "was never closed" in run(root)
    file_of(root, "a").write_text(text)
    assert "left out" not in run(root)


def test_mixin_of_a_model_that_a_shared_file_imports(repo, run):
    common = "from .models.a.test_modeling_a import Own\n\nclass ModelTesterMixin(Own):\n    def test_forward(self): assert 1\n"
    root = repo(
        common,
        a="class Own:\n    has = True\n",
        b=CLASS.format("B", "pass"),
        c=CLASS.format("C", "pass"),
    )
    run(root)

    file_of(root, "a").write_text("class Own:\n    def setUp(self): self.skipTest('now')\n")
    assert "Parsing 3 model" in run(root)
