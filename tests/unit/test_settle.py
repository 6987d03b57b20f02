"""Who is to blame, and how sure that is, follows from what was claimed and from the two tables of settle alone."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import pytest_tfdebug
from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.settle import POLICY, settle
from pytest_tfdebug.records import SourceRange

LINES = SourceRange("port.py", 3, 9)


def claim(path, evidence, kind="glue", source=LINES, **more):
    return Claim(path, kind, evidence, path.title(), source=source, **more)


def proof(path, evidence, line=40, **more):
    return claim(path, evidence, "module", SourceRange("port.py", line, line), proved="with the add left out", **more)


def test_policy_has_one_row_for_each_kind_of_evidence():
    assert sorted(worth.evidence.name for worth in POLICY) == sorted(each.name for each in Evidence)


def test_certainty_is_written_in_one_file():
    files = Path(pytest_tfdebug.__file__).parent.rglob("*.py")

    assert [each.name for each in files if re.search(r"""\b(why_)?certain=|"(why_)?certain":""", each.read_text())] == [
        "settle.py"
    ]


@pytest.mark.parametrize("worth", POLICY, ids=lambda worth: worth.evidence.name)
def test_culprit_says_why_it_is_or_is_not_certain(worth):
    (culprit,) = settle([claim("norm", worth.evidence)])

    assert (culprit.certain, culprit.why_certain) == (worth.is_certain, worth.why)


def test_of_several_proofs_the_one_where_found_calls_point_goes_first():
    proofs = [proof("embeddings", Evidence.PROOF_OF_MANY), proof("embeddings.patches", Evidence.PROOF_OF_MANY, 60)]

    culprit, *_ = settle([claim("embeddings.patches", Evidence.FOUND_CALLS), *proofs])

    assert (culprit.path, culprit.source.first, culprit.certain) == ("embeddings.patches", 60, False)


@pytest.mark.parametrize(("first", "second"), [(0, -1), (8, 12)])
def test_evidence_further_up_in_the_table_wins_whatever_the_order_of_claims(first, second):
    claims = [claim("up", POLICY[first].evidence), claim("down", POLICY[second].evidence)]

    assert [each.path for each in settle(claims)] == [each.path for each in settle(claims[::-1])] == ["up", "down"]


def test_claim_that_narrows_another_stands_for_it_even_if_less_certain():
    whole = claim("attention", Evidence.CALLS)
    line = claim("attention", Evidence.LINE_OF_VALUE, source=SourceRange("port.py", 5, 5), narrows=whole)

    (culprit,) = settle([whole, line])

    assert (culprit.source.first, culprit.certain) == (5, False)


def test_statement_of_the_text_stays_beside_an_uncertain_proof_elsewhere(tmp_path):
    file = tmp_path / "port.py"
    file.write_text("a = 1\nb = a - 2\n")
    at = SourceRange(str(file), 2, 2)

    culprit, *_ = settle([claim("attention", Evidence.STATEMENT, source=at), proof("mask", Evidence.PROOF_OF_MANY)])

    assert (culprit.source, culprit.certain, culprit.proved) == (at, False, "with the add left out")


@pytest.mark.parametrize(
    ("kind", "of_calls", "of_proof", "path", "is_certain"),
    [
        ("glue", Evidence.CALLS, Evidence.PROOF, "norm", True),
        ("glue", Evidence.CALLS, Evidence.PROOF_OF_MANY, "attention", False),
        ("glue", Evidence.ROUNDED_CALLS, Evidence.PROOF_OF_MANY, "norm", False),
        ("module", Evidence.CALLS, Evidence.PROOF_OF_MANY, "attention", True),
        ("weights", Evidence.WEIGHT, Evidence.PROOF, "attention", True),
    ],
)
def test_proof_for_another_module_goes_before_calls_that_are_less_certain(kind, of_calls, of_proof, path, is_certain):
    culprit, *_ = settle([claim("attention", of_calls, kind), proof("norm", of_proof)])

    assert (culprit.path, culprit.certain, culprit.proved) == (path, is_certain, "with the add left out")


def test_proof_is_not_certain_by_calls_where_what_the_module_is_given_may_be_wrong():
    whole, given = claim("norm", Evidence.CALLS), proof("mask", Evidence.PROOF_OR_GIVEN)

    culprit, *_ = settle([whole, given, proof("norm", Evidence.PROOF_OR_GIVEN)])

    assert (culprit.path, culprit.certain) == ("norm", False)


@pytest.mark.parametrize("evidence", [Evidence.INFERRED_PROOF, Evidence.PROOF_OF_MANY])
@pytest.mark.parametrize(("of_calls", "is_certain"), [(Evidence.CALLS, True), (Evidence.ROUNDED_CALLS, False)])
def test_proof_whose_place_is_open_is_certain_where_calls_name_that_module(of_calls, is_certain, evidence):
    whole = claim("norm", of_calls)
    line = claim("norm", Evidence.LINE_OF_VALUE, narrows=whole)

    culprit, *_ = settle([whole, line, proof("norm", evidence)])

    assert (culprit.path, culprit.source.first, culprit.certain) == ("norm", 40, is_certain)
    assert ("calls name the module too" in culprit.why_certain) is is_certain


@pytest.mark.parametrize(("line", "path"), [(40, "norm"), (3, "dropout")])
@pytest.mark.parametrize("kind", ["extra-call", "not-called"])
def test_proof_on_another_line_outranks_a_call_too_many_or_few(kind, line, path):
    call = claim("dropout", Evidence.CALL, kind, SourceRange("port.py", 3, 3))

    culprit, *_ = settle([call, proof("norm", Evidence.PROOF, line)])

    assert (culprit.path, culprit.proved) == (path, "with the add left out")


@pytest.mark.parametrize(("evidence", "path"), [(Evidence.INFERRED_PROOF, "model"), (Evidence.PROOF, "norm")])
def test_call_given_another_number_goes_before_a_change_of_open_place(evidence, path):
    given = SimpleNamespace(path="rotary", direction="output")
    told = claim("model", Evidence.STATEMENTS, divergence=given)

    assert settle([told, proof("norm", evidence)])[0].path == path


@pytest.mark.parametrize("evidence", [Evidence.INPUTS, Evidence.DTYPE])
def test_no_proof_counts_where_the_model_was_given_something_else(evidence):
    culprit, *_ = settle([claim("model", evidence, evidence.name.lower()), proof("norm", Evidence.PROOF)])

    assert (culprit.path, culprit.proved) == ("model", "")


def test_settling_nothing_blames_nobody():
    assert settle([]) == []
