"""Runs that prune, and the goldens that may be gone after them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug import trace
from pytest_tfdebug.tracing.file.codec import write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: The arguments of a run that prunes.
PRUNE = ("--tf-golden=update", "--tf-golden-prune")
_INI = "[pytest]\naddopts = --import-mode=importlib --tf-triage=off\n"
_GONE = "goldens/test_one/test_gone.safetensors"
_ONE = {"test_one.py": "def test_here(): pass\n"}
_BOTH = {**_ONE, "test_two.py": "def test_here(): pass\n"}
_CASES = 'import pytest\n@pytest.mark.parametrize("it", {})\ndef test_cases(it): pass\n'


@dataclass(frozen=True)
class Golden:
    """A golden that a scenario begins with.

    Args:
        test: The test that it says it was recorded by; None for a trace that is no golden.
        device: The device that it says it was recorded on.
    """

    test: str | None = "test_one.py::test_gone"
    device: str = "cpu"


@dataclass(frozen=True)
class Scenario:
    """A project, a run in it, and what may be deleted.

    Args:
        files: The project's files.
        goldens: Its goldens.
        arguments: What is typed after the arguments of a run that prunes.
        deleted: The goldens that are gone afterwards; every other one is as it was.
        shape: Makes of a golden what no golden should be.
        folder: Where pytest is started.
        prune: The arguments that ask for pruning.
        says: What the run has to say.
    """

    files: Mapping[str, str] = field(default_factory=lambda: _ONE)
    goldens: Mapping[str, Golden] = field(default_factory=lambda: {_GONE: Golden()})
    arguments: tuple[str, ...] = ()
    deleted: frozenset[str] = frozenset()
    shape: Callable[[Path], object] | None = None
    folder: str = "."
    prune: tuple[str, ...] = PRUNE
    says: str = ""


def _one(name: str, golden: Golden) -> dict[str, Golden]:
    return {f"goldens/test_one/{name}.safetensors": golden}


def _all(goldens: Mapping[str, Golden]) -> frozenset[str]:
    return frozenset(goldens)


def _as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _folder_as_link(path: Path) -> None:
    path.parent.rename(path.parent.parent.parent / "elsewhere")
    path.parent.symlink_to(path.parent.parent.parent / "elsewhere", target_is_directory=True)


def _directory_as_link(path: Path) -> None:
    goldens = path.parent.parent
    goldens.rename(goldens.parent / "elsewhere")
    goldens.symlink_to("elsewhere", target_is_directory=True)


_CUDA_CASE = _one("test_cases[cuda]", Golden("test_one.py::test_cases[cuda]"))
_CPU_CASE = _one("test_cases[cpu]", Golden("test_one.py::test_cases[cpu]"))
_NUMBER = _one("test_cases[3]", Golden("test_one.py::test_cases[3]"))
_VARIANT = _one("test_gone@cuda", Golden())
_HERE = _one("test_here", Golden("test_one.py::test_here"))
_SHARED = {"stored/test_one/test_gone.safetensors": Golden("a/test_one.py::test_gone")}
_TWO_DIRECTORIES = {f"{name}/test_one.py": "def test_here(): pass\n" for name in ("a", "b")}
_NESTED = {"tests/goldens/test_one/test_gone.safetensors": Golden("tests/test_one.py::test_gone")}
_TWO = {"goldens/test_two/test_gone.safetensors": Golden("test_two.py::test_gone")}

SCENARIOS: dict[str, Scenario] = {
    # What has no test any more.
    "a test is gone": Scenario(deleted=_all({_GONE: Golden()}), says="Deleted, for their tests no longer exist:"),
    "all tests of a file are gone": Scenario({"test_one.py": ""}, deleted=frozenset({_GONE})),
    "a class is gone": Scenario(
        goldens=_one("TestIt.test_gone", Golden("test_one.py::TestIt::test_gone")),
        deleted=frozenset({"goldens/test_one/TestIt.test_gone.safetensors"}),
    ),
    "a variant of a test that is gone": Scenario(goldens=_VARIANT, deleted=_all(_VARIANT)),
    "a test is gone and another one fails": Scenario(
        {"test_one.py": "def test_here(): assert 0\n"}, arguments=("-x",), deleted=frozenset({_GONE})
    ),
    "a test is gone and others are deselected": Scenario(arguments=("-k", "nothing"), deleted=frozenset({_GONE})),
    "it was recorded from another root": Scenario(
        {"tests/pytest.ini": _INI, "tests/test_one.py": ""}, _NESTED, folder="tests", deleted=_all(_NESTED)
    ),
    "a directory for all files": Scenario(
        _TWO_DIRECTORIES, _SHARED, ("--tf-golden-dir=stored",), deleted=_all(_SHARED)
    ),
    # What a test still uses.
    "the test is there": Scenario(goldens=_HERE),
    "the test has several goldens": Scenario(goldens=_one("test_here.long", Golden("test_one.py::test_here"))),
    "a variant of a test": Scenario(goldens=_one("test_here@cuda", Golden("test_one.py::test_here", "cuda"))),
    "a name that was made safe": Scenario(
        {"test_one.py": _CASES.format(["a/b"])}, _one("test_cases[a_b]-0", Golden("test_one.py::test_cases[a/b]"))
    ),
    "a conftest leaves tests out": Scenario(
        {
            **_ONE,
            "conftest.py": "import pytest\n@pytest.hookimpl(tryfirst=True)\n"
            "def pytest_collection_modifyitems(items): items.clear()\n",
        },
        _HERE,
    ),
    "the test is deselected": Scenario(goldens=_HERE, arguments=("--deselect", "test_one.py::test_here")),
    # What this run cannot know.
    "another file alone is run": Scenario(_BOTH, _TWO, ("test_one.py",)),
    "another directory alone is run": Scenario(
        {"a/test_one.py": "", "b/test_one.py": ""},
        {"a/goldens/test_one/test_gone.safetensors": Golden("a/test_one.py::test_gone")},
        ("b",),
    ),
    "one test alone is run": Scenario(arguments=("test_one.py::test_here",)),
    "only what failed is run": Scenario(
        {"test_one.py": "def test_here(): assert 0\n"}, arguments=("-p", "cacheprovider", "--lf")
    ),
    "the file is ignored": Scenario(_BOTH, _TWO, ("--ignore=test_two.py",)),
    "the file is ignored by a glob": Scenario(_BOTH, _TWO, ("--ignore-glob=*_two.py",)),
    "the file is ignored by a conftest": Scenario({**_BOTH, "conftest.py": "collect_ignore = ['test_two.py']\n"}, _TWO),
    "other functions are tests": Scenario(arguments=("-o", "python_functions=check_*")),
    "it is only collected": Scenario(arguments=("--collect-only",)),
    "the file cannot be imported": Scenario(
        {**_ONE, "test_two.py": "import nothing_of_the_kind\n"}, _TWO, ("--continue-on-collection-errors",)
    ),
    "the file is no Python": Scenario(
        {**_ONE, "test_two.py": "def test_here(\n"}, _TWO, ("--continue-on-collection-errors",)
    ),
    "the file is skipped": Scenario(
        {**_ONE, "test_two.py": "import pytest\npytest.skip('no time', allow_module_level=True)\n"}, _TWO
    ),
    "a class cannot be collected": Scenario(
        {
            "test_one.py": "def pytest_generate_tests(metafunc): raise ValueError\n"
            "class TestIt:\n    def test_it(self): pass\n"
        },
        arguments=("--continue-on-collection-errors",),
    ),
    "another file cannot be collected": Scenario({**_ONE, "test_two.py": "import nothing_of_the_kind\n"}),
    "the run is stopped": Scenario({"test_one.py": "import pytest\ndef test_here(): pytest.exit('enough')\n"}),
    "the test file is gone": Scenario(
        _ONE, _TWO, says="goldens/test_two (1 golden): there is no test_two.py beside its directory."
    ),
    # What another environment may have.
    "a parameter comes from elsewhere": Scenario({"test_one.py": _CASES.format([1, 2])}, _NUMBER),
    "a function is defined elsewhere": Scenario(
        {"test_one.py": "import os\nif 'GPU' in os.environ:\n    def test_gone(): pass\n"}, {_GONE: Golden()}
    ),
    "a function stands behind an import": Scenario(
        {"test_one.py": "try:\n    import no_such\n    def test_gone(): pass\nexcept ImportError: pass\n"},
        {_GONE: Golden()},
    ),
    # What is not this machine's, or this project's.
    "a parameter is another device": Scenario({"test_one.py": _CASES.format(["cpu"])}, _CUDA_CASE),
    "a parameter is this device": Scenario({"test_one.py": _CASES.format(["cuda"])}, _CPU_CASE),
    "it was recorded on another device": Scenario(goldens={_GONE: Golden(device="cuda")}),
    "a directory outside the project": Scenario(
        {"a/pytest.ini": _INI, "a/test_one.py": ""},
        {"stored/test_one/test_gone.safetensors": Golden()},
        ("--tf-golden-dir=../stored",),
        folder="a",
        says="lies outside this project, and may be another one's.",
    ),
    "a directory for all files, of which one is run": Scenario(
        _TWO_DIRECTORIES, _SHARED, ("--tf-golden-dir=stored", "b")
    ),
    "a directory for all files, recorded from another root": Scenario(
        _TWO_DIRECTORIES, {"stored/test_one/test_gone.safetensors": Golden()}, ("--tf-golden-dir=stored",)
    ),
    # What is no golden.
    "a trace that no test recorded": Scenario(goldens={_GONE: Golden(None)}),
    "a truncated file": Scenario(shape=lambda path: path.write_bytes(path.read_bytes()[:-7])),
    "another program's file": Scenario(shape=lambda path: path.write_bytes(b"\x02\0\0\0\0\0\0\0{}")),
    "an empty file": Scenario(shape=lambda path: path.write_bytes(b"")),
    "a FIFO": Scenario(shape=_as_fifo, says="test_gone.safetensors is no regular file: no golden of any test."),
    "a directory": Scenario(shape=_as_directory),
    "a symlink to a golden": Scenario(shape=_as_link),
    "a symlink to a folder": Scenario(shape=_folder_as_link),
    "a symlink to a directory of goldens": Scenario(shape=_directory_as_link),
    # What was not asked for.
    "a check": Scenario(prune=("--tf-golden-prune",), says="Goldens whose test no longer exists"),
    "an update": Scenario(prune=("--tf-golden=update",)),
}


def play(scenario: Scenario, folder: Path, run: Callable[[Path, Sequence[str]], str]) -> list[str]:
    """Play a scenario and return what went wrong, a line each.

    Args:
        scenario: What to play.
        folder: An empty directory.
        run: Runs pytest in a directory with arguments, and returns what it prints.
    """
    (folder / "pytest.ini").write_text(_INI)
    for name, text in scenario.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name, golden in scenario.goldens.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_golden(golden), folder / name)
        if scenario.shape is not None:
            scenario.shape(folder / name)
    printed = run(folder / scenario.folder, (*scenario.prune, *scenario.arguments))
    problems = [f"it does not say {scenario.says!r}"] if scenario.says not in printed else []
    problems += ["it ends in a traceback"] if "INTERNALERROR" in printed or "Traceback (most" in printed else []
    for name in scenario.goldens:
        is_gone = not os.path.lexists(folder / name)
        if is_gone != (name in scenario.deleted):
            problems.append(f"{name} is {'gone' if is_gone else 'left'}")
    return problems


@cache
def _golden(golden: Golden) -> Path:
    """Return a file that is such a golden, the same one for all scenarios."""
    extra = {} if golden.test is None else {"test": golden.test, "weights": {}, "provenance": {"device": golden.device}}
    path = Path(mkdtemp(prefix="tfdebug-")) / "golden"
    write(path, trace(torch.nn.Linear(2, 2), torch.ones(1, 2)), extra)
    return path
