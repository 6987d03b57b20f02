"""``--tf-explain``: after a failed check the lines of the port and of the reference that its golden was made from."""

import linecache

import pytest

#: A reference in a file of its own, recorded once; and a port of other names that is edited.
TEST = """
import torch
from injections import edit
from llama_port import load_port, load_reference

IDS = torch.arange(3, 19).view(2, 8)

def test_port(tf_golden):
    reference = load_reference()
    port = load_port(reference)
    edit({where!r}, {old!r}, {new!r}, {method!r})(port)
    tf_golden.check(port, reference=reference, input_ids=IDS)
"""
BUG = {
    "where": "blocks.1.mixer",
    "old": "functional.silu(gate) * wide",
    "new": "functional.silu(wide) * gate",
    "method": "forward",
}
SCALE = {
    "where": "blocks.1.attention",
    "old": "query @ key.mT * query.shape[-1] ** -0.5",
    "new": "query @ key.mT * hidden.shape[-1] ** -0.5",
    "method": "forward",
}


@pytest.fixture
def checked(pytester):
    """Return a function that records a golden of the reference and checks a port with a bug against it."""

    def check(bug, *options):
        pytester.makepyfile(test_it=TEST.format(**bug))
        pytester.runpytest("--tf-golden=update").assert_outcomes(failed=1)
        result = pytester.runpytest(*options)
        result.assert_outcomes(failed=1)
        return result

    return check


def test_first_lines_name_the_line_of_the_port_and_of_the_reference(checked):
    result = checked(SCALE)

    result.stdout.fnmatch_lines(
        [
            "*llama_port.py:* in blocks.1.attention (Attention): *",
            "  here, llama_port.py:*",
            "      scores = query @ key.mT * hidden.shape[[]-1] [*][*] -0.5",
            "  reference, modeling_llama.py:*",
            "      attn_output, attn_weights = attention_interface(*",
        ],
        consecutive=True,
    )


def test_explanations_can_be_turned_off(checked):
    result = checked(BUG, "--tf-explain=off")

    result.stdout.fnmatch_lines(["*llama_port.py:* in Llama (Llama): *"])
    result.stdout.no_fnmatch_line("*reference, *.py:*")
    result.stdout.no_fnmatch_line("*computes a value that the reference never does*")


REFERENCE = """
import torch
from torch import nn

class Reference(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        wide = self.up(x)
        gated = {gate} * 0.5
        return self.down(gated) + x
"""
PORT = """
import torch
from torch import nn
from here import Reference

class Port(nn.Module):
    def __init__(self):
        super().__init__()
        self.joined, self.last = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, tokens):
        inner = self.joined(tokens)
        return self.last(torch.relu(inner) * 0.5) + tokens

def test_port(tf_golden):
    port = Port()
    reference = Reference()
    port.joined.load_state_dict(reference.up.state_dict())
    port.last.load_state_dict(reference.down.state_dict())
    tf_golden.check(port, reference=reference, x=torch.linspace(-1, 1, 16).view(2, 8))
"""


def test_references_text_is_the_goldens_and_not_what_is_installed(pytester):
    pytester.syspathinsert()
    pytester.makepyfile(here=REFERENCE.format(gate="torch.tanh(wide)"), test_it=PORT)
    pytester.runpytest_inprocess("--tf-golden=update").assert_outcomes(failed=1)
    pytester.makepyfile(here="# moved\n" * 30 + REFERENCE.format(gate="torch.sigmoid(wide)"))
    linecache.clearcache()  # as in a process of its own

    result = pytester.runpytest_inprocess()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_it.py:* in Port (Port): *",
            "      return self.last(torch.relu(inner) [*] 0.5) + tokens",
            "  reference, here.py:*",
            "      gated = torch.tanh(wide) [*] 0.5",
        ]
    )
    result.stdout.no_fnmatch_line("*torch.sigmoid*")


def test_unknown_choice_is_refused(pytester):
    result = pytester.runpytest("--tf-explain=perhaps")

    result.stderr.fnmatch_lines(["*--tf-explain*invalid choice: 'perhaps'*"])


#: A port whose step is missing, which only a run of its reference proves; what the reference is built from is noted.
SKIPS = """
import copy
import torch
from models import build

BUILT = []

def test_port(tf_golden):
    reference, inputs = build("bert")
    port = copy.deepcopy(reference)
    port.embeddings.LayerNorm.forward = lambda given: given
    def built():
        BUILT.append(1)
        if {is_other}:
            reference.encoder.layer[0].output.dense.weight.mul_(2)
        return reference
    with torch.no_grad():
        try:
            tf_golden.check(port, reference=built, **inputs)
        finally:
            print("built", len(BUILT))
"""


def test_reference_at_hand_runs_again_to_prove_what_a_port_omits(pytester):
    pytester.makeini("[pytest]\ntf_explain_seconds = 60")
    pytester.makepyfile(test_it=SKIPS.format(is_other=False))
    pytester.runpytest("--tf-golden=update").assert_outcomes(failed=1)

    result = pytester.runpytest("-s")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*built 1"])
    told = " ".join(" ".join(result.outlines).replace("E  ", "").split())
    assert "Proved: your port lacks embeddings.LayerNorm, called at modeling_bert.py:" in told


def test_reference_that_gives_something_else_by_now_proves_nothing(pytester):
    pytester.makeini("[pytest]\ntf_explain_seconds = 60")
    pytester.makepyfile(test_it=SKIPS.format(is_other=False))
    pytester.runpytest("--tf-golden=update").assert_outcomes(failed=1)
    pytester.makepyfile(test_it=SKIPS.format(is_other=True))

    result = pytester.runpytest("-s")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*built 1"])
    result.stdout.no_fnmatch_line("*Proved*")
