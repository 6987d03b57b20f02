"""The table of docs/as-run.md stands on tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [line for line in (ROOT / "docs/as-run.md").read_text().splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:30])
def test_every_row_of_the_table_names_tests_that_exist(row):
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))

    named = re.findall(r"`(test_\w+)`", row.split("|")[-2])

    assert named
    assert [name for name in named if f"def {name}(" not in sources] == []
