"""Every injected leak is found, placed at its module and its lines, and named."""

import linecache
import re

import pytest
import torch

import padding_models
from models import IS_V5
from padding_leaks import LEAKS
from pytest_tfdebug.invariance.api import CHECKS
from pytest_tfdebug.invariance.calls.observed_call import observe
from pytest_tfdebug.invariance.checks.base import Settings


def outcome_of(leak):
    model, inputs = padding_models.build(leak.architecture)
    leak.inject(model)
    with torch.no_grad():
        call, _ = observe(model, (), inputs, lambda: model(**inputs))
    check = CHECKS[leak.check]
    return check.run(call, Settings(**leak.settings))


def catalogue():
    for leak in LEAKS:
        skip = pytest.mark.skipif(leak.needs_v5 and not IS_V5, reason="it edits lines of transformers 5")
        yield pytest.param(leak, id=leak.name, marks=skip)


@pytest.mark.parametrize("leak", list(catalogue()))
def test_leak_is_placed_where_it_was_injected(leak):
    outcome = outcome_of(leak)

    assert outcome.failure
    assert (outcome.culprit.path, outcome.culprit.kind) == (leak.culprit, leak.kind)
    assert leak.diagnosis in " ".join(outcome.failure.split())
    if leak.lines is not None:
        source = outcome.culprit.source
        reported = linecache.getlines(source.file)[source.first - 1 : source.last]
        assert leak.lines in "".join(reported)


def test_leak_at_a_block_boundary_is_found_by_its_padded_length():
    text = outcome_of(next(leak for leak in LEAKS if "boundary" in leak.name)).failure

    assert "is not invariant to padding: input_ids padded by 23 on the left" in text


def test_leak_through_a_convolution_names_the_token_beside_the_pads():
    text = outcome_of(next(leak for leak in LEAKS if leak.name == "text-cnn-convolution-over-pads")).failure

    assert "First token: position 9 of row 0; 1 of 10 real positions differ" in text


@pytest.mark.skipif(not IS_V5, reason="the leak edits lines of transformers 5")
def test_report_has_all_its_parts():
    lines = outcome_of(LEAKS[0]).failure.splitlines()

    beginnings = [line.strip().split(":")[0].split(" at ")[0] for line in lines]
    for part in ("Next", "Tensor", "First token", "Output", "Diagnosis"):
        assert part in beginnings
    assert re.match(r"\w+\.py:\d+(-\d+)? in \S+ \(\w+\): is not invariant to padding; probably ", lines[0])
    assert lines[1].endswith("is not invariant to padding: input_ids padded by 1 on the right.")
    assert any(line.startswith("  Drift (") for line in lines)
    assert len(lines) <= 40


def test_there_are_enough_leaks_to_mean_something():
    assert sum(leak.check == "padding" for leak in LEAKS) >= 15
