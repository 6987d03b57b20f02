"""Folders that an ordinary user may only read: every check is made, and what cannot be written is said in a line."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv of util-linux is not here")

#: What takes from root the right to write where the mode forbids it; an ordinary user has none.
ORDINARY = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if getattr(os, "geteuid", int)() == 0 else ()
SUITE = """
import torch

def test_it(tf_golden):
    torch.manual_seed(0)
    tf_golden.check(torch.nn.Linear(2, 2), torch.ones(1, 2))

def test_other(tf_golden):
    tf_golden.check(torch.nn.Linear(2, 2), torch.zeros(1, 2))
"""
MODELS = {
    "tests/test_modeling_common.py": "class ModelTesterMixin:\n    def test_forward(self): assert 1\n",
    "tests/models/a/test_modeling_a.py": (
        "import unittest\nfrom ...test_modeling_common import ModelTesterMixin\n"
        "class ATest(ModelTesterMixin, unittest.TestCase):\n    pass\n"
    ),
}


def run(folder, *command):
    """Run a command in a folder, without root's right to write everywhere; return its exit status and its text."""
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [*ORDINARY, sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def folder():
    """A project with one golden of two, and a repository of models, in which nobody may write."""
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        for name, text in {"test_it.py": SUITE, **MODELS}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "--tf-golden=update",
                "test_it.py::test_it",
            ],
            cwd=root,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        places = [root, *root.rglob("*")]
        for path in places:
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = {path: path.read_bytes() for path in places if path.is_file() and path.suffix != ".pyc"}
        yield root
        after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc"}
        assert after == before
        for path in places:
            path.chmod(0o755)


PYTEST = ("-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py")
RUNS = {
    "a check": ((*PYTEST, "-k", "test_it and not other"), 0, "1 passed"),
    "a record": ((*PYTEST, "--tf-golden=missing"), 1, "cannot be written: Permission denied."),
    "a repro": ((*PYTEST, "--tf-repro=made"), 1, "has no golden yet"),
    "a page": ((*PYTEST, "--tf-html=made"), 4, "Cannot"),
    "a report": ((*PYTEST, "--tf-json=made.json"), 1, "has no golden yet"),
    "a scan": (("-B", "-m", "pytest_tfdebug.scan"), 2, "name a writable directory with --output_dir."),
}


@pytest.mark.parametrize("kind", RUNS)
def test_what_cannot_be_written_is_said_in_a_line(folder, kind):
    command, status, said = RUNS[kind]

    ended, text = run(folder, *command)

    assert (ended, said in text) == (status, True), text
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
