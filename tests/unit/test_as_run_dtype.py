"""A model in another dtype than its golden: the dtype is the answer, and no module's code is blamed."""

import pytest
import torch

from pytest_tfdebug import compare, trace

IDS = torch.arange(12).view(2, 6)


def gpt2():
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=16, n_embd=16, n_layer=2, n_head=2, n_positions=16, attn_pdrop=0, resid_pdrop=0)
    return GPT2Model(config).eval()


def vit():
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return ViTModel(ViTConfig(**sizes, image_size=8, patch_size=4)).eval()


def under_autocast(model, **inputs):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return trace(model, **inputs)


@pytest.mark.as_run("dtype", works="The dtype is named, and no module.", limits="Values are not compared.")
@pytest.mark.parametrize(
    "made",
    [lambda: trace(gpt2().bfloat16(), input_ids=IDS), lambda: under_autocast(gpt2(), input_ids=IDS)],
    ids=["converted", "autocast"],
)
def test_model_in_half_precision_is_told_and_no_embedding_is_blamed(made):
    report = compare(trace(gpt2(), input_ids=IDS), made())

    assert report.culprit.kind == "dtype"
    assert str(report).partition("\n")[0] == (
        "GPT2Model (GPT2Model): computes in bfloat16, and the expected forward in float32"
    )


def test_dtype_that_the_inputs_have_too_is_no_other_input():
    pixels = torch.rand(1, 3, 8, 8)

    report = compare(trace(vit(), pixel_values=pixels), trace(vit().bfloat16(), pixel_values=pixels.bfloat16()))

    assert report.culprit.kind == "dtype"


@pytest.mark.as_run("dtype", works="A single module in another dtype is named.")
def test_one_module_in_another_dtype_is_blamed_itself():
    wrong = gpt2()
    wrong.h[1].mlp.act.register_forward_hook(lambda _module, _args, output: output.double())
    wrong.h[1].mlp.c_proj.double().register_forward_hook(lambda _module, _args, output: output.float())

    report = compare(trace(gpt2(), input_ids=IDS), trace(wrong, input_ids=IDS), internal="fail")

    assert (report.culprit.path, report.culprit.kind) == ("h.1.mlp.act", "module")
