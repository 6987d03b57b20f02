"""Goldens that no test can have written any more.

A golden is deleted only if all of these hold: its recorded test was in a file of this project that this run has
collected whole, that file no longer has the test nor the name of its function, and no code makes names of tests there:
another environment may give the test other parameters, or define it at all. A golden outside the project, or behind a
symlink, may belong to another project.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import counted
from pytest_tfdebug.goldens.store.paths import SUFFIX, directory_of, folder_of_file, is_url, label_of, shown
from pytest_tfdebug.redaction import printable
from pytest_tfdebug.running import Collected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest


@dataclass
class _TestFile:
    path: Path
    nodeid: str
    tests: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)

    def has_lost(self, recorded: str, *, is_beside: bool) -> bool:
        """Tell whether a recorded test was in this file and no longer is.

        A node id begins at the root directory of the run that recorded it. A golden beside a test file belongs to that
        file, whatever the root was; a golden elsewhere needs the very same node id.
        """
        file, _, test = recorded.partition("::")
        one, other = f"/{file}", f"/{self.nodeid}"
        is_same = one == other or (is_beside and (one.endswith(other) or other.endswith(one)))
        return is_same and test not in self.tests

    def may_define(self, recorded: str) -> bool:
        """Tell whether the file may have a recorded test in another environment.

        It does if the names of its function and class stand there still, or if those of a test that it has now do not:
        they are made by code (a loop, a class of another file), which may make others elsewhere.
        """
        return self._names(recorded.partition("::")[2]) or not all(map(self._names, self.tests))

    def _names(self, test: str) -> bool:
        names = test.partition("[")[0].split("::")
        return all(re.search(rf"\b{re.escape(name)}\b", self._text) for name in names)

    @cached_property
    def _text(self) -> str:
        return self.path.read_text(encoding="utf-8", errors="replace")


def find_stale(config: pytest.Config, golden_dir: str | None) -> Iterator[str]:
    """Yield the goldens of the test files that this run has collected whole whose test is gone."""
    folders: dict[Path, list[_TestFile]] = {}
    for path, file in _test_files(config).items() if not is_url(golden_dir) else ():  # which other projects may share
        folders.setdefault(folder_of_file(path, config, golden_dir), []).append(file)
    for folder, files in folders.items():
        labels = {label for file in files for label in file.labels}
        unnamed = [path for path in _goldens(folder) if not _is_label_of(path.name.removesuffix(SUFFIX), labels)]
        if folder.resolve().is_relative_to(config.rootpath.resolve()):
            yield from (str(path) for path in unnamed if _is_stale(path, files, is_beside=golden_dir is None))


def find_left(config: pytest.Config, golden_dir: str | None) -> Iterator[str]:
    """Yield a sentence for each folder of goldens whose test file is not there: nobody collected it, so they stay."""
    collected = Collected.of(config).whole(config) if golden_dir is None else ()
    for directory in {directory_of(file, config, None) for file in collected}:
        known = {folder_of_file(file, config, None) for file in directory.parent.glob("*.py")}
        for folder in sorted({path.parent for path in directory.glob(f"*/*{SUFFIX}")} - known):
            held = counted(len(_goldens(folder)), "golden")
            yield f"{shown(folder, config)} ({held}): there is no {printable(folder.name)}.py beside its directory."


def _test_files(config: pytest.Config) -> dict[Path, _TestFile]:
    collected = Collected.of(config)
    files = {path: _TestFile(path, nodeid) for path, nodeid in collected.whole(config).items()}
    for item in collected.items:
        file = files.get(item.path)
        if file is not None:
            file.tests.add(item.nodeid.partition("::")[2])
            file.labels.add(label_of(item))
    return files


def _goldens(folder: Path) -> list[Path]:
    """Return the files that are named like goldens; none of a folder that is a symlink."""
    if folder.is_symlink() or folder.parent.is_symlink():
        return []
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_file() and not path.is_symlink())


def _is_stale(path: Path, files: list[_TestFile], *, is_beside: bool) -> bool:
    """Tell whether a golden's test is certainly gone from one of some files."""
    from pytest_tfdebug.tracing.file.codec import read_extra

    test = (read_extra(path) or {}).get("test")
    gone = [file for file in files if isinstance(test, str) and file.has_lost(test, is_beside=is_beside)]
    return bool(gone) and not any(file.may_define(str(test)) for file in gone)


def _is_label_of(label: str, labels: set[str]) -> bool:
    """Tell whether a golden is named after one of the tests, perhaps with a name or a variant at its end."""
    ends = (place for place, character in enumerate(label) if character in ".@")
    return label in labels or any(label[:end] in labels for end in ends)
