"""``generate``: the first step that differs with equal inputs decides, later steps follow from it."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from pytest_tfdebug import compare, record, trace

IDS = torch.tensor([[1, 5, 3, 7]])
GREEDY = {"do_sample": False, "max_new_tokens": 6, "min_new_tokens": 6, "pad_token_id": 0}
WAYS = {
    "greedy": GREEDY,
    "no-cache": {**GREEDY, "use_cache": False},
    "static-cache": {**GREEDY, "cache_implementation": "static"},
    "beams": {**GREEDY, "num_beams": 2},
    "sample": {**GREEDY, "do_sample": True, "temperature": 0.01},
    "prompt-lookup": {**GREEDY, "prompt_lookup_num_tokens": 2},
    "assisted": {**GREEDY, "assistant_layers": 1},
}
QUIET = ("greedy", "beams", "assisted")


def llama(layers=2):
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=layers, num_attention_heads=2, vocab_size=32, head_dim=8
    )
    return LlamaForCausalLM(config).eval()


def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=32, n_positions=32)).eval()


def wrong():
    model = llama()
    model.model.layers[1].mlp.down_proj.weight.data *= -30
    return model


def generated(model, *, assistant_layers=0, **options):
    if assistant_layers:
        options["assistant_model"] = llama(assistant_layers)
    torch.manual_seed(0)
    with torch.no_grad(), record(model) as recorded:
        tokens = model.generate(IDS, attention_mask=torch.ones_like(IDS), **options)
    return recorded, tokens


@pytest.mark.as_run(
    "generate",
    works='`method="generate"`, or `record(model)` around it.',
    limits="Seed sampling yourself.",
)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_bug_that_turns_tokens_is_named_in_the_step_that_it_turned(way):
    (expected, right), (actual, other) = generated(llama(), **way), generated(wrong(), **way)

    report = compare(expected, actual)

    assert not torch.equal(right, other)
    assert (report.culprit.kind, report.culprit.path) == ("module", "model.layers.1.mlp.down_proj")
    assert report.culprit.divergence.call == 0


@pytest.mark.as_run("generate", works="The report names the first step that differs.")
def test_step_that_differs_first_decides_and_not_the_later_ones():
    model = gpt2()
    (expected, right) = generated(gpt2(), **GREEDY)
    model.transformer.wpe.weight.data[6] *= -40

    (actual, other) = generated(model, **GREEDY)
    report = compare(expected, actual)

    assert right[0, :7].tolist() == other[0, :7].tolist()
    assert right.tolist() != other.tolist()
    assert (report.culprit.path, report.culprit.divergence.call) == ("transformer.wpe", 3)


@pytest.mark.parametrize("way", [WAYS[name] for name in QUIET], ids=QUIET)
def test_generations_that_agree_are_quiet(way):
    assert compare(generated(llama(), **way)[0], generated(llama(), **way)[0]).ok


def test_other_prompts_are_still_other_inputs():
    model = llama()
    with torch.no_grad(), record(model) as expected:
        model(IDS)
        model(IDS + 1)
    with torch.no_grad(), record(model) as actual:
        model(IDS)
        model(IDS + 2)

    assert compare(expected, actual).culprit.kind == "inputs"


def test_generate_as_a_method_is_one_forward_with_its_steps_inside():
    inputs = {"attention_mask": torch.ones_like(IDS), **GREEDY, "method": "generate"}

    report = compare(trace(llama(), IDS, **inputs), trace(wrong(), IDS, **inputs))

    assert report.culprit.path == "model.layers.1.mlp.down_proj"
