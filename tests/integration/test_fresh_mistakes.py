"""Mistakes in ports that somebody wrote who had not seen the tool, one for each rule that they taught."""

import json
from pathlib import Path

import pytest

from nightly import every_second

pytest.importorskip("transformers")

PORTS = Path(__file__).parents[2] / "fixtures" / "fresh" / "ports"
#: A port, its mistake, and what is said of it; in the comment where it is.
MISTAKES = [
    ("falcon", "e3", "with base 500042, as the reference has, instead of 10000"),  # a table of a constructor
    ("xlnet", "e3", "every output agrees"),  # its order
    ("falcon", "e2", "has other weights: blocks.0.attention.to_k.bias"),  # elements of a bias, loaded otherwise
    ("falcon", "e10", "your port lacks ln_f"),  # behind a loop
    ("speech_to_text", "e6", "with mul(5.65685)"),  # behind a module
    ("speech_to_text", "e7", "It is used at"),  # a mask that a line before makes
    ("speech_to_text", "e9", "with its parts in the order (1, 0)"),  # parts that the next line uses
    ("audio_spectrogram_transformer", "e1", "has other weights: params.patch_w"),  # a lookup, and its use
    ("audio_spectrogram_transformer", "e6", "your port lacks the bias"),
    ("audio_spectrogram_transformer", "e9", "your port lacks the add"),  # one part of two
    ("bloom", "e3", "with `padding[:, None, None, :]` instead of `padding[:, None, :, None]`"),  # a mask, laid out
    ("bloom", "e9", "port.py:193"),  # a transposition that other matrices have
    ("bloom", "e10", "has other weights: table.0/mlp/norm/gain"),  # a right function, called for another norm
    ("convnextv2", "e9", "has other weights: p.stem/matrix"),  # a helper that several loads share
    ("segformer", "e10", "the code is right"),  # a bias that is computed
    ("olmoe", "e1", "has other weights: p.w_gate"),  # parts that a cut gives, stacked in all layers
    ("deberta_v2", "e10", "in each other's place"),  # parts that are named a line before they are joined
    ("beit", "e1", "with `columns` instead of `rows`"),  # a table that is computed of no tensor
    ("rwkv", "e3", "with dim 2 or dim -2 instead of 1"),  # a weight makes up for it
    ("rwkv", "e7", '"receptance", "key", "value"'),  # parts of a tensor, in the order of a call
    ("blenderbot", "e5", "with `square.triu(1)` instead of `square.triu(2)`"),  # a mask that lets one more through
    ("glm", "e9", "is made otherwise here than the reference"),  # a bias that is joined of nothing
    ("gptj", "e6", ".triu(1)` instead of `"),  # a mask that hides what may be seen
    ("squeezebert", "e9", "your port lacks the bias"),  # in a method, not behind its call
    ("longformer", "e2", "with `star[:, None, :]` instead"),  # a mask, beside weights of which nothing is known
    ("nystromformer", "e5", "with ne instead of eq"),  # a mask that all layers take
    ("mobilevit", "e2", "possibly in another order"),  # one entry of what a function returns
    ("mobilevit", "e6", "with silu instead of hardtanh"),  # chosen for one of several modules of a class
    ("stablelm", "e2", "with pairs as halves of axis 3"),  # in a module that two lines call
    ("gpt_oss", "e1", "with mul(1.34657)"),  # a table that two lines read
    ("gpt_oss", "e4", "is made as a layer of another kind"),  # one of two attributes that a line sets
    ("gpt_oss", "e8", "with the mul of line 142 added"),  # between two lines
    ("codegen", "e10", "as the reference's lm_head.bias"),  # never loaded
    ("patchtst", "e1", "your port lacks the mul"),  # between two lines
    ("patchtst", "e3", "with halves as pairs of axis 1"),  # where a table is put in order
]
TEST = """
from port import convert
from ref import inputs, reference

def test_port(tf_golden):
    whole = reference()
    tf_golden.check(convert(whole), reference=whole, **inputs())
"""


def failure_of(pytester, name, *mistakes):
    """Return what a check prints of a port with mistakes, and the lines that a good answer names."""
    folder = PORTS / name
    made = [each for each in json.loads((folder / "mistakes.json").read_text()) if each["id"] in mistakes]
    text = (folder / "port.py").read_text()
    for each in made:
        text = text.replace(each["old"], each["new"])
    pytester.makepyfile(
        test_it=TEST,
        ref=(folder / "ref.py").read_text(),
        port=text,
    )
    result = pytester.runpytest_subprocess("--tf-golden=update", "-q", "-o", "tf_explain_seconds=20")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    shown = text.partition("here, ")[2].partition("reference, ")[0]
    return text, [line for each in made for line in each["lines"] if line in shown]


@pytest.mark.parametrize(("name", "mistake", "says"), every_second(MISTAKES))
def test_the_line_is_shown(pytester, name, mistake, says):
    text, shown = failure_of(pytester, name, mistake)

    assert shown, text
    assert says in " ".join(text.split())


@pytest.mark.parametrize("name", ["granite", "rwkv"])  # with rounded tables, and weights that are computed and rounded
def test_a_right_port_in_half_precision_agrees(pytester, name):
    pytester.makepyfile(
        test_it=f"{TEST.replace('convert(whole)', 'convert(whole).bfloat16()').replace('=whole', '=whole.bfloat16()')}",
        ref=(PORTS / name / "ref.py").read_text(),
        port=(PORTS / name / "port.py").read_text(),
    )

    pytester.runpytest_subprocess("--tf-golden=update", "-q").assert_outcomes(passed=1)


def test_two_mistakes_of_one_layer_are_told_in_one_run(pytester):
    text, shown = failure_of(pytester, "falcon", "e8", "e9")  # what the second takes is wrong by the first
    text = " ".join(text.split())

    assert "2 faults: after these 2 changes every output agrees, also on inputs that were not searched" in text
    assert "gelu instead of silu" in text
    assert shown == ["fed = self.feed(self.before_feed(x + attended))"]


def test_what_is_behind_a_fault_is_told_where_parts_are_put_together(pytester):
    text, _ = failure_of(pytester, "vilt", "e4", "e8")  # the second is in every layer behind the first
    text = " ".join(text.split())

    assert "quick_gelu instead of encoder.layer.2.intermediate.intermediate_act_fn" in text, text


def test_exchanged_parts_of_joined_weights_are_told_as_loaded_so_or_taken_so(pytester):
    text, _ = failure_of(pytester, "gptj", "e1")  # they are joined in another order
    text = " ".join(text.split())

    assert "with its parts in the order (2, 0, 1, 3)" in text
    assert "Its parts were loaded so, or the code takes one for the other." in text
