import pytest

import pytest_tfdebug.tracing.trace  # noqa: F401 - loaded once for all runs

SUITE = """
import pytest
import torch

class Port(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.act = torch.nn.Linear(4, 8), torch.nn.ReLU()

    def forward(self, x, fail=False, level="all"):
        hidden = self.act(self.up(x))
        if fail:
            raise ValueError("the port's own")
        return hidden
"""


@pytest.fixture
def run(pytester):
    def run_body(body):
        pytester.makepyfile(SUITE + body)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider")

    return run_body


def test_forward_is_recorded(run):
    result = run(
        """
def test_it(tf_trace):
    trace = tf_trace(Port(), torch.ones(2, 4))
    assert [call.path for call in trace] == ["Port", "up", "act"]
    assert trace["act"].outputs[0].shape == (2, 8)
    assert [call.path for call in tf_trace(Port(), torch.ones(2, 4), include="up")] == ["Port", "up"]
"""
    )

    result.assert_outcomes(passed=1)


def test_calls_before_an_error_stand_in_the_report(run):
    result = run(
        """
def test_it(tf_trace):
    tf_trace(Port(), torch.zeros(2, 4), fail=True)
"""
    )

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *ValueError: the port's own",
            "*- Captured tfdebug trace call -*",
            "Calls before the error:",
            "Port (Port) raised ValueError",
            "  up (Linear) -> float32[[]2, 8] in [[]*",
            "  act (ReLU) -> float32[[]2, 8] in [[]0, *",
        ]
    )


def test_forward_that_does_not_fail_adds_nothing_to_the_report(run):
    result = run(
        """
def test_it(tf_trace):
    tf_trace(Port(), torch.ones(2, 4))
    assert False
"""
    )

    assert "tfdebug trace" not in result.stdout.str()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("tf_trace(Port)", "tf_trace needs a torch.nn.Module and got the class Port: call it, Port(...)."),
        (
            "tf_trace(Port(), torch.ones(4), include='down')",
            "No module matches 'down' (* is one part of a module path, *",
        ),
        (
            "tf_trace(Port(), torch.ones(4), level='layers')",
            "level= is an option of tf_trace, and a parameter of Port's forward as well, so it is unclear which *",
        ),
    ],
)
def test_misuse_is_told(run, call, text):
    result = run(f"\ndef test_it(tf_trace):\n    {call}\n")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"E *TFDebugError: {text}"])


def test_model_is_left_as_it_was(run):
    result = run(
        """
@pytest.mark.parametrize("fail", [False, True])
def test_it(tf_trace, fail):
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout(), Port()).train()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    seed = torch.get_rng_state()
    try:
        tf_trace(model, torch.randn(3, 4) if not fail else torch.randn(3, 5))
    except ValueError:
        pass
    except RuntimeError:
        assert fail
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert model.training and torch.is_grad_enabled()
"""
    )

    result.assert_outcomes(passed=2)
