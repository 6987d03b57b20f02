"""Every command and every Python block of README, tutorials and how-tos runs as it is printed, or is listed with a reason."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import transformers

import pytest_tfdebug.goldens.fixture
import pytest_tfdebug.parity.compare  # noqa: F401 - loaded once for all pages

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("tutorials/*.md")),
    *sorted((ROOT / "docs").glob("how-to/*.md")),
]
BLOCK = re.compile(r"^```(sh|console|python|yaml|diff)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"# (\w+\.py)\n")
RECIPES = "tests/integration/test_ci_recipes.py runs it on a small repository"
#: Page -> the exit codes of its commands, from top to bottom. A block of changes between them is applied.
WALKED = {
    "README": [0],
    "float16": [0, 1],
    "goldens": [0, 0, 0, 0, 0],
    "guard-a-model": [0, 0, 1],
    "padding": [0, 1],
    "port-a-model": [1, 1],
    "port-tests": [],
    "train-a-port": [0, 1, 0],
    "unittest": [],
}
#: Page -> what a block or command of it begins with -> why it is not run here.
ELSEWHERE = {
    "agents": {
        "pytest test_port.py": "tests/integration/test_patch_file.py makes a patch, and all other tests check and record",
        "git apply": "tests/integration/test_patch_file.py applies it",
    },
    "README": {"pip install": "needs a package index; make release installs the package and tries it"},
    "github-actions": {"name: models": RECIPES, "repos:": RECIPES},
    "review-a-port": {
        "pytest tests/test_my_port.py": "tests/integration/test_certify.py certifies a port, and all other tests write JSON",
        "tfdebug audit": "tests/unit/test_audit.py runs it on a checkpoint",
    },
    "skips-in-ci": {
        "tfdebug scan": RECIPES,
        "@unittest.skip": RECIPES,
        "pytest tests/models": RECIPES,
    },
    "upgrade": {"tfdebug bisect": "tests/integration/test_bisect.py runs it on a small repository"},
    "unittest": {
        "@pytest.mark.overflow_free": "is a class of transformers' own tests",
        '"""Checks that no common test': RECIPES,
    },
}


def steps(page):
    """Yield language and text of each block of a page; of a shell's, each command."""
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language not in ("sh", "console"):
            yield language, text
            continue
        for line in text.splitlines():
            command = line.removeprefix("$ ").partition("  #")[0].strip()
            if command:
                yield "sh", command


def reason(page, text):
    """Return why a block is not run here; empty where it is."""
    return next((why for begin, why in ELSEWHERE.get(page.stem, {}).items() if text.startswith(begin)), "")


@pytest.fixture
def folder(pytester, monkeypatch):
    """A repository of git without a file, in which this environment's commands are found."""
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "tester")
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within a second would not be seen
    subprocess.run(["git", "init", "-q", "-b", "main"], check=True)  # noqa: S607 - whichever git there is
    return pytester.path


@pytest.fixture
def run(pytester):
    """Run a command of a page and return its exit code: pytest in this process, for torch is loaded here."""

    def run_command(command):
        first, *arguments = shlex.split(command)
        if first == "pytest":
            return int(pytester.runpytest_inprocess(*arguments).ret)
        return subprocess.run(command, shell=True, check=False).returncode  # noqa: S602 - as a reader types it

    return run_command


def prepare(page, folder, run):
    """Make what a page begins with: goldens that were committed, and a model that has changed since."""
    if page.stem != "goldens":
        return
    (text,) = (
        text for text in BLOCK.findall((ROOT / "docs/tutorials/guard-a-model.md").read_text()) if text[0] == "python"
    )
    (folder / "test_guard.py").write_text(text[1])
    assert run("pytest --tf-golden=update") == 0
    assert run("git add . && git commit -qm one") == 0
    (folder / "test_guard.py").write_text(text[1].replace('"silu"', '"gelu_pytorch_tanh"'))


def change(folder, text):
    """Make a change that a page shows as a diff."""
    old, new = ("".join(line[1:] for line in text.splitlines(keepends=True) if line[0] == sign) for sign in "-+")
    (file,) = (file for file in folder.glob("*.py") if old in file.read_text())
    file.write_text(file.read_text().replace(old, new))


@pytest.mark.skipif(transformers.__version__.startswith("4."), reason="they show lines of transformers 5")
@pytest.mark.parametrize("page", [page for page in PAGES if page.stem in WALKED], ids=lambda page: page.stem)
def test_every_command_of_a_page_ends_as_it_says(page, folder, run):
    prepare(page, folder, run)

    codes = []
    for language, text in steps(page):
        named = NAMED.match(text)
        if reason(page, text):
            continue
        if language == "sh":
            if not list(folder.glob("*.py")):  # the README types before it shows the test
                (folder / "test_port.py").write_text(
                    next(text for _, text in BLOCK.findall(page.read_text()) if NAMED.match(text))
                )
            codes.append(run(text))
        elif language == "diff":
            change(folder, text)
        elif named:
            (folder / named[1]).write_text(text)
        else:
            exec(text, {})  # noqa: S102 - a part of a program, as printed

    assert codes == WALKED[page.stem]


def test_every_block_is_run_or_has_a_reason_not_to():
    assert {page.stem for page in PAGES} == WALKED.keys() | ELSEWHERE.keys()
    left = [
        (page.stem, text)
        for page in PAGES
        if page.stem not in WALKED
        for _, text in steps(page)
        if not reason(page, text)
    ]
    assert left == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem in ELSEWHERE], ids=lambda page: page.stem)
def test_every_reason_is_of_a_block_that_is_there(page):
    texts = [text for _, text in steps(page)]

    assert [begin for begin in ELSEWHERE[page.stem] if not any(text.startswith(begin) for text in texts)] == []
