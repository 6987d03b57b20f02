"""The check ``clean_load`` of ``invariant``."""

import pytest
from transformers import PreTrainedModel


@pytest.fixture
def run(pytester, llama, bert):
    """Return a function that runs a test file; ``LLAMA`` and ``BERT`` in it are directories with tiny models."""

    def run_file(code, *arguments):
        pytester.makepyfile(test_load=code.replace("LLAMA", repr(str(llama))).replace("BERT", repr(str(bert))))
        return pytester.runpytest("-p", "no:cacheprovider", *arguments)

    return run_file


def test_clean_load_passes(run):
    result = run(
        """
        import pytest
        from transformers import AutoModelForCausalLM, LlamaForCausalLM

        @pytest.mark.invariant("clean_load")
        def test_it():
            LlamaForCausalLM.from_pretrained(LLAMA)
            AutoModelForCausalLM.from_pretrained(LLAMA)
        """
    )

    result.assert_outcomes(passed=1)


def test_random_weights_fail_a_test_that_passes(run, bert):
    result = run(
        """
        import pytest
        from transformers import LlamaForCausalLM

        @pytest.mark.invariant("clean_load")
        def test_it():
            LlamaForCausalLM.from_pretrained(BERT)
        """
    )

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "test_load.py:* in LlamaForCausalLM: is not clean: 21 missing, 41 unexpected, 0 mismatched weights",
            f"*LlamaForCausalLM loaded from {bert} *",
            "*Next: load it with the class that saved it, or allow keys with @pytest.mark.invariant(?clean_load?,",
            "  missing, random now: lm_head.weight, model.embed_tokens.weight, *",
            "  unexpected, left out: *bert.embeddings.LayerNorm.bias, *",
            "*- tfdebug triage -*",
            "bucket: silent correctness (in the transformers log)",
            "next step: compare the checkpoint's keys with model.state_dict().keys()",
        ]
    )


def test_silenced_log_hides_nothing(run):
    result = run(
        """
        import pytest
        import transformers
        from transformers import LlamaForCausalLM

        @pytest.mark.invariant("clean_load")
        def test_it():
            before = transformers.logging.get_verbosity()
            transformers.logging.set_verbosity_error()
            LlamaForCausalLM.from_pretrained(BERT)
            transformers.logging.set_verbosity(before)
        """
    )

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*21 missing, 41 unexpected, 0 mismatched weights"])


def test_mismatched_weights_fail(run):
    result = run(
        """
        import pytest
        from transformers import BertForSequenceClassification

        @pytest.mark.invariant("clean_load")
        def test_it():
            BertForSequenceClassification.from_pretrained(BERT, num_labels=5, ignore_mismatched_sizes=True)
        """
    )

    result.stdout.fnmatch_lines(
        [
            "*0 missing, 0 unexpected, 2 mismatched weights",
            "*mismatched, random now: classifier.bias*, classifier.weight*",
        ]
    )


def test_test_that_loaded_nothing_fails(run):
    result = run(
        """
        import pytest

        @pytest.mark.invariant("clean_load")
        def test_it():
            pass
        """
    )

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "invariant('clean_load') checked nothing: no transformers model was loaded with from_pretrained in this test or its fixtures.",
            "*Load the model in the test or in a fixture (not at import), or remove the marker.",
            "*What load_state_dict loads is held to its checkpoint by tf_golden.check_loaded(model, checkpoint).",
        ]
    )


def test_keys_can_be_allowed(run):
    result = run(
        """
        import pytest
        from transformers import BertModel

        @pytest.mark.invariant("clean_load", allow=["^classifier"])
        def test_allowed():
            BertModel.from_pretrained(BERT)

        @pytest.mark.invariant("clean_load")
        def test_not_allowed():
            BertModel.from_pretrained(BERT)
        """
    )

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*unexpected, left out: classifier.bias, classifier.weight"])


def test_fixtures_and_test_cases_are_checked(run):
    result = run(
        """
        import unittest
        import pytest
        from transformers import BertForSequenceClassification, LlamaForCausalLM

        @pytest.fixture(scope="module")
        def clean():
            return BertForSequenceClassification.from_pretrained(BERT)

        @pytest.fixture(scope="module")
        def unclean():
            return LlamaForCausalLM.from_pretrained(BERT)

        def test_sets_both_up(clean, unclean):
            pass

        @pytest.mark.invariant("clean_load")
        def test_clean(clean):
            pass

        @pytest.mark.invariant("clean_load")
        def test_unclean(unclean):
            pass

        @pytest.mark.invariant("clean_load")
        class TestClass:
            def test_unclean_in_class(self):
                LlamaForCausalLM.from_pretrained(BERT)

        class TestCase(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                cls.model = LlamaForCausalLM.from_pretrained(BERT)

            @pytest.mark.invariant("clean_load")
            def test_unclean_in_case(self):
                pass

            def test_unmarked(self):
                pass
        """,
        "-rf",
    )

    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines(
        ["FAILED *test_unclean *", "FAILED *test_unclean_in_class *", "FAILED *test_unclean_in_case *"]
    )


def test_skipped_and_failing_tests_keep_their_outcome(run):
    result = run(
        """
        import pytest

        @pytest.mark.invariant("clean_load")
        def test_skipped():
            pytest.skip("no checkpoint")

        @pytest.mark.invariant("clean_load")
        def test_failing():
            assert 1 == 2
        """
    )

    result.assert_outcomes(skipped=1, failed=1)
    assert "checked nothing" not in result.stdout.str()


def test_loading_info_that_the_test_asks_for_is_its_own(run):
    result = run(
        """
        import pytest
        from transformers import LlamaForCausalLM

        @pytest.mark.invariant("clean_load")
        def test_it():
            model, info = LlamaForCausalLM.from_pretrained(LLAMA, output_loading_info=True)
            assert not info["missing_keys"]
        """
    )

    result.assert_outcomes(passed=1)


def test_wrong_marker_arguments_are_named(run):
    result = run(
        """
        import pytest

        @pytest.mark.invariant("clean_load", ignore=["x"])
        def test_it():
            pass
        """
    )

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*UsageError: *invariant has no argument ignore=[[]'x'[]]; it takes allow."])


@pytest.mark.parametrize(
    ("allow", "told"),
    [("['classifier(']", "'classifier(' is not a regular expression (missing ), *"), ("[3]", "3 is not a regular *")],
)
def test_allowed_key_that_is_no_regular_expression_is_a_usage_error(run, allow, told):
    result = run(f"import pytest\n\n@pytest.mark.invariant('clean_load', allow={allow})\ndef test_it():\n    pass\n")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*UsageError: *invariant: allow={told}; it is searched in each key."])


def test_from_pretrained_is_put_back(run):
    before = vars(PreTrainedModel)["from_pretrained"]

    run("import pytest\n\n@pytest.mark.invariant('clean_load')\ndef test_it():\n    pass\n")

    assert vars(PreTrainedModel)["from_pretrained"] is before


@pytest.mark.nightly
def test_workers_check_too(run):
    result = run(
        """
        import pytest
        from transformers import LlamaForCausalLM

        @pytest.mark.invariant("clean_load")
        def test_it():
            LlamaForCausalLM.from_pretrained(BERT)
        """,
        "-n",
        "1",
    )

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*is not clean: 21 missing*", "*- tfdebug triage -*"])
