"""Two forwards of which one was recorded in part: what the other shows more of is no evidence."""

import copy
import re

import pytest
import torch

import pytest_tfdebug
from bugs import BUGS
from models import build
from pytest_tfdebug import compare, trace
from pytest_tfdebug.parity.pair.pairing import RecordedModules
from pytest_tfdebug.records import Call, Site


def at(line):
    return Site("f.py", line, line, "forward", 1, 99)


def calls(*rows):
    """Build calls from rows of path and parent; each stands on the line of its number."""
    return [Call(n, path, "M", 0, parent, 0, site=at(n)) for n, (path, parent) in enumerate(rows)]


ROWS = (("M", None), ("a", 0), ("a.x", 1), ("a.y", 1), ("b", 0))


def test_side_that_was_recorded_as_a_whole_has_every_module():
    whole = RecordedModules(["a", "a.x"], {}, ())

    assert whole.has("a.x")
    assert whole.has("of.the.other.side")
    assert [call.path for call in whole.common(calls(*ROWS))] == ["M", "a", "a.x", "a.y", "b"]


def test_calls_left_out_on_the_other_side_are_dropped():
    common = RecordedModules(["a", "a.x", "a.y", "b"], {}, ["a", "a.y"]).common(calls(*ROWS))

    assert [(call.index, call.path, call.parent, call.depth) for call in common] == [
        (0, "M", None, 0),
        (1, "a.x", 0, 1),
        (2, "b", 0, 1),
    ]
    assert (common[1].site, common[1].inner_site) == (at(1), at(2))
    assert (common[2].site, common[2].inner_site) == (at(4), None)


def test_module_that_a_side_does_not_have_goes_by_those_beside_it():
    layers = RecordedModules(["layers", "layers.0", "layers.0.up"], {}, ["layers", "layers.0.up"])

    assert layers.has("layers.7")
    assert not layers.has("layers.0.down")
    assert not layers.has("layers.7.up")


def test_modules_go_by_all_the_names_of_the_expected_side():
    side = RecordedModules(["own", "other"], {"own": ("tied",)}, ["other"], "enc.{}".format)

    assert side.has("enc.own")
    assert side.has("enc.tied")
    assert not side.has("enc.other")


def told(report):
    """Return who is blamed and why, as calls say; what values add depends on the calls that were recorded."""
    culprit = report.culprit
    told = culprit and re.sub(r"^.*(?=\b\d+ tensors agree)", "", culprit.explanation).partition(" The first value")[0]
    return culprit and (culprit.path, culprit.kind, told)


@pytest.mark.parametrize(
    "selection",
    [{"level": "layers"}, {"level": "leaves"}, {"exclude": "**.*norm*"}, {"include": ["**.mlp", "**.self_attn"]}],
    ids=str,
)
@pytest.mark.parametrize(
    "name", ["llama-rotary-interleaved", pytest.param("llama-final-norm-twice", marks=pytest.mark.nightly)]
)
def test_one_side_in_part_is_judged_as_both_sides_in_part(name, selection, tmp_path):
    right, inputs = build("llama")
    inputs = {name: torch.ones_like(each) if name == "attention_mask" else each for name, each in inputs.items()}
    wrong = copy.deepcopy(right)
    next(bug for bug in BUGS if bug.name == name).inject(wrong)
    part, wrong_part = trace(right, **inputs, **selection), trace(wrong, **inputs, **selection)
    part.save(tmp_path / "part.safetensors")
    expected = told(compare(part, wrong_part))

    assert expected is not None
    assert told(compare(pytest_tfdebug.Trace.load(tmp_path / "part.safetensors"), trace(wrong, **inputs))) == expected
    assert told(compare(trace(right, **inputs), wrong_part)) == expected


def test_right_port_is_not_said_to_make_calls_that_were_not_recorded():
    model, inputs = build("llama")

    report = compare(trace(model, **inputs, level="layers"), trace(model, **inputs))

    assert report.ok
    assert report.notes == []
