"""Where each version is run: an environment or a tree of files of its own. Nothing of the user's is touched."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.git import GitError, git

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LISTED = re.compile(r"Available versions: (.+)")
#: A directory is whole once this file is in it: one that was interrupted is made again.
_WHOLE = ".whole"


class PlaceError(Exception):
    """A version cannot be run here; the message says why, in a line."""


@dataclass(frozen=True)
class VersionPlace:
    """What a version is run with."""

    python: str  # the interpreter
    test: str  # node id of the test, which begins with its file
    environment: dict[str, str]  # of the process


class VersionLine(Protocol):
    """A line of versions."""

    @property
    def versions(self) -> Sequence[str]:
        """The versions, the oldest first."""

    def place(self, version: str) -> VersionPlace:
        """Make what a version is run with; a PlaceError where it cannot be made."""

    def title(self, version: str) -> str:
        """Return a version as it is told."""

    def is_of_another(self, version: str, provenance: Mapping[str, object]) -> str:
        """Say that a golden was recorded with another version; empty where it was not, or that is not known."""


@dataclass(frozen=True)
class Releases:
    """The releases of a package."""

    package: str
    versions: Sequence[str]
    test: str
    home: Path  # where the environments are kept

    @classmethod
    def between(cls, package: str, good: str, bad: str, test: str, home: Path) -> Releases:
        """Return the releases of a package from one to another."""
        done = _run([*_PIP, "index", "versions", package])
        found = _LISTED.search(done.stdout)
        if found is None:
            raise TFDebugError(f"pip lists no version of {package!r}: {_last_line(done)}")
        known = found[1].split(", ")
        missing = [each for each in (good, bad) if each not in known]
        if missing:
            raise TFDebugError(f"{package} has no release {missing[0]}; the newest is {known[0]}.")
        first, last = known.index(good), known.index(bad)
        if first <= last:
            raise TFDebugError(f"--good {good} is not older than --bad {bad}.")
        return cls(package, known[last : first + 1][::-1], test, home)

    def title(self, version: str) -> str:
        """Return a release with its package."""
        return f"{self.package} {version}"

    def is_of_another(self, version: str, provenance: Mapping[str, object]) -> str:
        """Say which other release a golden was recorded with."""
        ran = provenance.get(self.package)
        return "" if ran in (None, version) else f"its environment imports {self.package} {ran}"

    def place(self, version: str) -> VersionPlace:
        """Make a virtual environment of a release, which sees the packages of this one where it has none itself."""
        folder = self.home / f"{self.package}-{version}"
        python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
        if not (folder / _WHOLE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            self._install(folder, python, version)
            (folder / _WHOLE).touch()
        return VersionPlace(str(python), self.test, {**os.environ})

    def _install(self, folder: Path, python: Path, version: str) -> None:
        uv = shutil.which("uv")
        made = [uv, "venv", "-q", "--python", sys.executable] if uv else [sys.executable, "-m", "venv", "--without-pip"]
        wanted = f"{self.package}=={version}"
        pip = [*_PIP, "--python", str(python), "install", "-q"]
        install = [uv, "pip", "install", "-q", "--python", str(python)] if uv else pip
        for command in ([*made, str(folder)], None, [*install, wanted]):
            if command is None:
                _see_through(python)
                continue
            done = _run(command)
            if done.returncode:
                raise PlaceError(f"{wanted} does not install: {_last_line(done)}")


def _see_through(python: Path) -> None:
    """Let an environment see the packages of this one, after its own."""
    done = _run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    Path(done.stdout.strip(), "seen.pth").write_text(line, encoding="utf-8")


@dataclass(frozen=True)
class Commits:
    """The commits of a repository."""

    repo: Path
    versions: Sequence[str]
    test: str
    home: Path  # where the trees are kept

    @classmethod
    def between(cls, repo: Path, good: str, bad: str, test: str, home: Path) -> Commits:
        """Return the commits from one to another, of several parents the first."""
        try:
            ends = [
                git(repo, "rev-parse", "--verify", "--end-of-options", f"{rev}^{{commit}}").decode().strip()
                for rev in (good, bad)
            ]
            listed = git(repo, "rev-list", "--first-parent", "--reverse", f"{ends[0]}..{ends[1]}").decode().split()
            top = git(repo, "rev-parse", "--show-toplevel").decode().strip()
        except GitError as error:
            raise TFDebugError(f"{repo}: {error}") from error
        if not listed:
            raise TFDebugError(f"No commit lies between --good {good} and --bad {bad}.")
        return cls(Path(top), [ends[0], *listed], test, home)

    def title(self, version: str) -> str:
        """Return a commit, abbreviated, with its subject."""
        return git(self.repo, "log", "-1", "--format=%h %s", version).decode().strip()

    def is_of_another(self, version: str, provenance: Mapping[str, object]) -> str:  # noqa: ARG002 - of every line
        """Tell nothing: a golden does not know the commit of what it was recorded with."""
        return ""

    def place(self, version: str) -> VersionPlace:
        """Write the files of a commit; the test is the present one."""
        tree = self.home / version
        if not (tree / _WHOLE).exists():
            shutil.rmtree(tree, ignore_errors=True)
            try:
                archive = git(self.repo, "archive", version)
            except GitError as error:
                raise PlaceError(f"git cannot write its files: {error}") from error
            with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
                packed.extractall(tree, filter="data")
            (tree / _WHOLE).touch()
        file, _, rest = self.test.partition("::")
        own = Path(file).resolve()
        if own.is_relative_to(self.repo):
            there = tree / own.relative_to(self.repo)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(own, there)
            own = there
        paths = [str(tree / "src"), str(tree), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        return VersionPlace(sys.executable, f"{own}::{rest}" if rest else str(own), environment)


_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def _run(command: Sequence[str | None]) -> subprocess.CompletedProcess[str]:
    given = [part for part in command if part is not None]
    return subprocess.run(given, check=False, capture_output=True, text=True)  # noqa: S603 - a command of our own


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (*done.stdout.splitlines(), *done.stderr.splitlines()) if line.strip()]
    return next((line for line in lines if line.startswith("ERROR:")), lines[-1] if lines else "it said nothing")
