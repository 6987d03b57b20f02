"""``--history``: the share of skips from commit to commit."""

import json
import subprocess

import pytest

from pytest_tfdebug.scan import history as module
from pytest_tfdebug.scan import scan
from pytest_tfdebug.scan.cli import main
from pytest_tfdebug.scan.history import history

CLASS = "class {0}Test(ModelTesterMixin, unittest.TestCase):\n    {1}\n"
SKIP = '@unittest.skip("why")\n    def test_forward(self): pass'
HEAD = "import unittest\nfrom ...test_modeling_common import ModelTesterMixin\n\n"


def git(root, *arguments):
    options = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *options, *arguments], cwd=root, check=True, capture_output=True, text=True).stdout  # noqa: S607 - git is on PATH


def commit(root):
    git(root, "add", "-A")
    git(root, "commit", "-qm", "next")
    git(root, "tag", f"v{len(git(root, 'tag').split())}")
    return {name: test.skipped_proportion for name, test in scan(root).tests.items()}


def model(root, name, body):
    file = root / "tests" / "models" / name / f"test_modeling_{name}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(HEAD + CLASS.format(name.title(), body))


@pytest.fixture
def past(repo):
    """A repository of six commits, tagged v0 to v5, and what a scan finds in the work tree at each."""
    root = repo(aleph=CLASS.format("A", "pass"), beth=CLASS.format("B", SKIP))
    git(root, "init", "-q")
    found = [commit(root)]
    model(root, "aleph", SKIP)
    found.append(commit(root))
    model(root, "gimel", "pass")
    found.append(commit(root))
    (root / "README").write_text("nothing of ours")
    found.append(commit(root))
    common = root / "tests" / "test_modeling_common.py"
    common.write_text(common.read_text() + "\n    def test_new(self):\n        self.skipTest('never')\n")
    found.append(commit(root))
    git(root, "rm", "-rq", "tests/models/beth")
    found.append(commit(root))
    return root, found


def test_each_commit_has_what_a_scan_of_its_tree_finds(past):
    root, expected = past

    found = history(root, "v0..v5")

    assert [each.skipped_proportion for each in found.commits] == expected
    assert [each.models for each in found.commits] == [2, 2, 3, 3, 3, 2]
    assert [each.commit for each in found.commits] == git(root, "log", "--reverse", "--format=%H").split()


def test_only_what_rests_on_a_change_is_scanned_again(past, monkeypatch):
    scanned = []

    def scan_changed(work, tree, earlier, models):
        scanned.append(models)
        return original(work, tree, earlier, models)

    original = module.scan_changed
    monkeypatch.setattr(module, "scan_changed", scan_changed)

    history(past[0], "v0..v3")

    assert scanned == [["aleph"], ["gimel"], []]


def test_every_second_commit_and_the_last(past):
    root, expected = past

    found = history(root, "v0..v5", "test_forward", every=2)

    assert [each.skipped_proportion for each in found.commits] == [
        {"test_forward": expected[at]["test_forward"]} for at in (0, 2, 4, 5)
    ]


def test_a_history_as_a_table(past):
    table = history(past[0], "v0..v1").to_dataframe()

    assert list(table.columns) == ["commit", "date", "test", "skipped_proportion"]
    assert list(table[table["test"] == "test_forward"]["skipped_proportion"]) == [0.5, 1.0]


def test_the_command_writes_json_and_a_page(past, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert main(["--repo", str(past[0]), "--history", "v0..v1"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ", 2)[2] for line in lines] == [
        "2 models  2 tests  25.00% skipped",
        "2 models  2 tests  50.00% skipped",
    ]
    written = json.loads((tmp_path / "scan_history.json").read_text())
    assert [each["skipped_proportion"]["test_forward"] for each in written] == [0.5, 1.0]
    page = (tmp_path / "scan_history.html").read_text()
    assert "test_forward" in page
    assert "test_attentions" not in page  # whose share never changed
    assert page.count("<polyline") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--history", "v0"], "'v0' is not a range of commits such as"),
        (["--history", "v0..nowhere"], "'v0..nowhere' is not a range of commits of"),
        (["--history", "v0..v1", "--every", "0"], "--every 0 takes no commit"),
        (["--every", "2"], "--every says which commits --history takes; name them with --history REV..REV."),
        (
            ["--history", "v0..v1", "--test_method_name", "test_x"],
            "No commit of v0..v1 can be scanned: 'test_x' is not one",
        ),
        (["--history", "v0..v1", "--format", "csv"], "--format does not go with --history."),
    ],
)
def test_what_has_no_history(past, capsys, options, message):
    assert main(["--repo", str(past[0]), *options]) == 2
    assert f"error: {message}" in capsys.readouterr().err
