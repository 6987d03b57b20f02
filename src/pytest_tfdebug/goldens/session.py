"""The goldens of a whole run: which were written, which clash, which no test claims any more, and its last lines."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_tfdebug.check_record import BlindRecord  # noqa: TC001 - msgspec reads the annotations
from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.goldens.store.paths import directory_of, golden_mode, golden_name, is_url, shown
from pytest_tfdebug.goldens.store.place import GoldenPlace, LocalDirectory
from pytest_tfdebug.goldens.unclaimed import find_left, find_stale
from pytest_tfdebug.options import Options
from pytest_tfdebug.records import Coverage, Worst  # noqa: TC001 - likewise
from pytest_tfdebug.redaction import printable
from pytest_tfdebug.workers import hand_over, handed_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.goldens.store.remote import RemoteDirectory


#: Where a worker of pytest-xdist leaves its part for the process that prints.
WORKER_KEY = "tfdebug_goldens"
#: Exit statuses of a run that was not stopped.
_ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


@dataclass(frozen=True)
class GoldenOutcome:
    """What became of one golden."""

    path: str
    test: str  # node id of the test
    status: str  # ``new``, ``changed``, ``unchanged``, ``checked`` or ``failed``
    review: tuple[str, ...]  # what changed, in lines
    note: str = ""  # how the port was called, where that is not how its reference is; a sentence
    coverage: Coverage | None = None  # how much of the golden a check compared
    worst: Worst | None = None  # the tensor that agrees and comes closest to its tolerance
    outputs: str = ""  # how each output of the reference was compared
    blind: tuple[BlindRecord, ...] = ()  # what the golden cannot see


class WorkerPart(NamedTuple):
    """What a worker hands over; see :class:`GoldenSession`."""

    outcomes: list[GoldenOutcome]
    claims: dict[str, str]
    stale: list[str]
    left: list[str]


@dataclass
class GoldenSession:
    """The goldens of this process's run, kept in ``config.stash``."""

    outcomes: list[GoldenOutcome] = field(default_factory=list)  # what became of each golden, in the order of the tests
    claims: dict[str, str] = field(default_factory=dict)  # golden file -> node id of the test that uses it
    stale: set[str] = field(default_factory=set)  # goldens whose test no longer exists
    left: set[str] = field(default_factory=set)  # sentences about folders of goldens whose test file is gone
    clashes: list[str] = field(default_factory=list)  # sentences about files that two tests use, or that cannot go
    pruned: list[str] = field(default_factory=list)  # goldens that were deleted
    _owners: dict[str, str] = field(default_factory=dict)
    _remote: dict[str, RemoteDirectory] = field(default_factory=dict)

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

    def _directory(self, item: pytest.Item) -> LocalDirectory | RemoteDirectory:
        golden_dir = Options.of(item.config).golden_dir
        if golden_dir is None or not is_url(golden_dir):
            return LocalDirectory(directory_of(item.path, item.config, golden_dir))
        if golden_dir not in self._remote:
            from pytest_tfdebug.goldens.store.remote import RemoteDirectory

            self._remote[golden_dir] = RemoteDirectory(golden_dir)
        return self._remote[golden_dir]

    def merge(self, part: WorkerPart) -> None:
        """Add what another process did for tests of this one."""
        self.outcomes += part.outcomes
        self.clashes += filter(None, [self.claim(path, test) for path, test in part.claims.items()])


_SESSION: pytest.StashKey[GoldenSession] = pytest.StashKey()


def is_active(config: pytest.Config) -> bool:
    """Tell whether the run has anything to do with goldens."""
    return _SESSION in config.stash or Options.of(config).golden_prune


def finish(session: pytest.Session) -> None:
    """Look for goldens without a test once the tests have run; a worker hands over its part."""
    config = session.config
    options, found = Options.of(config), GoldenSession.of(config)
    if session.exitstatus in _ENDED:
        found.stale.update(find_stale(config, options.golden_dir))
        found.left.update(find_left(config, options.golden_dir))
    if hand_over(config, WORKER_KEY, WorkerPart(found.outcomes, found.claims, [*found.stale], [*found.left])):
        return
    found.stale -= found.claims.keys()
    if golden_mode(config) == "update" and options.golden_prune and session.exitstatus in _ENDED:
        found.pruned, found.stale = sorted(found.stale), set()
        found.clashes += _delete(found.pruned)
    if found.clashes and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def take_over(config: pytest.Config, node: Any) -> None:  # noqa: ANN401 - a worker of pytest-xdist
    """Take over what a worker did with goldens."""
    part = handed_over(node, WORKER_KEY, WorkerPart)
    if part is not None:
        found = GoldenSession.of(config)
        found.merge(part)
        found.stale.update(part.stale)
        found.left.update(part.left)


def _delete(paths: list[str]) -> Iterator[str]:
    """Delete goldens and the folders that this empties; yield a sentence for each that stays, and drop it."""
    for path in map(Path, tuple(paths)):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            paths.remove(str(path))
            yield f"{printable(str(path))} cannot be deleted: {error.strerror}."
        with suppress(OSError):  # it holds other files
            path.parent.rmdir()


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
    if found.pruned:
        yield "Deleted, because their tests no longer exist:"
    elif found.stale:
        yield "Goldens whose test no longer exists (--tf-golden=update --tf-golden-prune deletes them):"
    for path in found.pruned or sorted(found.stale):
        yield f"  {shown(path, config)}"
    if found.left:
        yield "No test of this run uses these; they are never deleted:"
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
            yield f"  {item.test} cannot see:"
            yield from (f"    {spot.told}: {spot.why}; {spot.value} shows it" for spot in item.blind)
        else:
            named = listed([f"{spot.told} ({spot.value} shows it)" for spot in item.blind], 3)
            yield f"  {item.test} cannot see {named}"
    if len(blind) > _BLIND and not is_verbose:
        yield f"  {counted(len(blind) - _BLIND, 'golden')} more cannot see something (-v)"
