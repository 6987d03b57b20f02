"""The lines on goldens at the end of a run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_tfdebug.environment import lines
from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.goldens.session.session import GoldenSession
from pytest_tfdebug.goldens.store.paths import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

    from pytest_tfdebug.goldens.session.session import GoldenOutcome

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
        yield "Deleted, for their tests no longer exist:"
    elif found.unclaimed.stale:
        yield "Goldens whose test no longer exists (--tf-golden=update --tf-golden-prune deletes them):"
    for path in found.pruned or found.unclaimed.stale:
        yield f"  {shown(path, config)}"
    if found.unclaimed.left:
        yield "No test of this run uses these; they are never deleted:"
        yield from (f"  {line}" for line in found.unclaimed.left)


def covered(config: pytest.Config) -> Iterator[str]:
    """Yield what the checks that passed have compared, in a line, and how ports were called."""
    passed = [item for item in GoldenSession.of(config).outcomes if item.status == "checked"]
    if not passed:
        return
    compared, expected = sum(item.compared for item in passed), sum(item.expected for item in passed)
    line = f"{counted(len(passed), 'golden')}: {compared} of {counted(expected, 'call')} compared"
    measured = [(item.share, item.worst) for item in passed if item.share is not None]
    if measured:
        share, path = max(measured)
        line += f", worst {share:.2g} of tolerance" + (f" at {path}" if share else "")
    yield line
    if config.get_verbosity() > 0:
        for told, count in Counter(item.outputs for item in passed if item.outputs).items():
            yield f"  Outputs: {told} ({counted(count, 'golden')})"
    for note, count in Counter(item.note for item in passed if item.note).items():
        yield f"  {note.removesuffix('.')} ({counted(count, 'golden')})"
    yield from _unseen([item for item in passed if item.blind], is_verbose=config.get_verbosity() > 0)


def _unseen(outcomes: Sequence[GoldenOutcome], *, is_verbose: bool) -> Iterator[str]:
    """Yield which fields of a configuration the goldens cannot see: a line each, or a table."""
    for item in outcomes if is_verbose else outcomes[:_BLIND]:
        if is_verbose:
            yield f"  {item.test} cannot see:"
            yield from (f"    {spot.field}={spot.own}: {spot.why}; {spot.value} shows it" for spot in item.blind)
        else:
            named = listed([f"{spot.field}={spot.own} ({spot.value} shows it)" for spot in item.blind], 3)
            yield f"  {item.test} cannot see {named}"
    if len(outcomes) > _BLIND and not is_verbose:
        yield f"  {counted(len(outcomes) - _BLIND, 'golden')} more cannot see some field (-v)"


def failed_environment(config: pytest.Config) -> list[str]:
    """Return the environment in which a check failed, in lines, for ``-vv``.

    What differs from the golden's environment stands in the report of each failure.
    """
    failed_in = GoldenSession.of(config).environment
    return list(lines(failed_in)) if failed_in is not None and config.get_verbosity() > 1 else []
