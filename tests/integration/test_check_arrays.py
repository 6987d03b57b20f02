"""``tf_golden.check_arrays``: recorded once, held afterwards, loud where the runtime is wrong."""

import pytest

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

TEST = """
    import numpy as np
    import torch

    def model():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).eval()

    def runtime(scale=1.0):
        held = {name: weight.numpy() for name, weight in model().state_dict().items()}
        x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
        first = x @ held["0.weight"].T + held["0.bias"]
        inner = torch.nn.functional.gelu(torch.from_numpy(first * np.float32(scale))).numpy()
        return {"first": first, "inner": inner, "out": inner @ held["2.weight"].T + held["2.bias"]}

    def test_it(tf_golden):
        x = torch.linspace(-1, 1, 16).reshape(2, 8)
        tf_golden.check_arrays(runtime(SCALE), x, reference=model)
"""


@pytest.fixture(autouse=True)
def _with_a_search(monkeypatch):
    monkeypatch.setattr("pytest_tfdebug.parity.proof.prove.SECONDS", 5.0)


def test_golden_is_recorded_then_held_then_names_what_differs(pytester):
    pytester.makepyfile(test_runtime=TEST.replace("SCALE", "1.0"))

    missing = pytester.runpytest_inprocess()
    recorded = pytester.runpytest_inprocess("--tf-golden=update")
    held = pytester.runpytest_inprocess()
    pytester.makepyfile(test_runtime=TEST.replace("SCALE", "1.1"))
    wrong = pytester.runpytest_inprocess()

    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*has no golden yet: *", "*To record it, run: pytest *--tf-golden=missing"])
    recorded.assert_outcomes(passed=1)
    held.assert_outcomes(passed=1)
    wrong.assert_outcomes(failed=1)
    wrong.stdout.fnmatch_lines(
        [
            "*1 (GELU): 'inner' is the first array that differs*",
            "*'first' is the last array before it that was found: *",
            "*Next: fix the runtime's model; the golden is its reference's.*",
        ]
    )


def test_change_of_the_reference_that_gives_the_arrays_is_proved(pytester):
    pytester.makepyfile(test_runtime=TEST.replace("SCALE", "1.0"))
    pytester.runpytest_inprocess("--tf-golden=update")
    pytester.makepyfile(test_runtime=TEST.replace("SCALE", "1.0").replace("gelu(", "silu("))

    wrong = pytester.runpytest_inprocess()

    wrong.assert_outcomes(failed=1)
    wrong.stdout.fnmatch_lines(
        [
            "*1 (GELU): 'inner' is the first array that differs*",
            "*Proved: the reference gives every output of this*silu*",
        ]
    )


def test_inputs_without_a_reference_are_refused(pytester):
    pytester.makepyfile("def test_it(tf_golden):\n    tf_golden.check_arrays({}, 1)")

    result = pytester.runpytest_inprocess()

    result.stdout.fnmatch_lines(
        ["*There are inputs for a reference, but no reference=: give it, or leave out the inputs."]
    )


LOGPROBS = """
    import torch

    def model():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Embedding(16, 8), torch.nn.Linear(8, 16)).eval()

    def test_it(tf_golden):
        ids = torch.arange(12)[None]
        with torch.no_grad():
            found = model()(ids).log_softmax(-1)[0, -4:]
        logprobs, tokens = found.max(-1)
        CHANGE
        tf_golden.check_logprobs(tokens.numpy(), logprobs.numpy(), ids, reference=model, margin=0.01)
"""


def test_log_probabilities_are_held_to_the_logits_of_a_golden(pytester):
    pytester.makepyfile(test_engine=LOGPROBS.replace("CHANGE", ""))
    recorded = pytester.runpytest_inprocess("--tf-golden=update")
    held = pytester.runpytest_inprocess()
    pytester.makepyfile(test_engine=LOGPROBS.replace("CHANGE", "tokens[2] = (tokens[2] + 1) % 16"))
    flipped = pytester.runpytest_inprocess()
    pytester.makepyfile(test_engine=LOGPROBS.replace("CHANGE", "logprobs[1] += 0.5"))
    off = pytester.runpytest_inprocess()

    recorded.assert_outcomes(passed=1)
    held.assert_outcomes(passed=1)
    flipped.stdout.fnmatch_lines(
        ["*Token 2 is not the reference's: the reference's token leads by *", "*4 positions compared, *"]
    )
    off.stdout.fnmatch_lines(
        ["*The tokens agree: log-probabilities are off by up to 0.5, at position 1 (0.01 allowed)*"]
    )
