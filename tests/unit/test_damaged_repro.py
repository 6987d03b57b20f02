"""The files of a repro that anyone may have written are read, or refused in words that name them; they run nothing."""

import json
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from damaged import damaged_bytes, damaged_json, read_as_a_strangers
from pytest_tfdebug import TFDebugError
from pytest_tfdebug.repro.inputs import load_inputs, save_inputs
from pytest_tfdebug.repro.module_file import load_module, save_module


class Pair(NamedTuple):
    left: Any
    right: Any


INPUTS = ("inputs.json", "inputs.safetensors")
MODEL = ("model.pt", "model.safetensors")


@pytest.fixture(scope="module")
def repro(tmp_path_factory):
    """Return a directory of a repro, its files as they were written, and the classes of its model and inputs."""
    directory = tmp_path_factory.mktemp("repro")
    x = torch.ones(2, 3)
    classes = save_inputs(
        directory, (x, [1, "text"]), {"pair": Pair(x, None), "dtype": torch.float16, "many": {"a": (x, x)}}
    )
    names = save_module(directory, nn.Sequential(nn.Linear(3, 2), nn.Dropout(), nn.BatchNorm1d(2)))
    return directory, {name: (directory / name).read_bytes() for name in (*INPUTS, *MODEL)}, names, classes


def restored(repro):
    """Write the files as they were."""
    directory, files, *_ = repro
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return repro


@given(st.data())
def test_bytes_that_were_changed_are_refused_in_words(repro, data):
    directory, files, names, classes = restored(repro)
    name = data.draw(st.sampled_from(sorted(files)))
    (directory / name).write_bytes(data.draw(damaged_bytes(files[name])))
    with read_as_a_strangers(directory / name, TFDebugError):
        load_inputs(directory, classes)
        load_module(directory, names)


@given(st.data())
def test_inputs_may_be_any_json(repro, data):
    directory, files, _, classes = restored(repro)
    document = data.draw(damaged_json(json.loads(files["inputs.json"])))
    (directory / "inputs.json").write_text(json.dumps(document))
    with read_as_a_strangers(directory / "inputs.json", TFDebugError):
        load_inputs(directory, classes)


@pytest.mark.parametrize(
    ("how", "content"),
    [
        ("fields", {"args": {"list": [{"value": "touch"}, {"value": "ran"}], "class": ["builtins", "list"]}}),
        ("flat", [{"value": "touch"}, {"value": "ran"}]),
    ],
)
def test_inputs_make_objects_of_the_classes_alone_that_the_repro_names(repro, how, content):
    directory, _, _, classes = restored(repro)
    call = {how: content, "class": ["subprocess", "Popen"]}
    document = {"dict": {"args": call, "kwargs": call}, "class": ["builtins", "dict"]}
    (directory / "inputs.json").write_text(json.dumps(document))

    with pytest.raises(
        TFDebugError, match=r"inputs\.json cannot be read: .*subprocess\.Popen is not one of the classes"
    ):
        load_inputs(directory, classes)
