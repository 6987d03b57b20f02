"""Compiled models: what runs in compiled code is unrecorded, never missing, and no hook of ours is compiled."""

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from pytest_tfdebug import compare, trace
from pytest_tfdebug.goldens.golden_file import load, save
from pytest_tfdebug.goldens.held_model import compare_with
from pytest_tfdebug.goldens.port_call import PortCall
from pytest_tfdebug.goldens.settings import CheckSettings
from pytest_tfdebug.parity.tensors.tolerance import Tolerances

torch.compile(nn.Identity(), backend="eager")  # loaded before a run in this process, which would unload it for good
IDS = torch.arange(1, 9)[None]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()


@pytest.fixture
def compiled_frames():
    """The graphs that the compiler was given, and a backend that keeps them."""
    seen = []

    def backend(graph, _inputs):
        seen.append(graph)
        return graph.forward

    return seen, backend


class Outer(nn.Module):
    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.function(self.inner, x)


def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=32, head_dim=8
    )
    return LlamaForCausalLM(config).eval()


def whole(model, backend="eager"):
    return torch.compile(model, backend=backend)


def in_place(model, backend="eager"):
    model.compile(backend=backend)
    return model


def by_forward(model, backend="eager"):
    model.forward = torch.compile(model.forward, backend=backend)
    return model


def of_layers(way):
    def compiled(model, backend="eager"):
        layers = model.model.layers
        for number, layer in enumerate(layers):
            layers[number] = way(layer, backend)
        return model

    return compiled


WAYS = {"compile": whole, "in-place": in_place, "forward": by_forward}


@pytest.mark.as_run(
    "compiled",
    works="Checked by inputs and outputs. After a failure, the operators run uncompiled.",
)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_compiled_model_is_held_by_its_inputs_and_outputs(way):
    expected, actual = trace(llama(), IDS), trace(way(llama()), IDS)

    assert [call.path for call in actual] == ["LlamaForCausalLM"]
    assert actual.modules == actual.unrecorded == expected.modules
    for report in (compare(expected, actual), compare(actual, expected)):
        assert report.ok, report
        assert "The model is compiled: only its own inputs and outputs can be seen." in str(report)


@pytest.mark.as_run("compiled")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_compiled_layers_are_seen_from_outside(way):
    expected, actual = trace(llama(), IDS), trace(of_layers(way)(llama()), IDS)

    assert [call.path for call in actual if "layers" in call.path] == ["model.layers.0", "model.layers.1"]
    assert [call.path for call in actual if "layers" not in call.path] == [
        call.path for call in expected if "layers" not in call.path
    ]
    assert "model.layers.0.self_attn" in actual.unrecorded
    assert "model.layers.0" not in actual.unrecorded
    for report in (compare(expected, actual), compare(actual, expected)):
        assert report.ok, report
        assert report.coverage.compared == report.coverage.expected


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_bug_in_a_compiled_layer_is_named_by_that_layer(way):
    wrong = llama()
    wrong.model.layers[1].input_layernorm.variance_epsilon = 1.0

    report = compare(trace(llama(), IDS), trace(of_layers(way)(wrong), IDS))

    assert report.culprit.path.startswith("model.layers.1")
    assert report.culprit.kind in ("module", "glue")


@pytest.mark.as_run(
    "compiled",
    works="Nothing is recompiled.",
    limits="A function compiled before the check hides its modules, without a note.",
)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_no_hook_of_ours_is_compiled_with_the_model(way, compiled_frames):
    graphs, backend = compiled_frames
    model = way(Outer(lambda inner, value: inner(value).relu()), backend)
    inputs = torch.ones(2, 4)
    with torch.no_grad():
        expected = model(inputs)
    assert len(graphs) == 1

    recorded = trace(model, inputs)

    assert len(graphs) == 1
    assert torch.equal(recorded["Outer"].outputs[0].tensor, expected)
    assert torch.equal(model(inputs), expected)


def test_model_compiled_in_place_is_left_so():
    model = in_place(nn.Linear(4, 4))
    before = model._compiled_call_impl

    trace(model, torch.ones(2, 4))

    assert model._compiled_call_impl is before


@pytest.mark.as_run(
    "compiled function",
    works="A note names the modules that it hides.",
    limits="`fullgraph=True` around a whole watched model is refused.",
)
def test_modules_inside_compiled_code_of_their_caller_are_said_to_be_unseen():
    function = torch.compile(lambda inner, value: inner(value) + 1, backend="eager", fullgraph=True)

    recorded = trace(Outer(function), torch.ones(2, 4))

    assert [call.path for call in recorded] == ["Outer"]
    assert recorded.unrecorded == ("inner",)
    assert compare(trace(Outer(lambda inner, value: inner(value) + 1), torch.ones(2, 4)), recorded)
    assert recorded.notes == ("inner runs in compiled code of its caller and cannot be seen there.",)


@pytest.mark.as_run("compiled function", limits="If the check compiles it, the model runs twice.")
@pytest.mark.parametrize("added", [1, 2])
def test_golden_holds_a_compiled_function_by_what_can_be_seen(tmp_path, added):
    model, x = Outer(lambda inner, value: inner(value) + 1), torch.ones(2, 4)
    save(tmp_path / "golden.safetensors", trace(model, x), model, "test")
    port = Outer(torch.compile(lambda inner, value: inner(value) + added, backend="eager", fullgraph=True))
    settings = CheckSettings(Tolerances(), None, (), (), "all")

    report = compare_with(load(tmp_path / "golden.safetensors"), port, PortCall((x,), {}), settings)

    assert (report.ok, report.unpaired) == (added == 1, [])
    assert report.notes.count("inner runs in compiled code of its caller and cannot be seen there.") == 1
