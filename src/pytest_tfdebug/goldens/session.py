"""The goldens of a whole run: which were written, which clash, which no test claims any more, and its last lines.

A golden is listed as stale only if all of these hold: its recorded test was in a file of this project that this run
has collected whole, that file no longer has the test nor the name of its function, and no code makes names of tests
there: another environment may give the test other parameters, or define it at all. A golden outside the project, or
behind a symlink, may belong to another project. Nothing is deleted: ``git rm`` does that.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.check_record import BlindRecord  # noqa: TC001 - msgspec reads the annotations
from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.goldens.place import (
    SUFFIX,
    GoldenPlace,
    RemoteDirectory,
    directory_of,
    folder_of_file,
    golden_name,
    is_url,
    label_of,
    shown,
)
from pytest_tfdebug.options import Options
from pytest_tfdebug.records import Coverage, Worst  # noqa: TC001 - likewise
from pytest_tfdebug.redaction import printable
from pytest_tfdebug.running import Collected, hand_over, handed_over

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Where a worker of pytest-xdist leaves its part for the process that prints.
WORKER_KEY = "tfdebug_goldens"
#: Exit statuses of a run that was not stopped.
_ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


@dataclass(frozen=True)
class GoldenOutcome:
    """What became of one golden."""

    path: str
    test: str  # node id of the test
    status: str  # ``new``, ``changed``, ``unchanged`` (such a file is left alone), ``checked`` or ``failed``
    review: tuple[str, ...]  # what changed, in lines
    note: str = ""  # how the port was called, where that is not how its reference is; a sentence
    coverage: Coverage | None = None  # how much of the golden a check compared
    worst: Worst | None = None  # the tensor that agrees and comes closest to its tolerance
    outputs: str = ""  # how each output of the reference was compared
    blind: tuple[BlindRecord, ...] = ()  # what the golden cannot see
    size: int = 0  # bytes of the file that was written or left alone


@dataclass
class GoldenSession:
    """The goldens of this process's run, kept in ``config.stash``; a worker hands it over as it is."""

    outcomes: list[GoldenOutcome] = field(default_factory=list)  # what became of each golden, in the order of the tests
    claims: dict[str, str] = field(default_factory=dict)  # golden file -> node id of the test that uses it
    stale: set[str] = field(default_factory=set)  # goldens whose test no longer exists
    left: set[str] = field(default_factory=set)  # sentences about folders of goldens whose test file is gone
    clashes: list[str] = field(default_factory=list)  # sentences about files that two tests use

    def __post_init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._remote: dict[str, RemoteDirectory] = {}

    @classmethod
    def of(cls, config: pytest.Config) -> GoldenSession:
        """Return the run's one object."""
        return config.stash.setdefault(_SESSION, cls())

    def claim(self, path: str, test: str) -> str:
        """Note that a test uses a file; return a sentence if another test does, empty otherwise."""
        self.claims.setdefault(path, test)
        owner = self._owners.setdefault(path.casefold(), test)  # some file systems ignore case
        if owner == test:
            return ""
        tests = "\n  ".join(sorted((owner, test)))
        return (
            f"Two tests write one golden, {path}:\n  {tests}\n"
            "Give one of their checks its own name=..., or leave out --tf-golden-dir: the default is beside each file."
        )

    def place(self, item: pytest.Item, name: str | None, variants: tuple[str, ...], *, is_new: bool) -> GoldenPlace:
        """Return where a test's golden is kept: the first variant that exists, else the plain golden."""
        directory = self._directory(item)
        special = [GoldenPlace(directory, golden_name(item, name, variant=it)) for it in variants]
        plain = GoldenPlace(directory, golden_name(item, name))
        return special[0] if is_new else next((place for place in special if place.exists()), plain)

    def _directory(self, item: pytest.Item) -> Path | RemoteDirectory:
        golden_dir = Options.of(item.config).golden_dir
        if golden_dir is None or not is_url(golden_dir):
            return directory_of(item.path, item.config, golden_dir)
        if golden_dir not in self._remote:
            self._remote[golden_dir] = RemoteDirectory(golden_dir)
        return self._remote[golden_dir]

    def merge(self, other: GoldenSession) -> None:
        """Add what another process did for tests of this one."""
        self.outcomes += other.outcomes
        self.clashes += filter(None, [self.claim(path, test) for path, test in other.claims.items()])
        self.stale |= other.stale
        self.left |= other.left


_SESSION: pytest.StashKey[GoldenSession] = pytest.StashKey()


def is_active(config: pytest.Config) -> bool:
    """Tell whether the run has anything to do with goldens."""
    return _SESSION in config.stash or Options.of(config).golden == "update"


def finish(session: pytest.Session) -> None:
    """Look for goldens without a test once the tests have run; a worker hands over its part."""
    config = session.config
    options, found = Options.of(config), GoldenSession.of(config)
    if session.exitstatus in _ENDED:
        found.stale.update(find_stale(config, options.golden_dir))
        found.left.update(find_left(config, options.golden_dir))
    if hand_over(config, WORKER_KEY, found):
        return
    found.stale -= found.claims.keys()
    if found.clashes and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def take_over(config: pytest.Config, node: Any) -> None:  # noqa: ANN401 - a worker of pytest-xdist
    """Take over what a worker did with goldens."""
    other = handed_over(node, WORKER_KEY, GoldenSession)
    if other is not None:
        GoldenSession.of(config).merge(other)


@dataclass
class _TestFile:
    path: Path
    nodeid: str
    tests: dict[str, str] = field(default_factory=dict)  # with the names of their goldens

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
        labels = {label for file in files for label in file.tests.values()}
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
        if item.path in files:
            files[item.path].tests[item.nodeid.partition("::")[2]] = label_of(item)
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


#: What became of goldens that a run wrote.
_WRITTEN = ("new", "changed", "unchanged")
#: Goldens that are named with what they cannot see; ``-v`` names them all.
_BLIND = 5


def summary(config: pytest.Config) -> Iterator[str]:
    """Yield the lines of the terminal summary; none when every golden was checked and is in use."""
    found = GoldenSession.of(config)
    written = sorted((item for item in found.outcomes if item.status in _WRITTEN), key=lambda item: item.path)
    counts = {status: sum(item.status == status for item in written) for status in _WRITTEN}
    if written:
        yield ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    for item in written:
        if item.status != "unchanged":
            yield f"  {item.status:<8} {shown(item.path, config)}"
            yield from (f"           {line}" for line in item.review)
    yield from found.clashes
    if found.stale:
        yield "Goldens whose test no longer exists (git rm deletes them):"
    for path in sorted(found.stale):
        yield f"  {shown(path, config)}"
    if found.left:
        yield "No test of this run uses these:"
        yield from (f"  {line}" for line in sorted(found.left))


def covered(config: pytest.Config) -> Iterator[str]:
    """Yield what the checks that passed have compared, in a line, and how ports were called."""
    passed = [item for item in GoldenSession.of(config).outcomes if item.status == "checked"]
    if not passed:
        return
    found = [item.coverage for item in passed if item.coverage is not None]
    whole = [each for each in found if not each.is_of_outputs]
    compared, expected = sum(each.compared for each in whole), sum(each.expected for each in whole)
    parts = [f"{compared} of {counted(expected, 'call')} compared"] if whole else []
    if len(whole) < len(found):  # by value: their modules have names of their own
        some = f" of {len(found) - len(whole)}" if whole else ""
        parts.append(f"outputs{some} compared (the modules inside have other names)")
    line = f"{counted(len(passed), 'golden')}: {', '.join(parts) or '0 of 0 calls compared'}"
    measured = [item.worst for item in passed if item.worst is not None]
    if measured:
        worst = max(measured, key=lambda each: each.share)
        line += f", worst {worst.share:.2g} of tolerance" + (f" at {worst.path}" if worst.share else "")
    yield line
    is_verbose, blind = config.get_verbosity() > 0, [item for item in passed if item.blind]
    if is_verbose:
        for told, count in Counter(item.outputs for item in passed if item.outputs).items():
            yield f"  Outputs: {told} ({counted(count, 'golden')})"
    for note, count in Counter(item.note for item in passed if item.note).items():
        yield f"  {note.removesuffix('.')} ({counted(count, 'golden')})"
    for item in blind if is_verbose else blind[:_BLIND]:
        if is_verbose:
            yield f"  {item.test} would pass for a port that ignores:"
            yield from (f"    {spot.told}: {spot.why}; use {spot.value}" for spot in item.blind)
        else:
            named = listed([spot.in_short for spot in item.blind], 3)
            yield f"  {item.test} would pass for a port that ignores {named}"
    if len(blind) > _BLIND and not is_verbose:
        yield f"  {counted(len(blind) - _BLIND, 'golden')} more cannot see something (-v)"
