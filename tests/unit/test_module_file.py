"""Any module is written as data and made again of the classes that were named, and of nothing else."""

import os
import pickle

import pytest
import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.repro.module_file import MODULE, WEIGHTS, function_of_torch, load_module, method_of, save_module


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.full((3,), 2.0), persistent=False)
        self.act, self.settings, self.kept = torch.relu, {"api_key": "summerhouse", "width": 3}, [self.first.bias]
        self.first.weight.requires_grad_(requires_grad=False)
        self.first.register_forward_hook(self.double)

    def double(self, module, inputs, output):
        return 2 * output

    def forward(self, x):
        return self.act(self.second(self.first(x))) * self.scale


def test_a_module_answers_as_before(tmp_path):
    model = Part()

    again = load_module(tmp_path, save_module(tmp_path, model))

    assert torch.equal(again(torch.ones(2, 3)), model(torch.ones(2, 3)))
    assert again.first.weight is again.second.weight
    assert again.kept[0] is again.first.bias
    assert not again.first.weight.requires_grad
    assert again.second.bias.requires_grad


def test_weights_are_safetensors_and_secrets_stay_out(tmp_path):
    from safetensors.torch import load_file

    model = Part()

    save_module(tmp_path, model)

    assert set(load_file(tmp_path / WEIGHTS)) == {"first.weight", "first.bias", "second.bias", "scale"}
    assert b"summerhouse" not in (tmp_path / MODULE).read_bytes()
    assert b"width" in (tmp_path / MODULE).read_bytes()
    assert model.settings["api_key"] == "summerhouse"


def test_what_calls_another_function_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    names = save_module(tmp_path, Part())
    torch.save(Evil(), tmp_path / MODULE)

    with pytest.raises(TFDebugError, match=rf"{MODULE} cannot be read"):
        load_module(tmp_path, names)
    assert not (tmp_path / "made").exists()


def test_only_methods_of_modules_and_functions_of_torch_are_looked_up():
    with pytest.raises(pickle.UnpicklingError, match="no method of a module"):
        method_of("text", "upper")
    with pytest.raises(pickle.UnpicklingError, match="no function of torch"):
        function_of_torch("load")


def test_a_module_that_cannot_be_read_again_is_an_error(tmp_path):
    model = Part()
    model.odd = os.environ  # it begins with functions of its own, made in a function

    with pytest.raises((TFDebugError, AttributeError, pickle.PicklingError)):
        save_module(tmp_path, model)
