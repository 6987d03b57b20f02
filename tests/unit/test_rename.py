import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfdebug import TFDebugError
from pytest_tfdebug.parity.pair.rename import renamer

parts = st.text(alphabet="abc012", min_size=1, max_size=3)
paths = st.lists(parts, min_size=1, max_size=4).map(".".join)


@given(paths)
def test_without_rules_names_are_equal(path):
    assert renamer(None)(path) == path
    assert renamer({})(path) == path


@given(paths, paths, paths)
def test_rule_holds_for_its_path_and_everything_below_it(source, target, below):
    rename = renamer({source: target})

    assert rename(source) == target
    assert rename(f"{source}.{below}") == f"{target}.{below}"
    assert rename(f"{source}x.{below}") == f"{source}x.{below}"


@given(paths)
def test_empty_path_stands_before_and_for_every_path(path):
    assert renamer({"": "model"})(path) == f"model.{path}"
    assert renamer({"model": ""})(f"model.{path}") == path


@given(paths, st.permutations([("", "model"), ("head", "lm_head"), ("*", "x.*"), ("head.a", "tail")]))
def test_longest_rule_wins_whatever_the_order(path, rules):
    rename = renamer(dict(rules))

    assert rename("head") == "lm_head"
    assert rename("head.a.b") == "tail.b"
    assert rename(path) == f"x.{path}"


def test_stars_stand_for_one_part_each():
    rename = renamer({"blocks.*": "layers.*", "blocks.*.exp.*": "layers.*.mlp.experts.*", "h*": "hidden_*"})

    assert rename("blocks.3.norm") == "layers.3.norm"
    assert rename("blocks.3.exp.7.up") == "layers.3.mlp.experts.7.up"
    assert rename("h2") == "hidden_2"
    assert rename("h") == "hidden_"
    assert rename("blocks") == "blocks"


@given(paths, paths)
def test_two_stars_stand_for_any_number_of_parts(above, below):
    rename = renamer({"**.attn": "**.self_attn", "body.**.up": "model.**.up_proj"})

    assert rename("attn") == "self_attn"
    assert rename(f"{above}.attn.{below}") == f"{above}.self_attn.{below}"
    assert rename("body.up") == "model.up_proj"
    assert rename(f"body.{above}.up.weight") == f"model.{above}.up_proj.weight"


def test_one_and_two_stars_are_filled_each_from_its_own():
    rename = renamer({"**.h*.**.x": "a*.**.b.**", "q.*.r*": "*.s*"})

    assert rename("a.b.h0.c.x") == "a0.a.b.b.c"
    assert rename("q.1.r2.w") == "1.s2.w"


def test_special_characters_mean_themselves():
    assert renamer({"a.b": "x"})("aXb") == "aXb"
    assert renamer({"a[0]": "x"})("a[0].c") == "x.c"


def test_function_is_taken_as_it_is():
    assert renamer(str.upper)("a.b") == "A.B"


@pytest.mark.parametrize(
    ("rename", "text"),
    [
        ({"a": "b.*"}, "rename: 'a' -> 'b.*' has more '*' on the right than on the left."),
        ({"**.a": "**.**.b"}, "rename: '**.a' -> '**.**.b' has more '**' on the right than on the left."),
        ({"**.a": "*.b"}, "rename: '**.a' -> '*.b' has more '*' on the right than on the left."),
        ({"a": 3}, "rename: 'a' -> 3 is not a pair of paths."),
        ({None: "a"}, "rename: None -> 'a' is not a pair of paths."),
        ("a", "rename= is a dict of paths or globs, or a function from path to path; got 'a'."),
    ],
)
def test_rules_that_make_no_sense_are_refused(rename, text):
    with pytest.raises(TFDebugError) as caught:
        renamer(rename)
    assert str(caught.value) == text
