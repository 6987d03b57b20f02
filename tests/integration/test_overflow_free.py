"""``@pytest.mark.overflow_free`` in runs of pytest."""

import re

import pytest

MODELS = """
import unittest

import pytest
import torch
from torch import nn


class Quotient(nn.Module):
    def forward(self, x):
        return x / 0


def sound():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


def unsound():
    return nn.Sequential(nn.Identity(), Quotient())
"""

REPORT = """\
test_marked.py:9-10 in 1 (Quotient): output has infs
  Where: 1 (Quotient), test_marked.py:9-10: the module itself; its inputs are finite.
  Next: fix these lines. If such a value is meant, name the module in ignore=.
  Not finite: 8 / 8 elements (100.0%), first at index (0, 0).
< [0] 1: Quotient: output has infs


last 4 frames:
abs_max= 1.00e+00 > [0] 0: Identity: input[0]
abs_max= 1.00e+00 < [0] 0: Identity: output
abs_max= 1.00e+00 > [0] 1: Quotient: input[0]
abs_max=      inf < [0] 1: Quotient: output"""


@pytest.fixture
def run(pytester):
    """Return a function that runs a test file made of the models above and a body."""

    def run(body, *arguments):
        pytester.makepyfile(test_marked=MODELS + body)
        return pytester.runpytest("--strict-markers", "-p", "no:cacheprovider", *arguments)

    return run


def report_of(result):
    text = "\n".join(result.outlines)
    return text[text.index("test_marked.py:9-10 in 1 (Quotient): ") :]


def test_function_fails_with_the_report_and_its_headline_in_the_summary(run):
    result = run("""
@pytest.mark.overflow_free
def test_model():
    unsound()(torch.ones(2, 4))
""")

    result.assert_outcomes(failed=1)
    assert report_of(result).startswith(REPORT + "\ntest_marked.py:")
    result.stdout.fnmatch_lines(["FAILED test_marked.py::test_model - test_marked.py:9-10 in 1 (Quotient): outp*"])


def test_sound_model_passes(run):
    result = run("""
@pytest.mark.overflow_free(dtype="float16", headroom=2.0, gradients=True)
def test_model():
    sound()(torch.ones(2, 4)).sum().backward()
""")

    result.assert_outcomes(passed=1)


def test_methods_of_classes_and_of_test_cases_are_watched(run):
    result = run("""
class TestPlain:
    @pytest.mark.overflow_free
    def test_model(self):
        unsound()(torch.ones(2, 4))


@pytest.mark.overflow_free
class ModelTest(unittest.TestCase):
    def test_unsound(self):
        unsound()(torch.ones(2, 4))

    def test_sound(self):
        sound()(torch.ones(2, 4))

    def test_skipped(self):
        self.skipTest("not here")

    @unittest.expectedFailure
    def test_expected_failure(self):
        self.fail("as expected")
""")

    result.assert_outcomes(failed=2, passed=1, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines_random(
        [
            "FAILED test_marked.py::TestPlain::test_model - test_marked.py:9-10 in 1 (Quot*",
            "FAILED test_marked.py::ModelTest::test_unsound - test_marked.py:9-10 in 1 (Qu*",
        ]
    )


@pytest.mark.parametrize(
    "body",
    [
        "def test_model():\n    assert unsound()(torch.ones(2, 4)).isfinite().all(), 'mine'",
        (
            "class ModelTest(unittest.TestCase):\n"
            "    def test_model(self):\n"
            "        unsound()(torch.ones(2, 4))\n"
            "        self.fail('mine')"
        ),
    ],
)
def test_failure_of_the_tests_own_stands_with_the_report_beside_it(run, body):
    result = run(f"\n@pytest.mark.overflow_free\n{body}\n")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: mine*", "*- Captured overflow_free call -*"])
    assert REPORT in "\n".join(result.outlines)


def test_failure_without_an_overflow_has_no_report_beside_it(run):
    result = run("""
@pytest.mark.overflow_free
def test_model():
    sound()(torch.ones(2, 4))
    assert False
""")

    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*overflow_free call*")


def test_test_in_which_no_module_ran_fails_and_says_what_to_do(run):
    result = run("""
@pytest.fixture
def output():
    return sound()(torch.ones(2, 4))


@pytest.mark.overflow_free
def test_model(output):
    assert output.isfinite().all()
""")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "overflow_free checked nothing: no module ran.",
            (
                "Call the model in the test itself: what fixtures, subprocesses and compiled code run is not seen. "
                "Or remove the marker."
            ),
        ]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("headrom=2.0", "overflow_free has no argument headrom=2.0; it takes frames, *. Did you mean headroom?"),
        ("'float16'", "overflow_free takes keyword arguments only (frames, *) and got 'float16'."),
        (
            "dtype='int8'",
            (
                "overflow_free: dtype='int8' is not None or one of float16, bfloat16, float32, float64, float8_e4m3fn, "
                "float8_e5m2."
            ),
        ),
    ],
)
def test_bad_marker_arguments_stop_their_test_alone(run, arguments, message):
    result = run(f"""
@pytest.mark.overflow_free({arguments})
def test_model():
    sound()(torch.ones(2, 4))


def test_other():
    pass
""")

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([f"E *UsageError: test_marked.py::test_model: {message}"])


@pytest.mark.nightly
def test_under_xdist_reports_travel_and_bad_marker_arguments_fail_their_test_alone(run):
    result = run(
        """
@pytest.mark.overflow_free(headrom=2.0)
def test_marked():
    sound()(torch.ones(2, 4))


@pytest.mark.overflow_free
@pytest.mark.parametrize("number", range(4))
def test_model(number):
    (unsound() if number == 2 else sound())(torch.ones(2, 4))
""",
        "-n1",
    )

    result.assert_outcomes(failed=1, errors=1, passed=3)
    assert re.search(
        re.escape(REPORT) + r"\ntest_marked\.py:\d+: ActivationOverflowError\n[=_]{5}", result.stdout.str()
    ), "the report comes whole, nothing after it"
    result.stdout.fnmatch_lines(
        ["*UsageError: test_marked.py::test_marked: overflow_free has no argument headrom=2.0; *"]
    )


def test_closest_marker_counts(run):
    result = run("""
@pytest.mark.overflow_free
class TestModel:
    @pytest.mark.overflow_free(ignore=("1", "Sequential"))
    def test_ignored(self):
        unsound()(torch.ones(2, 4))

    def test_judged(self):
        unsound()(torch.ones(2, 4))
""")

    result.assert_outcomes(passed=1, failed=1)


def test_headroom_and_gradients_are_judged_at_the_end(run):
    result = run("""
class Root(nn.Module):
    def forward(self, x):
        return (x * 0).sqrt()


@pytest.mark.overflow_free(dtype="float16", headroom=2.0)
def test_headroom():
    nn.Identity()(torch.full((2, 4), 4e4))


@pytest.mark.overflow_free(gradients=True)
def test_gradients():
    nn.Sequential(nn.Linear(4, 4), Root())(torch.ones(2, 4)).sum().backward()
""")

    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "Identity (Identity): leaves a headroom of 1.6 for float16, less than 2",
            "^ [[]0[]] 1: Root: gradient of input[[]0[]] has nans",
            "  Parameters whose gradients are not finite, in the order of the backward: *",
        ]
    )


def test_every_model_counts_its_own_forwards(run):
    result = run("""
@pytest.mark.overflow_free
def test_model():
    model, loss = sound(), nn.MSELoss()
    for _ in range(2):
        loss(model(torch.ones(2, 4)), torch.ones(2, 4))
    unsound()(torch.ones(2, 4))
""")

    result.assert_outcomes(failed=1)
    assert "> [1] MSELoss: MSELoss: input[0]" in report_of(result)
    assert "< [0] 1: Quotient: output has infs" in report_of(result)


def test_modules_are_as_before_after_the_test(run):
    result = run("""
CALL = nn.Module.__call__
MODEL = unsound()


@pytest.mark.overflow_free(gradients=True)
@pytest.mark.parametrize("fails", [False, True])
def test_model(fails):
    MODEL(torch.ones(2, 4))
    assert not fails


def test_afterwards():
    assert nn.Module.__call__ is CALL
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in MODEL.modules())
""")

    result.assert_outcomes(failed=2, passed=1)


def test_models_in_threads_of_the_test_are_watched(run):
    result = run("""
import threading


@pytest.mark.overflow_free
def test_model():
    shared = unsound()
    threads = [threading.Thread(target=shared, args=(torch.ones(2, 4),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
""")

    result.assert_outcomes(failed=1)
    assert report_of(result).startswith(REPORT + "\n")


def test_compiled_model_is_watched_from_outside(pytester):
    pytester.makepyfile(
        test_marked=MODELS
        + """
@pytest.mark.overflow_free
def test_model():
    torch.compile(unsound(), backend="eager", fullgraph=True)(torch.ones(2, 4))
"""
    )

    result = pytester.runpytest()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "< [[]0[]] Sequential: Sequential: output has infs",
            "  Note: The model is compiled: only its own inputs and outputs can be seen.*",
        ]
    )


def test_data_parallel_is_refused(run):
    result = run("""
@pytest.mark.overflow_free
def test_model():
    nn.DataParallel(sound())(torch.ones(2, 4))
""")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *Use torch.nn.parallel.DistributedDataParallel, or watch the model without*"])


def test_unmarked_tests_of_the_same_run_are_left_alone(run):
    result = run("""
def test_unmarked():
    assert unsound()(torch.ones(2, 4)).isinf().all()


@pytest.mark.overflow_free
def test_marked():
    sound()(torch.ones(2, 4))
""")

    result.assert_outcomes(passed=2)
