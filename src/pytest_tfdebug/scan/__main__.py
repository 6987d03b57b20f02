"""``python -m pytest_tfdebug.scan``."""

from __future__ import annotations

import gc
import os

from pytest_tfdebug.scan.cli import main

if __name__ == "__main__":
    gc.disable()  # a scan makes much and drops little until it ends: to look for garbage takes a tenth of its time
    os._exit(main())  # everything is written; to free what a scan found, piece by piece, would take 30 ms
