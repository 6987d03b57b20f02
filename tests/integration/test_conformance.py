"""All promises of a model class by one line, on tiny models of transformers."""

import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

import pytest_tfdebug
from pytest_tfdebug.conform.checkpointing import differing
from pytest_tfdebug.conform.mixin import PROMISES, judge
from pytest_tfdebug.conform.subject import Subject
from pytest_tfdebug.errors import ConformanceError

SMALL = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
LLAMA = LlamaConfig(
    **SMALL, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, tie_word_embeddings=True
)
GPT2 = GPT2Config(vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=1)
T5 = T5Config(vocab_size=64, d_model=16, d_ff=24, num_layers=2, num_heads=2, d_kv=8, decoder_start_token_id=0)

TestLlama = pytest_tfdebug.conformance(LlamaForCausalLM, LLAMA)
TestGPT2 = pytest_tfdebug.conformance(GPT2LMHeadModel, GPT2)
TestBert = pytest_tfdebug.conformance(BertForMaskedLM, BertConfig(**SMALL, max_position_embeddings=64))
TestT5 = pytest_tfdebug.conformance(T5ForConditionalGeneration, T5)
TestViT = pytest_tfdebug.conformance(
    ViTForImageClassification,
    ViTConfig(**{name: SMALL[name] for name in SMALL if name != "vocab_size"}, image_size=8, patch_size=4),
)

IDS = torch.arange(5, 23).view(2, 9)
BY_NAME = {promise.name: promise for promise in PROMISES}


def found(model_class, promise, config=LLAMA, **inputs):
    return BY_NAME[promise].find(Subject(model_class, config, inputs or {"input_ids": IDS}))


class CutsTheGraph(LlamaForCausalLM):
    def forward(self, input_ids, **kwargs):
        hidden = self.model(input_ids, **kwargs).last_hidden_state
        return {"logits": self.lm_head(hidden.detach())}


class DetachedMLP(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, hidden):
        return self.inner(hidden).detach()


class CutsInsideOfALayer(LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.model.layers[1].mlp = DetachedMLP(self.model.layers[1].mlp)


class DropsTheCache(LlamaForCausalLM):
    def forward(self, input_ids, use_cache=None, **kwargs):
        output = super().forward(input_ids, use_cache=use_cache, **kwargs)
        output.logits = output.logits + 1 if use_cache else output.logits
        return output


class HasASpareToken(LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.mask_token = torch.nn.Parameter(torch.zeros(16))


class NeedsFullPrecision(LlamaForCausalLM):
    def forward(self, input_ids, **kwargs):
        output = super().forward(input_ids, **kwargs)
        output.logits = output.logits @ torch.eye(64)
        return output


def test_weight_that_is_not_saved_is_found():
    class LosesAWeight(LlamaForCausalLM):
        def save_pretrained(self, folder):
            kept = {key: value for key, value in self.state_dict().items() if key != "model.norm.weight"}
            super().save_pretrained(folder, state_dict=kept)

    finding = found(LosesAWeight, "clean_load")

    assert finding.failure.splitlines()[:2] == [
        "LosesAWeight does not load its own checkpoint clean: weights do not match.",
        "  missing, random now: model.norm.weight",
    ]


def test_parameters_that_matter_and_have_no_gradient_are_found():
    finding = found(CutsTheGraph, "gradients")

    assert "model.layers.0.self_attn.q_proj.weight" in finding.failure
    assert "lm_head.weight" not in finding.failure


def test_module_that_cuts_the_graph_is_named():
    finding = found(CutsInsideOfALayer, "gradients")

    assert "model.layers.1.mlp.inner.down_proj.weight" in finding.failure
    assert (finding.culprit.path, finding.culprit.class_name) == ("model.layers.1.mlp", "DetachedMLP")


def test_parameter_without_effect_is_a_note():
    finding = found(HasASpareToken, "gradients")

    assert not finding.failure
    assert finding.note.endswith("mask_token")


def test_answer_that_depends_on_use_cache_is_found():
    assert "use_cache=True against use_cache=False" in found(DropsTheCache, "use_cache").failure
    assert found(LlamaForCausalLM, "use_cache") == found(LlamaForCausalLM, "overflow")


def test_model_that_raises_in_another_dtype_breaks_that_promise_at_a_line():
    finding = found(NeedsFullPrecision, "dtype")

    assert re.match(r"test_conformance.py:\d+ in .*: raises where the plain call does not\n", finding.failure)
    assert "The repeated call raised RuntimeError: " in finding.failure


class Clamps(torch.nn.Module):
    def forward(self, ids):
        return ids.clamp_(max=7)


class Careless(LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.clamps = Clamps()

    def forward(self, input_ids=None, **kwargs):
        return super().forward(self.clamps(input_ids), **kwargs)


def test_model_that_writes_into_its_inputs_is_found_with_the_module():
    finding = found(Careless, "inputs")

    assert finding.failure.splitlines()[0] == "Careless changes its inputs: ['input_ids'], in clamps (Clamps)."
    assert finding.culprit.path == "clamps"


class ClampsFirst(LlamaForCausalLM):
    def forward(self, input_ids=None, **kwargs):
        return super().forward(input_ids.clamp_(max=7), **kwargs)


def test_model_that_writes_before_it_calls_a_module_is_found_itself():
    finding = found(ClampsFirst, "inputs")

    told = "ClampsFirst changes its inputs: ['input_ids'], in its own forward (ClampsFirst)."
    assert finding.failure.splitlines()[0] == told
    assert finding.culprit.path == "ClampsFirst"


class PutsIntoADict(LlamaForCausalLM):
    def forward(self, input_ids=None, features=None, **kwargs):
        features["embeddings"] = self.model.embed_tokens(input_ids)
        features["mask"] = features["mask"].bool()
        return super().forward(input_ids, **kwargs)


def test_model_that_puts_tensors_into_a_dict_it_was_given_is_found():
    finding = found(PutsIntoADict, "inputs", input_ids=IDS, features={"mask": torch.ones_like(IDS)})

    told = "PutsIntoADict changes its inputs: ['features']['embeddings'], ['features']['mask'], in its own forward"
    assert finding.failure.splitlines()[0].startswith(told)


class OneStepBack(LlamaForCausalLM):
    def forward(self, input_ids=None, position_ids=None, past_key_values=None, **kwargs):
        begun = 0 if past_key_values is None else past_key_values.get_seq_length()
        if position_ids is None and begun:
            position_ids = torch.arange(begun - 1, begun - 1 + input_ids.shape[1])[None].expand(len(input_ids), -1)
        return super().forward(input_ids, position_ids=position_ids, past_key_values=past_key_values, **kwargs)


def test_cache_that_is_off_by_one_position_says_position():
    finding = found(OneStepBack, "cache")

    assert finding.diagnosis == (
        "positions that restart with each step or are off by one: with position_ids given to it, the step is right."
    )


class DropsItsMask(LlamaForCausalLM):
    def forward(self, input_ids=None, attention_mask=None, **kwargs):
        return super().forward(input_ids, **kwargs)


def test_mask_that_never_arrives_is_placed_once():
    broken = {
        promise.name: finding
        for promise in PROMISES
        if (finding := promise.find(Subject(DropsItsMask, LLAMA, {"input_ids": IDS}))).failure
    }

    assert list(broken) == ["padding"]
    assert broken["padding"].culprit.path == "DropsItsMask"
    assert "takes a mask and was given none, although 'DropsItsMask' had one." in broken["padding"].diagnosis
    assert "the mask has no effect on it" in found(DropsItsMask, "cache").note


def test_model_that_cannot_be_built_is_told_in_a_line():
    class Unbuilt(LlamaForCausalLM):
        def __init__(self, config):
            raise ValueError(f"no such width: {config.hidden_size}")

    with pytest.raises(pytest_tfdebug.TFDebugError) as caught:
        found(Unbuilt, "batch")

    assert str(caught.value) == "Unbuilt cannot be built from its configuration: ValueError: no such width: 16"


def test_model_that_cannot_be_called_is_an_error_and_no_verdict():
    with pytest.raises(pytest_tfdebug.TFDebugError, match=r"cannot be called with pixels: .*\nGive inputs="):
        judge(Subject(LlamaForCausalLM, LLAMA, {"pixels": IDS}), BY_NAME["batch"])


def test_rounding_that_a_model_magnifies_is_no_fault():
    class Magnifies(LlamaForCausalLM):
        def forward(self, input_ids, **kwargs):
            output = super().forward(input_ids, **kwargs)
            return {"logits": torch.sin(output.logits * (1e4 if output.logits.dtype == torch.float32 else 1.0))}

    class MagnifiesInFloat32(LlamaForCausalLM):
        def forward(self, input_ids, **kwargs):
            logits, offset = super().forward(input_ids, **kwargs).logits.float(), 100.0 * len(input_ids)
            return {"logits": torch.sin(((logits + offset) - offset) * 1e3)}

    class Leaks(LlamaForCausalLM):
        def forward(self, input_ids, **kwargs):
            output = super().forward(input_ids, **kwargs)
            return {"logits": output.logits + 1e-2 * input_ids.float().mean()}

    assert not found(Magnifies, "batch").failure
    assert not found(MagnifiesInFloat32, "batch").failure
    assert "depends on its batch" in found(Leaks, "batch").failure


class RoundsWithItsLength(LlamaForCausalLM):
    """Rounds its answer in float32, whatever its dtype, and the more coarsely the longer its input is."""

    def forward(self, input_ids, past_key_values=None, **kwargs):
        output = super().forward(input_ids, past_key_values=past_key_values, **kwargs)
        offset = 30.0 * input_ids.shape[1]
        output.logits = (output.logits.to(torch.float32) + offset) - offset
        return output


class RoundsAndTakesNoChunks(RoundsWithItsLength):
    def forward(self, input_ids, past_key_values=None, **kwargs):
        begun = past_key_values is not None and past_key_values.get_seq_length() > 0
        output = super().forward(input_ids, past_key_values=past_key_values, **kwargs)
        output.logits = output.logits + float(begun and input_ids.shape[1] > 1)
        return output


def test_rounding_of_a_step_is_no_cache_fault_and_hides_none():
    finding = found(RoundsWithItsLength, "cache")

    assert not finding.failure
    assert finding.note.startswith(
        "RoundsWithItsLength magnifies the rounding of float32 (4 tokens of prefill and 5 steps"
    )
    assert "chunks of 3 tokens, tokens 3 to 5" in found(RoundsAndTakesNoChunks, "cache").failure


def test_what_is_declared_to_vary_has_to_vary():
    cut = Subject(CutsTheGraph, LLAMA, {"input_ids": IDS})
    sound = Subject(LlamaForCausalLM, LLAMA, {"input_ids": IDS})

    assert judge(cut, BY_NAME["gradients"], "a frozen trunk").state == "varies"
    with pytest.raises(ConformanceError, match="keeps it") as raised:
        judge(sound, BY_NAME["gradients"], "a frozen trunk")
    assert str(raised.value).endswith("Take LlamaForCausalLM out of varies['gradients'].")


@pytest.mark.parametrize(
    ("varies", "told"),
    [
        ({"paddings": "why"}, "which is no promise; the promises are padding, batch"),
        ({"padding": {"LlamaModel": "why"}}, "the classes are LlamaForCausalLM"),
        ({"padding": " "}, "say why it varies by design"),
    ],
)
def test_declaration_that_makes_no_sense_is_refused(varies, told):
    with pytest.raises(pytest_tfdebug.TFDebugError, match=told):
        pytest_tfdebug.conformance(LlamaForCausalLM, LLAMA, varies=varies)


SUITE = """
import copy
import random
import unittest
import torch
import pytest_tfdebug
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

global_rng = random.Random()


class Leaky(GPT2Model):
    def forward(self, input_ids, attention_mask=None, **kwargs):
        output = super().forward(input_ids, attention_mask=attention_mask, **kwargs)
        output.last_hidden_state = output.last_hidden_state + input_ids.float().mean()
        return output


class GPT2ModelTester:
    def prepare_config_and_inputs_for_common(self):
        config = GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=1)
        ids = torch.tensor([[global_rng.randint(0, 39) for _ in range(7)] for _ in range(3)])
        mask = torch.tensor([[1, global_rng.randint(0, 1), 1, 0, 1, 1, 0] for _ in range(3)])
        return config, {"input_ids": ids, "attention_mask": mask, "labels": None}


class ModelTesterMixin:
    def _prepare_for_class(self, inputs, model_class):
        return copy.deepcopy(inputs)


class GPT2ModelTest(ModelTesterMixin, pytest_tfdebug.ConformanceMixin, unittest.TestCase):
    all_model_classes = (GPT2LMHeadModel, Leaky)

    def setUp(self):
        self.model_tester = GPT2ModelTester()
"""


@pytest.fixture
def suite(pytester):
    pytester.makepyfile(test_modeling_common=SUITE)
    return pytester


def run(pytester, *arguments):
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-k", "batch or use_cache or golden", *arguments)


def test_each_class_of_a_test_suite_is_held_to_each_promise(suite):
    result = run(suite, "--tf-json=checks.json")

    result.stdout.fnmatch_lines(
        [
            "*Leaky depends on its batch: row 0 in its batch of 3, against the row alone.",
            "*To declare that by design: varies={'batch': {'Leaky': 'the reason'}}",
            "*= tfdebug conformance =*",
            "*batch  golden use_cache",
            "Leaky*FAILS  -      ok",
            "GPT2LMHeadModel ok     -      ok",
            "2 models: 3 promises kept, 0 vary by design, 2 do not apply, 1 broken.",
        ]
    )
    checks = json.loads(Path("checks.json").read_text())["checks"]
    assert {(check["model"], check["status"]) for check in checks} == {
        ("Leaky", "failed"),
        ("Leaky", "passed"),
        ("GPT2LMHeadModel", "passed"),
    }
    assert result.parseoutcomes()["skipped"] == 1  # no golden for any class


def test_golden_that_exists_is_one_promise_more(suite):
    recorded = run(suite, "--tf-golden=missing", "-k", "golden")
    checked = run(suite, "-k", "golden")

    assert recorded.ret == checked.ret == 0
    checked.stdout.fnmatch_lines(["2 models: 2 promises kept*"])


def test_tests_run_without_pytest_too():
    result = unittest.TestResult()

    unittest.defaultTestLoader.loadTestsFromName("test_conformance_batch", TestLlama).run(result)

    assert result.testsRun == 1
    assert result.wasSuccessful()


def test_controller_reads_verdicts_without_heavy_modules():
    code = (
        "import sys, pytest_tfdebug.check_record, pytest_tfdebug.report.tables\n"
        "sys.exit(', '.join({'torch', 'transformers', 'numpy', 'safetensors'} & set(sys.modules)) or None)"
    )

    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


class Checkpointed(LlamaForCausalLM):
    """Checkpoints its layers by itself, and gives each a list: a reentrant checkpoint then sees no tensor."""

    is_reentrant = True

    def forward(self, input_ids, **_):
        hidden = self.model.embed_tokens(input_ids)
        for layer in self.model.layers:
            hidden = hidden + self.run(layer.mlp, [hidden])
        return {"logits": self.lm_head(hidden)}

    def run(self, block, box):
        if not (self.training and self.model.gradient_checkpointing):
            return block(box[0])
        return torch.utils.checkpoint.checkpoint(lambda given: block(given[0]), box, use_reentrant=self.is_reentrant)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gradient_checkpoint_that_loses_gradients_is_found():
    finding = found(Checkpointed, "checkpointing")

    assert finding.failure.startswith("Checkpointed trains otherwise with gradient checkpointing: 6 of ")
    assert "model.layers.0.mlp.gate_proj.weight" in finding.failure
    assert finding.diagnosis.startswith("a reentrant checkpoint was given no tensor that needs a gradient")


def test_gradient_checkpoint_that_is_right_keeps_the_promise():
    class Right(Checkpointed):
        is_reentrant = False

    assert not found(Right, "checkpointing").failure
    assert found(LlamaForCausalLM, "checkpointing").repeats == 1


def test_gradient_that_cancels_to_rounding_is_not_another_one():
    """That of a key's bias, which a softmax cancels."""
    one = {"weight": torch.ones(8), "key.bias": torch.full((8,), 1e-9)}
    other = {"weight": torch.ones(8), "key.bias": torch.full((8,), -2e-9)}

    assert not differing(one, other)
    assert differing(one, {**other, "key.bias": torch.full((8,), 1e-4)}) == ["key.bias"]


def test_forward_with_names_of_its_own_is_told_which_inputs_to_give():
    class Port(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.words = torch.nn.Embedding(config.vocab_size, config.hidden_size)

        def forward(self, tokens, mask=None):
            return self.words(tokens)

    test_case = pytest_tfdebug.conformance(Port, LLAMA)("test_conformance_batch")

    with pytest.raises(pytest_tfdebug.TFDebugError) as error:
        test_case.test_conformance_batch()

    assert str(error.value) == """Port's forward takes tokens, mask: say conformance(..., inputs={"tokens": ...})"""


class OwnNames(torch.nn.Module):
    """A Llama whose forward takes tokens and a mask."""

    def __init__(self, config, *, keeps_mask=True):
        super().__init__()
        self.config, self.inner, self.keeps_mask = config, LlamaForCausalLM(config), keeps_mask

    def forward(self, tokens, mask=None):
        return {"logits": self.inner(tokens, attention_mask=mask if self.keeps_mask else None).logits}


class OwnNamesWithoutMask(OwnNames):
    def __init__(self, config):
        super().__init__(config, keeps_mask=False)


def test_names_of_inputs_mean_what_they_mean_to_the_marker():
    names = {"tokens": "input_ids", "mask": "attention_mask"}
    outcomes = {}
    for kind in (OwnNames, OwnNamesWithoutMask):
        subject = next(iter(pytest_tfdebug.conformance(kind, LLAMA, inputs=names)().conformance_subjects()))
        outcomes[kind] = {name: BY_NAME[name].find(subject) for name in ("padding", "batch", "overflow", "gradients")}

    assert set(subject.call.inputs) == {"tokens", "mask"}
    assert all(outcome.repeats and not outcome.failure for outcome in outcomes[OwnNames].values())
    assert "is not invariant to padding" in outcomes[OwnNamesWithoutMask].pop("padding").failure
    assert not any(outcome.failure for outcome in outcomes[OwnNamesWithoutMask].values())


def test_inputs_themselves_are_given_beside_named_ones():
    mask = torch.ones(2, 9, dtype=torch.long)
    case = pytest_tfdebug.conformance(OwnNames, LLAMA, inputs={"tokens": "input_ids", "mask": mask})()

    subject = next(iter(case.conformance_subjects()))

    assert subject.call.inputs["mask"].equal(mask)
    assert subject.call.inputs["tokens"].shape == (2, 9)


def test_name_that_the_forward_does_not_take_is_refused():
    case = pytest_tfdebug.conformance(OwnNames, LLAMA, inputs={"token": "input_ids"})("test_conformance_batch")

    with pytest.raises(pytest_tfdebug.TFDebugError) as error:
        case.test_conformance_batch()

    told = "OwnNames: inputs= names 'token', which the forward does not take; it takes tokens, mask."
    assert str(error.value) == told


def test_missing_argument_is_told_without_a_traceback_into_the_plugin(pytester):
    pytester.makepyfile(
        test_it="""
        import pytest_tfdebug
        from test_conformance import LLAMA, OwnNames

        TestOwnNames = pytest_tfdebug.conformance(OwnNames, LLAMA)
        """
    )

    result = pytester.runpytest("-k", "batch or cache")

    told = """OwnNames's forward takes tokens, mask: say conformance(..., inputs={"tokens": ...})"""
    assert sum(line.startswith("E ") and line.endswith(told) for line in result.outlines) == 3, "two caches and a batch"
    result.stdout.no_fnmatch_line("*subject.py*")
    result.stdout.no_fnmatch_line("*functools.py*")
