"""``--tf-repro`` writes a directory whose script sees the same culprit without the test."""

import runpy
import subprocess
import sys

import pytest
import torch
from transformers import (  # noqa: F401 - likewise
    BertModel,
    LlamaForCausalLM,
    PreTrainedModel,
    T5ForConditionalGeneration,
)

from pytest_tfdebug import Trace, compare, overflow_guard, trace  # noqa: F401 - likewise
from pytest_tfdebug.repro.inputs import load_inputs

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
SCALED = "port.model.layers[1].mlp.up_proj.weight.data[3] *= 1.5"
PORT = """
import torch

def double(module, inputs, output):
    return output * 2

class Port(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.second(self.first(x))
"""

POOLER = """
import pytest, torch
from transformers import BertConfig, BertModel
from transformers.models.bert.modeling_bert import BertPooler

class Pooler(BertPooler):
    def forward(self, hidden_states):
        return self.activation(self.dense(hidden_states.mean(dim=1)))

@pytest.mark.padding_invariant(side="right", lengths=(3, 5))
def test_model():
    torch.manual_seed(0)
    model = BertModel(
        BertConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=99,
            initializer_range=0.2,
        )
    ).eval()
    model.pooler = Pooler(model.config).eval()
    model(torch.arange(3, 23).view(2, 10), attention_mask=torch.ones(2, 10, dtype=torch.long))
"""
OVERFLOW = """
import pytest, torch
from transformers import T5Config, T5ForConditionalGeneration

def build():
    torch.manual_seed(0)
    config = T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0)
    return T5ForConditionalGeneration(config).eval()

@pytest.mark.overflow_free{marker}
def test_model():
    model = build()
    model(input_ids=torch.ones(1, 4, dtype=torch.long), labels=torch.ones(1, 3, dtype=torch.long))
    {wrong}
    for length in (5, 6):
        model(input_ids=torch.arange(length).view(1, length), labels=torch.ones(1, 3, dtype=torch.long))
"""
GRADIENT = """
import pytest, torch
from port import Net

@pytest.mark.overflow_free(gradients=True)
def test_model():
    torch.manual_seed(0)
    model, x = Net(), torch.ones(2, 4)
    {call}
"""
NET = """
import torch
from types import SimpleNamespace

class Root(torch.nn.Module):
    def forward(self, x):
        return x.sqrt()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.root = torch.nn.Linear(4, 4), Root()

    def forward(self, x, labels=None):
        return SimpleNamespace(loss=self.root(self.first(x).square() * 0).sum())
"""
WO = "model.encoder.block[1].layer[1].DenseReluDense.wo.weight.data"


def written(pytester):
    (script,) = pytester.path.glob("tfdebug-repro/*/repro.py")
    return script


@pytest.fixture
def run_alone(pytester, monkeypatch, capsys):
    """Run the only repro away from the test, with none of its modules loaded, and return what it printed."""

    def run():
        script = written(pytester)
        loaded = set(sys.modules)
        with monkeypatch.context() as patched:
            patched.syspath_prepend(script.parent)
            patched.chdir(script.parent)
            capsys.readouterr()
            with pytest.raises(SystemExit) as left:
                runpy.run_path(script.name, run_name="__main__")
        for name, module in list(sys.modules.items()):
            if name not in loaded and str(getattr(module, "__file__", "")).startswith(str(pytester.path)):
                del sys.modules[name]
        assert left.value.code == 1
        return capsys.readouterr().out

    return run


def test_a_padding_leak_is_seen_again_at_the_same_module(pytester, run_alone):
    pytester.makepyfile(test_it=POOLER)

    failed = pytester.runpytest("--tf-repro")
    told = run_alone()

    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["*is not invariant to padding: input_ids padded by 1 on the right.*"])
    failed.stdout.fnmatch_lines(["*Repro: python *repro.py"])
    assert "is not invariant to padding: input_ids padded by 1 on the right." in told
    (answer,) = {
        line for line in failed.stdout.lines if line.endswith("; probably pooling over pads") and "::" not in line
    }
    assert "pooler" in answer
    assert answer in told.splitlines()


@pytest.mark.parametrize("marker", ["batch_invariant", "dtype_close(dtypes='float16', bound=1e-9)"])
def test_a_sister_of_the_padding_check_is_written_too(pytester, run_alone, marker):
    source = POOLER.replace('padding_invariant(side="right", lengths=(3, 5))', marker)
    pytester.makepyfile(test_it=source.replace("mean(dim=1)", "mean(dim=(0, 1)) + 0 * hidden_states[:, 0]"))

    failed = pytester.runpytest("--tf-repro")

    failed.assert_outcomes(failed=1)
    said = "is not close to float32" if "dtype" in marker else "depends on its batch"
    first = next(line for line in failed.stdout.lines if said in line)
    assert run_alone().splitlines()[0].partition(") ")[2] == first.partition(") ")[2]


@pytest.mark.parametrize(
    ("marker", "wrong", "line"),
    [
        ("", f"{WO}.fill_(3e38)", "encoder.block.1.layer.1.DenseReluDense.wo: Linear: output has infs"),
        ("(dtype='float16', headroom=2.0)", f"{WO}.fill_(3e4)", "encoder.block.1.layer.1.DenseReluDense.wo"),
    ],
)
def test_an_overflow_is_seen_again_at_the_same_module(pytester, run_alone, marker, wrong, line):
    pytester.makepyfile(test_it=OVERFLOW.format(marker=marker, wrong=wrong))

    failed = pytester.runpytest("--tf-repro")
    told = run_alone()

    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines([f"*{line}*", "*Repro: python *repro.py"])
    assert line in told


def test_the_written_overflow_is_the_first_wrong_call(pytester):
    pytester.makepyfile(test_it=OVERFLOW.format(marker="", wrong=f"{WO}.fill_(3e38)"))

    pytester.runpytest("--tf-repro")
    script = written(pytester)

    assert load_inputs(script.parent)[1]["input_ids"].tolist() == [[0, 1, 2, 3, 4]]


def test_a_gradient_that_overflows_is_seen_again_where_the_model_computes_its_loss(pytester, run_alone):
    pytester.makepyfile(test_it=GRADIENT.format(call="model(x, labels=x).loss.backward()"), port=NET)

    failed = pytester.runpytest("--tf-repro")

    failed.assert_outcomes(failed=1)
    line = "^ [0] root: Root: gradient of input[0] has infs"
    failed.stdout.fnmatch_lines([line.replace("[", "[[]")])
    assert line in run_alone()


def test_a_loss_that_the_test_computes_is_said_not_to_be_writable(pytester):
    pytester.makepyfile(test_it=GRADIENT.format(call="model(x).loss.backward()"), port=NET)

    failed = pytester.runpytest("--tf-repro")

    failed.stdout.fnmatch_lines(["*No repro: the loss of the backward is computed in the test, not by the model*"])
    assert not (pytester.path / "tfdebug-repro").exists()


def test_the_written_script_names_the_same_culprit(pytester, run_alone):
    pytester.makepyfile(test_it=LLAMA)
    pytester.runpytest_inprocess("--tf-golden=update")

    failed = pytester.runpytest_inprocess("--tf-repro")

    failed.stdout.fnmatch_lines(["* in model.layers.1.mlp.up_proj (Linear): *"])
    assert " in model.layers.1.mlp.up_proj (Linear): " in run_alone().splitlines()[0]


def test_the_written_directory_runs_in_a_process_of_its_own(pytester):
    pytester.makepyfile(test_it=OWN_MODULE, port=PORT)
    pytester.runpytest_inprocess("--tf-golden=update")

    failed = pytester.runpytest_inprocess("--tf-repro")
    script = written(pytester)
    run = subprocess.run([sys.executable, script.name], cwd=script.parent, capture_output=True, text=True, check=False)

    failed.stdout.fnmatch_lines(["* in second (Linear): *", "*Repro: python *repro.py"])
    assert run.returncode == 1, run.stderr
    assert " in second (Linear): " in run.stdout.splitlines()[0]
    assert {"environment.json", "README.md", "golden.safetensors"} <= {file.name for file in script.parent.iterdir()}
    assert "python repro.py" in (script.parent / "README.md").read_text()


def test_the_terminal_and_the_readme_say_what_it_holds(pytester):
    pytester.makepyfile(test_it=LLAMA)
    pytester.runpytest_inprocess("--tf-golden=update")

    failed = pytester.runpytest_inprocess("--tf-repro")
    directory = written(pytester).parent
    readme = (directory / "README.md").read_text()

    held = "It holds weights, inputs in plain text, configuration, the golden, paths of this machine."
    failed.stdout.fnmatch_lines(["*Repro: python *repro.py", f"*{held}"])
    for file in directory.iterdir():
        assert file.name == "README.md" or f"`{file.name}`" in readme
    assert "Running it runs `repro.py`" in readme


@pytest.mark.parametrize(
    ("without", "gone"),
    [
        ("weights", ["model.safetensors"]),
        ("inputs", ["inputs.json", "inputs.safetensors", "golden.safetensors"]),
        ("weights,inputs", ["model.safetensors", "inputs.json", "inputs.safetensors", "golden.safetensors"]),
    ],
)
def test_parts_are_left_out_and_the_script_asks_for_them(pytester, without, gone):
    pytester.makepyfile(test_it=LLAMA)
    pytester.runpytest_inprocess("--tf-golden=update")

    failed = pytester.runpytest_inprocess("--tf-repro", f"--tf-repro-without={without}")
    script = written(pytester)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)

    failed.stdout.fnmatch_lines([f"*It holds *. It is without {', '.join(gone)}."])
    assert not set(gone) & {file.name for file in script.parent.iterdir()}
    assert "Left out: " + ", ".join(f"`{name}`" for name in gone) in (script.parent / "README.md").read_text()
    assert run.returncode == 2
    assert run.stdout.startswith(f"This repro was written without {', '.join(gone)}. Put files of these names")


def test_a_part_that_does_not_exist_is_a_usage_error(pytester):
    pytester.makepyfile("def test_it():\n    pass\n")

    refused = pytester.runpytest_inprocess("--tf-repro", "--tf-repro-without=weights,golden")

    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(
        ["*tf_repro_without = 'golden' is not one of weights, inputs (see --tf-repro-without).*"]
    )


def test_attributes_of_a_config_that_look_like_secrets_stay_out(pytester, run_alone):
    change = """
    port.config.hub_token, port.config.note = "summerhouse", "https://me:summerhouse@example.com"
    port.config.nested = {"api_key": "summerhouse", "width": 3}
    """
    pytester.makepyfile(test_it=LLAMA.replace(SCALED, SCALED + change))
    pytester.runpytest_inprocess("--tf-golden=update")

    pytester.runpytest_inprocess("--tf-repro")
    directory = written(pytester).parent
    config = (directory / "config.json").read_text()

    assert not [file.name for file in directory.iterdir() if b"summerhouse" in file.read_bytes()]
    assert "hub_token" not in config
    assert '"width": 3' in config
    assert " in model.layers.1.mlp.up_proj (Linear): " in run_alone().splitlines()[0]


@pytest.mark.parametrize("source", [LLAMA, OWN_MODULE], ids=["transformers", "own"])
def test_nothing_is_unpickled_without_weights_only(pytester, monkeypatch, run_alone, source):
    pytester.makepyfile(test_it=source, port=PORT)
    pytester.runpytest_inprocess("--tf-golden=update")
    pytester.runpytest_inprocess("--tf-repro")
    load = torch.load

    def watched(*args, **kwargs):
        assert kwargs.get("weights_only") is True
        return load(*args, **kwargs)

    monkeypatch.setattr(torch, "load", watched)
    run_alone()

    assert (written(pytester).parent / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("check", "culprit"),
    [
        ('tf_golden.check(port, {ids}, reference=build, use_cache=False, level="layers")', "model.layers.1"),
        (
            'tf_golden.check(port, {ids}, reference=build, use_cache=False, include="model.layers.**", exclude=["lm_head"])',
            "model.layers.1.mlp.up_proj",
        ),
        (
            'with torch.autocast("cpu", torch.bfloat16): tf_golden.check(port, {ids}, reference=build, use_cache=False)',
            "model.layers.1.mlp.up_proj",
        ),
    ],
    ids=["level", "globs", "autocast"],
)
def test_the_written_script_compares_under_the_same_conditions(pytester, run_alone, check, culprit):
    source, _, _ = LLAMA.rpartition("    tf_golden.check")
    source = source.replace("*= 1.5", "*= 8") + "    " + check.format(ids="torch.arange(20).view(2, 10)") + "\n"
    pytester.makepyfile(test_it=source)
    pytester.runpytest_inprocess("--tf-golden=update")

    failed = pytester.runpytest_inprocess("--tf-repro")

    failed.stdout.fnmatch_lines([f"*{culprit} (*): *"])
    assert f"{culprit} (" in run_alone().splitlines()[0]


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        ("port.model.layers[1].input_layernorm.variance_epsilon = 0.1", "model.layers.1.input_layernorm"),
        ("port.model.layers[1].mlp.up_proj.register_forward_hook(double)", "model.layers.1.mlp.up_proj"),
    ],
    ids=["attribute", "hook"],
)
def test_what_is_neither_config_nor_weight_is_written_too(pytester, run_alone, change, culprit):
    pytester.makepyfile(test_it="from port import double\n" + LLAMA.replace(SCALED, change), port=PORT)
    pytester.runpytest_inprocess("--tf-golden=update")

    failed = pytester.runpytest_inprocess("--tf-repro")

    failed.stdout.fnmatch_lines([f"*{culprit} (*): *", "*Repro: python *repro.py"])
    assert f"{culprit} (" in run_alone().splitlines()[0]


def test_a_hook_that_cannot_be_written_is_said(pytester):
    change = "port.model.norm.register_forward_hook(lambda module, inputs, output: output * 2)"
    pytester.makepyfile(test_it=LLAMA.replace(SCALED, change))
    pytester.runpytest_inprocess("--tf-golden=update")

    failed = pytester.runpytest_inprocess("--tf-repro")

    failed.stdout.fnmatch_lines(["*No repro: *lambda*"])


@pytest.mark.parametrize("name", ["rotate_half", "LlamaRMSNorm.forward"])
def test_a_function_that_the_test_replaced_is_said_to_be_lacking(pytester, name):
    name = f"transformers.models.llama.modeling_llama.{name}"
    pytester.makepyfile(test_it=LLAMA.replace(SCALED, ""))
    pytester.runpytest_inprocess("--tf-golden=update")
    source = LLAMA.replace(SCALED, f"monkeypatch.setattr({name!r}, lambda *args: args[-1])")
    pytester.makepyfile(test_it=source.replace("(tf_golden)", "(tf_golden, monkeypatch)"))

    failed = pytester.runpytest_inprocess("--tf-repro")
    script = written(pytester)

    lacking = f"It lacks what the test put in place of {name}."
    failed.stdout.fnmatch_lines([f"*Repro: python *repro.py ({lacking})"])
    assert f"\n{lacking}\n" in script.read_text()


def test_tests_whose_names_differ_in_a_sign_have_repros_of_their_own(pytester):
    source = OWN_MODULE.replace("def test", '@pytest.mark.parametrize("kind", ["a/b", "a b", "a_b"])\ndef test')
    pytester.makepyfile(
        test_it=source.replace("(tf_golden)", "(tf_golden, kind)").replace("import torch", "import pytest, torch", 1),
        port=PORT,
    )
    pytester.runpytest("--tf-golden=update")

    pytester.runpytest("--tf-repro")

    assert len(list(pytester.path.glob("tfdebug-repro/*/repro.py"))) == 3


def test_a_rename_function_is_said_not_to_be_writable(pytester):
    pytester.makepyfile(test_it=OWN_MODULE.replace("reference=right", "reference=right, rename=str"), port=PORT)
    pytester.runpytest_inprocess("--tf-golden=update")

    failed = pytester.runpytest_inprocess("--tf-repro=somewhere")

    failed.stdout.fnmatch_lines(["*No repro: rename= is a function; a dict can be written."])
    assert not (pytester.path / "somewhere").exists()


def test_an_input_that_cannot_be_written_is_said_and_leaves_no_directory(pytester):
    model = PORT.replace("def forward(self, x)", "def forward(self, x, unused=None)")
    pytester.makepyfile(test_it=OWN_MODULE.replace("reference=right", "reference=right, unused=object()"), port=model)
    pytester.runpytest_inprocess("--tf-golden=update")

    failed = pytester.runpytest_inprocess("--tf-repro")

    failed.stdout.fnmatch_lines(["*No repro: an input of type object cannot be written to a file."])
    assert not list(pytester.path.glob("tfdebug-repro/*"))
