"""The page for maintainers shows what its script prints."""

import re
from pathlib import Path

import inside

PAGE = Path(__file__).parents[2] / "docs/explanation/inside.md"


def test_page_inside_shows_the_claims_and_the_verdict_of_its_bug(monkeypatch):
    monkeypatch.setattr("pytest_tfdebug.parity.proof.prove.SECONDS", 120.0)
    shown = re.search(r"```text\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1].splitlines()

    assert list(inside.followed(inside.BUG)) == shown
