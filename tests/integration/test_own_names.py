"""Ports with names of their own: values find the culprit, with no name known."""

import copy
import functools
import linecache
from dataclasses import replace

import pytest
import torch

import llama_port
import minilm_port
import pytest_tfdebug
from injections import edit, set_to
from minilm_bugs import MINILM_BUGS
from nightly import every_second
from pytest_tfdebug.parity.calls.noise import assess

IDS = torch.arange(3, 19).view(2, 8)
#: A bug -> where it is, for a block of this number; what it is put into; the line that is wrong.
LLAMA_BUGS = {
    "rope": (
        "attention",
        "Attention",
        "first, second = part.chunk(2, -1)",
        "first, second = part[..., ::2], part[..., 1::2]",
    ),
    "scale": (
        "attention",
        "Attention",
        "query @ key.mT * query.shape[-1] ** -0.5",
        "query @ key.mT * hidden.shape[-1] ** -0.5",
    ),
    "causal": ("attention", "Attention", "dtype=torch.bool).triu(1)", "dtype=torch.bool).triu(2)"),
    "gelu": ("mixer", "Mixer", "nn.functional.silu(gate)", "nn.functional.gelu(gate)"),
    "gate": ("mixer", "Mixer", "nn.functional.silu(gate) * wide", "gate * nn.functional.silu(wide)"),
    "residual": ("", "Block", "return hidden + self.mixer", "return self.mixer"),
}


@functools.cache
def llama():
    """Return the port, the reference's trace, and the reference: it has to be alive when values are asked for."""
    reference = llama_port.load_reference()
    return llama_port.load_port(reference), pytest_tfdebug.trace(reference, input_ids=IDS), reference


@functools.cache
def minilm():
    inputs, reference = minilm_port.encode(), minilm_port.load_reference()
    return minilm_port.load_port(), inputs, pytest_tfdebug.trace(reference, **inputs), reference


def report_of(port, **rename):
    _, expected, _ = llama()
    return pytest_tfdebug.compare(expected, pytest_tfdebug.trace(port, input_ids=IDS), **rename)


def with_bug(name, place):
    inside, cls, old, new = LLAMA_BUGS[name]
    port = copy.deepcopy(llama()[0])
    method = "turned" if name == "rope" else "forward"
    edit(cls if place == "all" else f"blocks.1.{inside}".rstrip("."), old, new, method)(port)
    return port


def culprit_of(name, place):
    return f"blocks.{0 if place == 'all' else 1}.{LLAMA_BUGS[name][0]}".rstrip(".")


@functools.cache
def without_names(name, place):
    """Return what is said of a bug without names: several tests look at it."""
    return report_of(with_bug(name, place))


def text_of(source):
    """Return the lines of a source range, stripped."""
    lines = linecache.getlines(source.file)[source.first - 1 : source.last]
    return "".join(lines).strip()


def test_right_port_agrees_under_its_names_and_suggests_nothing():
    report = report_of(llama()[0], rename=llama_port.RENAME)

    assert report.ok, str(report)
    assert report.suggested == {}
    assert report.tensors > 50


@pytest.mark.parametrize("place", ["block 1", "all"])
@pytest.mark.parametrize("name", every_second(LLAMA_BUGS))
def test_fault_around_a_fused_projection_is_not_blamed_on_the_projection(name, place):
    report = report_of(with_bug(name, place), rename=llama_port.RENAME)

    assert (report.culprit.path, report.culprit.kind) == (culprit_of(name, place), "glue"), str(report)


#: Where the line that is wrong is not found: the first that differs clearly, which is not certain.
LATER = {("rope", "block 1"): "(weights @ value)"}


@pytest.mark.parametrize("place", ["block 1", "all"])
@pytest.mark.parametrize("name", every_second(name for name in LLAMA_BUGS if name != "residual"))
def test_without_names_the_culprit_and_its_line_are_found(name, place):
    report = without_names(name, place)

    assert (report.culprit.path, report.culprit.kind) == (culprit_of(name, place), "glue"), str(report)
    assert LATER.get((name, place), LLAMA_BUGS[name][3]) in text_of(report.culprit.source)
    assert report.culprit.source.last - report.culprit.source.first <= 2
    assert report.suggested == {}


@pytest.mark.parametrize("place", ["block 1", "all"])
def test_missing_residual_is_the_line_of_the_reference(place):
    report = without_names("residual", place)

    assert text_of(report.culprit.reference) == "hidden_states = residual + hidden_states"
    assert "skips a step that the reference does" in report.culprit.explanation


@pytest.mark.parametrize("place", ["block 1", "all"])
def test_missing_residual_is_placed_in_the_block_that_omits_it_or_above(place):
    assert without_names("residual", place).culprit.path in {culprit_of("residual", place), "Llama"}


def test_fault_that_comes_last_is_the_last_line():
    port = copy.deepcopy(llama()[0])
    edit("Llama", "self.head(self.norm(hidden))", "self.head(self.norm(hidden)) * 2")(port)

    report = report_of(port)

    assert (report.culprit.path, report.culprit.kind) == ("Llama", "glue")
    assert text_of(report.culprit.source) == "return self.head(self.norm(hidden)) * 2"


def test_another_epsilon_everywhere_is_found_in_the_first_block():
    port = copy.deepcopy(llama()[0])
    set_to("blocks.*.attention_norm", eps=1e-2)(port)

    report = report_of(port)

    assert (report.culprit.path, report.culprit.kind) == ("blocks.0.attention_norm", "module")
    assert "torch.rsqrt" in text_of(report.culprit.source)


#: Bugs of the catalogue of which values say something else than calls that are paired by name: who is to blame.
BY_VALUES = {
    "minilm-query-and-key-swapped": ("blocks.0.attention", "glue"),
    "minilm-value-bias-dropped": ("blocks.3.attention.value", "weights"),
    "minilm-output-norm-skipped": ("blocks.2", "glue"),
}


@pytest.mark.parametrize("bug", MINILM_BUGS, ids=lambda bug: bug.name)
def test_culprit_in_a_real_port_is_found_without_names(bug):
    port, inputs, expected, _ = minilm()
    port = copy.deepcopy(port)
    bug.inject(port)

    report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(port, **inputs))

    assert (report.culprit.path, report.culprit.kind) == BY_VALUES.get(bug.name, (bug.culprit, bug.kind)), str(report)
    assert report.suggested == {}


def test_report_begins_with_the_lines_of_both_sides():
    lines = str(without_names("scale", "block 1")).splitlines()

    assert lines[0].startswith(
        "llama_port.py:38 in blocks.1.attention (Attention): computes a value that the reference"
    )
    assert "      scores = query @ key.mT * hidden.shape[-1] ** -0.5" in lines[:8]
    assert any(line.startswith("  reference, modeling_llama.py:") for line in lines[:8])
    assert max(map(len, lines)) <= 120
    assert len(lines) < 40


def test_port_that_shares_no_names_passes_and_says_what_was_compared():
    lines = str(report_of(llama()[0])).splitlines()

    assert lines[:3] == [
        "Parity: 2 tensors of 1 calls agree.",
        "  Outputs: logits element by element (by value); past_key_values not compared (a cache that is not returned",
        "  here).",
    ]
    assert not any("Never called" in line or "Called only here" in line for line in lines)


def test_without_the_models_calls_alone_decide():
    reference = llama_port.load_reference()
    port = llama_port.load_port(reference)
    edit("blocks.1.mixer", "functional.silu", "functional.gelu")(port)
    expected, actual = (replace(pytest_tfdebug.trace(model, input_ids=IDS), again=None) for model in (reference, port))

    report = pytest_tfdebug.compare(expected, actual)

    assert (report.culprit.path, report.culprit.kind, report.culprit.reference) == ("Llama", "glue", None)


def test_what_was_not_compared_is_not_said_to_be_equal():
    named = report_of(with_bug("scale", "block 1"), rename=llama_port.RENAME)

    assert assess(without_names("scale", "block 1"), [], []).reason.startswith(
        "the first output that could be compared is off by a relative "
    )
    assert "every output is within a relative L2 of " in assess(named, [], []).reason


def test_golden_names_the_lines_of_a_port_with_other_names(pytester):
    pytester.makepyfile(
        test_it="""
        import torch
        from injections import edit
        from llama_port import load_port, load_reference

        def test_port(tf_golden):
            reference = load_reference()
            port = load_port(reference)
            edit("blocks.1.mixer", "functional.silu", "functional.gelu")(port)
            tf_golden.check(port, reference=reference, input_ids=torch.arange(3, 19).view(2, 8))
        """
    )
    pytester.runpytest("--tf-golden=update").assert_outcomes(failed=1)

    result = pytester.runpytest()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*llama_port.py:* in blocks.1.mixer (Mixer): *",
            "*here, llama_port.py:*",
            "*return self.narrow(nn.functional.gelu(gate) * wide)",
            "*reference, *.py:*",
        ]
    )


def test_names_that_are_a_function_change_nothing_of_what_values_say():
    report = report_of(with_bug("scale", "block 1"), rename=lambda path: path)

    assert (report.culprit.path, report.suggested) == (culprit_of("scale", "block 1"), {})


def test_forward_that_cannot_be_made_again_leaves_the_first_report(pytester):
    pytester.makepyfile(
        test_it="""
        import torch
        from llama_port import Llama, load_port, load_reference

        class Once(Llama):
            calls = 0

            def forward(self, input_ids):
                Once.calls += 1
                assert Once.calls < 2
                return super().forward(input_ids) + 1

        def test_port(tf_golden):
            reference = load_reference()
            port = load_port(reference)
            port.__class__ = Once
            tf_golden.check(port, reference=reference, input_ids=torch.arange(3, 19).view(2, 8))
        """
    )
    pytester.runpytest("--tf-golden=update").assert_outcomes(failed=1)

    result = pytester.runpytest()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["* in Once (Once): *"])
    result.stdout.no_fnmatch_line("*reference, *.py:*")
