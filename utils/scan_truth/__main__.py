"""``python -m scan_truth RUN.json``: where a scan and a run disagree."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfdebug.scan import ScanError, scan
from scan_truth.compare import compare, load

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Print the disagreements; 1 where there is one, 2 where nothing can be said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="what pytest -p scan_truth.plugin --skip-report=FILE wrote")
    parser.add_argument("--repo", default=".")
    parser.add_argument("--models-dir", default="")
    options = parser.parse_args(argv)
    try:
        found = compare(scan(options.repo, models_dir=options.models_dir).to_dict(), load(options.run))
        lines = list(found.lines())
    except ScanError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if found.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
