"""The workflow and the pre-commit hook of the documents: their commands run on a small repository, step by step."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/github-actions.md"
FILES = {
    "tests/test_guard.py": """
        import pytest_tfdebug
        import torch

        def test_it(tf_golden):
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
            tf_golden.check(pytest_tfdebug.fill(model, seed=0), torch.ones(1, 4))
    """,
    "tests/__init__.py": "",
    "tests/models/__init__.py": "",
    "tests/models/alpha/__init__.py": "",
    "tests/test_modeling_common.py": """
        class ModelTesterMixin:
            def test_forward(self):
                assert True
    """,
    "tests/models/alpha/test_modeling_alpha.py": """
        import unittest
        from ...test_modeling_common import ModelTesterMixin

        class AlphaModelTest(ModelTesterMixin, unittest.TestCase):
            pass
    """,
}
SKIP = '    @unittest.skip("")\n    def test_forward(self):\n        pass\n'


@pytest.fixture
def repository(pytester, monkeypatch):
    """A clone of a repository with one model's tests, and a test that has no golden yet; the current directory."""
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "tester")
    origin = pytester.mkdir("origin")
    for name, text in FILES.items():
        file = origin / name
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = text.strip("\n").splitlines()
        file.write_text("\n".join(line[8:] for line in lines) + "\n")
    monkeypatch.chdir(origin)
    assert shell("git init -q -b main && git add . && git commit -qm one").returncode == 0
    assert shell("git clone -q . ../clone").returncode == 0
    monkeypatch.chdir(origin.parent / "clone")
    return Path.cwd()


def shell(command, **environment):
    """Run a command as a step of a workflow is run, with the Python of this run first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command],  # noqa: S607 - whichever bash there is
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, **environment},
    )


def workflow():
    """Run the steps of the workflow but the installation, as a pull request does, and return them by name."""
    text = re.search(r"```yaml\n(name: .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    steps = yaml.safe_load(text)["jobs"]["models"]["steps"]
    environment = {"CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_BASE_REF": "main"}
    runs = {step["name"]: step["run"] for step in steps if "run" in step and step["name"] != "Install"}
    assert len(runs) == 2
    return {name: shell(command, **environment) for name, command in runs.items()}


def edit(file, old, new):
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


@pytest.mark.nightly
def test_workflow_passes_and_then_shows_a_changed_model_and_a_new_skip(repository):
    assert shell("pytest -q tests/test_guard.py --tf-golden=update -p no:cacheprovider").returncode == 0
    clean = workflow()
    assert {name: step.returncode for name, step in clean.items()} == dict.fromkeys(clean, 0), clean
    edit(repository / "tests/test_guard.py", "ReLU", "GELU")
    edit(repository / "tests/models/alpha/test_modeling_alpha.py", "    pass\n", SKIP)

    goldens, skips = workflow().values()

    assert goldens.returncode == 1
    assert "::error file=tests/test_guard.py" in goldens.stdout
    assert {"index.html", "checks.json", "junit.xml"} <= {file.name for file in Path("tfdebug-page").iterdir()}
    assert skips.returncode == 1
    assert re.search(r"^::error file=tests/models/alpha/test_modeling_alpha.py", skips.stdout, re.MULTILINE)


def test_tutorial_on_skips_goes_as_it_says(repository):
    page = (ROOT / "docs/tutorials/skips-in-ci.md").read_text(encoding="utf-8")
    one, clean, new, stale, run = re.findall(r"```console\n\$ (.*?)\n```", page)
    shown = [text.splitlines() for text in re.findall(r"```text\n(.*?)```", page, re.DOTALL)]

    before = [shell(command) for command in (one, clean)]
    edit(repository / "tests/models/alpha/test_modeling_alpha.py", "    pass\n", SKIP)
    after = [shell(command) for command in (new, stale, f"{run} -p no:cacheprovider")]

    assert [step.returncode for step in before + after] == [0, 0, 1, 0, 0]
    for expected, step in zip(shown, [*before, after[0], after[2]], strict=True):
        assert [line for line in expected if line not in step.stdout.splitlines()] == []


def test_hook_fails_on_a_new_skip_alone(repository):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    command = " ".join([hook["entry"], *hook["args"]])
    file = "tests/models/alpha/test_modeling_alpha.py"
    assert re.search(hook["files"], file)

    before = shell(command)
    edit(repository / file, "    pass\n", SKIP)
    after = shell(command)

    assert (before.returncode, after.returncode) == (0, 1), after
    assert "test_forward" in after.stdout
    assert shell("git status --porcelain").stdout.split() == ["M", file]


def test_entry_for_checkers_of_transformers_fails_on_a_new_skip(repository):
    page = (ROOT / "docs/how-to/unittest.md").read_text(encoding="utf-8")
    (script,) = (text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "CHECKER_CONFIG" in text)
    (config,) = (node.value for node in ast.parse(script).body if isinstance(node, ast.Assign))
    checker = ast.literal_eval(config)  # as utils/checkers.py reads it
    (repository / "utils").mkdir()
    (repository / "utils/check_skips.py").write_text(script)
    file = repository / "tests/models/alpha/test_modeling_alpha.py"

    def run(arguments):
        return shell(" ".join(["python", "utils/check_skips.py", *arguments]))

    before = run(checker["check_args"])
    edit(file, "    pass\n", SKIP)
    after = run(checker["check_args"])

    assert (before.returncode, after.returncode) == (0, 1), after
    assert "test_forward of alpha" in "".join(after.stdout.splitlines(keepends=True)[-10:])
    assert run(checker["fix_args"]).returncode == 0
    assert {file, repository / "tests/test_modeling_common.py"} <= {
        path for glob in checker["file_globs"] for path in repository.glob(glob)
    }
