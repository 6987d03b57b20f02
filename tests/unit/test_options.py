"""Flags and ini keys: few, and all of them in the documentation."""

from pathlib import Path

from pytest_tfdebug import options

PAGE = (Path(__file__).parents[2] / "docs/options.md").read_text(encoding="utf-8")
ALL = [flag for flags in options.FLAGS.values() for flag in flags]
KEYS = [*(flag.ini for flag in ALL if flag.has_ini), *(key for key, _ in options.INI)]


def test_there_are_no_more_than_one_can_know():
    assert len(ALL) <= 17
    assert len(KEYS) <= 12
    assert len(options.MARKERS) <= 5


def test_each_is_in_the_documentation():
    named = [*(flag.flag for flag in ALL), *KEYS, *options.MARKERS]

    assert [name for name in named if f"`{name}`" not in PAGE] == []
