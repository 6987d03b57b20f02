"""What was found broken once and mended: each fault is tried again, in a folder of its own."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import fsspec
import pytest
import torch

from prunes import SCENARIOS
from prunes import play as play_prune
from pytest_tfdebug import GoldenError, TFDebugError, Trace, trace
from pytest_tfdebug.git import GitError, git
from pytest_tfdebug.goldens.store.golden_file import save
from pytest_tfdebug.goldens.store.modes import is_ci
from pytest_tfdebug.goldens.store.remote import RemoteDirectory
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.scan.read.outline import Outline
from secret_forms import FORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Modules that Python imports for ``-m`` before it looks for ours, or that ours import.
_SHADOWS = """
contextlib warnings types collections functools operator keyword reprlib importlib typing json re enum dataclasses
""".split()  # noqa: SIM905 - a table to read
_ENTRIES = ("pytest_tfdebug", "pytest_tfdebug.scan", "pytest_tfdebug.env", "pytest_tfdebug.review")
_RUN_BY_GIT = ("core.sshCommand", "core.fsmonitor", "filter.x.clean", "filter.x.process", "diff.external")
_CI = {"GITHUB_ACTIONS": "true", "JENKINS_URL": "https://ci.example", "TF_BUILD": "True", "CI": "true"}
#: How many times as long as letters a string of backslashes may take, and what part of a tensor its saving may.
_SLOWER, _PART = 100, 0.5
_FAILING = """
import torch

def test_it(tf_golden):
    tf_golden.check(torch.nn.Linear(2, 2), torch.ones(1, 2))
"""
_TEST = """
import unittest
from ...test_modeling_common import ModelTesterMixin

class ATest(ModelTesterMixin, unittest.TestCase):
    has_nothing = False
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
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
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


def play_links(folder: Path) -> list[str]:
    """Let a fix write into a root with a link that leads out of it; return whether it followed."""
    model, outside = folder / "root/tests/models/a", folder / "outside.py"
    model.mkdir(parents=True)
    (folder / "root/tests/test_modeling_common.py").write_text("class ModelTesterMixin:\n    def test_it(self): pass\n")
    outside.write_text(_TEST)
    (model / "test_modeling_a.py").symlink_to(outside)
    ends = _run(folder, sys.executable, "-m", "pytest_tfdebug.scan", "--repo", "root", "--fix", "stale", "--write")
    shown = ["its text was shown"] if "has_nothing" in ends.text else []
    return shown + ([] if outside.read_text() == _TEST else ["it was written to"])


def play_cut_downloads(folder: Path) -> list[str]:
    """Cut a download after each of its bytes; return which part was taken for the golden, or kept."""
    source, name = folder / "file", "test_it.safetensors"
    source.write_text("whole")
    RemoteDirectory("memory://goldens", folder / "cache").put(name, source)
    problems = []
    for size in range(5):
        directory = RemoteDirectory("memory://goldens", folder / f"cache{size}")
        with mock.patch.object(directory._files, "get_file", partial(_cut, "whole"[:size])):  # noqa: SLF001
            try:
                directory.fetch(name)
                problems.append(f"{size} bytes were taken for the golden")
            except GoldenError:
                pass
        problems += [] if directory.fetch(name).read_text() == "whole" else [f"{size} bytes were kept"]
    fsspec.filesystem("memory").store.clear()
    return problems


def _cut(part: str, _source: str, target: str, **_options: object) -> None:
    Path(target).write_text(part)


def play_huge_numbers(folder: Path) -> list[str]:
    """Record values whose squares overflow, more than a golden keeps whole; return which cannot be read again."""
    problems = []
    for value in (1e200, 1e300, -1e308):
        path, model = folder / f"{value}.safetensors", torch.nn.Sequential(torch.nn.Identity(), torch.nn.Identity())
        x = torch.full((70_000,), value, dtype=torch.float64)
        save(path, trace(model, x), model, "test_it.py::test_it")
        try:
            Trace.load(path)
        except GoldenError as error:
            problems.append(str(error))
    return problems


class _Waits(torch.nn.Module):
    """A model whose forward waits in its middle until another thread has done its own."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.inside, self.goes_on = torch.nn.Linear(2, 2), threading.Event(), threading.Event()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Wait, in the first call alone."""
        if not self.inside.is_set():
            self.inside.set()
            self.goes_on.wait(20)
        return self.up(x)  # type: ignore[no-any-return]


def play_threads(folder: Path) -> list[str]:  # noqa: ARG001 - as the others
    """Run, and trace, a model in another thread during a trace; return what was recorded, or left behind, of it."""
    problems = []
    for other in (lambda model, x: model(2 * x), trace):
        model, x = _Waits(), torch.ones(1, 2)
        thread = threading.Thread(target=_beside, args=(model, x, other))
        thread.start()
        recorded = trace(model, x)
        thread.join()
        found = [call.path for call in recorded]
        problems += [] if found == ["_Waits", "up"] else [f"recorded: {found}"]
        hooks = [name for module in model.modules() for name in (*module._forward_hooks, *module._forward_pre_hooks)]  # noqa: SLF001
        problems += [f"{len(hooks)} hooks are left"] if hooks else []
    return problems


def _beside(model: _Waits, x: torch.Tensor, function: Callable[[_Waits, torch.Tensor], object]) -> None:
    model.inside.wait(20)
    try:
        function(model, x)
    except TFDebugError:
        pass  # a second tracer is refused
    finally:
        model.goes_on.set()


def play_prunes(folder: Path) -> list[str]:
    """Prune in every scenario; return which goldens were lost."""
    problems = []
    for name, scenario in SCENARIOS.items():
        place = folder / name.replace("/", " ")
        place.mkdir()
        problems += [f"{name}: {problem}" for problem in play_prune(scenario, place, _pruned)]
    return problems


def _pruned(folder: Path, arguments: Sequence[str]) -> str:
    """Run pytest in a child that is forked, which costs no import of torch, and return what it prints."""
    with tempfile.TemporaryFile("w+") as printed:
        child = os.fork()
        if child == 0:
            for stream in (1, 2):
                os.dup2(printed.fileno(), stream)
            os.chdir(folder)
            code = pytest.main(["-p", "no:cacheprovider", *arguments])
            sys.stdout.flush()
            os._exit(code)
        os.waitpid(child, 0)
        printed.seek(0)
        return printed.read()


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


def play_backward(folder: Path) -> list[str]:  # noqa: ARG001 - as the others
    """Trace a model with a BatchNorm between a forward and its backward; return how the backward failed."""
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).train(), torch.randn(8, 4)
    loss = model(x).square().sum()
    trace(model, x)
    try:
        loss.backward()
    except RuntimeError as error:
        return [str(error)]
    return []


def play_secrets(folder: Path) -> list[str]:  # noqa: ARG001 - as the others
    """Redact every form of a secret, within other text; return which were shown."""
    shown = {form.name: redact(f"before {form.text}\nafter") for form in FORMS}
    return [f"{form.name} is shown" for form in FORMS if any(part in shown[form.name] for part in form.secrets)]


def play_backslashes(folder: Path) -> list[str]:  # noqa: ARG001 - as the others
    """Read a string of 2,000,000 backslashes; return whether it took longer than so many letters may."""
    plain, slashes = (_seconds(partial(Outline, f'x = "{sign * 2_000_000}"\n')) for sign in ("a", "\\"))
    return [f"it took {slashes / plain:.0f} times as long as letters"] if slashes > _SLOWER * plain else []


def _seconds(function: Callable[[], object]) -> float:
    started = time.process_time()
    function()
    return max(time.process_time() - started, 0.01)


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


#: Saves a tensor of so many bytes inside a model, and prints the bytes that this takes beyond another forward.
_SAVE = """
import resource, sys, torch
from pathlib import Path
from pytest_tfdebug import trace
from pytest_tfdebug.goldens.store.golden_file import save
torch.set_num_threads(1)

class Wide(torch.nn.Module):
    def forward(self, x):
        return x.repeat(SIZE // 4)

class First(torch.nn.Module):
    def forward(self, x):
        return x[:1]

for SIZE in (4096, int(sys.argv[2])):
    model, x = torch.nn.Sequential(Wide(), First()), torch.ones(1)
    recorded = trace(model, x)
    model(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    save(Path(sys.argv[1] + str(SIZE)), recorded, model, "test_it.py::test_it")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def play_large_tensors(folder: Path, size: int = 128_000_000) -> list[str]:
    """Save a large tensor; return how much memory it took, if more than a part of the tensor."""
    ends = _run(folder, sys.executable, "-c", _SAVE, str(folder / "it.safetensors"), str(size))
    if ends.code:
        return [ends.text[-300:]]
    return [f"it took {int(ends.text):,} bytes"] if int(ends.text) > _PART * size else []


def _run(folder: Path, *command: str) -> _Ends:
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "1000000"}
    both = subprocess.STDOUT
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, text=True, stdout=subprocess.PIPE, stderr=both
    )
    return _Ends(done.returncode, done.stdout)


#: What is tried -> of how many forms, and how.
PLAYS: dict[str, tuple[int, Callable[[Path], list[str]]]] = {
    "entries in a root with modules of Python's names": (len(_ENTRIES), play_shadowed_modules),
    "programs that a repository configures": (len(_RUN_BY_GIT), play_programs_of_git),
    "a fix through a link out of the root": (1, play_links),
    "downloads that are cut": (5, play_cut_downloads),
    "values whose squares overflow": (3, play_huge_numbers),
    "another thread during a trace": (2, play_threads),
    "prunes": (len(SCENARIOS), play_prunes),
    "CI servers, updates unasked": (len(_CI), play_ci),
    "a backward after a trace": (1, play_backward),
    "forms of secrets": (len(FORMS), play_secrets),
    "a string of backslashes": (1, play_backslashes),
    "a full disk": (2, play_full_disk),
    "a large tensor in a golden": (1, play_large_tensors),
}
