import sys

import pytest

from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.triage.plugin import render
from pytest_tfdebug.triage.rules import (
    LINE_LIMIT,
    VALUE_LIMIT,
    Classification,
    Failure,
    cut,
    fill,
    listing,
    safe_line,
    shown,
)


def failure_of(call):
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - whatever fails
        return Failure.of(error, "tests/test_it.py::test_it", "call")
    return None


def types_of(failure):
    return [link.types[0] for link in failure.links]


def chained():
    try:
        {}["inner"]
    except KeyError as error:
        raise ValueError("outer") from error


def handled():
    try:
        {}["inner"]
    except KeyError:
        raise ValueError("outer")  # noqa: B904 - the implicit context is the point


def suppressed():
    try:
        {}["inner"]
    except KeyError:
        raise ValueError("outer") from None


def verdict():
    try:
        {}["inner"]
    except KeyError as error:
        assert "other" in str(error)  # noqa: PT017 - a verdict about a handled error is the point


def verdict_from():
    try:
        {}["inner"]
    except KeyError as error:
        raise AssertionError("not loaded") from error


@pytest.mark.parametrize(
    ("fail", "expected"),
    [
        (chained, ["ValueError", "KeyError"]),
        (handled, ["ValueError", "KeyError"]),
        (suppressed, ["ValueError"]),
        (verdict, ["AssertionError"]),
        (verdict_from, ["AssertionError", "KeyError"]),
    ],
)
def test_causes_and_contexts_are_followed_except_behind_a_verdict(fail, expected):
    assert types_of(failure_of(fail)) == expected


def test_errors_of_our_own_are_not_looked_behind():
    error = GoldenError("the golden cannot be read")
    error.__cause__ = OSError("header too large")

    assert types_of(Failure.of(error, "test", "call")) == ["GoldenError"]


def test_cycle_of_causes_ends():
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first

    assert len(Failure.of(first, "test", "call").links) == 2


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no exception groups")
def test_members_of_a_group_come_before_its_cause():
    inner = ExceptionGroup("inner", [KeyError("b")])  # noqa: F821 - new in Python 3.11
    group = ExceptionGroup("outer", [ValueError("a"), inner])  # noqa: F821 - as above
    group.__cause__ = OSError("c")

    assert types_of(Failure.of(group, "test", "call")) == [
        "ExceptionGroup",
        "ValueError",
        "ExceptionGroup",
        "KeyError",
        "OSError",
    ]


def test_site_is_the_users_line_not_the_librarys():
    def fail():
        import json

        json.loads("<html>")

    site = failure_of(fail).site

    assert site.file.endswith("test_triage_failure.py")
    assert site.code == 'json.loads("<html>")'


def test_message_is_cut_before_it_is_searched():
    (link,) = failure_of(lambda: int("x" * 1_000_000)).links

    assert len(link.message) < 9000


def test_first_template_whose_names_are_known_is_taken():
    templates = ("{a} and {b}", "only {a}", "neither")

    assert fill(templates, {"a": "1", "b": "2"}) == "1 and 2"
    assert fill(templates, {"a": "1"}) == "only 1"
    assert fill(templates, {"b": "2", "a": ""}) == "neither"


def test_last_template_shows_an_unknown_name_as_a_placeholder():
    assert fill(("ls {directory}",), {}) == "ls DIRECTORY"


def test_value_is_one_safe_line():
    assert shown("a\n  b\x1b[31mc\x1b[0m\x07") == r"a bc\x07"
    assert shown("see hf_abcdefghijkl") == "see hf_***"


def test_long_text_loses_its_middle():
    shown = cut("a" * 500 + "z" * 500, 100)

    assert len(shown) <= 100
    assert shown.startswith("aaa")
    assert shown.endswith("zzz")
    assert " ... 900 characters ... " in shown


def test_listing_counts_what_it_leaves_out():
    assert listing(["a", "b", "c"], 2) == "a, b and 1 more"
    assert listing(["a", "b"], 2) == "a, b"


def test_report_is_a_block_a_finding():
    findings = [
        Classification("one", "runtime/cuda", "call", "it broke", "mend it", "look", ("a fact",)),
        Classification("two", "silent correctness", "the transformers log", "it was said", "heed it", "listen"),
    ]

    assert render(findings).splitlines() == [
        "bucket: runtime/cuda (in call)",
        "what happened: it broke",
        "  a fact",
        "smallest fix: mend it",
        "next step: look",
        "",
        "bucket: silent correctness (in the transformers log)",
        "what happened: it was said",
        "smallest fix: heed it",
        "next step: listen",
    ]


def test_value_and_a_line_are_cut_and_without_secrets_each():
    assert len(shown("x" * 1000)) == VALUE_LIMIT < LINE_LIMIT
    assert len(safe_line("x" * 1000)) == LINE_LIMIT
    assert shown("see hf_abcdefghijkl") == safe_line("see hf_abcdefghijkl") == "see hf_***"
