"""Every bug of the catalogue, in a real model, is placed at the module whose code or parameters are wrong.

It is a regression, and never drift, even where the versions have changed since the recording. The models are held to
goldens of 64 kB beside the table of operators: most tensors are digests.
"""

import copy
import functools
import linecache
from dataclasses import replace

import pytest

import pytest_tfdebug
from bugs import BUGS, Bug
from models import ARCHITECTURES, IS_V5, build
from pytest_tfdebug.parity.calls.noise import assess
from pytest_tfdebug.tracing.file.stored_tensors import sampled
from pytest_tfdebug.tracing.values.precision import measure_floors
from pytest_tfdebug.tracing.values.rerun import Recorded


@functools.cache
def reference(architecture: str):
    model, inputs = build(architecture)
    recorded = pytest_tfdebug.trace(model, **inputs)
    measure_floors(recorded)
    return model, inputs, replace(sampled(recorded), again=Recorded(recorded.again.values()))


def catalogue():
    for bug in BUGS:
        reason = "an architecture of transformers 5" if bug.needs_v5 and not IS_V5 else ""
        yield pytest.param(bug, id=bug.name, marks=pytest.mark.skipif(bool(reason), reason=reason))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tolerance", ["dtype", "fp64"])
def test_copy_of_a_model_agrees_with_it_in_every_tensor(architecture, tolerance):
    model, inputs, expected = reference(architecture)

    actual = pytest_tfdebug.trace(copy.deepcopy(model), **inputs)
    report = pytest_tfdebug.compare(expected, actual, tolerance=tolerance)

    assert report.ok, str(report)
    assert report.tensors > 20
    assert report.divergences == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_floors_name_the_culprit_too(architecture):
    model, inputs, expected = reference(architecture)
    bug = next(bug for bug in BUGS if bug.architecture == architecture and (IS_V5 or not bug.needs_v5))
    port = copy.deepcopy(model)
    bug.inject(port)

    report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(port, **inputs), tolerance="fp64")

    assert not report.ok
    assert (report.culprit.path, report.culprit.kind) == (bug.culprit, bug.kind), str(report)


@pytest.mark.parametrize("bug", list(catalogue()))
def test_culprit_of_an_injected_bug_is_named(bug: Bug):
    model, inputs, expected = reference(bug.architecture)
    port = copy.deepcopy(model)
    bug.inject(port)

    report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(port, **inputs))

    assert not report.ok
    assert (report.culprit.path, report.culprit.kind) == (bug.culprit, bug.kind), str(report)
    assert assess(report, ["torch 2.12.0 -> 2.13.0"], []).finding == "regression", str(report)
    if bug.lines:
        source = report.culprit.source
        lines = [linecache.getline(source.file, number) for number in range(source.first, source.last + 1)]
        assert any(bug.lines in line for line in lines), f"{bug.lines!r} is not in {source}:\n{''.join(lines)}"
