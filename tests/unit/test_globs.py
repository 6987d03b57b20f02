"""The one dialect of globs over module paths."""

import doctest
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfdebug import TFDebugError
from pytest_tfdebug.parity.pair import rename
from pytest_tfdebug.tracing.record import modules
from pytest_tfdebug.tracing.record.modules import checked, matches, nearest

parts = st.text(alphabet="ab0", min_size=1, max_size=3)
paths = st.lists(parts, min_size=1, max_size=4).map(".".join)
patterns = st.lists(
    st.one_of(
        st.sampled_from(["*", "**"]), st.text(alphabet="ab0*", min_size=1, max_size=3).filter(lambda p: "**" not in p)
    ),
    min_size=1,
    max_size=4,
).map(".".join)


def is_match(path, glob):
    """Tell whether parts match parts, one by one: the dialect in a few lines of recursion."""
    if not glob:
        return not path
    if glob[0] == "**":
        return is_match(path, glob[1:]) or (bool(path) and is_match(path[1:], glob))
    return bool(path) and is_text(path[0], glob[0]) and is_match(path[1:], glob[1:])


def is_text(text, pattern):
    if not pattern:
        return not text
    if pattern[0] == "*":
        return is_text(text, pattern[1:]) or (bool(text) and is_text(text[1:], pattern))
    return text[:1] == pattern[0] and is_text(text[1:], pattern[1:])


@given(paths, patterns)
def test_glob_matches_part_by_part(path, glob):
    assert matches(path, glob) == is_match(path.split("."), glob.split("."))


@given(paths, paths)
def test_path_matches_itself_alone(path, other):
    assert matches(path, path)
    assert matches(other, path) == (path == other)


@given(paths, paths)
def test_two_stars_stand_for_any_number_of_parts_and_none(path, below):
    assert matches(path, "**")
    assert matches(path, f"{path}.**")
    assert matches(f"{path}.{below}", f"{path}.**")
    assert matches(path, f"**.{path}")
    assert matches(f"{below}.{path}", f"**.{path}")
    assert not matches(f"{path}x", f"{path}.**")


@given(paths)
def test_one_star_stands_for_one_part(path):
    assert matches(path, "*") == ("." not in path)
    assert matches(f"{path}.0", f"{path}.*")
    assert not matches(f"{path}.0.a", f"{path}.*")
    assert not matches(path, f"{path}.*")


@given(st.text(alphabet=string.punctuation.replace("*", "").replace(".", ""), min_size=1))
def test_every_other_character_means_itself(text):
    assert matches(f"a.{text}", f"a.{text}")
    assert not matches("a.b", f"a.{text}")


@pytest.mark.parametrize("glob", ["a**", "**a", "a.**b.c", "***", "model.**layer"])
def test_two_stars_within_a_part_are_refused(glob):
    with pytest.raises(TFDebugError, match=r"\*\* stands between two dots or at an end, and not in "):
        checked(glob)


@pytest.mark.parametrize("glob", [None, 3, ["a"]])
def test_what_is_no_text_is_refused(glob):
    with pytest.raises(TFDebugError, match=r"is not a glob of module paths\.$"):
        checked(glob)


def test_nearest_path_is_named_or_nothing():
    assert nearest("layers.*.atn", ["norm", "layers.0.attn"]) == " Nearest path: 'layers.0.attn'."
    assert nearest("*.lm_head", ["model.layers.0.self_attn", "lm_head"]) == " Nearest path: 'lm_head'."
    assert nearest("zzz", ["norm"]) == ""


@pytest.mark.parametrize("module", [modules, rename], ids=lambda module: module.__name__)
def test_examples_hold(module):
    found = doctest.testmod(module)

    assert found.attempted
    assert not found.failed
