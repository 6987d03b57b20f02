"""Folders that an ordinary user may only read: every check is made, and what cannot be written is said in a line."""

import json
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

#: Records one golden, lets nobody write any more, and makes each run; in one process, which loads torch once.
RUNNER = """
import contextlib, io, json, sys
from pathlib import Path
import pytest
from pytest_tfdebug.scan import cli

def ended(program, *arguments):
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        status = pytest.main(list(arguments)) if program == "pytest" else cli.main(list(arguments))
    return int(status), text.getvalue()

def contents():
    return {path: path.read_bytes() for path in sorted(Path.cwd().rglob("*")) if path.is_file()}

record, runs = map(json.loads, sys.argv[1:])
assert ended(*record)[0] == 0
assert [path.name for path in contents() if path.suffix == ".safetensors"] == ["test_it.safetensors"]
for path in [Path.cwd(), *Path.cwd().rglob("*")]:
    path.chmod(0o555 if path.is_dir() else 0o444)
before = contents()
told = {name: ended(*run) for name, run in runs.items()}
assert contents() == before
print(json.dumps(told))
"""
PYTEST = ("pytest", "-q", "-p", "no:cacheprovider", "test_it.py")
RUNS = {
    "a check": ((*PYTEST, "-k", "test_it and not other"), 0, "1 passed"),
    "a record": ((*PYTEST, "--tf-golden=missing"), 1, "cannot be written: Permission denied."),
    "a repro": ((*PYTEST, "--tf-repro=made"), 1, "has no golden yet"),
    "a page": ((*PYTEST, "--tf-html=made"), 4, "Cannot"),
    "a report": ((*PYTEST, "--tf-json=made.json"), 1, "has no golden yet"),
    "a scan": (("scan",), 2, "name a writable directory with --output_dir."),
}


@pytest.fixture
def ended():
    """What runs end with and print in a project, and a repository of models, in which nobody may write."""
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        for name, text in {"test_it.py": SUITE, **MODELS}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        record = (*PYTEST[:-1], "--tf-golden=update", "test_it.py::test_it")
        runs = {name: run for name, (run, _, _) in RUNS.items()}
        paths = os.pathsep.join(path for path in sys.path if path)
        done = subprocess.run(
            [*ORDINARY, sys.executable, "-B", "-c", RUNNER, json.dumps(record), json.dumps(runs)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": paths, "HOME": made, "XDG_CACHE_HOME": str(root / "cache")},
            capture_output=True,
            text=True,
            check=False,
        )
        for path in [root, *root.rglob("*")]:
            path.chmod(0o755)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_what_cannot_be_written_is_said_in_a_line(ended):
    for kind, (_, status, said) in RUNS.items():
        code, text = ended[kind]
        assert (code, said in text) == (status, True), text
        assert "Traceback" not in text
        assert "INTERNALERROR" not in text
