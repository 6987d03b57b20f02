"""peft, as people use it: its wrapper is seen through, and what it adapts is said to be adapted."""

import pytest
import torch
from torch import nn

from pytest_tfdebug import Trace, compare, trace
from pytest_tfdebug.goldens.weights import fingerprint
from pytest_tfdebug.triage.plugin import classify
from pytest_tfdebug.triage.rules import Failure

peft = pytest.importorskip("peft", reason="peft is not installed: make test-libraries")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")  # peft's own

Q, V = "model.layers.{}.self_attn.q_proj", "model.layers.{}.self_attn.v_proj"
LORA = {"r": 2, "target_modules": ["q_proj", "v_proj"]}
#: Adapters that change nothing before they are trained.
FRESH = {
    "lora": lambda: peft.LoraConfig(**LORA),
    "dora": lambda: peft.LoraConfig(**LORA, use_dora=True),
    "ia3": lambda: peft.IA3Config(target_modules=["q_proj", "v_proj"], feedforward_modules=[]),
    "loha": lambda: peft.LoHaConfig(**LORA),
    "adalora": lambda: peft.AdaLoraConfig(**LORA, total_step=10),
    "tokens": lambda: peft.LoraConfig(**LORA, trainable_token_indices=[1, 2]),
    "saved": lambda: peft.LoraConfig(**LORA, modules_to_save=["lm_head"]),
}


def adapted(model, config, **options):
    torch.manual_seed(1)
    config.task_type = None if options else "CAUSAL_LM"
    return peft.get_peft_model(model, config, **options).eval()


def trained(model, **options):
    return adapted(model, peft.LoraConfig(**LORA, init_lora_weights=False), **options)


@pytest.mark.as_run(
    "peft",
    works="Names are those of the base. An adapter without effect agrees with it.",
)
@pytest.mark.parametrize("config", FRESH.values(), ids=FRESH)
def test_adapter_that_changes_nothing_agrees_with_its_base_which_is_said(config, make_llama, ids):
    model = adapted(make_llama(), config())
    base = make_llama()

    report = compare(trace(base, ids), trace(model, ids))

    assert report.ok
    assert report.coverage.compared == report.coverage.expected == 32
    (note,) = report.notes
    assert note.startswith("Adapted by peft: ")
    assert Q.format(0) in note
    assert fingerprint(base).items() <= fingerprint(model).items()


@pytest.mark.as_run(
    "peft",
    limits="An adapter with an effect fails, and is named.",
)
@pytest.mark.parametrize("options", [{}, {"mixed": True}], ids=["single", "mixed"])
def test_adapter_that_changes_its_layer_is_what_differs_from_the_base(options, make_llama, ids):
    expected, actual = trace(make_llama(), ids), trace(trained(make_llama(), **options), ids)

    there, back = compare(expected, actual), compare(actual, expected)

    assert (there.culprit.kind, there.culprit.path) == ("module", Q.format(0))
    assert f"in {Q.format(0)} (Linear): is adapted by peft, and the expected one is not\n" in str(there)
    told = f"Adapted by peft: {Q.format(0)}, {V.format(0)}, {Q.format(1)} and 1 more. Its base has these layers without"
    assert told in " ".join(str(there).split())
    assert f"{Q.format(0)} (Linear): is not adapted, and the expected one is, by peft\n" in str(back)
    assert str(back).startswith("modeling_llama.py:")


def test_layer_that_was_trained_beside_the_adapters_is_what_differs(make_llama, ids):
    model = adapted(make_llama(), FRESH["saved"]())
    model.base_model.model.lm_head.modules_to_save["default"].weight.data *= 2

    report = compare(trace(make_llama(), ids), trace(model, ids))

    assert report.culprit.path == "lm_head"
    assert "is adapted by peft, and the expected one is not" in report.culprit.explanation


@pytest.mark.as_run("peft")
@pytest.mark.parametrize("make", [lambda model: adapted(model, FRESH["lora"]()), trained], ids=["fresh", "trained"])
def test_bug_in_the_base_is_named_below_its_adapters(make, make_llama, ids):
    wrong = make_llama()
    wrong.model.layers[1].mlp.act_fn = nn.GELU()
    expected = trace(make_llama() if make is not trained else trained(make_llama()), ids)

    report = compare(expected, trace(make(wrong), ids))

    assert report.culprit.path == "model.layers.1.mlp.act_fn"


def test_other_weights_of_an_adapted_layer_are_named_and_not_the_adapter(make_llama, ids):
    base, wrong = make_llama(), make_llama()
    wrong.model.layers[0].self_attn.q_proj.weight.data *= 2
    expected, model = trace(base, ids), adapted(wrong, FRESH["lora"]())

    report = compare(expected, trace(model, ids))

    assert (report.culprit.kind, report.culprit.weights) == ("weights", (f"{Q.format(0)}.weight",))


@pytest.mark.as_run(
    "peft",
    works="A merged adapter agrees with the unmerged one.",
    limits="Against the base, a merged one looks like changed weights.",
)
def test_merged_adapter_agrees_with_the_unmerged_one(make_llama, ids, tmp_path):
    expected = trace(trained(make_llama()), ids)
    expected.save(tmp_path / "lora.safetensors")
    in_place = trained(make_llama())
    in_place.merge_adapter()
    merged = trained(make_llama()).merge_and_unload()
    base = make_llama()

    assert compare(Trace.load(tmp_path / "lora.safetensors"), trace(merged, ids)).ok
    assert compare(expected, trace(in_place, ids)).ok
    assert compare(trace(merged, ids), expected).ok
    assert compare(trace(base, ids), trace(merged, ids)).culprit.weights == (f"{Q.format(0)}.weight",)


@pytest.mark.as_run("peft", limits="Prompt and prefix tuning are refused.")
@pytest.mark.parametrize("config", ["PromptTuningConfig", "PrefixTuningConfig"])
def test_tuned_prompts_are_said_to_be_other_inputs(config, make_llama, ids):
    model = adapted(make_llama(), getattr(peft, config)(num_virtual_tokens=3))

    report = compare(trace(make_llama(), ids), trace(model, ids))

    assert str(report).startswith("LlamaForCausalLM (LlamaForCausalLM): was given other inputs\n")


def test_modules_that_are_not_there_have_a_diagnosis():
    model = nn.Sequential(nn.Linear(4, 4))
    try:
        peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"]))
    except ValueError as error:
        finding = classify(Failure.of(error, "test_it.py::test_it", "call"))

    assert finding.rule == "peft-targets"
    assert finding.what == "the model has no module named {'q_proj'}."
    assert finding.fix.startswith("target_modules=")
