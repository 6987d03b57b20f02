"""torchao's weights: read as what they stand for, in a trace, a file, a fingerprint and a failing check."""

import pytest
from torch import nn

from pytest_tfdebug import Trace, compare, overflow_guard, trace
from pytest_tfdebug.goldens.weights import fingerprint

pytest.importorskip("torchao", reason="torchao is not installed: make test-libraries")

import torchao.quantization as ao

KINDS = ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig", "Float8WeightOnlyConfig"]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")  # torchao's own
UP = "model.layers.1.mlp.up_proj"


def quantized(model, kind):
    ao.quantize_(model, getattr(ao, kind)())
    return model


@pytest.mark.as_run(
    "torchao",
    works="int8 and float8 weights and dynamic int8 activations are read as numbers.",
    limits="float8 activations and int4 are not tested.",
)
@pytest.mark.parametrize("kind", KINDS)
def test_torchao_weights_are_read_stored_and_told_apart(kind, make_llama, ids, tmp_path):
    model, other, bug = make_llama(), make_llama(), make_llama()
    other.get_submodule(UP).weight.data *= 1.5
    bug.model.layers[1].mlp.act_fn = nn.GELU()
    for each in (model, other, bug):
        quantized(each, kind)

    expected = trace(model, ids)
    expected.save(tmp_path / "trace.safetensors")
    loaded = Trace.load(tmp_path / "trace.safetensors")

    assert compare(loaded, trace(quantized(make_llama(), kind), ids)).ok
    assert compare(loaded, trace(bug, ids)).culprit.path == "model.layers.1.mlp.act_fn"
    report = compare(expected, trace(other, ids))
    assert report.culprit.path == UP
    if "Dynamic" not in kind:  # rounding turns a dynamic one's activations, so that a second forward tells nothing
        assert (report.culprit.kind, report.culprit.weights) == ("weights", (f"{UP}.weight",))
    prints = fingerprint(model)
    assert fingerprint(quantized(make_llama(), kind)) == prints
    assert [name for name, own in fingerprint(other).items() if own != prints[name]] == [f"{UP}.weight"]
    with overflow_guard(model) as guard:
        model(ids)
    assert guard.forwards == 1


GOLDENS = """
import os
import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_
from transformers import LlamaConfig, LlamaForCausalLM

def test_it(tf_golden):
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=64)).eval()
    if "QUANTIZED" in os.environ:
        quantize_(model, Int8WeightOnlyConfig())
    tf_golden.check(model, torch.arange(1, 9)[None])
"""


@pytest.mark.as_run("torchao", limits="Against an unquantized golden, weights differ.")
@pytest.mark.parametrize("recorded", [{}, {"QUANTIZED": "1"}], ids=["bare", "quantized"])
def test_quantized_model_has_other_weights_than_a_bare_golden(recorded, pytester, monkeypatch):
    pytester.makepyfile(GOLDENS)
    checked = {} if recorded else {"QUANTIZED": "1"}
    for name in recorded:
        monkeypatch.setenv(name, "1")
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tf-golden=update").assert_outcomes(passed=1)
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    monkeypatch.delenv("QUANTIZED", raising=False)
    for name in checked:
        monkeypatch.setenv(name, "1")

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*q_proj (Linear): has other weights: model.layers.0.self_attn.q_proj.weight"])
