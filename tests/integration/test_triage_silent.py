"""Failures of the bucket ``silent correctness``: what transformers logs and goes on after."""

import json
import logging

import pytest
import torch
import transformers
from transformers import BertForSequenceClassification

#: transformers 4 fails otherwise, or not at all, where these do.
ONLY_5 = pytest.mark.skipif(transformers.__version__ < "5", reason="transformers 4 does this otherwise")

SECTION = "tfdebug triage"


def bodies(result):
    found = {}
    for report in result.getreports("pytest_runtest_logreport"):
        if report.failed:
            before, title, after = report.longreprtext.partition(f" {SECTION} ")
            found[report.nodeid.rpartition("::")[2]] = after.lstrip("-\n") if title and not before.strip("-") else None
    return found


@pytest.fixture(autouse=True)
def said_again():
    """Let transformers say again what it says once per process."""
    logging.Logger.warning_once.cache_clear()


@pytest.fixture
def run(pytester, llama, bert):
    """Return a function that runs a test file; ``LLAMA`` and ``BERT`` in it are directories with tiny models."""

    def run_file(code):
        pytester.makepyfile(test_silent=code.replace("LLAMA", repr(str(llama))).replace("BERT", repr(str(bert))))
        return pytester.inline_run("-p", "no:cacheprovider")

    return run_file


@ONLY_5
def test_load_report_is_told_to_a_failed_test(run, bert):
    found = bodies(
        run(
            """
            from transformers import LlamaForCausalLM

            def test_it():
                model = LlamaForCausalLM.from_pretrained(BERT)
                assert model.config.hidden_size == 0
            """
        )
    )

    lines = found["test_it"].splitlines()
    assert lines[0] == "bucket: silent correctness (in the transformers log)"
    assert lines[1] == (
        f"what happened: LlamaForCausalLM was loaded from {bert} and its weights are not those of the checkpoint."
    )
    assert lines[2].startswith("  missing (random now): lm_head.weight, model.embed_tokens.weight, ")
    assert lines[3].startswith("  unexpected (left out): bert.embeddings.LayerNorm.bias, ")
    assert "  also: a config of model type bert was read as one of type llama" in found["test_it"]
    assert "  also: tied weights are absent from the checkpoint on both sides: they are random." in found["test_it"]
    assert "smallest fix: load it with the class that saved it (architectures in its config.json)" in found["test_it"]
    assert 'next step: mark the test with @pytest.mark.invariant("clean_load")' in found["test_it"]
    assert BertForSequenceClassification.from_pretrained(bert, output_loading_info=True)[1]["missing_keys"] == set()


@ONLY_5
def test_load_report_of_one_test_is_not_told_to_another(run):
    found = bodies(
        run(
            """
            from transformers import LlamaForCausalLM

            def test_loads():
                LlamaForCausalLM.from_pretrained(BERT)

            def test_fails():
                assert 1 == 2
            """
        )
    )

    assert found == {"test_fails": None}


def test_passing_test_is_not_bothered(run):
    result = run(
        """
        from transformers import LlamaForCausalLM

        def test_it():
            LlamaForCausalLM.from_pretrained(BERT)
        """
    )

    result.assertoutcome(passed=1)


def test_load_report_of_a_shared_fixture_is_told_to_every_user(run):
    found = bodies(
        run(
            """
            import unittest
            import pytest
            from transformers import LlamaForCausalLM

            @pytest.fixture(scope="module")
            def model():
                return LlamaForCausalLM.from_pretrained(BERT)

            def test_first(model):
                assert model is None

            def test_second(model):
                assert model is None

            def test_without():
                assert 1 == 2

            class TestCase(unittest.TestCase):
                @classmethod
                def setUpClass(cls):
                    cls.model = LlamaForCausalLM.from_pretrained(BERT)

                def test_case_one(self):
                    assert self.model is None

                def test_case_two(self):
                    assert self.model is None
            """
        )
    )

    assert {name for name, body in found.items() if body and "silent correctness" in body} == {
        "test_first",
        "test_second",
        "test_case_one",
        "test_case_two",
    }
    assert found["test_without"] is None


def test_what_is_logged_at_import_is_told_to_no_test(run):
    found = bodies(
        run(
            """
            from transformers import LlamaForCausalLM

            model = LlamaForCausalLM.from_pretrained(BERT)

            def test_it():
                assert model is None
            """
        )
    )

    assert found == {"test_it": None}


@ONLY_5
def test_rope_parameters_that_are_nested_by_layer_type_are_not_called_ignored(run):
    found = bodies(
        run(
            """
            import logging
            from transformers import Gemma3TextConfig

            def test_it():
                kinds = {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in ("full_attention", "sliding_attention")}
                config = Gemma3TextConfig()
                config._check_received_keys("default", {"rope_type", "rope_theta", *kinds}, {"rope_type", "rope_theta"})
                assert 1 == 2
            """
        )
    )

    assert found == {"test_it": None}


@ONLY_5
def test_shapes_that_differ_are_listed_with_the_error(run):
    found = bodies(
        run(
            """
            from transformers import BertForSequenceClassification

            def test_it():
                BertForSequenceClassification.from_pretrained(BERT, num_labels=5)
            """
        )
    )

    assert found["test_it"].startswith("bucket: runtime/shape (in call)")
    assert "classifier.weight (checkpoint [2, 16], model [5, 16])" in found["test_it"]
    assert found["test_it"].count("bucket:") == 1


def test_logged_advice_stands_beside_another_failure(run):
    found = bodies(
        run(
            """
            import torch
            from transformers import LlamaForCausalLM

            def test_it():
                model = LlamaForCausalLM.from_pretrained(BERT)
                model(torch.tensor([[99]]))
            """
        )
    )

    assert [line for line in found["test_it"].splitlines() if line.startswith("bucket: ")] == [
        "bucket: runtime/range (in call)",
        "bucket: silent correctness (in the transformers log)",
    ]


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (
            "model.generate(ids, attention_mask=(ids != 0).long(), max_new_tokens=1, pad_token_id=0)",
            "a decoder-only model generated from right-padded ids: it continues after padding.",
        ),
        (
            "model.generate(ids, max_new_tokens=1, pad_token_id=2, eos_token_id=2)",
            "generate got a batch without an attention mask: padding is attended to.",
        ),
    ],
    ids=["right padding", "no mask"],
)
def test_generation_that_attends_to_padding(run, code, what):
    found = bodies(
        run(
            f"""
            import torch
            from transformers import LlamaForCausalLM

            def test_it():
                model = LlamaForCausalLM.from_pretrained(LLAMA)
                ids = torch.tensor([[5, 6, 0], [5, 6, 7]])
                {code}
                assert 1 == 2
            """
        )
    )

    assert f"what happened: {what}" in found["test_it"]


def test_padding_without_a_mask(run):
    found = bodies(
        run(
            """
            import torch
            from transformers import GPT2Config, GPT2Model

            def test_it():
                model = GPT2Model(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=8, pad_token_id=0))
                model(torch.tensor([[5, 6, 0, 0]]))
                assert 1 == 2
            """
        )
    )

    assert "what happened: the ids hold pad tokens and no attention mask was passed" in found["test_it"]
    assert "smallest fix: pass attention_mask=(input_ids != pad_token_id).long()" in found["test_it"]


def test_text_that_is_longer_than_the_model(run):
    found = bodies(
        run(
            """
            from tokenizers import Tokenizer
            from tokenizers.models import WordLevel
            from tokenizers.pre_tokenizers import Whitespace
            from transformers import PreTrainedTokenizerFast

            def test_it():
                words = Tokenizer(WordLevel({"a": 0}, unk_token="a"))
                words.pre_tokenizer = Whitespace()
                PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=2)("a a a")
                assert 1 == 2
            """
        )
    )

    assert "what happened: a text was tokenized to more ids than the model has positions (3 > 2)." in found["test_it"]
    assert "smallest fix: tokenizer(text, truncation=True)" in found["test_it"]


@ONLY_5
def test_rope_keys_that_nothing_reads(run):
    found = bodies(
        run(
            """
            from transformers import LlamaConfig

            def test_it():
                LlamaConfig(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4, "fctor": 1.0})
                assert 1 == 2
            """
        )
    )

    assert "rope_parameters of type linear has keys that are ignored: {'fctor'}." in found["test_it"]


def test_state_dict_that_does_not_fit(triage_of, bert):
    model = BertForSequenceClassification.from_pretrained(bert)
    state = {f"model.{name}": value for name, value in model.state_dict().items()}

    finding = triage_of(lambda: model.load_state_dict(state))

    assert finding.rule == "state-dict-does-not-fit"
    assert finding.what == "the weights do not fit BertForSequenceClassification: 41 missing, 41 unexpected."
    assert finding.facts[0].startswith("missing: bert.embeddings.word_embeddings.weight, ")
    state = {name.removeprefix("model."): value for name, value in state.items()}
    state["classifier.bias"] = torch.zeros(5)

    finding = triage_of(lambda: model.load_state_dict(state))

    assert finding.what == "the weights do not fit BertForSequenceClassification: 1 of other shapes."
    assert finding.facts == ("of other shapes: classifier.bias (checkpoint [5], model [2])",)
    del state["classifier.bias"]
    assert model.load_state_dict(state, strict=False).missing_keys == ["classifier.bias"]


@ONLY_5
def test_size_mismatch_loads_with_the_checkpoints_own_labels(triage_of, bert):
    finding = triage_of(lambda: BertForSequenceClassification.from_pretrained(bert, num_labels=5))

    assert finding.rule == "mismatched-weights"
    assert finding.fix.startswith("load with the checkpoint's own num_labels and vocab_size")
    labels = len(json.loads((bert / "config.json").read_text()).get("id2label", {0: 0, 1: 1}))
    assert BertForSequenceClassification.from_pretrained(bert, num_labels=labels)(torch.tensor([[1]])) is not None
