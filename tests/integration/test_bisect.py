"""``tfdebug bisect`` names the commits that changed a result, in histories with renames, drift and commits that fail."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from pytest_tfdebug.bisect.command import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

MODEL = """
import torch
from torch import nn
{broken}

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.{up}, self.down, self.norm = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8, eps={eps})

    def forward(self, hidden):
        return hidden + {scale} * self.down(nn.functional.{act}(self.{up}(self.norm(hidden))))


class Port(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, hidden):
        for block in self.blocks:
            hidden = block(hidden)
        return {{"states": hidden, "{cache}": hidden * {drift}}}
"""
TEST = """
import torch
from pytest_tfdebug import fill
from port import Port


def test_port(tf_golden):
    tf_golden.check(fill(Port().eval()), torch.arange(48.0).view(2, 3, 8).sin())
"""
FIRST = {"broken": "", "up": "up", "eps": "1e-5", "scale": "1.0", "act": "gelu", "cache": "past", "drift": "2.0"}


class Repository:
    """A repository with one model, and commits that change it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state, self.commits = folder, dict(FIRST), list[str]()
        folder.mkdir()
        self._git("init", "-q")
        (folder / "test_port.py").write_text(TEST)
        self.commit("the first")

    def commit(self, subject: str, **changed: str) -> str:
        self.state |= changed
        (self.folder / "port.py").write_text(MODEL.format(**self.state))
        (self.folder / "log.txt").write_text(f"{len(self.commits)}")
        self._git("add", "-A")
        self._git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", subject)
        self.commits.append(self._git("rev-parse", "--short", "HEAD").strip())
        return self.commits[-1]

    def _git(self, *arguments: str) -> str:
        command = ["git", *arguments]  # S607: the git that is there
        done = subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout

    def bisect(self, capsys: pytest.CaptureFixture[str], home: Path, *more: str) -> tuple[int, list[str]]:
        test = str(self.folder / "test_port.py")
        status = main([test, "--repo", str(self.folder), "--good", self.commits[0], "--dir", str(home), *more])
        return status, capsys.readouterr().out.splitlines()


def test_fault_rename_and_a_commit_that_cannot_be_imported_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository(tmp_path / "repo")
    renamed = repository.commit("rename the cache", cache="cache")
    filled = repository.commit("rename a layer", up="widen")
    broken = repository.commit("forget a module", broken="import no_such_module")
    fault = repository.commit("scale the branch", broken="", scale="0.5")

    status, told = repository.bisect(capsys, tmp_path / "home")

    answer = "\n".join(told)
    assert status == 0, answer
    assert f"{renamed} rename the cache renamed (harmless): Only called otherwise here" in answer
    assert f"{filled} rename a layer renamed (harmless): " in answer
    assert "4 parameters called otherwise: 'blocks.0.up.weight' is 'blocks.0.widen.weight'." in answer
    assert f"{fault} scale the branch changed: port.py:12 in blocks.0 (Block): " in answer
    assert "return hidden + 0.5 * self.down(" in answer
    assert f"  or one of those before it that could not be run: {broken} forget a module; " in answer
    assert answer.count(" changed: ") == 1
    assert f"skipped {broken} forget a module: the test records nothing: ModuleNotFoundError" in answer


def test_what_makes_no_sense_is_told_with_what_to_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = Repository(tmp_path / "repo")

    status = main([f"{tmp_path}/test_none.py", "--repo", str(repository.folder), "--good", "HEAD"])
    absent = capsys.readouterr().err
    same, _ = repository.bisect(capsys, tmp_path / "home")

    assert (status, same) == (2, 2)
    assert absent.endswith("test_none.py: give TEST as tests/test_port.py::test_llama.\n")
