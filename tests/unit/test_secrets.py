"""No form of a secret gets from where a run meets it to what the run prints or writes."""

import json
from types import SimpleNamespace

import pytest
import torch

from pytest_tfdebug import InvarianceError, assert_padding_invariant, trace
from pytest_tfdebug.environment import environment, lines
from pytest_tfdebug.goldens.golden_file import save
from pytest_tfdebug.repro import write_repro
from pytest_tfdebug.triage.plugin import classify, render
from pytest_tfdebug.triage.rules import Failure, shown
from secret_forms import FORMS, VARIABLES

every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)


def leaks(form, shown):
    return [part for part in form.secrets if part in shown]


class Note:
    """What a test may hang on a model."""

    def __init__(self, text):
        self.text, self.nested = text, {"more": [text]}


class Model(torch.nn.Linear):
    """A model with another argument than tensors."""

    def forward(self, x, note=None):
        return super().forward(x)


@every_form
def test_environment_shows_no_form(monkeypatch, form):
    for name in ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, form.text)
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub.constants", None)

    described = environment()

    assert leaks(form, "\n".join(lines(described))) == []
    assert leaks(form, json.dumps(described)) == []
    assert described["devices"]["CUDA_VISIBLE_DEVICES"] == "(set, not shown)"


@pytest.mark.parametrize("name", VARIABLES)
def test_environment_shows_no_value_of_a_secret_variable(monkeypatch, name):
    monkeypatch.setenv(name, "summerhouse/7")
    monkeypatch.setenv("HF_HOME", "/caches/summerhouse/7/hub")

    assert "summerhouse" not in "\n".join(lines(environment()))


@every_form
def test_error_shows_no_form(form):
    def fail():
        raise OSError(
            f"Repository Not Found for url: {form.text}.\nPlease make sure you specified the correct `repo_id`."
        )

    try:
        fail()
    except OSError as error:
        failure = Failure.of(error, "tests/test_it.py::test_it", "call")
    found = classify(failure)

    assert leaks(form, failure.links[0].message) == []
    assert leaks(form, render([] if found is None else [found])) == []
    assert leaks(form, shown(form.text)) == []


@every_form
def test_error_of_a_repeated_call_shows_no_form(form):
    class Refuses(torch.nn.Module):
        def forward(self, input_ids, attention_mask=None):
            if attention_mask is not None:
                raise OSError(form.text)
            return input_ids.float()

    with pytest.raises(InvarianceError) as failed:
        assert_padding_invariant(Refuses().eval(), {"input_ids": torch.ones(2, 4, dtype=torch.long)})

    assert "OSError" in str(failed.value)
    assert leaks(form, str(failed.value)) == []


@every_form
def test_golden_holds_no_form(tmp_path, form):
    model, file = Model(2, 2), tmp_path / "golden.safetensors"
    model.config = type("Config", (), {"_attn_implementation": form.text})()

    save(file, trace(model, torch.ones(1, 2), note=form.text), model, f"test_it.py::test_it[{form.text}]")

    assert leaks(form, file.read_bytes().decode("utf-8", "replace").replace("\\\\", "\\")) == []


@every_form
def test_repro_holds_no_form(tmp_path, monkeypatch, form):
    model = Model(2, 2)
    model.note, model.own = form.text, Note(form.text)
    config = SimpleNamespace(inipath=None, rootpath=tmp_path, invocation_params=SimpleNamespace(dir=tmp_path, args=()))
    item = SimpleNamespace(nodeid=f"test_it.py::test_it[{form.text}]", config=config)
    chosen = SimpleNamespace(repro="made", golden_dir=form.text, golden_variant=None, device="auto")
    monkeypatch.setattr("pytest_tfdebug.repro.Options.of", lambda _: chosen)
    monkeypatch.setenv("HF_HOME", form.text)

    told = write_repro(item, "parity", model, (torch.ones(1, 2),), {"note": form.text})
    (directory,) = (tmp_path / "made").iterdir()

    assert told.startswith("Repro: python ")
    assert leaks(form, told) == []
    for file in directory.iterdir():
        assert leaks(form, file.read_bytes().decode("utf-8", "replace")) == [], file.name
