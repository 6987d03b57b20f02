"""What a user hears who has not installed an extra of the package."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pytest_tfdebug
from pytest_tfdebug.scan import ScanError, scan

ROOT = Path(__file__).parent.parent
HIDDEN = """
import sys
for name in {names!r}:
    sys.modules[name] = None
"""


def run(names, code):
    """Run code in a process that lacks libraries."""
    return subprocess.run(
        [sys.executable, "-c", HIDDEN.format(names=names) + code], check=False, capture_output=True, text=True
    )


def test_the_package_and_its_plugin_need_neither_pandas_nor_libcst_nor_transformers():
    done = run(
        ["pandas", "libcst", "tqdm", "transformers"],
        "import torch, pytest_tfdebug, pytest_tfdebug.plugin\n"
        "model = torch.nn.Linear(2, 2)\n"
        "recorded = pytest_tfdebug.trace(model, torch.ones(1, 2))\n"
        "print(pytest_tfdebug.compare(recorded, pytest_tfdebug.trace(model, torch.ones(1, 2))).ok)",
    )

    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize("options", [[], ["--fix", "stale"]], ids=["report", "fix"])
def test_the_scan_says_in_a_line_what_to_type_without_libcst(options, tmp_path):
    arguments = ["--repo", str(ROOT / "fixtures/scan_repo"), "--no_cache", "--output_dir", str(tmp_path), *options]

    done = run(["libcst"], f"from pytest_tfdebug.scan.cli import main; sys.exit(main({arguments!r}))")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: libcst is not installed. Type: pip install 'pytest-tfdebug[scan]'\n"


def test_the_function_of_the_scan_says_so_too():
    done = run(["libcst"], "from pytest_tfdebug.scan import scan")

    assert done.stderr.splitlines()[-1].endswith("libcst is not installed. Type: pip install 'pytest-tfdebug[scan]'")


def test_a_table_says_in_a_line_what_to_type_without_pandas(monkeypatch):
    model = torch.nn.Linear(2, 2)
    recorded = pytest_tfdebug.trace(model, torch.ones(1, 2))
    report = pytest_tfdebug.compare(recorded, recorded)
    found = scan(ROOT / "fixtures/scan_repo")
    monkeypatch.setitem(sys.modules, "pandas", None)

    for table in (recorded.to_dataframe, report.to_dataframe):
        with pytest.raises(pytest_tfdebug.TFDebugError, match=r"pip install 'pytest-tfdebug\[tables\]'"):
            table()
    with pytest.raises(ScanError, match=r"pandas is not installed. Type: pip install 'pytest-tfdebug\[tables\]'"):
        found.to_dataframe()
