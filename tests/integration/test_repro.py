"""``--tf-repro`` writes a directory whose script sees the same culprit in a process of its own."""

import subprocess
import sys

import pytest

LLAMA = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

def build():
    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=99)
    return LlamaForCausalLM(config).eval()

def test_port(tf_golden):
    port = build()
    port.model.layers[1].mlp.up_proj.weight.data[3] *= 1.5
    tf_golden.check(port, torch.arange(20).view(2, 10), reference=build, use_cache=False)
"""
OWN_MODULE = """
import torch
from port import Port

def test_port(tf_golden):
    torch.manual_seed(0)
    right = Port()
    wrong = Port()
    wrong.load_state_dict(right.state_dict())
    wrong.second.bias.data += 1
    tf_golden.check(wrong, torch.ones(2, 4), reference=right)
"""
PORT = """
import torch

class Port(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.second(self.first(x))
"""


@pytest.mark.parametrize(("source", "culprit"), [(LLAMA, "model.layers.1.mlp.up_proj"), (OWN_MODULE, "second")])
def test_the_written_script_names_the_same_culprit(pytester, source, culprit):
    pytester.makepyfile(test_it=source, port=PORT)
    pytester.runpytest_subprocess("--tf-golden=update")

    failed = pytester.runpytest_subprocess("--tf-repro")
    script = next(pytester.path.glob("tfdebug-repro/*/repro.py"))
    run = subprocess.run([sys.executable, script.name], cwd=script.parent, capture_output=True, text=True, check=False)

    failed.stdout.fnmatch_lines([f"*diverges from its golden at '{culprit}'*", "*Repro: python *repro.py"])
    assert run.returncode == 1, run.stderr
    assert run.stdout.startswith(f"The forward diverges at '{culprit}' (Linear): module")
    assert {"environment.json", "README.md", "golden.safetensors"} <= {file.name for file in script.parent.iterdir()}
    assert "python repro.py" in (script.parent / "README.md").read_text()


def test_a_rename_function_is_said_not_to_be_writable(pytester):
    pytester.makepyfile(test_it=OWN_MODULE.replace("reference=right", "reference=right, rename=str"), port=PORT)
    pytester.runpytest_subprocess("--tf-golden=update")

    failed = pytester.runpytest_subprocess("--tf-repro=somewhere")

    failed.stdout.fnmatch_lines(["*No repro: rename= is a function; a dict can be written."])
    assert not (pytester.path / "somewhere").exists()


def test_an_input_that_cannot_be_written_is_said_and_leaves_no_directory(pytester):
    model = PORT.replace("def forward(self, x)", "def forward(self, x, unused=None)")
    pytester.makepyfile(test_it=OWN_MODULE.replace("reference=right", "reference=right, unused=object()"), port=model)
    pytester.runpytest_subprocess("--tf-golden=update")

    failed = pytester.runpytest_subprocess("--tf-repro")

    failed.stdout.fnmatch_lines(["*No repro: an input of type object cannot be written to a file."])
    assert not list(pytester.path.glob("tfdebug-repro/*"))
