"""The marker: functions, classes, test cases, options, messages."""

import os
import sys

import pytest
import torch
from transformers import BertConfig, BertModel, FunnelConfig, FunnelModel

import padding_models
from pytest_tfdebug import InvarianceError, TFDebugError, assert_padding_invariant

MODELS = '''
import pytest, torch
from torch import nn

class Pooled(nn.Module):
    """Embeds tokens and takes their mean: over the mask, or over everything."""
    def __init__(self, leaks=False):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head, self.leaks, self.calls = nn.Embedding(20, 4), nn.Linear(4, 2), leaks, 0
    def forward(self, input_ids, attention_mask=None):
        self.calls += 1
        hidden = self.embed(input_ids)
        if attention_mask is None or self.leaks:
            return self.head(hidden.mean(1))
        mask = attention_mask[..., None].float()
        return self.head((hidden * mask).sum(1) / mask.sum(1))

class Silent(Pooled):
    def forward(self, input_ids, attention_mask=None):
        return super().forward(input_ids, attention_mask) * 0

IDS = torch.tensor([[3, 4, 5], [6, 7, 8]])
'''
TESTS = """
@pytest.mark.padding_invariant
def test_good_function():
    assert Pooled()(IDS).shape == (2, 2)

@pytest.mark.padding_invariant(side="right", lengths=(1, 3))
def test_bad_function():
    Pooled(leaks=True)(input_ids=IDS)

@pytest.mark.padding_invariant
class TestClass:
    def test_good_method(self):
        Pooled()(IDS, torch.ones_like(IDS))
    def test_bad_method(self):
        Pooled(leaks=True)(IDS)

import unittest

class Case(unittest.TestCase):
    def setUp(self):
        self.good, self.bad = Pooled(), Pooled(leaks=True)
    @pytest.mark.padding_invariant
    def test_good_case(self):
        self.good(IDS)
    @pytest.mark.padding_invariant
    def test_bad_case(self):
        self.bad(IDS)
    @pytest.mark.padding_invariant
    def test_failing_case(self):
        self.bad(IDS)
        self.fail("its own failure")
    @pytest.mark.padding_invariant
    def test_skipped_case(self):
        self.bad(IDS)
        self.skipTest("no reason")
"""


def write(pytester, source, ini=""):
    pytester.makeini(f"[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n{ini}")
    pytester.makepyfile(test_it=MODELS + source)


def test_functions_classes_and_test_cases(pytester):
    write(pytester, TESTS)

    result = pytester.runpytest("-v")

    result.assert_outcomes(passed=3, failed=4, skipped=1)
    for name in ("good_function", "good_method", "good_case"):
        result.stdout.fnmatch_lines([f"*test_{name} PASSED*"])
    result.stdout.fnmatch_lines(
        [
            "test_it.py:* in Pooled (Pooled): is not invariant to padding; probably pooling over pads",
            "  Pooled (test_it.py:*) is not invariant to padding: input_ids padded by 1 on the right.",
        ]
    )
    result.stdout.fnmatch_lines(["E*its own failure"])
    result.stdout.no_fnmatch_line("*hooks.py*")


NEEDS_POSITIONS = """
@pytest.mark.padding_invariant
def test_left():
    import padding_models
    model, inputs = padding_models.build("gpt2")
    model(**inputs)
"""


SUMMARY = ["*tfdebug notes*", "test_it.py::test_left: GPT2LMHeadModel needs position_ids under left padding"]


def test_summary_says_what_a_model_needs(pytester):
    write(pytester, NEEDS_POSITIONS)

    result = pytester.runpytest()

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(SUMMARY)


@pytest.mark.nightly
def test_same_under_xdist(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    write(pytester, TESTS + NEEDS_POSITIONS)

    result = pytester.runpytest_subprocess("-n", "1", "-W", "default")

    result.assert_outcomes(passed=4, failed=4, skipped=1)
    result.stdout.fnmatch_lines(SUMMARY)


def test_body_that_fails_keeps_its_failure_and_nothing_is_repeated(pytester):
    write(
        pytester,
        """
MODEL = Pooled(leaks=True)

@pytest.mark.padding_invariant
def test_it():
    MODEL(IDS)
    assert False, "its own failure"

def test_calls():
    assert MODEL.calls == 1
""",
    )

    result = pytester.runpytest()

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*its own failure*"])
    result.stdout.no_fnmatch_line("*not invariant*")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("pass", "  This test called no torch.nn.Module."),
        ("nn.Linear(2, 2)(torch.ones(1, 2))", "  Linear was given input: none of input_ids, *"),
        ("Silent()(IDS)", "  *: what was compared is one number throughout (*"),
        ("Pooled()(torch.zeros(2, 0).long())", "  input_ids of Pooled: shape (2, 0) has no sequence of tokens"),
        (
            "nn.Sequential(Pooled(), nn.Dropout()).train()(IDS)",
            "  Sequential was given input: none of input_ids, *",
        ),
    ],
)
def test_test_in_which_nothing_could_be_repeated_fails_and_says_why(pytester, body, told):
    write(pytester, f"@pytest.mark.padding_invariant\ndef test_it():\n    {body}\n")

    result = pytester.runpytest()

    result.assert_outcomes(failed=1)
    escaped = told.replace("[", "[[]")
    result.stdout.fnmatch_lines(
        [
            "padding_invariant checked nothing: no model call of this test could be repeated.",
            escaped,
            "Call a model with input_ids or inputs_embeds, or with pixels or frames and their mask, or remove the marker.",
        ]
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("side='up'", "padding_invariant: side='up' is not one of 'auto', 'right', 'left', 'both'."),
        ("side=None", "padding_invariant: side=None is not one of 'auto', 'right', 'left', 'both'."),
        ("position_ids=True", "padding_invariant: position_ids=True is not one of 'auto', 'never', 'always'."),
        ("expect='fails'", "padding_invariant: expect='fails' is not one of 'same', 'varies'."),
        ("expect='varies'", "padding_invariant: expect='varies' needs reason=: *"),
        ("filler='zero'", "padding_invariant: filler='zero' is not one of 'pad', 'random', a token id."),
        ("filler=-3", "padding_invariant: filler=-3 is not one of 'pad', 'random', a token id."),
        ("lengths=0", "padding_invariant: lengths=0 is not a number of pads >= 1 or several."),
        ("lengths=()", "padding_invariant: lengths=() is not a number of pads >= 1 or several."),
        ("lengths='3'", "padding_invariant: lengths='3' is not a number of pads >= 1 or several."),
        ("rtol=-1", "padding_invariant: rtol=-1 is not a number >= 0."),
        ("atol='x'", "padding_invariant: atol='x' is not a number >= 0."),
        ("sides='left'", "padding_invariant has no argument sides='left'; it takes rtol, *Did you mean side?"),
        ("'left'", "padding_invariant takes keyword arguments only (*) and got 'left'."),
    ],
)
def test_bad_argument_is_a_usage_error_that_lists_the_valid_ones(pytester, arguments, told):
    write(pytester, f"@pytest.mark.padding_invariant({arguments})\ndef test_it():\n    Pooled()(IDS)\n")

    result = pytester.runpytest()

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"E*UsageError: test_it.py::test_it: {told}".replace("[", "[[]")])


SEED = """
import transformers

@pytest.fixture
def model():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30522, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        initializer_range=0.5,
    )
    return transformers.BertForSequenceClassification(config).eval()

IDS = torch.tensor([[7592, 2057, 2097, 2393, 9611, 2115], [7592, 0, 0, 0, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]])

@pytest.mark.padding_invariant
def test_with_mask(model):
    model(IDS, attention_mask=MASK)

@pytest.mark.padding_invariant
@pytest.mark.filterwarnings("ignore::pytest_tfdebug.errors.TFDebugMaskWarning")
def test_without_mask(model):
    model(IDS)
"""


def test_bert_classification_with_padding_and_with_or_without_attention_mask(pytester):
    """The silent error of padded input without a mask: logits that look right, and a test that sees they are not."""
    write(pytester, SEED)

    result = pytester.runpytest("-v")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*test_with_mask PASSED*", "*test_without_mask FAILED*"])
    result.stdout.fnmatch_lines(
        [
            "*BertForSequenceClassification (test_it.py:*) is not invariant to padding: row 1 in its batch, where it *",
            "*Diagnosis: the call was made without attention_mask although rows of input_ids begin or end with pad *",
            "*Next: pass attention_mask at test_it.py:*",
        ]
    )


def test_generation_is_checked_by_its_prefill(pytester):
    write(
        pytester,
        """
@pytest.mark.padding_invariant
def test_it():
    import padding_models
    model, inputs = padding_models.build("llama")
    assert model.generate(inputs["input_ids"][:1], max_new_tokens=3, min_new_tokens=3, do_sample=False).shape == (1, 13)
""",
    )

    pytester.runpytest().assert_outcomes(passed=1)


def test_model_without_repeatable_calls_is_a_note_beside_another(pytester):
    write(
        pytester,
        """
class Unnamed(nn.Module):
    def forward(self, *args):
        return args[0]

@pytest.mark.padding_invariant
def test_it():
    Pooled()(IDS)
    Unnamed()(IDS)
""",
    )

    result = pytester.runpytest()

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*test_it: not checked: Unnamed was given 1 positional inputs and its forward names 0"]
    )


def test_weights_that_change_after_the_call_change_nothing(pytester):
    write(
        pytester,
        """
@pytest.mark.padding_invariant
def test_it():
    model = Pooled()
    model(IDS).sum().backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    IDS.add_(1)
""",
    )

    pytester.runpytest().assert_outcomes(passed=1)


def test_dropout_in_training_mode_is_refused_by_name(pytester):
    write(
        pytester,
        """
@pytest.mark.padding_invariant
def test_it():
    class Dropped(Pooled):
        def forward(self, input_ids, attention_mask=None):
            return nn.functional.dropout(super().forward(input_ids, attention_mask), 0.5, self.training)
    Dropped().train()(IDS.repeat(20, 1))
""",
    )

    result = pytester.runpytest()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["  Dropped (test_it.py:*) gives another answer each time it is called*", "Call a model with input_ids *"]
    )


def test_content_behind_the_mask_matters_only_to_the_random_filler():
    class Summed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(20, 4, padding_idx=0)

        def forward(self, input_ids, attention_mask=None):
            return self.embed(input_ids).sum(1)

    inputs = {"input_ids": torch.tensor([[3, 4, 5]])}

    assert_padding_invariant(Summed(), inputs)
    with pytest.raises(InvarianceError, match=r"Summed .* is not invariant to padding"):
        assert_padding_invariant(Summed(), inputs, filler="random")
    with pytest.raises(InvarianceError):
        assert_padding_invariant(Summed(), inputs, filler=7)


def test_nan_at_a_real_token_always_fails():
    class Holed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(20, 4)

        def forward(self, input_ids, attention_mask=None):
            return self.embed(input_ids).masked_fill(input_ids[..., None] == 4, float("nan"))

    with pytest.raises(InvarianceError, match="is not invariant to padding"):
        assert_padding_invariant(Holed(), {"input_ids": torch.tensor([[3, 4, 5]])})


def test_forward_that_breaks_on_padding_fails_with_its_exception():
    class Strict(torch.nn.Module):
        def forward(self, input_ids, attention_mask=None):
            if attention_mask is not None and not attention_mask.all():
                raise IndexError("no pads")
            return input_ids.float()

    with pytest.raises(InvarianceError) as caught:
        assert_padding_invariant(Strict(), {"input_ids": torch.tensor([[3, 4, 5]])})

    assert "  The repeated call raised IndexError: no pads" in str(caught.value)


@pytest.mark.parametrize("leaks", [False, True])
def test_model_is_left_as_it_was(leaks):
    model, inputs = padding_models.build("llama")
    if leaks:
        from padding_leaks import LEAKS

        next(leak for leak in LEAKS if leak.name == "llama-mask-ignored-in-one-layer").inject(model)
    model.model.layers[0].train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    attributes = {name: dict(vars(module)) for name, module in model.named_modules()}
    config, rng, given = (
        repr(model.config),
        torch.get_rng_state(),
        {key: value.clone() for key, value in inputs.items()},
    )

    try:
        assert_padding_invariant(model, inputs)
        failed = False
    except InvarianceError:
        failed = True

    assert failed is leaks
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert {name: vars(module).keys() for name, module in model.named_modules()} == {
        name: kept.keys() for name, kept in attributes.items()
    }
    assert repr(model.config) == config
    assert torch.equal(torch.get_rng_state(), rng)
    assert all(torch.equal(inputs[key], value) for key, value in given.items())


def test_passing_check_records_nothing(monkeypatch):
    from pytest_tfdebug.tracing.record import recorder

    def refuse(*_args, **_kwargs):
        raise AssertionError("a passing check has no need to record")

    monkeypatch.setattr(recorder.Recorder, "__enter__", refuse)

    assert_padding_invariant(*padding_models.build("llama"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("no model", {}), "assert_padding_invariant needs a torch.nn.Module and got str."),
        ((torch.nn.Identity(), [1]), "assert_padding_invariant needs the keyword inputs of a forward as a dict"),
    ],
)
def test_misuse_of_the_function_is_told(arguments, told):
    with pytest.raises(TFDebugError) as caught:
        assert_padding_invariant(*arguments)

    assert told in str(caught.value)


def test_bad_arguments_of_the_function_are_told():
    with pytest.raises(TFDebugError) as caught:
        assert_padding_invariant(torch.nn.Identity(), {}, side="up")

    assert str(caught.value) == "assert_padding_invariant: side='up' is not one of 'auto', 'right', 'left', 'both'."


def test_left_side_is_padded_when_it_is_asked_for():
    with pytest.raises(InvarianceError) as caught:
        assert_padding_invariant(*padding_models.build("bert"), side="left")

    assert caught.value.culprit.path == "pooler"
    assert "Diagnosis: pooling over pads" in str(caught.value)


def test_position_ids_never_holds_the_plain_call_to_the_answer():
    with pytest.raises(InvarianceError) as caught:
        assert_padding_invariant(*padding_models.build("gpt2"), position_ids="never")

    text = " ".join(str(caught.value).split())
    assert "with position_ids built from the mask the answer is right" in text
    assert "Diagnosis: position ids are shifted by the pads" in text


def test_position_ids_always_needs_a_forward_that_takes_them():
    assert_padding_invariant(*padding_models.build("gpt2"), position_ids="always")
    with pytest.raises(InvarianceError, match="position_ids='always', and the forward takes no position_ids"):
        assert_padding_invariant(*padding_models.build("t5-encoder"), position_ids="always")


class _SelfSimilar(BertModel):
    """Weighs its states by their likeness; a softmax over the row of a pad, -inf throughout, is nan."""

    def forward(self, input_ids, attention_mask=None):
        output = super().forward(input_ids, attention_mask=attention_mask)
        states = output.last_hidden_state
        pairs = attention_mask[:, :, None] * attention_mask[:, None, :]
        weights = (states @ states.transpose(1, 2)).masked_fill(pairs == 0, -torch.inf).softmax(-1)
        output.last_hidden_state = weights @ states
        return output


def test_nan_at_pad_positions_alone_is_a_failure():
    torch.manual_seed(0)
    model = _SelfSimilar(
        BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48, vocab_size=60)
    ).eval()
    ids = torch.randint(5, 60, (2, 10))

    with pytest.raises(InvarianceError) as failure:
        assert_padding_invariant(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, side="right")

    assert "It is the first to give NaN, at pad positions or real ones" in str(failure.value)
    assert "NaN at pad positions only; the next layer would spread it to real tokens" in str(failure.value)
    assert "Diagnosis: NaN from a softmax over a row whose keys are all masked" in str(failure.value)


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning")  # Funnel of transformers 4 on torch 2.13
def test_effect_of_the_padded_length_is_told_from_an_ignored_mask():
    torch.manual_seed(0)
    model = FunnelModel(
        FunnelConfig(vocab_size=60, block_sizes=[1, 1], d_model=32, n_head=2, d_head=16, d_inner=48)
    ).eval()
    ids = torch.randint(5, 60, (2, 10))

    with pytest.raises(InvarianceError) as failure:
        assert_padding_invariant(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})

    assert "Diagnosis: the number of pads matters, not their content" in str(failure.value)
