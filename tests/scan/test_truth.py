"""How much the agreement of a scan with a real run proves."""

import json

import pytest

from pytest_tfdebug.scan import ScanResult, scan
from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.resolve.conditions import RAN, UNCONDITIONAL, Condition, State
from pytest_tfdebug.scan.result import Case, CommonTest
from scan_truth.__main__ import compare, main
from scan_truth.plugin import Row


def case(cls, state, condition="", form="decorator", model="m"):
    told = Condition.of([(condition,)]) if condition else UNCONDITIONAL
    return Case(model, cls, State(state, form, "why", told, "tests/m.py", 3))


def ran(cls, model="m"):
    return Case(model, cls, RAN)


def scanned(**tests):
    return ScanResult({name: CommonTest(name, "common", tuple(cases)) for name, cases in tests.items()}, [], {}, [])


def row(cls, state, model="m", file="m"):
    """Return what a run reports of a class, before its test is known; ``file`` tells classes of one name apart."""
    where = {"reason": "why", "file": "tests/m.py", "line": 3} if state != "ran" else {}
    return {"model": model, "cls": cls, "node": f"{file}::{cls}", "state": state, **where}


def real(broken=(), **tests):
    rows = []
    for test, found in tests.items():
        for each in found:
            node = each["node"]
            known = {key: value for key, value in each.items() if key != "node"}
            rows.append(Row(nodeid=f"{node}::{test}", test=test, name=test, origin="common", **known)._asdict())
    return {"broken": list(broken), "rows": rows}


def test_what_the_scan_decides_is_counted_apart_from_what_the_run_does():
    scan = scanned(
        test_a=[ran("A"), ran("B")],
        test_b=[case("A", "skipped"), case("B", "skipped")],
        test_c=[case("A", "conditional", "not self.fast", "guard")],
        test_d=[case("A", "conditional", "not self.fast", "guard"), case("B", "skipped")],
        test_e=[case("A", "vanished")],
        test_f=[case("A", "empty")],
        test_g=[case("A", "skipped"), ran("B")],
    )
    run = real(
        test_a=[row("A", "ran"), row("B", "ran")],
        test_b=[row("A", "skipped"), row("B", "skipped")],
        test_c=[row("A", "ran")],
        test_d=[row("A", "skipped"), row("B", "skipped")],
        test_e=[row("A", "vanished")],
        test_f=[row("A", "ran")],
        test_g=[row("A", "skipped"), row("B", "ran")],
    )

    assert list(compare(scan, run).lines()) == [
        "Agreed : 7/7 pairs of test and model (100.000%)",
        "Decided by the scan : 5",
        "Conditional, decided by the run : 2 (skipped 1)",
        "Of these, as the same decorators did elsewhere in the run : 0",
        "Collected and not run, so not counted : 0",
    ]


def test_pairs_that_were_collected_and_not_run_are_not_counted():
    scan = scanned(test_a=[ran("A")], test_b=[case("A", "skipped", form="body")])
    run = real(test_a=[row("A", "collected")], test_b=[row("A", "collected")])

    assert list(compare(scan, run).lines()) == [
        "Agreed : 0/0 pairs of test and model",
        "Decided by the scan : 0",
        "Conditional, decided by the run : 0 (skipped 0)",
        "Of these, as the same decorators did elsewhere in the run : 0",
        "Collected and not run, so not counted : 2",
    ]


@pytest.mark.parametrize(
    ("says", "does"),
    [
        ([case("A", "skipped")], [row("A", "collected")]),
        ([case("A", "vanished")], [row("A", "collected")]),
        ([case("A", "skipped")], [row("A", "ran")]),
        ([], [row("A", "skipped")]),
        ([case("A", "conditional", "slow")], [row("A", "vanished")]),
        ([case("A", "conditional", "only test_a_1")], [row("A", "ran")]),
        # the words for the model agree, and those for its classes do not
        ([case("A", "skipped"), ran("B")], [row("B", "skipped"), row("A", "ran")]),
    ],
)
def test_class_that_does_something_else_is_a_disagreement(says, does):
    found = compare(scanned(test_a=says), real(test_a=does))

    assert [(one.test, one.model, one.cls) for one in found.disagreements] == [("test_a", "m", "A")]


def test_test_that_a_run_has_nowhere_is_a_disagreement():
    found = compare(scanned(test_a=[ran("A")], test_b=[ran("A")]), real(test_a=[row("A", "ran")]))

    assert list(map(str, found.disagreements)) == ["test_b of m (A): scanned ran, really absent"]


def test_classes_of_one_name_in_two_files_are_told_apart():
    skips, skipped, other = case("A", "skipped"), row("A", "skipped"), row("A", "skipped", file="m_text")
    scan = scanned(test_a=[skips, ran("A")], test_b=[skips, ran("A")], test_c=[skips, skips])
    both = [skipped, row("A", "ran", file="m_text")]

    found = compare(scan, real(test_a=both, test_b=[skipped, other], test_c=both))

    assert [(one.test, one.says.state, one.does.state) for one in found.disagreements] == [
        ("test_b", "ran", "skipped"),
        ("test_c", "skipped", "ran"),
    ]


def test_model_that_was_not_wholly_collected_is_left_out():
    tests = [ran("A", "m"), ran("A", "n"), ran("A", "o")]
    run = real(["m"], test_a=[row("A", "ran", "m"), row("A", "ran", "n"), row("A", "ran", "o")],
               test_b=[row("A", "deselected", "n")])  # fmt: skip

    found = compare(scanned(test_a=tests, test_b=tests), run)

    assert list(map(str, found.disagreements)) == ["test_b of o (A): scanned ran, really absent"]


def test_decorator_does_the_same_in_the_whole_run():
    scan = scanned(
        test_a=[case("A", "conditional", "require_torch", "class-decorator")],
        test_b=[case("A", "conditional", "require_torch or slow")],
        test_c=[case("A", "conditional", "slow")],
        test_d=[case("A", "conditional", "require_torch or not self.fast", "guard")],
    )
    skipped = [row("A", "skipped")]
    run = real(test_a=[row("A", "ran")], test_b=skipped, test_c=skipped, test_d=skipped)

    assert list(compare(scan, run).lines()) == [
        "Agreed : 4/4 pairs of test and model (100.000%)",
        "Decided by the scan : 0",
        "Conditional, decided by the run : 4 (skipped 3)",
        "Of these, as the same decorators did elsewhere in the run : 3",
        "Collected and not run, so not counted : 0",
    ]


def test_skip_by_decorators_that_skip_nothing_elsewhere_is_a_disagreement():
    conditional = [case("A", "conditional", "require_torch", "class-decorator")]
    run = real(test_a=[row("A", "ran")], test_b=[row("A", "skipped")])

    assert list(map(str, compare(scanned(test_a=conditional, test_b=conditional), run).disagreements)) == [
        "test_b of m (A): scanned conditional on require_torch, really skipped (tests/m.py:3): why"
    ]


def test_local_name_of_a_guard_does_what_it_does_in_each_test():
    conditional = [case("A", "conditional", "flag", "guard")]
    run = real(test_a=[row("A", "ran")], test_b=[row("A", "skipped")])

    assert not compare(scanned(test_a=conditional, test_b=conditional), run).disagreements


def test_run_of_nothing_proves_nothing():
    with pytest.raises(ScanError, match="Nothing to compare"):
        compare(scanned(test_a=[ran("A")]), real())


def test_run_that_disagrees_is_listed(repo, capsys):
    skipped = '@unittest.skip("Aleph is first")\n    def test_forward(self): pass'
    root = repo(aleph=f"class ATest(ModelTesterMixin, unittest.TestCase):\n    {skipped}\n")
    cases = {test: common.cases for test, common in scan(root).tests.items()}
    rows = {test: [row(each.cls, "ran", each.model) for each in found] for test, found in cases.items()}
    (root / "run.json").write_text(json.dumps(real(**rows)))

    code = main([str(root / "run.json"), "--repo", str(root)])

    assert code == 1
    assert capsys.readouterr().out.splitlines()[0] == (
        " - test_forward of aleph (ATest): scanned skipped, really ran"
        " (tests/models/aleph/test_modeling_aleph.py:8): Aleph is first"
    )
