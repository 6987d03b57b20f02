"""What is given in a wrong way is refused with what to give, and not with a traceback."""

import pytest
import torch
from torch import nn

from pytest_tfdebug import TFDebugError, compare_steps
from pytest_tfdebug.conform.mixin import declared
from pytest_tfdebug.goldens.recording import recorded_model
from pytest_tfdebug.loading.command import main as audit


def test_class_in_place_of_a_reference():
    with pytest.raises(
        TFDebugError, match=r"reference= is the class Linear, and .*: give a model, as reference=Linear\(c"
    ):
        recorded_model(nn.Linear)


@pytest.mark.parametrize(("run", "named"), [("loss", "'loss'"), (lambda model: model, "<lambda>")])
def test_run_that_takes_no_model_and_batch(run, named):
    told = rf"run of the reference is a function of the model and a batch, run\(model, batch\); {named} is none: "
    with pytest.raises(TFDebugError, match=told):
        compare_steps(nn.Linear(2, 2), nn.Linear(2, 2), torch.ones(1, 2), run=run)


def test_several_batches_without_a_run():
    with pytest.raises(TFDebugError, match="The batch is a list: give one batch, or say what is done with them, run="):
        compare_steps(nn.Linear(2, 2), nn.Linear(2, 2), [torch.ones(1, 2)])


def test_promises_that_vary_without_a_reason():
    with pytest.raises(TFDebugError, match=r"varies says why, .*; it is \['padding'\]\."):
        declared(["padding"], ["Model"], ["padding"])


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def load(x): pass", r"raised TypeError: load\(\) missing 1 required positional argument: 'x'\."),
        ("load = 3", "raised TypeError: 'int' object is not callable."),
        ("def load(): raise ValueError('no')", "raised ValueError: no."),
    ],
)
def test_audit_of_what_builds_no_model(source, told, tmp_path, monkeypatch, capsys):
    (tmp_path / "no_port.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "no_port", raising=False)

    assert audit(["checkpoint", "--model=no_port:load"]) == 2
    shown = capsys.readouterr().err
    assert told.replace("\\", "") in shown
    assert "Name a function that takes nothing and returns the model: --model=my_port:load." in shown
