"""Goldens that wait to be reviewed: where they are, what they would change, and how they are accepted."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import GoldenError, TFDebugError
from pytest_tfdebug.goldens.paths import is_url
from pytest_tfdebug.goldens.place import PENDING, Directory, LocalDirectory, Place
from pytest_tfdebug.records import as_they_ended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.records import LeafComparison
    from pytest_tfdebug.tracing.codec import TraceFile

#: Directories that hold no goldens of a project.
_FOREIGN = frozenset({"node_modules", "site-packages", "__pycache__"})
#: Tensors and parameters that are listed by name; the others are counted.
_NAMED = 3


@dataclass(frozen=True)
class Pending:
    """A golden that waits to be reviewed.

    Args:
        place: The golden's place; what waits is beside it.
    """

    place: Place

    def accept(self) -> None:
        """Put it in the place of the golden, in one step.

        Raises:
            GoldenError: If it is damaged, or the golden cannot be written.
        """
        _read(self.place.pending)
        self.place.directory.put(self.place.name, self.place.pending.fetch())
        self.place.drop_pending()

    def reject(self) -> None:
        """Delete it; the golden stays as it is."""
        self.place.drop_pending()

    def test(self) -> str:
        """Return the node id of its test."""
        return str(_read(self.place.pending).extra["test"])

    def changes(self) -> Iterator[str]:
        """Yield what accepting it would change, a line each.

        Raises:
            GoldenError: If it cannot be read.
        """
        new = _read(self.place.pending)
        yield f"test: {new.extra['test']}"
        if not self.place.exists():
            outputs = sum(record.tensor is not None for record in new.trace.records())
            yield f"new: there is no golden yet; {len(new.trace.calls)} calls, {outputs} tensors"
            return
        try:
            old = _read(self.place)
        except GoldenError as error:
            yield f"the golden cannot be read: {error}"
            return
        yield from _moved(old, new)
        yield from _errors(self.place.pending_errors)
        yield from _circumstances(old, new)


def find_pending(where: str) -> Iterator[Pending]:
    """Yield the goldens that wait in a directory, a file or a URL, in order.

    Raises:
        GoldenError: If there is no such directory.
    """
    if is_url(where):
        from pytest_tfdebug.goldens.remote import RemoteDirectory

        remote = RemoteDirectory(where)
        yield from (_pending(remote, name) for name in remote.find(PENDING))
        return
    path = Path(where)
    if path.is_file():
        name = path.name if path.name.endswith(PENDING) else f"{path.name}{PENDING}"
        yield from [_pending(LocalDirectory(path.parent), name)] if (path.parent / name).is_file() else []
        return
    if not path.is_dir():
        raise GoldenError(f"{where} is no directory.")
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _FOREIGN)
        yield from (_pending(LocalDirectory(Path(folder)), name) for name in sorted(files) if name.endswith(PENDING))


def _pending(directory: Directory, name: str) -> Pending:
    return Pending(Place(directory, name.removesuffix(PENDING)))


def _read(place: Place) -> TraceFile:
    from pytest_tfdebug.goldens.store import load

    if not place.exists():
        raise GoldenError(f"{place} does not exist.")
    file = place.fetch()
    with place.names(file):
        return load(file)


def note_errors(place: Place, old: ParityReport, new: ParityReport) -> None:
    """Note how far a port is from its reference's golden and from the one that waits beside it."""
    with place.pending_errors.staged(place.pending_errors) as file:
        file.write_text(json.dumps({"old": _verdict(old), "new": _verdict(new)}))


def _errors(place: Place) -> Iterator[str]:
    if place.exists():
        try:
            noted = json.loads(place.fetch().read_bytes())
            yield f"the port with the golden in use: {noted['old']}"
            yield f"the port with the new golden: {noted['new']}"
        except (OSError, ValueError, KeyError, TypeError):  # the note is for people; the goldens decide
            return


def _moved(old: TraceFile, new: TraceFile) -> Iterator[str]:
    """Yield which tensors have other values, the first module of them, and how these stand to what is allowed."""
    from pytest_tfdebug.parity.compare import compare

    try:
        report = compare(old.trace, new.trace, internal="fail")
    except TFDebugError as error:
        yield f"nothing of the two can be compared: {error}"
        return
    moved = [(item, leaf) for item in as_they_ended(report.calls) for leaf in item.outputs if _has_moved(leaf)]
    count = sum(len(item.outputs) for item in report.calls)
    if not moved:
        yield f"moved: none of {count} outputs"
    else:
        first = moved[0][0]
        yield f"moved: {len(moved)} of {count} outputs, first {first.call.path!r} ({first.call.class_name})"
        yield _verdict(report)
        worst = sorted(moved, key=lambda pair: -_relative(pair[1]))[:_NAMED]
        yield from (f"  {item.call.name} output {leaf.leaf}".rstrip() + f": {_told(leaf)}" for item, leaf in worst)
    gone, added = ({call.name for call in side.trace.calls} for side in (old, new))
    if gone != added:
        yield f"calls: {len(gone - added)} gone, {len(added - gone)} new"


def _verdict(report: ParityReport) -> str:
    if report.culprit is None:
        worst = report.worst
        return "inside tolerance" + (f": at most {worst.share:.2g} of it, at {worst.path!r}" if worst else "")
    culprit = report.culprit
    return f"outside tolerance: {len(report.divergences)} tensors, from {culprit.path!r} ({culprit.kind}) on"


def _has_moved(leaf: LeafComparison) -> bool:
    return bool(leaf.problem) or (leaf.metrics is not None and leaf.metrics.max_abs > 0)


def _relative(leaf: LeafComparison) -> float:
    return leaf.metrics.relative_l2 if leaf.metrics is not None else float("inf")


def _told(leaf: LeafComparison) -> str:
    metrics = leaf.metrics
    if metrics is None:
        return f"{leaf.problem} differs"
    return (
        f"greatest difference {metrics.max_abs:.3g} ({metrics.allowed:.1e} allowed), relative L2 "
        f"{metrics.relative_l2:.2e}"
    )


def _circumstances(old: TraceFile, new: TraceFile) -> Iterator[str]:
    """Yield what differs in the weights and the environment."""
    from pytest_tfdebug.goldens.provenance import changes

    before, now = old.extra["weights"], new.extra["weights"]
    other = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if other:
        more = f" and {len(other) - _NAMED} more" if len(other) > _NAMED else ""
        yield f"weights: {', '.join(map(repr, other[:_NAMED]))}{more} differ"
    else:
        yield f"weights: all {len(now)} are the same"
    since = "; ".join(changes(old.extra["provenance"], new.extra["provenance"]))
    yield f"environment: {since or 'the same'}"
