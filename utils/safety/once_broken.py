"""What was found broken once and mended is tried again, by the tests of it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

from command import ROOT

if TYPE_CHECKING:
    from pathlib import Path

#: What is tried -> the tests that try it.
TESTS = {
    "links out of a root, git, Python's names, deep nests, backslashes": "tests/scan/test_safety.py",
    "repositories and baselines of strangers": "tests/scan/test_hostile.py -k 'baseline or cache or terminal or pipe'",
    "S3 and web servers under faults": "tests/unit/test_remote.py",
    "values whose squares overflow": "tests/unit/test_digest.py -k leave_float64",
    "lists in themselves, uint64, deep models": "tests/unit/test_recorder.py -k 'in_itself or int64 or limit_of'",
    "other threads during a trace": "tests/unit/test_as_run_threads.py",
    "CI servers, updates unasked": "tests/integration/test_golden_review.py -k ci_server",
    "full disks": "tests/integration/test_full_disk.py",
    "prunes": "tests/integration/test_golden_prune.py -k 'elsewhere or behind or device or gone or symlink'",
    "a backward after a trace": "tests/unit/test_as_run_state.py -k backward",
    "forms of secrets": "tests/unit/test_redaction.py -k no_form",
    "a large tensor in a golden": "tests/unit/test_peak_memory.py -k half_of_it",
    "hostile repros": "tests/integration/test_repro.py -k 'written or interrupted or stands_in or every_name'",
    "folders that an ordinary user may only read": "tests/integration/test_read_only.py",
    "hostile names on a page, in Chromium": "tests/page/test_site.py -k strangers",
}


def play_tests(folder: Path, selection: str) -> tuple[int, list[str]]:
    """Run tests of this project by themselves; return how many, and which of them failed."""
    options = ("-q", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={folder / 'made'}", "--tb=line")
    pages = ROOT / ".venv" / "page"  # where ``make test-page`` puts the library for a browser
    paths = os.pathsep.join([*filter(None, sys.path), str(pages)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *shlex.split(selection)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    counts = {kind: int(count) for count, kind in re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout)}
    tried = counts.get("passed", 0) + counts.get("failed", 0)
    is_whole = done.returncode == 0 and tried and "skipped" not in counts
    return tried, [] if is_whole else [done.stdout[-900:]] * max(1, counts.get("failed", 0))
