"""The checks of ``invariant``: each passes, fails with a culprit, and fails when it checked nothing."""

import pytest
import torch
from transformers import (
    GPT2LMHeadModel,  # noqa: F401 - pytester unloads what a run inside this process has loaded
    LlamaForCausalLM,  # noqa: F401
    RecurrentGemmaConfig,
    RecurrentGemmaForCausalLM,
)

import padding_models
import pytest_tfdebug
from injections import edit
from models import IS_V5
from pytest_tfdebug import InvarianceError, TFDebugError
from pytest_tfdebug.invariance.api import CHECKS
from pytest_tfdebug.invariance.calls.observed_call import observe
from pytest_tfdebug.invariance.checks.base import Settings
from pytest_tfdebug.tracing.record.leaves import duplicate

EVERY = ("bert", "llama", "qwen3", "gpt2", "opt", "t5", "mixtral", "whisper", "roberta", "distilbert")
PASSES = {
    "batch": (*EVERY, "vit", "clip", "mamba", "text-cnn-normed"),
    "cache": ("llama", "qwen3", "gemma3", "gpt2", "opt", "t5", "mixtral", "whisper", "mamba", "bart"),
    "attention": (*EVERY, "vit", "gemma3"),
    "save_load": (*EVERY, "vit", "gemma3", "bert-classifier"),
    "dtype": (*EVERY, "vit", "gemma3", "mamba"),
}


FIXED_IN_V4 = ("bert", "t5", "roberta", "distilbert")


def clean_models():
    for check, names in PASSES.items():
        for name in names:
            is_fixed = not IS_V5 and check == "attention" and name in FIXED_IN_V4
            skip = pytest.mark.skipif(is_fixed, reason="in transformers 4 its attention cannot be switched")
            yield pytest.param(check, name, marks=skip)


@pytest.mark.parametrize(("check", "name"), list(clean_models()))
def test_clean_models_pass(check, name):
    pytest_tfdebug.assert_invariant(*padding_models.build(name), check)


NOTHING = {
    "batch": ("text-cnn", {}, "was given no tensor by name", "Call a model with a batch"),
    "cache": (
        "distilbert",
        None,
        "its forward takes no cache (past_key_values or cache_params)",
        "Call a model that decodes and takes past_key_values, with two tokens or more",
    ),
    "attention": (
        "text-cnn",
        None,
        "has no set_attn_implementation: it is no transformers model",
        "Call a transformers model with more than one attention implementation",
    ),
    "save_load": (
        "text-cnn",
        None,
        "has no save_pretrained: it is no transformers model",
        "Call a model that has save_pretrained",
    ),
    "dtype": ("half", None, "is not a float32 model (float16)", "Call a float32 model"),
}


@pytest.mark.parametrize("check", NOTHING)
def test_check_that_checked_nothing_fails_and_says_why(check):
    name, inputs, reason, needs = NOTHING[check]
    if name == "half":
        model, given = padding_models.build("bert")
        model = model.half()
    else:
        model, given = padding_models.build(name)
    if inputs is not None:
        model, given = torch.nn.Identity(), {"input": 3}

    with pytest.raises(InvarianceError) as caught:
        pytest_tfdebug.assert_invariant(model, given, check)

    assert str(caught.value).startswith(
        f"invariant({check!r}) checked nothing: no model call of the function could be repeated.\n"
    )
    assert reason in str(caught.value)
    assert str(caught.value).endswith(f"\n{needs}.")


def test_cache_of_fixed_size_that_ends_in_pads_is_left_out():
    model, inputs = padding_models.build("qwen3")

    pytest_tfdebug.assert_invariant(model, inputs, "attention")


def test_loss_of_a_router_is_not_asked_for_step_by_step():
    model, inputs = padding_models.build("mixtral")
    model.config.output_router_logits = True

    pytest_tfdebug.assert_invariant(model, inputs, "cache")


def test_dropout_in_training_mode_is_not_a_dependence_on_the_batch():
    model, inputs = padding_models.build("bert")

    with pytest.raises(InvarianceError, match="draws random numbers that change its answer"):
        pytest_tfdebug.assert_invariant(model.train(), inputs, "batch")


def test_row_alone_is_held_to_itself_beside_another():
    model, inputs = padding_models.build("bert")
    edit(
        "embeddings",
        "embeddings = self.LayerNorm(embeddings)",
        "embeddings = self.LayerNorm(embeddings - embeddings.mean(dim=0, keepdim=True))",
    )(model)

    with pytest.raises(InvarianceError) as caught:
        pytest_tfdebug.assert_invariant(model, {"input_ids": inputs["input_ids"][:1]}, "batch")

    assert "depends on its batch: the row beside another one, against the row alone." in " ".join(
        str(caught.value).split()
    )
    assert caught.value.culprit.path == "embeddings"


def test_attention_implementation_that_is_unknown_is_told():
    model, inputs = padding_models.build("bert")

    with pytest.raises(InvarianceError, match=r"invariant\('attention'\) checked nothing") as caught:
        pytest_tfdebug.assert_invariant(model, inputs, "attention", implementations="quick")

    assert "BertModel" in str(caught.value)
    assert "quick: " in str(caught.value)


def test_attention_of_a_model_is_left_as_it_was():
    model, inputs = padding_models.build("llama")
    before = (model.config._attn_implementation, repr(model.config))

    pytest_tfdebug.assert_invariant(model, inputs, "attention")

    assert (model.config._attn_implementation, repr(model.config)) == before


def test_checkpoint_without_a_weight_is_told_by_its_keys(monkeypatch):
    model, inputs = padding_models.build("bert-classifier")
    save = type(model).save_pretrained

    def lossy(self, folder, **more):
        state = {name: value for name, value in self.state_dict().items() if "classifier.bias" not in name}
        save(self, folder, state_dict=state, **more)

    monkeypatch.setattr(type(model), "save_pretrained", lossy)
    with pytest.raises(InvarianceError) as caught:
        pytest_tfdebug.assert_invariant(model, inputs, "save_load")

    assert "is not the same after save_pretrained and from_pretrained: weights do not match." in str(caught.value)
    assert "  missing, random now: classifier.bias" in str(caught.value)


def test_worst_module_of_a_lower_precision_is_named():
    model, inputs = padding_models.build("llama")
    with torch.no_grad():
        model.model.layers[1].post_attention_layernorm.weight.mul_(1e5)
        model.model.layers[1].mlp.down_proj.weight.mul_(1e-5)

    with pytest.raises(InvarianceError) as caught:
        pytest_tfdebug.assert_invariant(model, inputs, "dtype", dtypes="float16")

    first, worst = str(caught.value).splitlines()[:2]
    assert "in float16 is not close to float32: " in first
    assert first.endswith("(up to 0.01 allowed).")
    assert "Worst module: 'model.layers.1.post_attention_layernorm'" in worst
    assert "or give bound= above" in str(caught.value)


def test_bound_is_the_users():
    model, inputs = padding_models.build("bert")

    with pytest.raises(InvarianceError, match="up to 1e-06 allowed"):
        pytest_tfdebug.assert_invariant(model, inputs, "dtype", bound=1e-6)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"dtypes": "int8"}, "assert_invariant: dtypes='int8' is not one of 'float16', 'bfloat16'."),
        ({"dtypes": 3}, "assert_invariant: dtypes=3 is not one of 'float16', 'bfloat16'."),
        ({"bound": 0}, "assert_invariant: bound=0 is not a number > 0."),
    ],
)
def test_bad_arguments_are_told(arguments, told):
    with pytest.raises(TFDebugError) as caught:
        pytest_tfdebug.assert_invariant(torch.nn.Identity(), {}, "dtype", **arguments)

    assert str(caught.value) == told


def test_model_that_keeps_an_activation_is_copied_with_its_values():
    torch.manual_seed(0)
    config = RecurrentGemmaConfig(
        vocab_size=60, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=1, lru_width=32, attention_window_size=8, bos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    model, ids = RecurrentGemmaForCausalLM(config).eval(), torch.arange(5, 17).view(2, 6)
    call, _ = observe(model, (), {"input_ids": ids}, lambda: model(input_ids=ids))  # with gradients, as in a test
    check = CHECKS["dtype"]

    outcome = check.run(call, Settings())

    kept, copied = ([layer.temporal_block for layer in each.model.layers[:2]] for each in (model, duplicate(model)))
    assert not kept[0].rg_lru.recurrent_states.is_leaf
    for one, other in zip(kept, copied, strict=True):
        assert torch.equal(one.rg_lru.recurrent_states, other.rg_lru.recurrent_states)
        assert torch.equal(one.conv1d_state, other.conv1d_state)
    assert (outcome.failure, outcome.repeats) == ("", 2)


GENERATED = """
import pytest, torch
import padding_models

@pytest.mark.invariant("cache")
def test_it():
    model, inputs = padding_models.build("llama")
    {change}
    model.generate(inputs["input_ids"], max_new_tokens=3, min_new_tokens=3, do_sample=False)
"""
SKEWED = (
    "layer = model.model.layers[0]; forward = layer.forward; "
    "layer.forward = lambda states, **more: forward(states + states.shape[1], **more)"
)


@pytest.mark.skipif(not IS_V5, reason="transformers 4 takes the last of these ids for padding")
@pytest.mark.parametrize(("change", "passed"), [("", 1), (SKEWED, 0)])
def test_generation_is_checked_by_its_prefill(pytester, change, passed):
    pytester.makepyfile(test_it=GENERATED.format(change=change))

    result = pytester.runpytest()

    result.assert_outcomes(passed=passed, failed=1 - passed)
    if not passed:
        result.stdout.fnmatch_lines(["*LlamaForCausalLM (*) gives another answer with its cache: *"])


MARKED = """
import pytest, torch, unittest
import padding_models

MARKERS = ["batch", "cache", "attention", "save_load", "dtype"]

def marked(names):
    return [pytest.param(name, marks=pytest.mark.invariant(name)) for name in names]

@pytest.mark.parametrize("name", marked(MARKERS))
def test_good(name):
    model, inputs = padding_models.build("llama")
    model(**inputs)

@pytest.mark.parametrize("name", marked(MARKERS))
def test_nothing(name):
    pass

class Case(unittest.TestCase):
    @pytest.mark.padding_invariant
    @pytest.mark.invariant("batch", "cache", "attention", "save_load")
    @pytest.mark.invariant("dtype", dtypes="bfloat16")
    def test_all_at_once(self):
        model, inputs = padding_models.build("llama")
        model(**inputs)

@pytest.mark.invariant("cache", steps=3)
def test_bad_argument():
    pass
"""


def test_each_is_a_marker(pytester):
    pytester.makeini("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    pytester.makepyfile(test_it=MARKED)

    result = pytester.runpytest()

    result.assert_outcomes(passed=6, failed=5, errors=1)
    for name in ("batch", "cache", "attention", "save_load", "dtype"):
        result.stdout.fnmatch_lines(
            [f"invariant('{name}') checked nothing: no model call of this test could be repeated."]
        )
    result.stdout.fnmatch_lines(["*UsageError: *invariant has no argument steps=3; it takes rtol, atol, inputs."])
