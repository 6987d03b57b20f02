"""Paths of modules: what holds what, and what is called alike in every layer."""

import pytest

from pytest_tfdebug.module_path import common_holder, holder, holders, last_part, starred, under

NAME = "model.layers.3.mlp.experts.0.up_proj.weight"


def test_holders_lead_from_the_innermost_module_to_the_root():
    assert list(holders("model.norm.weight")) == ["model.norm", "model", ""]
    assert list(holders("")) == []
    assert under(holder(NAME), last_part(NAME)) == NAME
    assert under("", "weight") == "weight"


@pytest.mark.parametrize(
    ("names", "path"),
    [
        (["a.b.q.weight"], "a.b.q"),
        (["a.b.q.weight", "a.b.k.weight"], "a.b"),
        (["a.b.weight", "a.b.c.weight"], "a.b"),
        (["a.weight", "b.weight"], ""),
    ],
)
def test_common_holder_is_the_innermost_module_that_holds_all(names, path):
    assert common_holder(names) == path


def test_star_stands_for_whole_parts_that_are_numbers_alone():
    assert starred(NAME) == "model.layers.*.mlp.experts.*.up_proj.weight"
    assert starred("h0.fc1.weight") == "h0.fc1.weight"
