"""A Llama of Flax against transformers', seen by ``capture_intermediates``."""

import jax.numpy as jnp
import pytest

import jax_llama
from pytest_tfdebug import compare

SIZES = {"layers": 2, "heads": 8, "kv_heads": 2, "head_dim": 8, "inner": 96, "vocab": 99, "width": 64}


@pytest.fixture
def apply(llama, ids):
    weights = jax_llama.variables({name: held.numpy() for name, held in llama.state_dict().items()})
    tokens = jnp.asarray(ids[0].numpy())

    def run(**changed):
        model = jax_llama.Llama(**SIZES, **changed)
        logits, state = model.apply(weights, tokens, capture_intermediates=True, mutable=["intermediates"])
        return {**state["intermediates"], "logits": logits}

    return run


def test_llama_of_jax_is_quiet(recorded, apply):
    report = compare(recorded, apply())

    assert report.ok
    assert "Of output .logits only the last 1 of 8 along axis 1 was compared." in str(report)


def test_wrong_scale_is_named(recorded, apply):
    report = compare(recorded, apply(gain=1.1))

    assert report.culprit.path == "model.layers.0.self_attn"
    assert any("scaled_dot_product_attention" in it.lines.code for step in report.steps for it in step.statements)


def test_wrong_epsilon_is_named(recorded, apply):
    report = compare(recorded, apply(eps=1e-3))

    assert report.first.label == "norm_0.__call__.0"
    assert report.culprit.path == "model.layers.0.input_layernorm"
