from types import SimpleNamespace

import pytest

from pytest_tfdebug.goldens.golden_check import next_step

FIX = "Fix the port; do not update the golden."
MEANT = "if the change is meant, run with --tf-golden=update."


def said(kind, *, is_reference=False, advice="", is_drift=False, has_own_inputs=False):
    culprit = SimpleNamespace(kind=kind, wrong="") if kind else None
    known = {"culprit": culprit, "advice": advice, "is_drift": is_drift, "has_own_inputs": has_own_inputs}
    return next_step(SimpleNamespace(**known), is_reference=is_reference)


@pytest.mark.parametrize("kind", ["module", "glue", "not-called", "extra-call"])
def test_wrong_code_is_fixed_in_the_port_or_accepted_of_the_model(kind):
    assert said(kind, is_reference=True) == FIX
    assert said(kind) == "To accept the new values, run with --tf-golden=update."


@pytest.mark.parametrize("is_reference", [True, False])
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("inputs", f"Use fixed inputs (seeded, or written out); {MEANT}"),
        ("random", "Call .eval() on the model, or seed its random numbers."),
        ("dtype", f"Run the model in the recorded dtype; {MEANT}"),
    ],
)
def test_fault_outside_the_code_never_says_to_fix_the_port(kind, told, is_reference):
    assert said(kind, is_reference=is_reference) == told


def test_more_special_advice_comes_first():
    assert said("inputs", is_reference=True, has_own_inputs=True) == (
        "Give port_inputs= the tensors of the reference's inputs."
    )
    assert said("weights", is_reference=True) == "Fix how the port's weights are loaded or converted."
    assert said("weights").startswith("Give the model fixed weights: seed it, or pytest_tfdebug.fill(model); ")
    assert said("glue", is_reference=True, is_drift=True) == (
        "If the new environment explains it, run with --tf-golden=update."
    )
    assert said("module", is_reference=True, advice="Say which output is which.") == "Say which output is which."


@pytest.mark.parametrize(("mode", "call"), [("training", "eval"), ("eval", "train")])
def test_forgotten_mode_says_which_one_to_choose(mode, call):
    culprit = SimpleNamespace(kind="mode", wrong=f"is in {mode} mode, and the reference was not")
    report = SimpleNamespace(culprit=culprit, advice="", is_drift=False, has_own_inputs=False)

    assert next_step(report, is_reference=True) == f"Call .{call}() on it before the check, as the golden's model was."
