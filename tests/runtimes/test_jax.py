"""A Llama of Flax against transformers': seen by its jaxpr, and by ``capture_intermediates``."""

import jax
import jax.numpy as jnp
import pytest

import jax_llama
import pytest_tfdebug.jax
from pytest_tfdebug import compare

SIZES = {"layers": 2, "heads": 8, "kv_heads": 2, "head_dim": 8, "inner": 96, "vocab": 99, "width": 64}


@pytest.fixture
def apply(llama, ids):
    weights = jax_llama.variables({name: held.numpy() for name, held in llama.state_dict().items()})
    tokens = jnp.asarray(ids[0].numpy())

    def run(*, captured=False, **changed):
        model = jax_llama.Llama(**SIZES, **changed)
        if captured:
            logits, state = model.apply(weights, tokens, capture_intermediates=True, mutable=["intermediates"])
            return {**state["intermediates"], "logits": logits}
        return pytest_tfdebug.jax.arrays(jax.jit(model.apply), weights, tokens)

    return run


@pytest.mark.parametrize("captured", [False, True])
def test_a_llama_of_jax_is_quiet(recorded, apply, captured):
    report = compare(recorded, apply(captured=captured))

    assert report.ok
    assert "Of output .logits only the last 1 of 8 along axis 1 was compared." in str(report)


def test_a_wrong_scale_is_named_with_the_ports_own_line(recorded, apply):
    report = compare(recorded, apply(gain=1.1))

    assert report.culprit.path == "model.layers.0.self_attn"
    assert report.first.label.startswith("jax_llama.py:")
    assert any("scaled_dot_product_attention" in it.lines.code for step in report.steps for it in step.statements)


def test_a_wrong_epsilon_is_named_among_captured_intermediates(recorded, apply):
    report = compare(recorded, apply(captured=True, eps=1e-3))

    assert report.first.label == "norm_0.__call__.0"
    assert report.culprit.path == "model.layers.0.input_layernorm"
