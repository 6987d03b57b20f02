"""Rules that match nothing."""

import pytest
import torch
from torch import nn

from pytest_tfdebug import TFDebugError, compare, trace
from pytest_tfdebug.parity.tensors.tolerance import check_rules

REFERENCE = {"Reference", "model", "model.layers", "model.layers.0", "model.layers.0.self_attn", "lm_head"}
PORT = {"Port", "blocks", "blocks.0", "blocks.0.attn", "head"}
DIALECT = "(* is one part of a module path, ** any number of parts)"


@pytest.mark.parametrize(
    "rename",
    [
        None,
        {},
        str.upper,
        {"blocks": "model.layers", "blocks.*": "model.layers.*", "blocks.*.attn": "model.layers.*.self_attn"},
        {"blocks.**.attn": "model.layers.**.self_attn", "head": "lm_head"},
        {"Port": "Reference", "head": ""},
    ],
)
def test_rules_that_name_something_on_both_sides_are_taken(rename):
    check_rules(rename, ("blocks.**", "Port", "**"), PORT, REFERENCE)


@pytest.mark.parametrize(
    ("rename", "text"),
    [
        (
            {"block.*": "model.layers.*"},
            f"no module of the port matches 'block.*' {DIALECT}. Nearest path: 'blocks.0'.",
        ),
        (
            {"blocks.*.attn": "model.layers.*.self_atn"},
            "'blocks.*.attn' -> 'model.layers.*.self_atn' names no module of the reference: it has no 'model.layers.0.self_atn'. Nearest path: 'model.layers.0.self_attn'.",
        ),
        (
            {"": "modle"},
            "'' -> 'modle' names no module of the reference: it has no 'modle.Port'. Nearest path: 'model.layers'.",
        ),
    ],
)
def test_rename_rule_that_names_nothing_gives_the_nearest_path(rename, text):
    with pytest.raises(TFDebugError) as caught:
        check_rules(rename, (), PORT, REFERENCE)
    assert str(caught.value) == f"rename: {text}"


@pytest.mark.parametrize(
    ("glob", "near"), [("*.head", "head"), ("float31", "float32"), ("blocks.*.atn", "blocks.0.attn")]
)
def test_tolerance_for_no_module_gives_the_nearest_path_or_dtype(glob, near):
    with pytest.raises(TFDebugError) as caught:
        check_rules(None, (glob,), PORT, REFERENCE)
    assert str(caught.value) == f"tolerance: no module of the port matches {glob!r} {DIALECT}. Nearest path: {near!r}."


def test_compare_refuses_them():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(1, 4)
    recorded = trace(model, x)

    assert compare(recorded, trace(model, x), tolerance={"*": (1, 1), "bfloat16": (1, 1)}, rename={"0": "0"}).ok
    with pytest.raises(TFDebugError, match=r"^tolerance: no module of the port matches '2' "):
        compare(recorded, trace(model, x), tolerance={"2": (1, 1)})
    with pytest.raises(TFDebugError, match=r"^rename: no module of the port matches 'lift' "):
        compare(recorded, trace(model, x), rename={"lift": "0"})
    with pytest.raises(TFDebugError, match=r"^rename: '0' -> 'lift' names no module of the reference: "):
        compare(recorded, trace(model, x), rename={"0": "lift"})
