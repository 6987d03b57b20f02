"""What differs inside a module and does no harm is not blamed for what another one does."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

import pytest_tfdebug
from golden_files import held
from injections import edit, reload, set_to
from models import build

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from injections import Inject

_CACHED = "key_states, value_states = past_key_values.update(key_states, value_states, self.layer_idx)"
_WIDE = "encoder.block.0.layer.1.DenseReluDense"


def _port() -> tuple[nn.Module, nn.Module, dict[str, Any]]:
    model, inputs = build("llama")
    return model, copy.deepcopy(model), inputs


def test_scale_folded_into_the_queries_is_not_blamed_for_the_head() -> None:
    model, port, inputs = _port()
    reload("*.q_proj", "weight", lambda weight: 2 * weight)(port)
    set_to("LlamaAttention", scaling=lambda attention: attention.scaling / 2)(port)
    reload("lm_head", "weight", lambda weight: 1.1 * weight)(port)

    report = pytest_tfdebug.compare(pytest_tfdebug.trace(model, **inputs), pytest_tfdebug.trace(port, **inputs))

    assert report.culprit is not None
    assert (report.culprit.path, report.culprit.kind) == ("lm_head", "weights"), str(report)


def test_other_cache_is_told_and_not_the_projection_of_another_shape() -> None:
    model, port, inputs = _port()
    edit("LlamaAttention", "self.q_proj(hidden_states)", "self.q_proj(hidden_states[:, None])")(port)
    edit("LlamaAttention", _CACHED, "past_key_values.update(key_states[..., :4], value_states, self.layer_idx)")(port)

    report = pytest_tfdebug.compare(pytest_tfdebug.trace(model, **inputs), pytest_tfdebug.trace(port, **inputs))

    assert report.culprit is not None
    assert report.culprit.path == "model.layers.0.self_attn", str(report)
    assert report.culprit.divergence is not None
    assert report.culprit.divergence.comparison.leaf == "DynamicCache.layers[0].keys", str(report)


@pytest.mark.parametrize(
    ("fault", "path"),
    [
        (reload(f"{_WIDE}.wi_0", "weight", lambda weight: 2 * weight), f"{_WIDE}.wi_0"),
        (edit("decoder", "self.final_layer_norm(hidden_states)", "1.0 * hidden_states"), "decoder.final_layer_norm"),
    ],
)
def test_bias_of_each_row_is_not_blamed_for_another_fault(fault: Inject, path: str) -> None:
    model, inputs = build("t5")
    port = copy.deepcopy(model)
    edit(
        "T5Attention", "return attn_output, position_bias,", "return attn_output, position_bias.expand(2, -1, -1, -1),"
    )(port)
    fault(port)

    report = pytest_tfdebug.compare(pytest_tfdebug.trace(model, **inputs), pytest_tfdebug.trace(port, **inputs))

    assert report.culprit is not None
    assert report.culprit.path == path, str(report)


def test_proved_line_in_the_module_that_calls_name_goes_first(tmp_path: Path) -> None:
    model, inputs = build("vit")
    port: Any = copy.deepcopy(model)
    edit("ViTMLP", "self.fc1(", "self.wide(")(port)
    for layer in port.vit.layers:
        layer.mlp.wide = layer.mlp.fc1
        del layer.mlp.fc1
        for module in (layer, layer.attention, layer.mlp):
            module.__class__ = type(f"Own{type(module).__name__}", (type(module),), {})
    edit("ViTPatchEmbeddings", ".flatten(2)", ".transpose(2, 3).flatten(2)")(port)

    report = held(tmp_path, model, port, inputs, explain_seconds=60)

    assert report.culprit is not None
    assert (report.culprit.path, bool(report.culprit.proved)) == ("vit.embeddings.patch_embeddings", True), str(report)
