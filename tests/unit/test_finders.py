"""What a finder claims wins or loses by the row of its evidence, and by nothing else."""

import copy

import pytest

from bugs import BUGS
from models import build
from pytest_tfdebug import compare, trace
from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.find import finders

BUG = next(bug for bug in BUGS if bug.architecture == "gpt2")


@pytest.fixture(scope="module")
def traces():
    model, inputs = build(BUG.architecture)
    port = copy.deepcopy(model)
    BUG.inject(port)
    return trace(model, **inputs), trace(port, **inputs)


@pytest.mark.parametrize(
    ("evidence", "kind", "is_believed"),
    [(Evidence.INPUTS, "inputs", True), (Evidence.WEIGHT, "weights", True), (Evidence.VALUE, "module", False)],
)
def test_finder_that_is_added_wins_or_loses_by_its_row(traces, monkeypatch, evidence, kind, is_believed):
    def settings(view):
        """Claim that a setting of the model differs."""
        yield Claim("own", kind, evidence, view.compared.calls[0].call.class_name, "A setting differs.")

    monkeypatch.setattr(finders, "FINDERS", (*finders.FINDERS, settings))

    assert (compare(*traces).culprit.path == "own") is is_believed


def test_finders_stand_in_one_tuple_and_each_says_what_it_claims():
    names = ["made_otherwise", "calls", "weights", "statements", "values", "found_calls", "proofs"]
    assert [finder.__name__ for finder in finders.FINDERS] == names
    assert all(finder.__doc__.startswith(("Claim", "Narrow")) for finder in finders.FINDERS)
