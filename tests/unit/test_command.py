"""``tfdebug`` and ``python -m pytest_tfdebug``."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from pytest_tfdebug import __main__ as command

#: What runpy, argparse and the scanner import, and a repository may have a file of its own for.
SHADOWED = (
    "contextlib",
    "warnings",
    "types",
    "collections",
    "functools",
    "operator",
    "keyword",
    "reprlib",
    "typing",
    "json",
)


def test_without_a_command_it_lists_them(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tfdebug", "--help"])

    assert command.main() == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:8]] == [
        *("scan", "review", "audit", "bisect", "skill", "env")
    ]


def test_another_word_is_no_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tfdebug", "scna"])

    assert command.main() == 2
    assert capsys.readouterr().err.endswith("error: 'scna' is no command.\n")


def test_it_says_its_version(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tfdebug", "--version"])

    assert command.main() == 0
    assert capsys.readouterr().out == f"pytest-tfdebug {version('pytest-tfdebug')}\n"


@pytest.mark.parametrize("name", ["scan", "review", "env"])
@pytest.mark.parametrize("how", ["script", "-P -m"])
def test_command_runs_no_file_of_the_directory_it_is_started_in(tmp_path, name, how):
    for module in SHADOWED:
        (tmp_path / f"{module}.py").write_text("open('ran', 'w').close()\n")
    (tmp_path / "importlib").mkdir()
    (tmp_path / "importlib" / "__init__.py").write_text("open('ran', 'w').close()\n")
    start = "import sys; from pytest_tfdebug.__main__ import main; sys.exit(main())"  # as the script that pip writes
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tfdebug").write_text(start)
    started = [str(tmp_path / "bin" / "tfdebug")] if how == "script" else ["-P", "-m", "pytest_tfdebug"]
    if how != "script" and sys.version_info < (3, 11):
        pytest.skip("-P is of Python 3.11")

    done = subprocess.run([sys.executable, *started, name, "--help"], check=False, capture_output=True, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"usage: ")
    assert not (tmp_path / "ran").exists()
