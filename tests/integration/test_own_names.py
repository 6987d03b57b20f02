"""Ports with names of their own: what is suggested for ``rename=``, and the culprit that is then found."""

import copy
import functools

import pytest
import torch

import llama_port
import minilm_port
import pytest_tfdebug
from injections import edit, set_to
from minilm_bugs import MINILM_BUGS
from pytest_tfdebug.parity.drift import assess
from pytest_tfdebug.parity.rename import renamer

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
    reference = llama_port.load_reference()
    return llama_port.load_port(reference), pytest_tfdebug.trace(reference, input_ids=IDS)


@functools.cache
def minilm():
    inputs = minilm_port.encode()
    return minilm_port.load_port(), inputs, pytest_tfdebug.trace(minilm_port.load_reference(), **inputs)


def report_of(port, **rename):
    _, expected = llama()
    return pytest_tfdebug.compare(expected, pytest_tfdebug.trace(port, input_ids=IDS), **rename)


def with_bug(name, place):
    inside, cls, old, new = LLAMA_BUGS[name]
    port = copy.deepcopy(llama()[0])
    method = "turned" if name == "rope" else "forward"
    edit(cls if place == "all" else f"blocks.1.{inside}".rstrip("."), old, new, method)(port)
    return port, f"blocks.{0 if place == 'all' else 1}.{inside}".rstrip(".")


def wrong(rules, truth):
    """Return the rules that say otherwise than the port's author."""
    right = renamer(truth)
    return {own: said for own, said in rules.items() if right(own.replace("*", "0")) != said.replace("*", "0")}


def test_the_right_port_agrees_under_its_names_and_suggests_nothing():
    report = report_of(llama()[0], rename=llama_port.RENAME)

    assert report.ok, str(report)
    assert report.suggested == {}
    assert report.tensors > 50


@pytest.mark.parametrize("place", ["block 1", "all"])
@pytest.mark.parametrize("name", LLAMA_BUGS)
def test_a_fault_around_a_fused_projection_is_not_blamed_on_the_projection(name, place):
    port, culprit = with_bug(name, place)

    report = report_of(port, rename=llama_port.RENAME)

    assert (report.culprit.path, report.culprit.kind) == (culprit, "glue"), str(report)


@pytest.mark.parametrize("place", ["block 1", "all"])
@pytest.mark.parametrize("name", LLAMA_BUGS)
def test_without_names_what_is_suggested_leads_to_the_culprit(name, place):
    port, culprit = with_bug(name, place)

    first = report_of(port)
    second = report_of(port, rename=first.suggested)

    assert (first.culprit.path, first.culprit.kind) == ("Llama", "glue")
    assert (first.inner.path, first.inner.kind) == (culprit, "glue")
    assert wrong(first.suggested, llama_port.RENAME) == {}
    assert (second.culprit.path, second.culprit.kind) == (culprit, "glue"), str(second)


def test_all_rules_of_a_port_are_found_where_the_fault_comes_last():
    port = copy.deepcopy(llama()[0])
    edit("Llama", "self.head(self.norm(hidden))", "self.head(self.norm(hidden)) * 2")(port)

    report = report_of(port)

    assert report.suggested.keys() == llama_port.RENAME.keys()
    assert wrong(report.suggested, llama_port.RENAME) == {}


def test_blocks_are_paired_by_their_number_where_none_gives_the_same():
    port = copy.deepcopy(llama()[0])
    set_to("blocks.*.attention_norm", eps=1e-2)(port)

    report = report_of(port)

    assert report.suggested["blocks.*"] == "model.layers.*"
    second = report_of(port, rename=report.suggested)
    assert (second.culprit.path, second.culprit.kind) == ("blocks.0.attention_norm", "module")


@pytest.mark.parametrize("bug", MINILM_BUGS, ids=lambda bug: bug.name)
def test_the_culprit_in_a_real_port_is_found_without_names(bug):
    port, inputs, expected = minilm()
    port = copy.deepcopy(port)
    bug.inject(port)
    actual = pytest_tfdebug.trace(port, **inputs)

    first = pytest_tfdebug.compare(expected, actual)
    second = pytest_tfdebug.compare(expected, actual, rename=first.suggested)

    assert wrong(first.suggested, minilm_port.RENAME) == {}
    assert (second.culprit.path, second.culprit.kind) == (bug.culprit, bug.kind), str(second)
    assert first.inner is None if bug.culprit == "MiniLM" else first.inner.path == bug.culprit


def test_the_report_says_what_to_pass():
    port, _ = with_bug("scale", "block 1")

    text = str(report_of(port))

    lines = text.splitlines()
    at = lines.index(
        "  Modules with other names here seem to be those of the expected forward. To have them compared, pass"
    )
    assert lines[at + 1].startswith('    rename={"blocks.*": "model.layers.*", "tokens": "model.embed_tokens", ')
    told = "  Under these names it diverges at 'blocks.1.attention' (Attention): glue, llama_port.py:"
    assert any(line.startswith(told) for line in lines)
    assert max(map(len, lines)) <= 120
    assert len(lines) < 40


def test_what_was_not_compared_is_not_said_to_be_equal():
    port, _ = with_bug("scale", "block 1")

    assert assess(report_of(port), [], []).reason.startswith(
        "the first output that could be compared is off by a relative "
    )
    assert (
        "every output is within a relative L2 of " in assess(report_of(port, rename=llama_port.RENAME), [], []).reason
    )


def test_a_golden_is_checked_again_under_the_names_that_it_suggests(pytester):
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
    pytester.runpytest("--tf-golden=update").assert_outcomes(passed=1)

    result = pytester.runpytest()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E * Port diverges from its golden at 'Llama' (Llama): glue, *",
            '*rename={"blocks.[*]": "model.layers.[*]", *',
            "*Under these names it diverges at 'blocks.1.mixer' (Mixer): glue, llama_port.py:*",
        ]
    )


def test_names_that_are_a_function_are_not_added_to():
    port, _ = with_bug("scale", "block 1")

    report = report_of(port, rename=lambda path: path)

    assert report.suggested["blocks.*"] == "model.layers.*"
    assert report.inner is None


def test_a_forward_that_cannot_be_made_again_leaves_the_first_report(pytester):
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
    pytester.runpytest("--tf-golden=update").assert_outcomes(passed=1)

    result = pytester.runpytest()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E * Port diverges from its golden at 'Once' (Once): glue, *", "*rename={*"])
    result.stdout.no_fnmatch_line("*Under these names*")
