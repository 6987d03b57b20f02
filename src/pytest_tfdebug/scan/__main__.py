"""``python -m pytest_tfdebug.scan``."""

from __future__ import annotations

import sys

from pytest_tfdebug.scan.cli import main

if __name__ == "__main__":
    sys.exit(main())
