"""``python -m pytest_tfdebug.goldens migrate PATH...``: bring goldens of earlier formats into the present one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import TFDebugError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 1 where a file cannot be read or written."""
    parser = argparse.ArgumentParser(prog="python -m pytest_tfdebug.goldens", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    migrate = commands.add_parser("migrate", help="write goldens of earlier formats again, in the present one")
    migrate.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a golden, or a directory of goldens")
    migrate.add_argument(
        "--budget", default="1 MB", help="about how much each may take, as tf_golden_budget (default: 1 MB)"
    )
    migrate.add_argument("--store", choices=("bounded", "full"), default="bounded", help="full keeps every element")
    given = parser.parse_args(arguments)
    try:
        from pytest_tfdebug.tracing.budget import parse_size

        budget = None if given.store == "full" else parse_size(given.budget, "--budget")
        files = list(_files(given.paths))
    except TFDebugError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    done = [_done(file, budget) for file in files]
    return int(not all(done))


def _done(file: Path, budget: int | None) -> bool:
    """Migrate one golden and say so; return False if that fails."""
    try:
        print(f"{file}: {_migrated(file, budget)}")  # noqa: T201 - a command line
    except TFDebugError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return False
    return True


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = sorted(path.rglob("*.safetensors"))
            if not found:
                raise TFDebugError(f"No golden lies in {path}. Name a directory that has some.")
            yield from found
        elif path.exists():
            yield path
        else:
            raise TFDebugError(f"{path} does not exist.")


def _migrated(file: Path, budget: int | None) -> str:
    """Write a golden in the present format, unless it has that already; return what was done, in words."""
    from pytest_tfdebug.tracing.budget import shown_size
    from pytest_tfdebug.tracing.codec import read, write
    from pytest_tfdebug.tracing.document import FORMAT
    from pytest_tfdebug.tracing.room import within
    from pytest_tfdebug.tracing.trace import Trace
    from pytest_tfdebug.tracing.values_file import encode_values

    golden = read(file, Trace)
    if golden.version == FORMAT:
        return f"in format {FORMAT} already"
    before = file.stat().st_size
    trace = golden.trace
    table = None if trace.again is None else encode_values(values) if (values := trace.again.values()) else None
    kept = trace if budget is None else within(trace, budget, table, golden.extra)
    size = write(file, kept, golden.extra, table)
    return f"format {golden.version} -> {FORMAT}, {shown_size(before)} -> {shown_size(size)}"


if __name__ == "__main__":
    sys.exit(main())
