"""What a test asks that cannot be done is shown where the test asks for it, without our own code."""

import pytest

HEAD = """
import unittest

import pytest
import pytest_tfdebug
import torch

MODEL, X = torch.nn.Linear(2, 2), torch.ones(1, 2)


def helper(*args):
    return pytest_tfdebug.trace(*args)

"""
OURS = "*/pytest_tfdebug/*"
#: Lines that lie between a test and ours.
BETWEEN = ("*/torch/*", "*contextlib.py:*")

#: A test -> its line that is shown, and what is said there.
MISTAKES = [
    (
        "def test_it():\n    pytest_tfdebug.trace(None)",
        ">       pytest_tfdebug.trace(None)",
        "E       pytest_tfdebug.errors.TFDebugError: trace needs a torch.nn.Module and got NoneType.",
    ),
    (
        "class Tests(unittest.TestCase):\n    def test_it(self):\n        pytest_tfdebug.compare(None, None)",
        ">       pytest_tfdebug.compare(None, None)",
        "E       pytest_tfdebug.errors.TFDebugError: compare needs traces and got NoneType as expected: *",
    ),
    (
        "def test_it():\n    helper(None)",
        ">       return pytest_tfdebug.trace(*args)",
        "E       pytest_tfdebug.errors.TFDebugError: trace needs a torch.nn.Module and got NoneType.",
    ),
    (
        "@pytest.mark.tf_golden(tolerance=(-1, 0))\ndef test_it(tf_golden):\n    tf_golden.check(MODEL, X)",
        ">       tf_golden.check(MODEL, X)",
        "E *UsageError: tf_golden: rtol = -1 is not a number >= 0.",
    ),
    (
        "def test_it(tf_golden):\n    tf_golden.check(MODEL, X, name='../up')",
        ">       tf_golden.check(MODEL, X, name='../up')",
        "E       pytest_tfdebug.errors.TFDebugError: name='../up' of a golden is made of letters, *",
    ),
    (
        "def test_it(tf_golden):\n    tf_golden.check(helper, X)",
        ">       tf_golden.check(helper, X)",
        "E *TFDebugError: check needs a torch.nn.Module and got the function helper.",
    ),
    (
        "@pytest.mark.tf_golden(tolerance='1e-4')\ndef test_it(tf_golden):\n    tf_golden.check(MODEL, X)",
        ">       tf_golden.check(MODEL, X)",
        "E *tf_golden: tolerance='1e-4' is not *",
    ),
    (
        "@pytest.mark.padding_invariant(pads=3)\ndef test_it():\n    MODEL(X)",
        "*ERROR at setup of test_it*",
        "E *UsageError: test_it.py::test_it: padding_invariant has no argument pads=3; it takes *",
    ),
    (
        "@pytest.mark.invariant('clean_load', allow=['('])\ndef test_it():\n    MODEL(X)",
        "*ERROR at setup of test_it*",
        "E *UsageError: test_it.py::test_it: invariant: allow='(' is not a regular expression *",
    ),
]


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        (
            "padding_invarient",
            "*test_it.py::test_it: there is no marker padding_invarient. Did you mean padding_invariant?",
        ),
        ("overflow_fre", "*test_it.py::test_it: there is no marker overflow_fre. Did you mean overflow_free?"),
        ("invariant('cahce')", "*test_it.py::test_it: invariant has no check 'cahce'; *Did you mean cache?"),
    ],
)
def test_misspelt_marker_or_check_stops_its_test_alone(pytester, marker, told):
    pytester.makepyfile(
        test_it=f"import pytest\n\n@pytest.mark.{marker}\ndef test_it():\n    pass\n\ndef test_other():\n    pass\n"
    )

    result = pytester.runpytest("-p", "no:cacheprovider", "-W", "ignore:Unknown pytest.mark")

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([f"E {told}"])


def test_marker_of_the_users_own_is_left_alone(pytester):
    pytester.makeini("[pytest]\nmarkers =\n    overflow_fre: ours\n")
    pytester.makepyfile("import pytest\n\n@pytest.mark.overflow_fre\n@pytest.mark.slow\ndef test_it():\n    pass\n")

    pytester.runpytest("-p", "no:cacheprovider", "-W", "ignore:Unknown pytest.mark").assert_outcomes(passed=1)


@pytest.fixture
def run(pytester):
    def run(source, *options):
        pytester.makepyfile(test_it=HEAD + source)
        result = pytester.runpytest("-p", "no:cacheprovider", *options)
        assert result.ret == 1
        return result

    return run


@pytest.mark.parametrize(("source", "line", "told"), MISTAKES)
def test_mistake_is_shown_where_it_is_made(run, source, line, told):
    result = run(source)

    result.stdout.fnmatch_lines([line, told])
    for between in (OURS, *BETWEEN):
        result.stdout.no_fnmatch_line(between)
    result.stdout.no_fnmatch_line("*direct cause*")


def test_golden_that_cannot_be_read_is_told_without_what_its_reader_raised(pytester, run):
    golden = pytester.path / "goldens" / "test_it" / "test_it.safetensors"
    golden.parent.mkdir(parents=True)
    golden.write_bytes(b"no golden")

    result = run("def test_it(tf_golden):\n    tf_golden.check(MODEL, X)")

    result.stdout.fnmatch_lines(
        [">       tf_golden.check(MODEL, X)", "E *GoldenError: *(9 bytes) is empty, truncated *"]
    )
    result.stdout.no_fnmatch_line("*direct cause*")
    result.stdout.no_fnmatch_line("*_open(file*")


def test_mistake_that_the_forward_shows_ends_at_the_users_line(run):
    source = (
        "def test_it(tf_golden):\n    tf_golden.check(MODEL, X, reference=torch.nn.Linear(2, 2), outputs={'score': ''})"
    )

    result = run(source, "--tf-golden=update")

    result.stdout.fnmatch_lines(
        [
            ">       tf_golden.check(MODEL, *",
            "E *outputs=: the port returns no 'score'; *",
            "test_it.py:*: TFDebugError",
        ]
    )
    for between in (OURS, *BETWEEN):
        result.stdout.no_fnmatch_line(between)
    assert run(source, "--tf-golden=update", "--full-trace").stdout.str().count("torch/nn/modules/module.py:") > 1


def test_full_trace_shows_our_lines(run):
    run(MISTAKES[0][0], "--full-trace").stdout.fnmatch_lines(["*/pytest_tfdebug/tracing/trace.py:*"])


@pytest.mark.parametrize("error", ["pytest.UsageError('theirs')", "pytest_tfdebug.TFDebugError('theirs')"])
def test_what_a_test_raises_itself_keeps_its_cause(run, error):
    result = run(
        f"def test_it():\n    try:\n        1 / 0\n    except ZeroDivisionError as cause:\n        raise {error} from cause"
    )

    result.stdout.fnmatch_lines(["*ZeroDivisionError*", "*direct cause*", "E * theirs"])


def test_what_a_test_was_handling_when_it_made_a_mistake_is_shown(run):
    result = run("def test_it():\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        helper(None)")

    result.stdout.fnmatch_lines(["*1 / 0*", "*ZeroDivisionError*", "*During handling of *", "E *TFDebugError: trace *"])
    result.stdout.no_fnmatch_line(OURS)


def test_error_of_the_model_is_shown_with_the_line_of_the_model(run):
    result = run(
        "class Broken(torch.nn.Linear):\n    def forward(self, x):\n        raise ValueError('mine')\n\n"
        "def test_it():\n    pytest_tfdebug.trace(Broken(2, 2), X)"
    )

    result.stdout.fnmatch_lines([">       raise ValueError('mine')", "E       ValueError: mine"])


LLAMA = """
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}


def hand(model, **inputs):
    return pytest_tfdebug.trace(model, **inputs)


def test_it():
    hand(LlamaForCausalLM(LlamaConfig(vocab_size=32, **SIZES)), inputs_embeds=torch.ones(1, 4, 16), input_ids=X)
"""


def test_library_calls_that_lead_to_a_models_error_are_one_line(run):
    result = run(LLAMA)

    result.stdout.fnmatch_lines(
        [
            ">       hand(LlamaForCausalLM(*",
            "    return pytest_tfdebug.trace(model, **inputs)",
            "... * calls of libraries, with --full-trace",
            ">           raise ValueError(*",
        ]
    )
    result.stdout.no_fnmatch_line("*/torch/nn/modules/module.py:*")
    assert run(LLAMA, "--full-trace").stdout.str().count("torch/nn/modules/module.py:") > 2


def test_method_as_reference_is_told_what_to_give(pytester):
    pytester.makepyfile("""
        import torch

        class Model(torch.nn.Linear):
            def encode(self, input):
                return self(input)

        def test_it(tf_golden):
            tf_golden.check(Model(2, 2).encode, torch.ones(1, 2), reference=Model(2, 2).encode)
    """)

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tf-golden=update")

    result.stdout.fnmatch_lines(
        [
            "E *TFDebugError: reference= is the method encode of a Model: give the Model itself.",
            "E *To compare what encode gives, check the port's: tf_golden.check(port.encode, reference=model, ...).",
        ]
    )
