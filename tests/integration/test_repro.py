"""``--tf-repro`` writes a folder whose script runs the test again, with the inputs of the call beside it."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from unittest.mock import Mock

import pytest
from safetensors.torch import load_file
from transformers import (  # noqa: F401 - pytester unloads what a run inside this process has loaded
    BertModel,
    LlamaForCausalLM,
    T5ForConditionalGeneration,
)

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
PORT = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))

def test_port(tf_golden):
    port = build()
    port[2].weight.data[3] *= 1.5
    tf_golden.check(port, torch.ones(2, 4), reference=build)
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
WO = "model.encoder.block[1].layer[1].DenseReluDense.wo.weight.data"


def written(pytester, root="tfdebug-repro"):
    (script,) = pytester.path.glob(f"{root}/*/repro.py")
    return script


def run_alone(pytester, folder):
    """Run the only repro from another folder, and return what it printed."""
    run = subprocess.run(
        [sys.executable, written(pytester)], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 1, run.stdout + run.stderr
    return run.stdout


@pytest.mark.nightly
def test_script_runs_the_test_from_anywhere_and_the_inputs_lie_beside_it(pytester, tmp_path):
    pytester.makepyfile(test_it=LLAMA)
    pytester.runpytest_inprocess("--tf-golden=update")

    failed = pytester.runpytest_inprocess("--tf-repro")
    folder = written(pytester).parent

    failed.stdout.fnmatch_lines(
        ["*Repro: python *repro.py", "*It holds the inputs, the environment and what runs the test."]
    )
    assert {file.name for file in folder.iterdir()} == {
        "environment.json", "inputs.json", "inputs.safetensors", "repro.py",
    }  # fmt: skip
    assert load_file(folder / "inputs.safetensors")["[0]"].shape == (2, 10)
    assert json.loads((folder / "inputs.json").read_text()) == {
        "[0]": "[0]: (2, 10) torch.int64",
        "use_cache": "False",
    }
    assert "torch" in json.loads((folder / "environment.json").read_text())
    assert " in model.layers.1.mlp.up_proj (Linear): " in run_alone(pytester, tmp_path)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (POOLER, "is not invariant to padding: input_ids padded by 3 on the right."),
        (
            POOLER.replace('padding_invariant(side="right", lengths=(3, 5))', "invariant('batch')").replace(
                "mean(dim=1)", "mean(dim=(0, 1)) + 0 * hidden_states[:, 0]"
            ),
            "depends on its batch",
        ),
        (OVERFLOW.format(marker="", wrong=f"{WO}.fill_(3e38)"), "DenseReluDense.wo: Linear: output has infs"),
    ],
    ids=["padding", "batch", "overflow"],
)
def test_check_of_a_marker_is_written_too(pytester, source, said):
    pytester.makepyfile(test_it=source)

    failed = pytester.runpytest_inprocess("--tf-repro")

    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines([f"*{said}*", "*Repro: python *repro.py"])
    assert (written(pytester).parent / "inputs.safetensors").is_file()


def test_written_overflow_is_the_first_wrong_call(pytester):
    pytester.makepyfile(test_it=OVERFLOW.format(marker="", wrong=f"{WO}.fill_(3e38)"))

    pytester.runpytest("--tf-repro")

    found = load_file(written(pytester).parent / "inputs.safetensors")
    assert found["['input_ids']"].tolist() == [[0, 1, 2, 3, 4]]


@pytest.mark.nightly
def test_where_the_goldens_are_is_part_of_it(pytester, tmp_path):
    pytester.makepyfile(test_it=PORT)
    place = f"--tf-golden-dir={pytester.path / 'elsewhere'}"
    pytester.runpytest_inprocess("--tf-golden=update", place)

    pytester.runpytest_inprocess("--tf-repro", place).assert_outcomes(failed=1)

    assert " in 2 (Linear): " in run_alone(pytester, tmp_path)


def test_tests_whose_names_differ_in_a_sign_have_repros_of_their_own(pytester):
    pytester.makepyfile(
        test_it="""
        import pytest, torch

        @pytest.mark.overflow_free
        @pytest.mark.parametrize("kind", ["a/b", "a b", "a_b"])
        def test_it(kind):
            torch.nn.Linear(2, 2)(torch.full((1, 2), float("inf")))
        """
    )

    pytester.runpytest("--tf-repro=there")

    assert len(list(pytester.path.glob("there/*/repro.py"))) == 3


def test_test_that_was_taken_for_the_folder_is_said(pytester):
    pytester.makepyfile(test_it=OVERFLOW.format(marker="", wrong=f"{WO}.fill_(3e38)"))

    failed = pytester.runpytest("--tf-repro", "test_it.py")

    failed.stdout.fnmatch_lines(["*No repro: --tf-repro took test_it.py for its folder. *"])
    assert (pytester.path / "test_it.py").is_file()


INFINITE = """
import pytest, torch

@pytest.mark.overflow_free
@pytest.mark.parametrize("name", {names!r}, ids=ascii)
def test_it(name):
    torch.nn.Linear(2, 2)(torch.full((1, 2), float("inf")))
"""


@pytest.mark.parametrize(
    ("way", "why"), [("file", "File exists"), ("dangling", "File exists"), ("read-only", "Permission denied")]
)
def test_folder_that_cannot_be_written_is_said_under_the_failure(pytester, way, why, monkeypatch):
    pytester.makepyfile(test_it=INFINITE.format(names=["a"]))
    place = pytester.path / way
    if way == "file":
        place.write_text("in the way")
    elif way == "dangling":
        place.symlink_to("nowhere")
    else:  # a mode would not do: root writes everywhere
        denied = PermissionError(errno.EACCES, why)
        monkeypatch.setattr(tempfile, "mkdtemp", Mock(side_effect=denied))

    failed = pytester.runpytest_inprocess(f"--tf-repro={way}", "-p", "no:cacheprovider")

    failed.assert_outcomes(failed=1)
    failed.stdout.re_match_lines(
        [rf".*No repro: {place}/\S+ cannot be written: {why}\. Name another folder: --tf-repro=DIR\.$"]
    )


def test_repro_that_is_interrupted_leaves_the_earlier_one(pytester, monkeypatch):
    pytester.makepyfile(test_it=INFINITE.format(names=["a"]))
    pytester.runpytest_inprocess("--tf-repro=there")
    (earlier,) = (file.read_text() for file in pytester.path.glob("there/*/repro.py"))
    monkeypatch.setattr("pytest_tfdebug.repro._script", Mock(side_effect=KeyboardInterrupt))

    pytester.runpytest_inprocess("--tf-repro=there", no_reraise_ctrlc=True)

    (folder,) = pytester.path.glob("there/*")
    assert (folder / "repro.py").read_text() == earlier


def test_whatever_stands_in_the_place_of_a_repro_is_replaced_not_followed(pytester):
    pytester.makepyfile(test_it=INFINITE.format(names=["link", "pipe", "file", "folder"]))
    pytester.mkdir("precious").joinpath("kept").touch()
    options = ("--tf-repro=there", "-p", "no:cacheprovider")
    pytester.runpytest_inprocess(*options)
    scripts = sorted(pytester.path.glob("there/*/repro.py"))
    file, folder, link, pipe = (script.parent for script in scripts)
    for place in (file, folder, link, pipe):
        shutil.rmtree(place)
    file.touch()
    (folder / "repro.py").mkdir(parents=True)
    link.symlink_to(pytester.path / "precious")
    os.mkfifo(pipe)

    pytester.runpytest_subprocess(*options, timeout=60)  # of its own: one that reads the pipe would wait for good

    assert [script for script in scripts if script.is_file() and not script.parent.is_symlink()] == scripts
    assert [file.name for file in (pytester.path / "precious").iterdir()] == ["kept"]


def test_every_name_of_a_test_has_a_repro_that_is_python(pytester):
    names = [
        "日本語" * 60,
        "🙂" * 200,
        "a\x00b",
        "a\x1b[2Jb",
        "..",
        "../../up",
        "/etc/passwd",
        '"""',
        "{test}",
        "x" * 3000,
    ]
    pytester.makepyfile(test_it=INFINITE.format(names=names).replace("ids=ascii", "ids=lambda name: name"))
    pytester.makeini("[pytest]\ndisable_test_id_escaping_and_forfeit_all_rights_to_community_support = true\n")

    pytester.runpytest_inprocess("--tf-repro=there")

    scripts = list(pytester.path.glob("there/*/repro.py"))
    assert len(scripts) == len(names) == len(list(pytester.path.glob("there/*")))
    for script in scripts:
        compile(script.read_bytes(), script, "exec")
