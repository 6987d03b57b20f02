"""``tfdebug bisect TEST``: name every release or commit that changed a result, and the lines that did."""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfdebug.bisect.history import History, ResultChange
from pytest_tfdebug.bisect.places import Commits, Releases
from pytest_tfdebug.bisect.probe import Probe
from pytest_tfdebug.errors import TFDebugError, listed
from pytest_tfdebug.redaction import leaving

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.bisect.places import VersionLine

_WORDS = {"renamed": "renamed (harmless)", "inside": "computes otherwise inside (harmless)", "changed": "changed"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what changed and where; 0 where something did, 1 where nothing did, 2 for what makes no sense."""
    chosen = _parser().parse_args(arguments)
    try:
        for line in _answer(chosen, *_line(chosen)):
            sys.stdout.write(leaving(line, keep="\n") + "\n")
    except TFDebugError as error:
        sys.stderr.write(leaving(f"error: {error}", keep="\n") + "\n")
        return 2
    except _NothingChanged as nothing:
        sys.stdout.write(f"{nothing}\n")
        return 1
    return 0


class _NothingChanged(Exception):  # noqa: N818 - an answer
    """Both ends give the same."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tfdebug bisect",
        description="Name every release or commit that changed what the models of a test compute.",
        epilog="An interrupted bisect goes on where it was.",
    )
    parser.add_argument("test", metavar="TEST", help="a test with a golden check: tests/test_port.py::test_llama")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--package", metavar="NAME", help="try the releases of this package: transformers")
    what.add_argument("--repo", metavar="DIR", type=Path, help="try the commits of this repository")
    parser.add_argument("--good", required=True, metavar="VERSION", help="a release or revision with the old result")
    parser.add_argument("--bad", metavar="VERSION", help="one with the new result (what is installed, or HEAD)")
    parser.add_argument("--dir", metavar="DIR", type=Path, help="where environments and goldens are kept")
    return parser


def _line(chosen: argparse.Namespace) -> tuple[VersionLine, Path]:
    """Return the line of versions, and where their goldens are kept."""
    file = Path(chosen.test.partition("::")[0])
    if not file.is_file():
        raise TFDebugError(f"there is no test file {file}: give TEST as tests/test_port.py::test_llama.")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    home = (chosen.dir or cache / "pytest-tfdebug" / "bisect").resolve()
    among = chosen.package or str(chosen.repo.resolve())
    key = hashlib.sha256(f"{file.resolve()}\0{chosen.test}\0{among}\0".encode() + file.read_bytes()).hexdigest()[:16]
    if chosen.repo is not None:
        trees, bad = home / "trees" / key, chosen.bad or "HEAD"
        return Commits.between(chosen.repo, chosen.good, bad, chosen.test, trees), home / key
    try:
        bad = chosen.bad or metadata.version(chosen.package)
    except metadata.PackageNotFoundError as error:
        raise TFDebugError(
            f"{chosen.package} is not installed: say which release gives the new result, --bad."
        ) from error
    environments = home / "environments"
    return Releases.between(chosen.package, chosen.good, bad, chosen.test, environments), home / key


def _answer(chosen: argparse.Namespace, line: VersionLine, home: Path) -> Iterator[str]:
    from tqdm import tqdm

    versions = line.versions
    with tqdm(total=2 + math.ceil(math.log2(len(versions))), desc="tfdebug bisect", unit="run", leave=False) as bar:

        def tell(version: str) -> None:
            bar.set_postfix_str(version[:12])
            bar.total = max(bar.total, bar.n + 1)
            bar.update()

        probe = Probe(line, home, tell)
        history = History(versions, probe.run, probe.hold)
        for place, option in ((0, f"--good {chosen.good}"), (len(versions) - 1, f"--bad {chosen.bad or versions[-1]}")):
            if not history.is_usable(place):
                raise TFDebugError(f"{option} cannot be run: {history.skipped[versions[place]]}.")
        changes = [
            replace(change, outcome=probe.hold(change.before, change.after, is_explained=True))
            for change in history.changes()
        ]
    for version, reason in history.skipped.items():
        yield f"skipped {line.title(version)}: {reason}"
    if not changes:
        raise _NothingChanged(
            f"Nothing changed: what {line.title(versions[-1])} computes is what {line.title(versions[0])} did."
        )
    for change in changes:
        yield from _told(line, change)
    for change in changes:
        if change.outcome.report:
            yield ""
            yield f"{line.title(change.after)}, held to {line.title(change.before)}:"
            yield change.outcome.report


def _told(line: VersionLine, change: ResultChange) -> Iterator[str]:
    outcome, after, before = change.outcome, line.title(change.after), line.title(change.before)
    if change.is_spread:
        yield f"between {before} and {after} it drifts, and no step is enough by itself: {outcome.told}"
        return
    yield f"{after} {_WORDS[outcome.kind]}: {outcome.told}"
    if change.skipped:
        between = listed([line.title(each) for each in change.skipped], 3)
        yield f"  or one of those before it that could not be run: {between}; {before} has the old result"


if __name__ == "__main__":
    raise SystemExit(main())
