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
]
TEST = """
from port import convert
from ref import inputs, reference

def test_port(tf_golden):
    whole = reference()
    tf_golden.check(convert(whole), reference=whole, **inputs())
"""


def failure_of(pytester, name, mistake):
    """Return what a check prints of a port with a mistake, and the lines that a good answer names."""
    folder = PORTS / name
    made = next(each for each in json.loads((folder / "mistakes.json").read_text()) if each["id"] == mistake)
    pytester.makepyfile(
        test_it=TEST,
        ref=(folder / "ref.py").read_text(),
        port=(folder / "port.py").read_text().replace(made["old"], made["new"]),
    )
    result = pytester.runpytest_subprocess("--tf-golden=update", "-q", "-o", "tf_explain_seconds=20")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    shown = text.partition("here, ")[2].partition("reference, ")[0]
    return text, [line for line in made["lines"] if line in shown]


@pytest.mark.parametrize(("name", "mistake", "says"), every_second(MISTAKES))
def test_the_line_is_shown(pytester, name, mistake, says):
    text, shown = failure_of(pytester, name, mistake)

    assert shown, text
    assert says in " ".join(text.split())
