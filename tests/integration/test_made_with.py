"""Modules that are made with another argument than the reference's hold others: the line that gives it is named."""

import importlib.util
import linecache

import pytest
import torch
from transformers import MobileNetV2Config
from transformers.models.mobilenet_v2.modeling_mobilenet_v2 import MobileNetV2InvertedResidual

import pytest_tfdebug
from pytest_tfdebug.constructed import noted

MAPS = {"features": torch.randn(2, 8, 6, 6, generator=torch.Generator().manual_seed(1))}
PORT = """
from torch import nn
from transformers.models.mobilenet_v2.modeling_mobilenet_v2 import MobileNetV2ConvLayer as Layer


class Inverted(nn.Module):
    def __init__(self, config, width, out, activated={activated}):
        super().__init__()
        self.expand_1x1 = Layer(config, width, width * 6, kernel_size=1)
        self.conv_3x3 = Layer(config, width * 6, width * 6, kernel_size=3, groups=width * 6)
        self.reduce_1x1 = Layer(config, width * 6, out, kernel_size=1{reduced})

    def forward(self, features):
        return {scale}features + self.reduce_1x1(self.conv_3x3(self.expand_1x1(features)))
"""


@pytest.fixture(autouse=True)
def _noted(one_thread):
    with noted():
        yield


def loaded(file):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def port_of(folder, reduced="", *, activated=False, scale="", **config):
    """Return an inverted residual of its own, and the file that it is written in."""
    file = folder / "port.py"
    file.write_text(PORT.format(reduced=reduced, activated=activated, scale=scale))
    return pytest_tfdebug.fill(loaded(file).Inverted(MobileNetV2Config(**config), 8, 8).eval(), seed=0), file


def held(reference, port):
    return pytest_tfdebug.compare(pytest_tfdebug.trace(reference, **MAPS), pytest_tfdebug.trace(port, **MAPS))


def line_of(file, text):
    return next(at for at, line in enumerate(linecache.getlines(str(file)), 1) if text in line)


def reference():
    return pytest_tfdebug.fill(MobileNetV2InvertedResidual(MobileNetV2Config(), 8, 8, stride=1).eval(), seed=0)


def test_line_that_forgets_an_argument_by_which_a_library_s_module_has_no_activation_is_named(tmp_path):
    port, file = port_of(tmp_path)

    report = held(reference(), port)

    made = "makes 'reduce_1x1' with use_activation=True, and the reference's is made with use_activation=False"
    assert (report.culprit.path, report.culprit.wrong) == ("Inverted", made)
    assert str(report.culprit.source).endswith(f"port.py:{line_of(file, 'self.reduce_1x1 =')}")
    assert report.culprit.why == "With use_activation=False every output agrees."
    assert report.culprit.certain
    assert port.reduce_1x1.activation is not None  # it is made so for the trial alone


def test_default_that_is_not_the_reference_s_is_named(tmp_path):
    folders = [tmp_path / name for name in ("port", "reference")]
    for folder in folders:
        folder.mkdir()
    port, file = port_of(folders[0], ", use_activation=activated", activated=True)
    right, _ = port_of(folders[1], ", use_activation=activated")

    report = held(right, port)

    told = "takes activated=True where none is given, and the reference's takes activated=False"
    assert (report.culprit.wrong, report.culprit.certain) == (told, True)
    assert str(report.culprit.source).endswith(f"port.py:{line_of(file, 'activated=True')}")


def test_line_that_hands_an_argument_on_is_named_as_uncertain(tmp_path):
    port, file = port_of(tmp_path, ", use_activation=config.is_active", is_active=True)
    right, _ = port_of(tmp_path, ", use_activation=config.is_active", is_active=False)

    report = held(right, port)

    assert str(report.culprit.source).endswith(f"port.py:{line_of(file, 'self.reduce_1x1 =')}")
    assert (report.culprit.why, report.culprit.certain) == ("With use_activation=False every output agrees.", False)


def test_line_is_named_also_where_the_port_has_another_mistake(tmp_path):
    port, file = port_of(tmp_path, scale="0.5 * ")

    report = held(reference(), port)

    made = "makes 'reduce_1x1' with use_activation=True, and the reference's is made with use_activation=False"
    assert (report.culprit.path, report.culprit.wrong) == ("Inverted", made)
    assert str(report.culprit.source).endswith(f"port.py:{line_of(file, 'self.reduce_1x1 =')}")
    assert "the expected one does not" in report.culprit.why


def test_line_is_named_also_where_the_port_has_no_weights_for_what_it_lacks(tmp_path):
    port, file = port_of(tmp_path, ", use_activation=False, use_normalization=False")

    report = held(reference(), port)

    made = "makes 'reduce_1x1' with use_normalization=False, and the reference's is made with use_normalization=True"
    assert report.culprit.wrong == made
    assert str(report.culprit.source).endswith(f"port.py:{line_of(file, 'self.reduce_1x1 =')}")


BUILT = """
from torch import nn


class Scaled(nn.Module):
    def __init__(self, width, scale=1.0):
        super().__init__()
        self.linear, self.scale = nn.Linear(width, width), scale

    def forward(self, x):
        return self.linear(x) * self.scale


def built(width):
    first = Scaled(width, scale=0.5)
    return nn.Sequential(first, Scaled({given}))
"""


def test_argument_that_a_function_of_no_class_forgets_is_told_there(tmp_path):
    models = []
    for name, given in (("reference", "width, scale=0.25"), ("port", "width")):
        file = tmp_path / f"{name}.py"
        file.write_text(BUILT.format(given=given))
        models.append(pytest_tfdebug.fill(loaded(file).built(6).eval(), seed=0))

    report = pytest_tfdebug.compare(*(pytest_tfdebug.trace(model, MAPS["features"]) for model in models))

    assert (report.culprit.path, report.culprit.wrong) == ("1", "has scale 1.0")
    assert str(report.culprit.source).endswith(f"port.py:{line_of(file, 'nn.Sequential(')}")
    assert str(report.culprit.reference).endswith(f"reference.py:{line_of(file, 'nn.Sequential(')}")
    assert report.culprit.certain
