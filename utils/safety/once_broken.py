"""What was found broken once and mended is tried again: by the tests of it, and what starts programs here."""

from __future__ import annotations

import errno
import os
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest import mock

from command import ROOT
from pytest_tfdebug.git import GitError, git
from pytest_tfdebug.goldens.store.modes import is_ci

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Modules that Python imports for ``-m`` before it looks for ours, or that ours import.
_SHADOWS = """
contextlib warnings types collections functools operator keyword reprlib importlib typing json re enum dataclasses
""".split()  # noqa: SIM905 - a table to read
_ENTRIES = ("pytest_tfdebug", "pytest_tfdebug.scan", "pytest_tfdebug.environment", "pytest_tfdebug.review")
_RUN_BY_GIT = ("core.sshCommand", "core.fsmonitor", "filter.x.clean", "filter.x.process", "diff.external")
_CI = {"GITHUB_ACTIONS": "true", "JENKINS_URL": "https://ci.example", "TF_BUILD": "True", "CI": "true"}
_FAILING = """
import torch

def test_it(tf_golden):
    tf_golden.check(torch.nn.Linear(2, 2), torch.ones(1, 2))
"""


@dataclass(frozen=True)
class _Ends:
    """How a run ended."""

    code: int
    text: str


def play_shadowed_modules(folder: Path) -> list[str]:
    """Start every entry in a root whose files have the names of Python's modules; return which of them ran."""
    ran = folder / "ran"
    for module in _SHADOWS:
        (folder / f"{module}.py").write_text(f"open({str(ran)!r}, 'a').write({module!r})\n")
    safe, problems = "-P" if sys.version_info >= (3, 11) else "-I", []
    for entry in _ENTRIES:
        ends = _run(folder, sys.executable, safe, "-m", entry, "--help")
        problems += [f"{entry} ran {ran.read_text()}"] if ran.exists() else []
        problems += [f"{entry}: exit status {ends.code}: {ends.text[-200:]}"] if ends.code else []
        ran.unlink(missing_ok=True)
    return problems


def play_programs_of_git(folder: Path) -> list[str]:
    """Ask git in repositories that configure programs; return which of them ran."""
    return [f"{key} ran" for key in _RUN_BY_GIT if _is_run_by_git(folder / key, key)]


def _is_run_by_git(root: Path, key: str) -> bool:
    root.mkdir()
    ran, program = root.parent / f"{key}.ran", root.parent / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    (root / "it.py").write_text("pass\n")
    (root / ".gitattributes").write_text("*.py filter=x\n")
    author = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "-A"), (*author, "commit", "-qm", "First")):
        subprocess.run(["git", *arguments], cwd=root, check=True)  # noqa: S607 - in our own folder
    promises = {"extensions.partialClone": "origin", "remote.origin.url": "ssh://example.org/it"}
    for name, value in {**promises, "remote.origin.promisor": "true", key: str(program)}.items():
        subprocess.run(["git", "config", name, value], cwd=root, check=True)  # noqa: S607
    os.utime(root / "it.py", (1, 1))
    for command in (("status", "--porcelain"), ("diff",), ("cat-file", "blob", "0" * 39 + "1")):
        with suppress(GitError):  # the blob is not there
            git(root, *command)
    return ran.exists()


def play_ci(folder: Path) -> list[str]:
    """Run on each CI server with goldens that the ini file says to update; return where one was written unasked."""
    (folder / "test_it.py").write_text(_FAILING)
    (folder / "pytest.ini").write_text("[pytest]\ntf_golden = update\n")
    problems = []
    for name, value in _CI.items():
        with mock.patch.dict(os.environ, {name: value}):
            for other in _CI.keys() - {name}:
                os.environ.pop(other, None)
            problems += [] if is_ci() else [f"{name} is not known"]
            _run(folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
        problems += [f"{name}: a golden was written"] if (folder / "goldens").exists() else []
    return problems


def play_full_disk(folder: Path) -> list[str]:
    """Fail with a repro and a report to a disk that is full; return which failure took the place of the test's own."""
    (folder / "test_it.py").write_text(_FAILING)
    full = f"raise OSError({errno.ENOSPC}, 'No space left on device')"
    (folder / "conftest.py").write_text(
        "import pathlib, tempfile\n"
        f"def full(*_, **__): {full}\n"
        "def pytest_runtest_call():\n"
        "    tempfile.mkstemp = tempfile.mkdtemp = pathlib.Path.write_text = pathlib.Path.mkdir = full\n"
    )
    problems = []
    for options in (("--tf-repro=repros",), ("--tf-json=report.json",)):
        ends = _run(folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options)
        is_told = ends.code == 1 and "has no golden yet" in ends.text and "INTERNALERROR" not in ends.text
        problems += [] if is_told else [f"{options[0]}: exit status {ends.code}: {ends.text[-200:]}"]
    return problems


def _run(folder: Path, *command: str, beside: Path | None = None) -> _Ends:
    paths = os.pathsep.join([*filter(None, sys.path), *([] if beside is None else [str(beside)])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    both = subprocess.STDOUT
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, text=True, stdout=subprocess.PIPE, stderr=both
    )
    return _Ends(done.returncode, done.stdout)


def play_tests(folder: Path, selection: str) -> tuple[int, list[str]]:
    """Run tests of this project by themselves; return how many, and which of them failed."""
    options = ("-q", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={folder / 'made'}", "--tb=line")
    pages = ROOT / ".venv" / "page"  # where ``make test-page`` puts the library for a browser
    ends = _run(ROOT, sys.executable, "-m", "pytest", *options, *shlex.split(selection), beside=pages)
    counts = {kind: int(count) for count, kind in re.findall(r"(\d+) (passed|failed|skipped|error)", ends.text)}
    tried = counts.get("passed", 0) + counts.get("failed", 0)
    is_whole = ends.code == 0 and tried and "skipped" not in counts
    return tried, [] if is_whole else [ends.text[-900:]] * max(1, counts.get("failed", 0))


#: What is tried -> of how many forms, and how.
PLAYS: dict[str, tuple[int, Callable[[Path], list[str]]]] = {
    "entries in a root with modules of Python's names": (len(_ENTRIES), play_shadowed_modules),
    "programs that a repository configures": (len(_RUN_BY_GIT), play_programs_of_git),
    "CI servers, updates unasked": (len(_CI), play_ci),
    "a full disk": (2, play_full_disk),
}
#: What is tried -> the tests that try it.
TESTS = {
    "links out of a root, git, deep nests, backslashes": "tests/scan/test_safety.py",
    "repositories and baselines of strangers": "tests/scan/test_hostile.py -k 'baseline or cache or terminal or pipe'",
    "S3 and web servers under faults": "tests/unit/test_remote.py",
    "values whose squares overflow": "tests/unit/test_digest.py -k leave_float64",
    "other threads during a trace": "tests/unit/test_as_run_threads.py",
    "prunes": "tests/integration/test_golden_prune.py -k 'elsewhere or behind or device or gone or symlink'",
    "a backward after a trace": "tests/unit/test_as_run_state.py -k backward",
    "forms of secrets": "tests/unit/test_redaction.py -k no_form",
    "a large tensor in a golden": "tests/unit/test_peak_memory.py -k half_of_it",
    "hostile repros": "tests/integration/test_repro.py -k 'written or interrupted or stands_in or every_name'",
    "folders that an ordinary user may only read": "tests/integration/test_read_only.py",
    "hostile names on a page, in Chromium": "tests/page/test_site.py -k strangers",
}
