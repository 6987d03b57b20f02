"""A failing check goes one way, record -> compare -> explain -> render: few calls lead from one room into another."""

import pytest
import torch  # noqa: F401 - pytester unloads what a run inside this process has loaded

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

pytest.importorskip("transformers")

MOST = 250

SOURCE = '''
import os
import sys
from collections import Counter

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaMLP

import pytest_tfdebug

PACKAGE = os.path.dirname(pytest_tfdebug.__file__) + os.sep


def room_of(frame):
    """Return the room that a frame's file lies in; empty for a file that every room stands on, None for others."""
    file = frame.f_code.co_filename
    if not file.startswith(PACKAGE):
        return None
    return file[len(PACKAGE):].rpartition(os.sep)[0].partition(os.sep)[0]


def count_moves(moves):
    def profile(frame, event, _arg):
        to = room_of(frame) if event == "call" and frame.f_code.co_name != "<module>" else None
        caller = frame.f_back
        while to and caller is not None and not room_of(caller):
            if caller.f_code.co_filename.startswith("<frozen importlib"):
                return
            caller = caller.f_back
        if to and caller is not None and room_of(caller) != to:
            moves[f"{room_of(caller)} {caller.f_code.co_name} -> {to} {frame.f_code.co_name}"] += 1

    return profile


class WrongMLP(LlamaMLP):
    def forward(self, x):
        return self.down_proj(torch.nn.functional.gelu(self.gate_proj(x)) * self.up_proj(x))


def llama():
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 64}
    return pytest_tfdebug.fill(LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, **sizes))).eval()


def test_port(tf_golden, pytestconfig):
    port, moves = llama(), Counter()
    port.model.layers[1].mlp.__class__ = WrongMLP
    sys.setprofile(count_moves(moves))
    try:
        with pytest.raises(AssertionError, match="act_fn"):
            tf_golden.check(port, reference=llama, input_ids=torch.arange(8)[None])
    finally:
        sys.setprofile(None)
    if pytestconfig.getoption("tf_golden") != "update":
        assert 0 < sum(moves.values()) <= MOST, [sum(moves.values()), *moves.most_common(40)]
'''


def test_failing_check_moves_between_rooms_at_most_250_times(pytester):
    pytester.makepyfile(test_it=SOURCE.replace("MOST", str(MOST)))
    pytester.runpytest_inprocess("--tf-golden=update", "-q").assert_outcomes(passed=1)

    pytester.runpytest_inprocess("-q").assert_outcomes(passed=1)
