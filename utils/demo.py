"""The main job in three runs of pytest: record a golden of the reference, check a right port, check a wrong one."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
CULPRIT = "blocks.0.attention"


def main() -> int:
    """Run the demonstration; 0 if the wrong port's report names the culprit."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [str(FIXTURES / "demo"), f"--tf-golden-dir={folder}", f"--rootdir={FIXTURES}"]
        arguments += ["-o", f"pythonpath={FIXTURES}", "-p", "no:cacheprovider", "-q"]
        report = _Report()
        steps: tuple[tuple[str, list[str], str, int], ...] = (
            ("1. Record the reference, transformers' Llama:  pytest --tf-golden=update", ["--tf-golden=update"], "", 0),
            ("2. Hold a port with names of its own to the golden; the reference does not run:  pytest", [], "", 0),
            ("3. The same with a bug that real ports had, a rotary embedding of another kind:  pytest", [], "1", 1),
        )
        for title, extra, bug, expected in steps:
            print(f"\n=== {title}", flush=True)
            os.environ["TFDEMO_BUG"] = bug
            if pytest.main([*arguments, *extra], plugins=[report]) != expected:
                print("The demonstration did not go as it should; the output above says why.")
                return 1
    named = f"in {CULPRIT} (" in report.text
    print(f"\nThe report names the culprit: {CULPRIT}." if named else "\nThe report does not name the culprit.")
    return 0 if named else 1


class _Report:
    """Keeps the text of the failure, so that the script can say whether the culprit is in it."""

    text = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.text = report.longreprtext


if __name__ == "__main__":
    sys.exit(main())
