"""Pages from files that runs have left: ``python -m pytest_tfdebug.page checks.json --output DIR``.

A job that runs the tests keeps the file of ``--tf-json``; whoever wants to look makes the pages from it, with neither
the model nor torch.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_FORM = "a file of --tf-json"
_NO_RUN: dict[str, Any] = {"command": ["pytest"], "environment": {}}


class _NotReadableError(Exception):
    """A file is not what it should be."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages of some files; 0 where all could be read."""
    parser = argparse.ArgumentParser(
        prog="python -m pytest_tfdebug.page", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help=_FORM)
    parser.add_argument("--output", default="tfdebug-page", metavar="DIR", help="where to write (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    try:
        index = _write({name: _read(name) for name in chosen.files}, Path(chosen.output))
    except _NotReadableError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{index.absolute().as_uri()}\n")
    return 0


def _write(documents: dict[str, dict[str, Any]], folder: Path) -> Path:
    from pytest_tfdebug.check_record import read_checks
    from pytest_tfdebug.publish.site import Pages

    site, run = Pages(folder), _NO_RUN
    for name, document in documents.items():
        run = document["run"]
        try:
            checks = read_checks(document["checks"])
        except ValueError as error:
            raise _NotReadableError(f"Cannot make a page of {name}: {error}.\nGive {_FORM}.") from error
        for check in checks:
            site.add(check)
    site.finish(run)
    return folder / "index.html"


def _read(name: str) -> dict[str, Any]:
    from pytest_tfdebug.check_record import SCHEMA

    try:
        document = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _NotReadableError(f"Cannot read {name}: {error}.\nGive {_FORM}.") from error
    found: dict[str, Any] = document if isinstance(document, dict) else {}
    if found.get("schema") == SCHEMA and "checks" in found:
        return found
    schema = found.get("schema")
    told = f"schema {schema!r}, and this version reads schema {SCHEMA}" if schema else "no checks in it"
    raise _NotReadableError(f"Cannot make a page of {name}: {told}.\nGive {_FORM}.")


if __name__ == "__main__":
    sys.exit(main())
