"""The goldens of a whole run: what was written, what clashes, what no test claims any more."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.environment import environment, lines
from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.goldens.paths import SUFFIX, directory_of, shown
from pytest_tfdebug.goldens.unmatched import warn_of_unmatched
from pytest_tfdebug.options import Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

#: Where a worker of pytest-xdist leaves its part for the process that prints.
WORKER_KEY = "tfdebug_goldens"


@dataclass(frozen=True)
class Outcome:
    """What became of one golden.

    Args:
        path: Its file.
        test: Node id of the test.
        status: ``new``, ``changed``, ``unchanged``, ``checked`` or ``failed``.
        review: What changed, in lines.
        note: How the port was called, where that is not how its reference is; a sentence.
        compared: Calls of the golden that a check compared.
        expected: Calls of the golden.
        share: Greatest share of its tolerance that a tensor which agrees has used; None where no tensor was compared.
        worst: Module path of that tensor.
    """

    path: str
    test: str
    status: str
    review: tuple[str, ...]
    note: str = ""
    compared: int = 0
    expected: int = 0
    share: float | None = None
    worst: str = ""


@dataclass
class GoldenSession:
    """The goldens of this process's run, kept in ``config.stash``.

    Args:
        outcomes: What became of each golden, in the order of the tests.
        claims: Golden file -> node id of the test that uses it.
        stale: Goldens whose test no longer exists.
        clashes: Sentences about files that two tests use, and warnings that were asked to be errors.
        pruned: Goldens that were deleted.
        environment: The environment in which a check failed first, in lines.
        rules: Globs of the ini file's tolerances -> None where a check matched it, else a hint on it.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    claims: dict[str, str] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    clashes: list[str] = field(default_factory=list)
    pruned: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)
    rules: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, config: pytest.Config) -> GoldenSession:
        """Return the run's one object."""
        if _SESSION not in config.stash:
            config.stash[_SESSION] = cls()
        return config.stash[_SESSION]

    def add(self, outcome: Outcome) -> None:
        """Note what became of a golden."""
        self.outcomes.append(outcome)

    def note_rule(self, glob: str, missed: str | None) -> None:
        """Note whether a check matched a rule of the ini file: None where it did, else a hint on it."""
        self.rules[glob] = None if missed is None else self.rules.get(glob, missed)

    def note_environment(self, model: torch.nn.Module) -> None:
        """Describe the environment of a failed check, once for the run: another one is the first thing to suspect."""
        if not self.environment:
            self.environment = list(lines(environment(model, with_git=True)))

    def claim(self, path: Path, test: str) -> None:
        """Note that a test uses a file.

        Raises:
            GoldenError: If another test uses it.
        """
        owner = self.claims.setdefault(str(path), test)
        if owner != test:
            raise GoldenError(_clash(str(path), owner, test))

    def merge(self, part: str) -> None:
        """Add what a worker found."""
        data = json.loads(part)
        for outcome in data["outcomes"]:
            self.outcomes.append(Outcome(**{**outcome, "review": tuple(outcome["review"])}))
        for path, test in data["claims"].items():
            owner = self.claims.setdefault(path, test)
            if owner != test:
                self.clashes.append(_clash(path, *sorted((owner, test))))
        self.stale = sorted({*self.stale, *data["stale"]})
        self.environment = self.environment or data["environment"]
        for glob, missed in data["rules"].items():
            self.note_rule(glob, missed)

    def to_json(self) -> str:
        """Return the worker's part."""
        return json.dumps(
            {
                "outcomes": [asdict(item) for item in self.outcomes],
                "claims": self.claims,
                "stale": self.stale,
                "environment": self.environment,
                "rules": self.rules,
            }
        )


_SESSION: pytest.StashKey[GoldenSession] = pytest.StashKey()


def is_active(config: pytest.Config) -> bool:
    """Tell whether the run has anything to do with goldens."""
    return _SESSION in config.stash or Options.of(config).golden_prune


def finish(session: pytest.Session, collected: Sequence[pytest.Item]) -> None:
    """Look for goldens without a test, once the tests have run; a worker hands its part over.

    Args:
        session: The run. It fails if two tests in different workers used one golden.
        collected: Every test that the run collected, those that it then left out too.
    """
    config = session.config
    found = GoldenSession.of(config)
    if collected and not _is_narrowed(config):
        found.stale = sorted(_unclaimed(config, collected, found))
    workeroutput = getattr(config, "workeroutput", None)
    if workeroutput is not None:
        workeroutput[WORKER_KEY] = found.to_json()
        return
    found.stale = [path for path in found.stale if path not in found.claims]
    options = Options.of(config)
    if options.golden == "update" and options.golden_prune:
        found.pruned, found.stale = found.stale, []
        _delete(found.pruned)
    found.clashes += warn_of_unmatched(session, found.rules)
    if found.clashes and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _delete(paths: Sequence[str]) -> None:
    for path in map(Path, paths):
        path.unlink(missing_ok=True)
        if not any(path.parent.iterdir()):
            path.parent.rmdir()


def summary(config: pytest.Config) -> Iterator[str]:
    """Yield the lines of the terminal summary; none when every golden was checked and is in use."""
    found = GoldenSession.of(config)
    written = sorted(
        (item for item in found.outcomes if item.status not in ("checked", "failed")), key=lambda item: item.path
    )
    counts = {status: sum(item.status == status for item in written) for status in ("new", "changed", "unchanged")}
    if written:
        yield ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    for item in written:
        if item.status != "unchanged":
            yield f"  {item.status:<8} {shown(Path(item.path), config)}"
            yield from (f"           {line}" for line in item.review)
    yield from found.clashes
    if found.pruned:
        yield "Deleted, for their tests no longer exist:"
    elif found.stale:
        yield "Goldens whose test no longer exists (--tf-golden=update --tf-golden-prune deletes them):"
    for path in found.pruned or found.stale:
        yield f"  {shown(Path(path), config)}"


def covered(config: pytest.Config) -> Iterator[str]:
    """Yield what the checks that passed have compared, in a line, and how ports were called."""
    passed = [item for item in GoldenSession.of(config).outcomes if item.status == "checked"]
    if not passed:
        return
    compared, expected = sum(item.compared for item in passed), sum(item.expected for item in passed)
    line = f"{_counted(len(passed), 'golden')}: {compared} of {_counted(expected, 'call')} compared"
    measured = [(item.share, item.worst) for item in passed if item.share is not None]
    if measured:
        share, path = max(measured)
        line += f", worst {share:.2g} of tolerance" + (f" at {path}" if share else "")
    yield line
    for note, count in Counter(item.note for item in passed if item.note).items():
        yield f"  {note.removesuffix('.')} ({_counted(count, 'golden')})"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def failed_environment(config: pytest.Config) -> list[str]:
    """Return the environment in which a check failed, in lines; none where nothing failed or ``--tf-env`` told it."""
    return [] if Options.of(config).env else GoldenSession.of(config).environment


def _clash(path: str, first: str, second: str) -> str:
    return (
        f"Two tests write one golden, {path}:\n  {first}\n  {second}\n"
        "Give one of their checks a name=... of its own, or leave out --tf-golden-dir: the default is beside each file."
    )


def _is_narrowed(config: pytest.Config) -> bool:
    """Tell whether the run did not collect all tests of its files, so that a test that is not there may exist."""
    return bool(config.getoption("lf", default=False)) or any("::" in argument for argument in config.args)


def _unclaimed(config: pytest.Config, collected: Sequence[pytest.Item], found: GoldenSession) -> Iterator[str]:
    """Yield the goldens that no test can have written: when in doubt, a golden is in use.

    A golden knows the node id of its test, which begins at the root directory of the run that recorded it. Only the
    file's name and what follows it are the same from wherever pytest is started.
    """
    from pytest_tfdebug.tracing.codec import read_extra

    golden_dir = Options.of(config).golden_dir
    tests = {_portable(item.nodeid) for item in collected}
    files = {file for file, _ in tests}
    for directory in {directory_of(item, golden_dir) for item in collected}:
        for path in directory.glob(f"*/*{SUFFIX}"):
            if str(path) in found.claims:
                continue
            extra: dict[str, Any] | None = read_extra(path)
            recorded = (extra or {}).get("test")
            if not isinstance(recorded, str) or _portable(recorded) in tests:
                continue
            if _portable(recorded)[0] in files or not _exists(recorded.partition("::")[0], directory, config):
                yield str(path)


def _portable(nodeid: str) -> tuple[str, str]:
    file, _, test = nodeid.partition("::")
    return file.rpartition("/")[2], test


def _exists(file: str, directory: Path, config: pytest.Config) -> bool:
    """Tell whether a test file exists, from this run's root directory or another one, or beside its goldens."""
    parts = file.split("/")
    above = [root / file for root in (config.rootpath, *config.rootpath.parents)]
    below = [config.rootpath.joinpath(*parts[start:]) for start in range(1, len(parts))]
    return any(place.exists() for place in (*above, *below, directory.parent / parts[-1]))
