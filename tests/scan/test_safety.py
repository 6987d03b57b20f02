"""What a repository of a stranger may not do: run a program, reach the network, have a file outside it rewritten."""

import os
import subprocess
import sys
import time

import pytest

from pytest_tfdebug.git import git
from pytest_tfdebug.scan import ScanError, scan
from pytest_tfdebug.scan.cli import main
from pytest_tfdebug.scan.read.outline import Outline, blank

TEST = "class {0}Test(ModelTesterMixin, unittest.TestCase):\n    {1}\n"
STALE = '@unittest.skip("why")\n    def test_gone(self): pass'
SKIP = '@unittest.skip("why")\n    def test_forward(self): pass'


def ask(root, *arguments):
    options = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *options, *arguments], cwd=root, check=True, capture_output=True, text=True)  # noqa: S607
    return done.stdout


@pytest.fixture
def small(repo):
    return repo(aleph=TEST.format("A", SKIP), beth=TEST.format("B", "pass"))


@pytest.fixture
def committed(small):
    ask(small, "init", "-q")
    ask(small, "add", "-A")
    ask(small, "commit", "-qm", "First")
    return small


def program(directory, ran):
    """Write a program that leaves a file when it is run, and return a command for it."""
    file = directory / "program"
    file.write_text(f"#!/bin/sh\ntouch {ran}\n")
    file.chmod(0o755)
    return str(file)


def test_blob_that_is_not_here_is_not_fetched(committed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ran, path = tmp_path / "ran", "tests/models/aleph/test_modeling_aleph.py"
    for key, value in {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": "ssh://example.org/repository",
        "remote.origin.promisor": "true",
        "remote.origin.partialCloneFilter": "blob:none",
        "core.sshCommand": program(tmp_path, ran),
    }.items():
        ask(committed, "config", key, value)
    name = ask(committed, "rev-parse", f"HEAD:{path}").strip()
    (committed / ".git" / "objects" / name[:2] / name[2:]).unlink()

    code = main(["--repo", str(committed), "--base", "HEAD"])

    assert not ran.exists()
    assert code == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"error: {committed} is a partial clone without all files of the revision, and nothing is fetched here. "
        "Type: git fetch --refetch --no-filter"
    )


@pytest.mark.parametrize("key", ["filter.x.clean", "filter.x.process", "filter.a=b.clean", "core.fsmonitor"])
def test_program_that_a_repository_configures_is_not_run(committed, tmp_path, key):
    ran, file = tmp_path / "ran", committed / "tests/models/aleph/test_modeling_aleph.py"
    (committed / ".gitattributes").write_text(f"*.py filter={key.split('.')[1]}\n")
    ask(committed, "config", key, program(tmp_path, ran))
    os.utime(file, (1, 1))

    assert git(committed, "status", "--porcelain") == b"?? .gitattributes\n"
    assert not ran.exists()


@pytest.mark.parametrize("command", [("status", "--porcelain"), ("diff",)], ids=" ".join)
def test_program_that_a_submodule_configures_is_not_run(committed, tmp_path, command):
    ran, other = tmp_path / "ran", tmp_path / "other"
    other.mkdir()
    (other / "it.py").write_text("pass\n")
    (other / ".gitattributes").write_text("*.py filter=x\n")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "First")):
        ask(other, *arguments)
    ask(committed, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "sub")
    ask(committed, "commit", "-qm", "Second")
    ask(committed / "sub", "config", "filter.x.clean", program(tmp_path, ran))
    os.utime(committed / "sub" / "it.py", (1, 1))

    assert git(committed, *command) == b""
    assert not ran.exists()


def test_hook_and_an_external_diff_are_not_run(committed, tmp_path):
    ran = tmp_path / "ran"
    ask(committed, "config", "diff.external", program(tmp_path, ran))
    ask(committed, "config", "diff.x.textconv", program(tmp_path, ran))
    (committed / ".gitattributes").write_text("*.py diff=x\n")
    ask(committed, "config", "core.hooksPath", str(tmp_path))
    (tmp_path / "post-index-change").symlink_to(tmp_path / "program")
    (committed / "tests/models/aleph/test_modeling_aleph.py").write_text("pass\n")

    assert b"+pass" in git(committed, "diff")
    git(committed, "update-index", "-q", "--refresh", "--add", "--", "tests/testing_utils.py")
    assert not ran.exists()


def test_settings_of_a_job_stay(committed, monkeypatch):
    for name, value in {"COUNT": "1", "KEY_0": "user.name", "VALUE_0": "The job"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)

    assert git(committed, "config", "user.name") == b"The job\n"
    assert git(committed, "config", "core.hooksPath") == f"{os.devnull}\n".encode()


#: Modules that Python itself imports for ``-m`` before it looks for ours, and some that ours import.
SHADOWS = """
contextlib warnings types collections functools operator keyword reprlib importlib typing json re enum dataclasses
""".split()  # noqa: SIM905 - a table to read
ENTRIES = {"": "usage", ".scan": "test_forward", ".environment": "torch", ".review": "usage"}


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_python_imports_before_an_entry_is_not_taken_from_the_repository(small, tmp_path, entry):
    ran = tmp_path / "ran"
    for module in SHADOWS:
        (small / f"{module}.py").write_text(f"open({str(ran)!r}, 'w')\n")
    safe = "-P" if sys.version_info >= (3, 11) else "-I"
    options = {".scan": ["--no-cache"], ".environment": []}.get(entry, ["--help"])

    done = subprocess.run(
        [sys.executable, safe, "-m", f"pytest_tfdebug{entry}", *options],
        cwd=small,
        capture_output=True,
        text=True,
        check=True,
    )

    assert ENTRIES[entry] in done.stdout
    assert not ran.exists()


@pytest.mark.parametrize("is_directory", [False, True])
def test_fix_leaves_what_a_link_leads_out_to(small, tmp_path, monkeypatch, capsys, is_directory):
    monkeypatch.chdir(tmp_path)
    stale = TEST.format("C", STALE.replace("why", "has_secrets"))
    outside, model = tmp_path / "outside", small / "tests/models/gimel"
    outside.mkdir()
    file = outside / "test_modeling_gimel.py"
    head = (small / "tests/models/beth/test_modeling_beth.py").read_text().partition("class ")[0]
    file.write_text(head + stale)
    if is_directory:
        model.symlink_to(outside)
    else:
        model.mkdir()
        (model / file.name).symlink_to(file)
    before = file.read_text()

    for option in ("--diff", "--write"):
        assert main(["--repo", str(small), "--models-dir", "tests/models", "--fix", "stale", option]) == 0
        out, err = capsys.readouterr()
        assert "has_secrets" not in out + err

    assert file.read_text() == before
    if not is_directory:  # a linked directory is not gone through
        assert "left out: tests/models/gimel/test_modeling_gimel.py: a link that leads out of the repository" in err


def test_fix_follows_a_link_inside(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = small / "tests/models/aleph/test_modeling_aleph.py"
    inside = small / "tests/shared.py"
    inside.write_text(file.read_text().partition("class ")[0] + TEST.format("A", STALE))
    file.unlink()
    file.symlink_to(inside)

    assert main(["--repo", str(small), "--fix", "stale", "--write"]) == 0

    assert file.is_symlink()
    assert "test_gone" not in inside.read_text()


def test_string_of_two_million_backslashes_takes_no_longer_than_so_many_letters():
    def seconds(text):
        start = time.process_time()
        blank(text)
        Outline(f"x = {text}\n")
        return time.process_time() - start

    plain, slashes = seconds('"' + "a" * 2_000_000 + '"'), seconds('"' + "\\" * 2_000_000 + '"')
    quotes = seconds('"' + '\\"' * 1_000_000 + '"')

    assert max(slashes, quotes) < 3 + 100 * plain


@pytest.fixture
def nested():
    """Return a function that makes folders in a folder, and perhaps a model's test file in the last; they go again."""
    made = []

    def make(root, depth, text=""):
        made.append(str(root / "d"))
        deep = os.open(root, os.O_RDONLY)
        for _ in range(depth):
            os.mkdir("d", dir_fd=deep)
            inner = os.open("d", os.O_RDONLY, dir_fd=deep)
            os.close(deep)
            deep = inner
        if text:
            file = os.open("test_modeling_d.py", os.O_WRONLY | os.O_CREAT, dir_fd=deep)
            os.write(file, text.encode())
            os.close(file)
        os.close(deep)

    yield make
    subprocess.run(["rm", "-rf", *made], check=True)  # noqa: S607 - pytest would go through them by a recursion


def test_folders_in_folders_are_gone_through(small, nested):
    nested(small, 1500)

    assert scan(small, models_dir="tests/models")["test_forward"].models_skipped == ["aleph"]
    with pytest.raises(ScanError, match=r"No model tests in d"):
        scan(small, models_dir="d")


def test_model_deep_in_folders_is_read(repo, nested):
    root = repo(aleph=TEST.format("A", SKIP))
    text = (root / "tests/models/aleph/test_modeling_aleph.py").read_text()
    nested(root / "tests/models", 1200, text.replace("...test", "tests.test"))

    found = scan(root)

    assert found.skipped_files == {}
    assert found["test_forward"].models_skipped == ["aleph", "d"]


def test_blocks_in_blocks_are_named(small):
    file = small / "tests/models/beth/test_modeling_beth.py"
    lines = [f"{' ' * depth}if x:" for depth in range(1200)] + [f"{' ' * 1200}pass"]
    file.write_text("\n".join(lines))

    assert list(scan(small).skipped_files) == ["tests/models/beth/test_modeling_beth.py"]
