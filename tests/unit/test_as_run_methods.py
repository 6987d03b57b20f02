"""Other methods than ``forward``."""

import pytest
import torch
from torch import nn
from transformers import CLIPConfig, CLIPModel, LlamaConfig, LlamaForCausalLM

from pytest_tfdebug import TFDebugError, compare, trace
from pytest_tfdebug.tracing.record.recorder import Recorder

PIXELS = torch.linspace(-1, 1, 3 * 8 * 8).view(1, 3, 8, 8)
IDS = torch.arange(1, 6)[None]


def clip(epsilon=1e-5):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = CLIPModel(
        CLIPConfig(
            text_config={**sizes, "vocab_size": 32, "eos_token_id": 2},
            vision_config={**sizes, "image_size": 8, "patch_size": 4},
            projection_dim=8,
        )
    ).eval()
    model.vision_model.post_layernorm.eps = epsilon
    return model


class Encoder(nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(4, 4)
        self.scale = scale

    def encode(self, x, *, normalize=True):
        hidden = self.inner(x) * self.scale
        return nn.functional.normalize(hidden, dim=-1) if normalize else hidden

    def forward(self, x):
        return self.encode(x) + 1

    def twice(self, x):
        return self(self(x))

    def failing(self, x):
        self.inner(x)
        raise ValueError("the model's own")


X = torch.arange(8.0).view(2, 4) / 8


@pytest.mark.as_run(
    "method", works='`trace(model, method="get_image_features")`, `tf_golden.check(model.get_image_features)`.'
)
def test_method_is_recorded_as_the_call_of_the_root():
    model = clip()

    recorded = trace(model, pixel_values=PIXELS, method="get_image_features")

    root = recorded["CLIPModel"]
    assert [call.path for call in recorded][:2] == ["CLIPModel", "vision_model"]
    assert recorded["vision_model"].parent == root.index
    assert [item.leaf for item in root.inputs] == ["['pixel_values']"]
    assert "text_model" not in [call.path for call in recorded]
    assert compare(recorded, trace(clip(), pixel_values=PIXELS, method="get_image_features")).ok


@pytest.mark.as_run("method")
def test_bug_behind_a_method_is_named():
    expected = trace(clip(), pixel_values=PIXELS, method="get_image_features")

    report = compare(expected, trace(clip(epsilon=1.0), pixel_values=PIXELS, method="get_image_features"))

    assert (report.culprit.kind, report.culprit.path) == ("module", "vision_model.post_layernorm")


def test_glue_of_a_method_is_named_with_its_line():
    def traced(scale):
        return trace(Encoder(scale), X, normalize=False, method="encode")

    report = compare(traced(1.0), traced(2.0))

    assert (report.culprit.kind, report.culprit.path) == ("glue", "Encoder")
    assert report.culprit.source.first == Encoder.encode.__code__.co_firstlineno + 1


def test_method_that_calls_the_model_itself_has_its_forwards_inside():
    recorded = trace(Encoder(), X, method="twice")

    assert [(call.name, call.depth) for call in recorded] == [
        ("Encoder", 0), ("Encoder#1", 1), ("inner", 2), ("Encoder#2", 1), ("inner#1", 2),
    ]  # fmt: skip


def test_generate_is_a_method():
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=32
    )
    model = LlamaForCausalLM(config).eval()

    recorded = trace(
        model, IDS, max_new_tokens=3, do_sample=False, pad_token_id=0, eos_token_id=None, method="generate"
    )

    steps = [call for call in recorded if call.path == "LlamaForCausalLM"]
    assert [call.depth for call in steps] == [0, 1, 1, 1]
    assert steps[0].outputs[0].shape == (1, 8)


def test_method_that_raises_leaves_no_call_open():
    model = Encoder()
    calls = []

    class Seen:
        def enter(self, call, leaves, args, kwargs):
            calls.append(call)

        def leave(self, call, leaves, output):
            pass

        def fail(self, call):
            pass

    with Recorder(model, Seen()) as recorder:
        with pytest.raises(ValueError, match="the model's own"):
            recorder.run("failing", (X,), {})
        model(X)

    assert [(call.name, call.depth, call.error) for call in calls] == [
        ("Encoder", 0, "ValueError"), ("inner", 1, None), ("Encoder#1", 0, None), ("inner#1", 1, None),
    ]  # fmt: skip


@pytest.mark.as_run("method")
def test_unknown_method_is_refused_with_the_nearest():
    with pytest.raises(TFDebugError) as caught:
        trace(Encoder(), X, method="encod")
    assert str(caught.value) == "method='encod': Encoder has no method of that name. Did you mean method='encode'?"
