"""Ports that began as a copy of the reference's file, held to a golden on disk while the reference is at hand."""

import re
from importlib import import_module
from pathlib import Path

import pytest

MODULE = "transformers.models.gemma2.modeling_gemma2"
TEST = """
import pytest_tfdebug
import torch
from port_gemma2 import Gemma2ForCausalLM
from transformers import Gemma2Config
from transformers.models.gemma2 import modeling_gemma2

CONFIG = Gemma2Config(
    hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=8, vocab_size=99, sliding_window=4, attn_implementation="eager",
)

def test_port(tf_golden):
    reference = pytest_tfdebug.fill(modeling_gemma2.Gemma2ForCausalLM(CONFIG).eval(), seed=0)
    port = Gemma2ForCausalLM(CONFIG).eval()
    port.load_state_dict(reference.state_dict())
    tf_golden.check(port, reference=reference, input_ids=torch.arange(24).view(2, 12))
"""


def absolute(found):
    parts = MODULE.split(".")
    return f"from {'.'.join([*parts[: -len(found[1])], *filter(None, [found[2]])])} import"


@pytest.fixture
def failed(pytester):
    """Return a function that checks a copy of the reference's file with some text replaced, and gives the first lines."""

    def check(old, new, *options):
        text = Path(import_module(MODULE).__file__).read_text(encoding="utf-8")
        assert old in text
        port = re.sub(r"from (\.+)([\w.]*) import", absolute, text.replace(old, new))
        pytester.makepyfile(test_port=TEST, port_gemma2=port)
        pytester.runpytest_inprocess("--tf-golden=update")
        result = pytester.runpytest_inprocess(*options)
        result.assert_outcomes(failed=1)
        lines = result.stdout.lines
        first = next(place for place, line in enumerate(lines) if line.startswith("E   "))
        return [line.removeprefix("E ").strip() for line in lines[first:]]

    return check


LEFT_OUT = "        attn_weights = attn_weights * softcap\n"


@pytest.mark.parametrize("options", [(), ("-o", "tf_explain_seconds=0")], ids=["proof", "no proof"])
def test_statement_left_out_of_a_helper_is_named_with_the_reference_line(failed, options):
    told = failed(LEFT_OUT, "", *options)

    assert re.fullmatch(
        r"port_gemma2\.py:\d+ in model\.layers\.0\.self_attn \(Gemma2Attention\): leaves out a statement of the reference",
        told[0],
    )
    assert LEFT_OUT.strip() in told[:8]
    assert "Not certain" not in "\n".join(told)


def test_other_names_of_local_variables_do_not_hide_the_statement(failed):
    text = Path(import_module(MODULE).__file__).read_text(encoding="utf-8")
    begin = text.index("def eager_attention_forward")
    helper = text[begin : text.index("\n\n\n", begin)]
    renamed = helper.replace(LEFT_OUT, "").replace("attn_weights", "scores").replace("key_states", "keys")

    told = failed(helper, renamed)

    assert told[0].endswith("leaves out a statement of the reference")
    assert LEFT_OUT.strip() in told[:8]
