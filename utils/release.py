"""Build the sdist and the wheel of it, and try with the wheel what a user tries first.

The wheel is built from the sdist, so that what is missing in either is missed, and installed in an empty environment.
Whether what it requires is all, pip says.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = ROOT / "fixtures/scan_repo"
TEST = """
import os

import pytest_tfdebug
import torch


def test_it(tf_golden):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    pytest_tfdebug.fill(model, seed=0)
    if os.environ.get("BUG"):
        model[1] = torch.nn.GELU()
    tf_golden.check(model, torch.ones(1, 4))
"""
#: What would reach the code of this repository, or change what users see; without bytecode every start compiles torch.
LEFT_OUT = {"PYTHONPATH", "PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE"}
CONSTRAINED = ("--constraint", str(ROOT / "constraints.txt"))
TABLES = """
import sys

import pytest_tfdebug
import torch
from pytest_tfdebug.scan import scan

calls = pytest_tfdebug.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)).to_dataframe()
classes = scan(sys.argv[1]).to_dataframe("class")
print(f"tables of {len(calls)} and {len(classes)} rows")
"""


def main() -> None:
    """Build both files, install the wheel, and stop where something does not work."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        source = here / "source"  # a build leaves files behind
        shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "*.egg-info", "build", "dist", "site"))
        _run(Path(sys.executable), "-m", "build", "--outdir", str(here / "dist"), str(source))
        python = _environment(here / "installed")
        (wheel,) = (here / "dist").glob("*.whl")
        _run(python, "-m", "pip", "install", "--quiet", "--no-compile", *CONSTRAINED, str(wheel))
        _run(python, "-m", "pip", "check")
        work = here / "work"
        work.mkdir()
        _try(python, work)
    print("\nThe wheel, built from the sdist, installs and works.")


def _environment(folder: Path) -> Path:
    """Make a virtual environment and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder / "bin/python"


def _try(python: Path, folder: Path) -> None:
    """Record a golden, hold a model to it, find a bug, make tables, scan, and print the environment."""
    (folder / "test_it.py").write_text(TEST)
    (folder / "tables.py").write_text(TABLES)
    run, repository = partial(_run, python, folder=folder), str(REPOSITORY)
    run("-c", "import pytest_tfdebug, sys; print(pytest_tfdebug.__file__.startswith(sys.prefix))", sees="True")
    run("-m", "pytest", "--tf-golden=update", sees="1 passed")
    run("-m", "pytest", sees="4 of 4 calls compared")
    run("-m", "pytest", "--tf-html=pages", sees="ParityError", code=1, BUG="1")
    if not (folder / "pages/index.html").exists():
        raise SystemExit("--tf-html has written no page.")
    run("-m", "pytest_tfdebug.scan", "--repo", repository, "--output_dir", ".", sees="test_inputs_embeds")
    run("tables.py", repository, sees="tables of 2 and 606 rows")
    run(str(python.with_name("tfdebug")), "env", sees="torch: ")


def _run(
    python: Path, *command: str, folder: Path | None = None, sees: str = "", code: int = 0, **environment: str
) -> None:
    """Run a Python outside of the repository; stop where its exit code, or what it prints, is not what is expected."""
    print("$ python", *command, flush=True)
    inherited = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    done = subprocess.run(
        [str(python), *command], check=False, capture_output=True, text=True, cwd=folder, env=inherited | environment
    )
    if done.returncode != code or sees not in done.stdout:
        wanted = f"exit code {code} and {sees!r}"
        raise SystemExit(f"exit code {done.returncode}, expected {wanted}\n{done.stdout}\n{done.stderr}")


if __name__ == "__main__":
    main()
