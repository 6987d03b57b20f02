"""Drift and regression are told apart by the shape of the error and what has changed since the recording.

That every bug of the catalogue is a regression stands in ``test_catalogue.py``.
"""

import copy

import pytest_tfdebug
from golden_files import held
from models import build
from pytest_tfdebug.parity.calls.noise import assess

UPGRADE = ["torch 2.12.0 -> 2.13.0"]


def failing_by_rounding():
    """Eager against SDPA attention held to each other bit by bit: the error of another order of operations."""
    model, inputs = build("llama")
    expected = pytest_tfdebug.trace(model, **inputs)
    other = copy.deepcopy(model)
    other.set_attn_implementation("eager")
    return pytest_tfdebug.compare(expected, pytest_tfdebug.trace(other, **inputs), rtol=0, atol=0)


def test_rounding_after_an_upgrade_is_drift():
    report = failing_by_rounding()

    assert not report.ok
    assert assess(report, UPGRADE, []).finding == "drift"
    assert str(assess(report, UPGRADE, [])).startswith("Regression or drift: it is probably drift: no module jumps")
    assert "torch 2.12.0 -> 2.13.0" in assess(report, UPGRADE, []).reason


def test_rounding_in_the_recorded_environment_is_unclear():
    assert assess(failing_by_rounding(), [], []).finding == "unclear"


def test_other_weights_are_a_regression_whatever_the_error_looks_like():
    found = assess(failing_by_rounding(), UPGRADE, ["lm_head.weight"])

    assert str(found) == (
        "Regression or drift: it is probably a regression: the weights are not the recorded ones ('lm_head.weight')."
    )


def test_table_that_no_checkpoint_holds_is_the_fault_of_the_code(tmp_path):
    model, inputs = build("llama")
    port = copy.deepcopy(model)
    rotary = port.model.rotary_emb
    rotary.inv_freq = rotary.inv_freq.bfloat16().float()

    report = held(tmp_path, model, port, inputs)

    assert (report.culprit.path, report.culprit.kind, report.culprit.certain) == ("model.rotary_emb", "module", True)
    assert "holds another table: model.rotary_emb.inv_freq" in str(report)
    assert "'model.rotary_emb.inv_freq' is not the recorded one. No checkpoint holds it" in report.culprit.why
    assert "weights" not in report.between[0]


def test_output_that_is_gone_after_an_upgrade_is_a_regression():
    model, inputs = build("llama")
    expected = pytest_tfdebug.trace(model, **inputs)
    model.config.use_cache = False

    found = assess(pytest_tfdebug.compare(expected, pytest_tfdebug.trace(model, **inputs)), UPGRADE, [])

    assert str(found) == "Regression or drift: it is probably a regression: a tensor is missing."
