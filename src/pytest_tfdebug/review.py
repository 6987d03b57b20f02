"""``tfdebug review [REV]``: say in words how the goldens of this directory differ from a git revision."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import GoldenError, counted
from pytest_tfdebug.git import GitError, git
from pytest_tfdebug.redaction import leaving

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SUFFIX = ".safetensors"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what differs; 0, or 2 where a revision or a file cannot be read."""
    parser = argparse.ArgumentParser(prog="tfdebug review", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("revision", nargs="?", default="HEAD", metavar="REV", help="what to compare with (HEAD)")
    parser.add_argument("--text", metavar="FILE", help="print one golden as text, for git to compare (textconv)")
    chosen = parser.parse_args(arguments)
    try:
        for line in _text(Path(chosen.text)) if chosen.text else _differences(chosen.revision):
            sys.stdout.write(leaving(line) + "\n")
    except (GoldenError, GitError) as error:
        told = str(error) if isinstance(error, GoldenError) else str(error).partition("\n")[0]
        sys.stderr.write(leaving(f"error: {told}", keep="\n") + "\n")
        return 2
    return 0


def _text(file: Path) -> Iterator[str]:
    from pytest_tfdebug.goldens.golden_file import described, load

    yield from described(load(file))


def _differences(revision: str) -> Iterator[str]:
    total = 0
    for name, blob in _changed(revision):
        total += 1
        yield name
        yield from (f"  {line}" for line in _told(name, blob))
    told = f"{counted(total, 'golden')} differ{'s' if total == 1 else ''} from {revision}."
    yield told if total else f"No golden here differs from {revision}."


def _changed(revision: str) -> Iterator[tuple[str, str | None]]:
    """Yield each golden here that is not as in a revision, or only on one side, with the blob there, if any."""
    try:
        commit = git(".", "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
    except GitError as error:
        raise GitError(f"{revision} is no revision here: {error}") from error
    entries = (
        entry.partition("\t") for entry in os.fsdecode(git(".", "ls-tree", "-r", "-z", commit)).split("\0") if entry
    )
    before = {name: about.split()[2] for about, _, name in entries if name.endswith(_SUFFIX)}
    listed = git(".", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    now = {name for name in os.fsdecode(listed).split("\0") if name.endswith(_SUFFIX) and Path(name).is_file()}
    present = sorted(now)
    blobs = git(".", "hash-object", "--no-filters", "--stdin-paths", given=os.fsencode("\n".join(present))).split()
    of = dict(zip(present, map(os.fsdecode, blobs), strict=True))
    yield from ((name, before.get(name)) for name in sorted(before.keys() | now) if before.get(name) != of.get(name))


def _told(name: str, blob: str | None) -> Iterator[str]:
    from pytest_tfdebug.goldens.golden_file import changes, load

    file = Path(name)
    if not file.is_file():
        yield "deleted"
        return
    with tempfile.TemporaryDirectory(prefix="tfdebug-") as folder:
        copy = Path(folder) / file.name
        try:
            new = load(file)
            if blob is not None:
                copy.write_bytes(git(".", "cat-file", "blob", blob))
                yield from changes(load(copy), new.trace, new.extra)
                return
            outputs = sum(len(call.outputs or ()) for call in new.trace.calls)
            yield f"new: {counted(len(new.trace.calls), 'call')}, {counted(outputs, 'output')}, of {new.extra['test']}"
        except GoldenError as error:
            yield f"not compared: {str(error).replace(str(copy), f'the old {name}')}"


if __name__ == "__main__":
    raise SystemExit(main())
