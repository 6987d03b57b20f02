"""``outputs=`` and ``positions=`` of a golden check, and what a pass says of how it compared outputs."""

import pytest
import torch  # noqa: F401 - pytester unloads what a run inside this process has loaded
from transformers import BertModel, LlamaForCausalLM  # noqa: F401 - likewise

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

SUITE = """
import os
import torch
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}

def llama(vocabulary=64):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, use_cache=False, **SIZES)).eval()

def bert():
    torch.manual_seed(0)
    return BertModel(BertConfig(vocab_size=64, **SIZES)).eval()

class Port(nn.Module):
    def __init__(self, model, returned):
        super().__init__()
        self.own, self.returned = model, returned

    def forward(self, input_ids, attention_mask=None):
        return self.returned(self.own(input_ids, attention_mask))

IDS = torch.arange(3, 27).reshape(2, 12)
MASK = torch.ones_like(IDS)
MASK[1, 8:] = 0
WRONG = os.environ.get("WRONG")
"""


@pytest.fixture
def record(pytester):
    """Record the golden of a check."""

    def run_pytest(check):
        pytester.makepyfile(test_it=SUITE + f"def test_it(tf_golden):\n    tf_golden.check({check})\n")
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tf-golden=update")

    return run_pytest


@pytest.fixture
def run(pytester, record, monkeypatch):
    """Record the golden of a check, and hold the model to it with ``WRONG`` set."""

    def run_pytest(check, *options, wrong=""):
        recorded = record(check)
        monkeypatch.setenv("WRONG", wrong)
        return recorded, pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)

    return run_pytest


@pytest.mark.parametrize(
    ("vocabulary", "kept"), [(64, "element by element"), (4_000, r"by [0-9]* of its elements and sums over all")]
)
def test_pass_says_how_it_compared_the_outputs(run, vocabulary, kept):
    check = f"Port(llama({vocabulary}), lambda out: out.logits), IDS, reference=lambda: llama({vocabulary})"

    _, passed = run(check, "-v")
    _, wrong = run(check.replace("out.logits", "out.logits.flip(1) if WRONG else out.logits"), wrong="yes")

    passed.assert_outcomes(passed=1)
    passed.stdout.re_match_lines([rf"  Outputs: logits {kept} \(by value\) \(1 golden\)"])
    wrong.assert_outcomes(failed=1)


def test_output_that_was_not_compared_fails_until_outputs_says_which_it_is(record, run):
    check = "Port(bert(), lambda out: out.last_hidden_state), IDS, reference=bert"

    recorded = record(check)
    _, named = run(check + ', outputs={"": "last_hidden_state"}')

    recorded.assert_outcomes(failed=1)
    recorded.stdout.fnmatch_lines(
        [
            "*in Port (Port): returns nothing that could be compared with the reference's 'pooler_output' (2, 32): not *",
            '*outputs={"": "last_hidden_state"}. *',
        ]
    )
    named.assert_outcomes(passed=1)


@pytest.mark.parametrize("vocabulary", [64, pytest.param(4_000, marks=pytest.mark.nightly)])
def test_positions_that_do_not_count_are_neither_recorded_nor_compared(run, vocabulary):
    noisy = "out.logits + (torch.rand(2, 12, 1) * (1 - MASK[..., None]) if WRONG else 0)"
    check = f"Port(llama({vocabulary}), lambda out: {noisy}), IDS, MASK, reference=lambda: llama({vocabulary})"

    _, without = run(check, wrong="yes")
    recorded, counted = run(check + ", positions=MASK", wrong="yes")
    _, wrong = run(check.replace("1 - MASK", "MASK") + ", positions=MASK", wrong="yes")

    without.assert_outcomes(failed=1)
    recorded.assert_outcomes(passed=1)
    counted.assert_outcomes(passed=1)
    wrong.assert_outcomes(failed=1)


def test_golden_of_some_positions_is_checked_with_the_same(record, pytester):
    record("llama(), IDS, MASK, positions=MASK")
    pytester.makepyfile(test_it=SUITE + "def test_it(tf_golden):\n    tf_golden.check(llama(), IDS, MASK)\n")

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*GoldenError: *was recorded with positions=: give the check the same."])


@pytest.mark.parametrize(
    ("positions", "told"),
    [
        ("'attention_mask'", "*TFDebugError: positions= is a mask or an index; it is a str."),
        ("1.5", "*TFDebugError: positions= is a mask or an index; it is a float."),
        ("True", "*TFDebugError: positions= is a mask or an index; it is a bool."),
        ("MASK.tolist()", "*TFDebugError: positions= is a mask or an index; it is a list."),
        ("MASK.numpy()", "*TFDebugError: positions= is a mask or an index; it is a ndarray."),
        (
            "MASK[:, 1:]",
            "*positions= is a mask of shape (2, 11), and no output has these positions: 'logits' (2, 12, 64).",
        ),
        ("(slice(None), 12)", "*positions= is (slice(None, None, None), 12), and no output has these positions: *"),
        ("(slice(None), slice(12, 20))", "*positions= is (slice*, and no output has these positions: *"),
        ("MASK * 0", "*positions= is a mask of shape (2, 12) in which no position counts."),
        ("(1 - MASK) * -1e9", "*positions= holds -1e+09, and a mask holds 1 where a position counts and 0 where not."),
        ("torch.tensor([0, 1])", "*positions= is a tensor of 2 integers, which may be a mask or an index."),
    ],
)
def test_positions_that_are_no_mask_or_index_of_an_output_are_refused(record, pytester, positions, told):
    recorded = record(f"llama(), IDS, MASK, reference=llama, positions={positions}")

    recorded.assert_outcomes(failed=1)
    recorded.stdout.fnmatch_lines([">       tf_golden.check(*", f"E *{told}", "*test_it.py:*: TFDebugError"])
    recorded.stdout.no_fnmatch_line("*/torch/*")
    assert not list(pytester.path.rglob("*.safetensors"))


@pytest.mark.parametrize("positions", ["MASK", "MASK.bool()", "MASK.float()", "(slice(None), -1)", "[0, 1]", "1"])
def test_masks_and_indices_of_an_output_are_positions(record, positions):
    recorded = record(f"llama(), IDS, MASK, reference=llama, positions={positions}")

    recorded.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "typo", ["refrence=lambda: llama()", "tolerence=(1e-4, 1e-4)", "inputs_ids=IDS", "attention_masks=MASK"]
)
def test_typo_is_refused_and_records_nothing(record, pytester, typo):
    recorded = record(f"llama(), IDS, {typo}")

    recorded.assert_outcomes(failed=1)
    recorded.stdout.fnmatch_lines(
        ["E *TFDebugError: *= is no option, and no forward of LlamaForCausalLM takes it by *"]
    )
    recorded.stdout.no_fnmatch_line("*modeling_llama*")
    assert not list(pytester.path.rglob("*.safetensors"))


RANDOM = """
class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x)

class Drawing(nn.Module):
    def forward(self, x):
        return x + torch.rand(3)

class Counting(nn.Module):
    calls = 0

    def forward(self, x):
        Counting.calls += 1
        return x * Counting.calls

X = torch.ones(2, 3)
"""


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("Dropping()", "*it is in training mode: call .eval() on the model."),
        ("Counting().eval()", "*it draws random numbers or keeps a state: give it fixed inputs *"),
    ],
)
def test_forward_that_gives_something_else_each_time_is_not_recorded(pytester, model, told):
    pytester.makepyfile(test_it=SUITE + RANDOM + f"def test_it(tf_golden):\n    tf_golden.check({model}, X)\n")

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tf-golden=update")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*GoldenError: The forward of * gives another result each time, so a golden *", told])
    assert not list(pytester.path.rglob("*.safetensors"))


def test_what_a_test_seeds_itself_may_be_drawn(pytester):
    check = "torch.manual_seed(3)\n    tf_golden.check({model}, X)\n"
    pytester.makepyfile(
        test_it=SUITE
        + RANDOM
        + f"def test_drawn(tf_golden):\n    {check.format(model='Drawing().eval()')}"
        + f"def test_dropped(tf_golden):\n    {check.format(model='Dropping()')}"
    )

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tf-golden=update")

    result.assert_outcomes(passed=1, failed=1)
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "-k", "drawn").assert_outcomes(passed=1, deselected=1)
