"""A port whose forward takes other inputs than its reference's: ``tf_golden.check(..., port_inputs=...)``."""

import json

import pytest
import torch  # noqa: F401 - pytester unloads what a run inside this process has loaded

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

MODELS = """
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, hidden_states):
        return hidden_states + self.down(torch.relu(self.up(hidden_states)))

class Reference(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(30, 8), Layer(), nn.Linear(8, 30)

    def forward(self, input_ids, attention_mask=None, use_cache=True):
        hidden_states = self.layer(self.embed(input_ids))
        if attention_mask is not None:
            hidden_states = hidden_states * attention_mask[..., None]
        return self.head(hidden_states)

class Port(nn.Module):
    def __init__(self, reference, scale=1.0):
        super().__init__()
        self.tokens, self.up, self.down, self.out = (
            reference.embed, reference.layer.up, reference.layer.down, reference.head
        )
        self.scale = scale

    def forward(self, ids):
        x = self.tokens(ids)
        x = x + self.down(torch.relu(self.up(x)) * self.scale)
        return self.out(x)

def build():
    torch.manual_seed(0)
    return Reference().eval()
"""
TEST = """
import torch
from port_models import Port, build

def test_it(tf_golden):
    reference = build()
    ids = torch.arange(10).view(2, 5)
    tf_golden.check({call})
"""
BY_NAME = "Port(reference), reference=reference, input_ids=ids, use_cache=False"


@pytest.fixture
def run(pytester):
    """Write a test with one check, record its golden with another call, and run it."""
    pytester.makepyfile(port_models=MODELS)

    def run_pytest(call, *arguments, recorded=None):
        if recorded is not None:
            pytester.makepyfile(test_it=TEST.format(call=recorded))
            pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tf-golden=update").assert_outcomes(passed=1)
        pytester.makepyfile(test_it=TEST.format(call=call))
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    return run_pytest


@pytest.mark.parametrize(
    "call",
    [
        BY_NAME,
        "Port(reference), reference=reference, input_ids=ids, port_inputs={'ids': ids}",
        "Port(reference), ids, reference=reference, port_inputs=(ids.clone(),)",
        "Port(reference), ids, reference=reference",
        "Port(reference), reference=reference, input_ids=ids, attention_mask=torch.ones(2, 5), port_inputs=(ids,)",
    ],
)
def test_port_that_names_its_inputs_otherwise_is_compared(run, call):
    run(call, recorded=call).assert_outcomes(passed=1)


def test_failure_says_how_the_port_was_called(run):
    result = run(BY_NAME.replace("(reference)", "(reference, 2.0)", 1), recorded=BY_NAME)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Note: The port was called as ids=input_ids, without use_cache=False."])


@pytest.mark.parametrize("call", [BY_NAME, "Port(reference), ids, reference=reference, port_inputs={'ids': ids}"])
def test_golden_of_other_ids_is_told_by_their_values(run, call):
    result = run(call.replace("ids,", "ids + 1,").replace("ids}", "ids + 1}"), recorded=call)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Port (Port): was given other inputs"])
    result.stdout.fnmatch_lines(["*given other inputs than the expected forward:*"])


def test_golden_of_more_ids_under_another_name_is_told_by_their_shape(run):
    result = run(BY_NAME.replace("ids,", "ids[:, :-1],"), recorded=BY_NAME)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Port (Port): was given other inputs"])


def test_port_inputs_with_other_ids_than_the_references_are_told(run):
    call = "Port(reference), reference=reference, input_ids=ids, port_inputs={'ids': ids}"

    result = run(call.replace("ids}", "ids + 1}"), recorded=call)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*Port (Port): was given other inputs",
            "*'ids' of port_inputs= differs from the reference's input_ids, so nothing*",
        ]
    )


def test_input_of_the_reference_alone_is_blamed_before_any_code(run, pytester):
    masked = MODELS.replace(
        "def forward(self, ids):\n        x = self.tokens(ids)",
        """def forward(self, ids, mask=None):
        x = self.tokens(ids)""",
    ).replace(
        "        return self.out(x)",
        """        if mask is not None:
            x = x * mask[..., None]
        return self.out(x)""",
    )
    pytester.makepyfile(port_models=masked)
    call = "Port(reference), reference=reference, input_ids=ids, attention_mask=ids % 2, port_inputs={'ids': ids}"

    result = run(call, recorded=call.replace("ids}", "ids, 'mask': ids % 2}"))

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *Port (Port): was not given mask, and the reference was given attention_mask",
            "  The port differs from its golden. All that differs may come from that.",
            '  Next: add it to the port\'s own inputs: port_inputs={..., "mask": ...}',
        ]
    )
    result.stdout.no_fnmatch_line("*.py:* in *")


@pytest.mark.parametrize("mode", ["check", "update"])
def test_inputs_that_the_port_cannot_take_say_what_to_type(run, mode):
    call = "Port(reference), reference=reference, input_ids=ids, attention_mask=torch.ones(2, 5)"

    result = run(call, f"--tf-golden={mode}")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*TFDebugError: Port cannot be called with the reference's inputs: missing a required argument: 'ids'.",
            "*  It takes: forward(ids)",
            "*  Given: input_ids=tensor (2, 5), attention_mask=tensor (2, 5)",
            '*Name the port\'s own inputs: port_inputs={"ids": ...}',
        ]
    )
    assert "TypeError" not in result.stdout.str()


def test_port_inputs_need_a_reference(run):
    result = run("Port(reference), port_inputs={'ids': ids}")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*port_inputs= is for a port whose inputs differ from its reference's, but there is no reference=.",
            "*Give reference=, or pass the model's inputs directly.",
        ]
    )


def test_repro_carries_the_ports_own_inputs(run, pytester):
    call = "Port(reference, 2.0), reference=reference, input_ids=ids, port_inputs={'ids': ids}"

    result = run(call, "--tf-repro", recorded=call.replace(", 2.0", ""))
    (script,) = pytester.path.glob("tfdebug-repro/*/repro.py")

    result.assert_outcomes(failed=1)
    assert list(json.loads((script.parent / "inputs.json").read_text())) == ["ids"]
    assert pytester.runpython(script).ret == 1
