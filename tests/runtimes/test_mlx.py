"""mlx-lm's models with a reference's weights, every module's inputs and outputs, held to it."""

import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx_lm.models import llama as mlx_llama

import pytest_tfdebug.mlx
from pytest_tfdebug import compare, trace
from pytest_tfdebug.tracing.trace import Trace

sys.path.append(str(Path(__file__).parents[2] / "utils" / "runtimes"))

from mlx_corpus import IDS, mlx_model, reference


@pytest.fixture(autouse=True)
def _on_the_cpu():
    mx.set_default_device(mx.cpu)


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "mixtral", "mamba2"])
def test_port_of_mlx_lm_is_quiet(kind):
    model = reference(kind)

    report = compare(
        trace(model, input_ids=IDS, use_cache=False),
        pytest_tfdebug.mlx.arrays(mlx_model(model), mx.array(IDS.numpy())),
    )

    assert report.ok
    assert not report.uncompared


def test_dropped_residual_is_named_and_the_classes_are_left_as_they_were(monkeypatch):
    model, port = reference("llama"), mlx_model(reference("llama"))
    original = mlx_llama.TransformerBlock.__call__
    wrong = lambda self, x, mask=None, cache=None: self.self_attn(self.input_layernorm(x), mask, cache)  # noqa: E731
    monkeypatch.setattr(mlx_llama.TransformerBlock, "__call__", wrong)

    report = compare(
        trace(model, input_ids=IDS, use_cache=False), pytest_tfdebug.mlx.arrays(port, mx.array(IDS.numpy()))
    )

    assert mlx_llama.TransformerBlock.__call__ is wrong is not original
    assert any("residual + hidden_states" in it.lines.code for step in report.steps for it in step.statements)


def test_half_precision_is_held_to_the_floors_of_a_golden(tmp_path):
    model = reference("qwen2")
    recorded = trace(model, input_ids=IDS, use_cache=False)
    recorded.save(tmp_path / "golden.safetensors", dtypes=("bfloat16",))
    recorded = Trace.load(tmp_path / "golden.safetensors")
    right = pytest_tfdebug.mlx.arrays(mlx_model(model, dtype="bfloat16"), mx.array(IDS.numpy()))
    assert compare(recorded, right).ok

    port = mlx_model(model, dtype="bfloat16")
    port.layers[0].mlp.gate_proj.weight = -port.layers[0].mlp.gate_proj.weight
    report = compare(recorded, pytest_tfdebug.mlx.arrays(port, mx.array(IDS.numpy())))

    assert "layers.0.mlp" in report.culprit.path


def test_array_that_changes_later_is_kept_as_it_was():
    class Doubling(nn.Module):
        def __call__(self, x):
            x *= 2
            return x

    found = pytest_tfdebug.mlx.arrays(Doubling(), mx.ones((2, 3)))

    assert [(label, np.array(held).max()) for label, held in found] == [("output input", 1.0), ("output", 2.0)]
