"""``tf_golden.sweep``, and what a golden says of the fields that it cannot see."""

import json

import pytest
import torch  # noqa: F401 - pytester unloads what a run inside this process has loaded
from transformers import Phi3ForCausalLM  # noqa: F401

import pytest_tfdebug.sweeping.fixture  # noqa: F401 - loaded once for all runs
from pytest_tfdebug.goldens import golden_check

SUITE = """
import copy
import torch  # noqa: F401
from transformers import Phi3Config, Phi3ForCausalLM
from pytest_tfdebug import fill

CONFIG = Phi3Config(
    vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, original_max_position_embeddings=64, sliding_window=4096,
    pad_token_id=0, bos_token_id=1, eos_token_id=2,
)

def deaf(config):
    heard = copy.deepcopy(config)
    heard.sliding_window, heard.hidden_act = None, "silu"
    return Phi3ForCausalLM(heard)
"""
CHECK = "tf_golden.check(fill(Phi3ForCausalLM(CONFIG).eval()), input_ids=torch.arange(20).view(2, 10))"
ANSWER = "phi3 port: * fields matter; * agree, 2 are ignored: sliding_window, hidden_act"


@pytest.fixture
def run(pytester):
    def run_pytest(body, *arguments):
        pytester.makepyfile(suite=SUITE, test_it=f"from suite import *\n\ndef test_port(tf_golden):\n    {body}\n")
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    return run_pytest


def test_port_that_ignores_fields_fails_with_the_culprit_under_each(run, monkeypatch):
    monkeypatch.setattr(golden_check, "_FIRST", 0.0)

    result = run("tf_golden.sweep(Phi3ForCausalLM, CONFIG, build=deaf)")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "sweeping test_it.py::test_port: 0 of * fields of phi3",
            f"E*{ANSWER}",
            "  ignored  sliding_window 4096 -> 3: the reference moves by *%, the port not at all",
            "           a golden of these inputs cannot see it: at 4096 leaving it out gives the same",
            "           modeling_phi3.py:* in model (Phi3Model): *",
            "  ignored  hidden_act silu -> relu: the reference moves by *%, the port not at all",
            "           * in model.layers.0.mlp*",
            '  Next: let the port read what it ignores, or say why it need not: known={"sliding_window": "why",',
            '  "hidden_act": "why"}.',
            "  Inputs were made for this sweep: input_ids (2, 24). Shorter ones see less: inputs= takes those of your",
            "FAILED test_it.py::test_port - phi3 port: *",
        ]
    )


def test_what_is_known_passes_and_says_so(run):
    known = '{"sliding_window": "short prompts alone", "hidden_act": "hard-coded"}'
    result = run(f"tf_golden.sweep(Phi3ForCausalLM, CONFIG, build=deaf, known={known})")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["test_it.py::test_port: phi3 port: * fields matter; * agree, 2 known to fail"])


def test_rows_stand_in_the_file_of_checks_and_on_the_page(run, pytester):
    run("tf_golden.sweep(Phi3ForCausalLM, CONFIG, build=deaf)", "--tf-json=checks.json", "--tf-html=pages")

    (check,) = json.loads((pytester.path / "checks.json").read_text())["checks"]
    assert (check["check"], check["status"]) == ("sweep", "failed")
    assert check["headline"].endswith("2 are ignored: sliding_window, hidden_act")
    row = check["fields"][0]
    assert [row[key] for key in ("field", "verdict", "own", "value")] == ["sliding_window", "ignored", "4096", "3"]
    assert "modeling_phi3.py" in row["culprit"]
    assert ("sliding_window", "3") in {(spot["field"], spot["value"]) for spot in check["blind"]}
    (page,) = (pytester.path / "pages").glob("*/*.html")
    assert "Fields of the configuration" in page.read_text()


def test_golden_says_which_fields_it_cannot_see(run, pytester):
    run(CHECK, "--tf-golden=update").assert_outcomes(passed=1)

    plain, verbose = run(CHECK, "--tf-json=checks.json"), run(CHECK, "-v")

    plain.stdout.fnmatch_lines(
        [
            "  test_it.py::test_port would pass for a port that ignores partial_rotary_factor=1.0 (use 0.5), *4096 (use 3)"
        ]
    )
    verbose.stdout.fnmatch_lines(
        [
            "  test_it.py::test_port would pass for a port that ignores:",
            "    partial_rotary_factor=1.0: it is neutral; use 0.5",
            "    sliding_window=4096: leaving it out gives the same; use 3",
        ]
    )
    (check,) = json.loads((pytester.path / "checks.json").read_text())["checks"]
    assert [spot["field"] for spot in check["blind"]] == ["partial_rotary_factor", "sliding_window"]


@pytest.mark.nightly
def test_workers_hand_over_what_goldens_cannot_see(run):
    pytest.importorskip("xdist")
    bare = CHECK.replace("fill(Phi3ForCausalLM(CONFIG).eval())", "Phi3ForCausalLM(CONFIG).eval()")
    check = f"torch.manual_seed(0); {bare}"
    run(check, "--tf-golden=update")

    result = run(check, "-n1")

    weights = "model.layers.0.input_layernorm.weight and 2 more=1 (use pytest_tfdebug.fill(model))"
    fields = "partial_rotary_factor=1.0 (use 0.5)"
    result.stdout.fnmatch_lines([f"  test_it.py::test_port would pass for a port that ignores {weights}, {fields}*"])


@pytest.mark.parametrize(
    "model",
    ["torch.nn.Linear(8, 8)", "patched(fill(Phi3ForCausalLM(CONFIG).eval()))"],
    ids=["not-of-transformers", "not-what-its-class-makes"],
)
def test_golden_of_a_model_that_cannot_be_built_anew_names_no_field(run, model):
    patched = "patched = lambda model: (setattr(model.model.norm, 'forward', lambda x: x * 2), model)[1]\n    "
    inputs = "torch.arange(16.0).view(2, 8)" if "Linear" in model else "input_ids=torch.arange(10)[None]"
    body = f"{patched}torch.manual_seed(0)\n    tf_golden.check({model}, {inputs})"
    run(body, "--tf-golden=update").assert_outcomes(passed=1)

    result = run(body)

    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*would pass for a port that ignores *=*")
