"""How much the agreement of a scan with a real run proves."""

import json

import pytest

from pytest_tfdebug.scan import scan
from pytest_tfdebug.scan.errors import ScanError
from scan_truth.__main__ import main
from scan_truth.compare import compare, load


def entry(cls, state, condition="", form="decorator", model="m"):
    return {
        "model": model,
        "class": cls,
        "state": state,
        "form": form,
        "reason": "why",
        "condition": condition,
        "file": "tests/m.py",
        "line": 3,
    }


def scanned(*entries, ran=("m",)):
    return {"tests": list(entries), "models_ran": list(ran)}


def real(*entries, ran=(), incomplete=(), model="m"):
    """Return what a run reports of a test of a model: the classes that ran it, and those that did not."""
    return {
        "tests": list(entries),
        "models_ran": [model] if ran else [],
        "models_skipped": [] if ran else [model],
        "models_not_run": [],
        "models_incomplete": list(incomplete),
        "classes_ran": {model: list(ran)} if ran else {},
    }


def test_what_the_scan_decides_is_counted_apart_from_what_the_run_does():
    scan = {
        "test_a": scanned(),
        "test_b": scanned(entry("A", "skipped"), entry("B", "skipped"), ran=()),
        "test_c": scanned(entry("A", "conditional", "not self.fast", "guard")),
        "test_d": scanned(entry("A", "conditional", "not self.fast", "guard"), entry("B", "skipped")),
        "test_e": scanned(entry("A", "vanished"), ran=()),
        "test_f": scanned(entry("A", "empty")),
        "test_g": scanned(entry("A", "skipped")),
    }
    run = {
        "test_a": real(ran=["A", "B"]),
        "test_b": real(entry("A", "skipped"), entry("B", "skipped")),
        "test_c": real(ran=["A"]),
        "test_d": real(entry("A", "skipped"), entry("B", "skipped")),
        "test_e": real(entry("A", "vanished")),
        "test_f": real(ran=["A"]),
        "test_g": real(entry("A", "skipped"), ran=["B"]),
    }

    assert list(compare(scan, run).lines()) == [
        "Agreed : 7/7 pairs of test and model (100.000%)",
        "Decided by the scan : 5 (ran 1, partial 1, skipped 1, vanished 1, empty 1)",
        "Conditional, decided by the run : 2 (ran 1, skipped 1)",
    ]


def test_pairs_that_were_collected_and_not_run_are_not_counted():
    scan = {"test_a": scanned(), "test_b": scanned(entry("A", "skipped", form="body"), ran=())}
    run = {"test_a": real(entry("A", "collected", form="")), "test_b": real(entry("A", "collected", form=""))}

    assert list(compare(scan, run).lines()) == [
        "Agreed : 0/0 pairs of test and model",
        "Decided by the scan : 0",
        "Conditional, decided by the run : 0",
        "Collected and not run, so not counted : 2",
    ]


@pytest.mark.parametrize(
    ("says", "does"),
    [
        ([entry("A", "skipped")], real(entry("A", "collected"))),
        ([entry("A", "vanished")], real(entry("A", "collected"))),
        ([entry("A", "skipped")], real(ran=["A"])),
        ([], real(entry("A", "skipped"))),
        ([entry("A", "conditional", "slow")], real(entry("A", "vanished"))),
        ([entry("A", "conditional", "only test_a_1")], real(ran=["A"])),
        # the words for the model agree, and those for its classes do not
        ([entry("A", "skipped")], real(entry("B", "skipped"), ran=["A"])),
    ],
)
def test_a_class_that_does_something_else_is_a_disagreement(says, does):
    found = compare({"test_a": scanned(*says)}, {"test_a": does})

    assert [(one.test, one.model, one.cls) for one in found.disagreements] == [("test_a", "m", "A")]
    assert found.pairs == 1


def test_a_test_that_a_run_has_nowhere_is_a_disagreement():
    found = compare({"test_a": scanned(), "test_b": scanned()}, {"test_a": real(ran=["A"])})

    assert [str(one) for one in found.disagreements] == ["test_b of m: scanned ran, really absent"]


def test_classes_of_one_name_in_two_files_are_told_apart():
    skips = entry("A", "skipped")
    scan = {"test_a": scanned(skips), "test_b": scanned(skips), "test_c": scanned(skips, skips, ran=())}
    both = real(skips, ran=["A"])

    found = compare(scan, {"test_a": both, "test_b": real(skips, skips), "test_c": both})

    assert [(one.test, one.scanned, one.real) for one in found.disagreements] == [
        ("test_b", "ran", "skipped"),
        ("test_c", "skipped", "ran"),
    ]


def test_a_model_that_was_not_wholly_collected_is_left_out():
    scan = {"test_a": scanned(ran=["m", "n"]), "test_b": scanned(ran=["m", "n"])}
    run = {"test_a": real(ran=["A"], incomplete=["m", "n"])}
    run["test_c"] = real(ran=["A"], incomplete=["m"], model="n")

    assert [str(one) for one in compare(scan, run).disagreements] == [
        "test_b of n: scanned ran, really absent",
        "test_c of n (A): scanned absent, really ran",
    ]


def test_a_decorator_does_the_same_in_the_whole_run():
    scan = {
        "test_a": scanned(entry("A", "conditional", "require_torch", "class-decorator")),
        "test_b": scanned(entry("A", "conditional", "require_torch or slow")),
        "test_c": scanned(entry("A", "conditional", "slow")),
        "test_d": scanned(entry("A", "conditional", "require_torch or not self.fast", "guard")),
    }
    run = {
        "test_a": real(ran=["A"]),
        "test_b": real(entry("A", "skipped")),
        "test_c": real(entry("A", "skipped")),
        "test_d": real(entry("A", "skipped")),
    }

    assert list(compare(scan, run).lines()) == [
        "Agreed : 4/4 pairs of test and model (100.000%)",
        "Decided by the scan : 0",
        "Conditional, decided by the run : 4 (ran 1, skipped 3); 3 of them as the same decorators did elsewhere in the run",
    ]


def test_a_skip_by_decorators_that_skip_nothing_elsewhere_is_a_disagreement():
    scan = {
        "test_a": scanned(entry("A", "conditional", "require_torch", "class-decorator")),
        "test_b": scanned(entry("A", "conditional", "require_torch", "class-decorator")),
    }
    run = {"test_a": real(ran=["A"]), "test_b": real(entry("A", "skipped"))}

    assert [str(one) for one in compare(scan, run).disagreements] == [
        "test_b of m (A): scanned conditional on require_torch, really skipped (tests/m.py:3): why"
    ]


def test_a_local_name_of_a_guard_does_what_it_does_in_each_test():
    scan = {
        "test_a": scanned(entry("A", "conditional", "flag", "guard")),
        "test_b": scanned(entry("A", "conditional", "flag", "guard")),
    }

    assert not compare(scan, {"test_a": real(ran=["A"]), "test_b": real(entry("A", "skipped"))}).disagreements


def test_a_report_of_a_run_that_is_not_there_is_said_with_the_command_that_writes_it(tmp_path):
    with pytest.raises(ScanError) as caught:
        load(tmp_path / "run.json")

    path = tmp_path / "run.json"
    assert str(caught.value) == (
        f"Cannot read {path}: No such file or directory; write it with pytest -p scan_truth.plugin --skip-report={path}."
    )


MODEL = "class {0}Test(ModelTesterMixin, unittest.TestCase):\n    {1}\n"
SKIPPED = '@unittest.skip("Aleph is first")\n    def test_forward(self): pass'


@pytest.fixture
def small(repo):
    """A repository, and a file of a run that did all that the scan says."""
    root = repo(
        aleph=MODEL.format("A", SKIPPED), beth=MODEL.format("B", "pass"), gimel=MODEL.format("G", "test_forward = None")
    )
    report = scan(root).to_dict()
    for test, values in report.items():
        ran = {model: [f"{model[0].upper()}Test"] for model in values["models_ran"]}
        report[test] = {**values, "models_not_run": [], "models_incomplete": [], "classes_ran": ran}
    (root / "run.json").write_text(json.dumps(report))
    return root


def test_a_run_that_disagrees_is_listed(small, capsys):
    file = small / "tests" / "models" / "aleph" / "test_modeling_aleph.py"
    file.write_text(file.read_text().replace(SKIPPED, "pass"))

    code = main([str(small / "run.json"), "--repo", str(small)])

    where = "tests/models/aleph/test_modeling_aleph.py"
    assert code == 1
    assert capsys.readouterr().out.splitlines() == [
        f" - test_forward of aleph (ATest): scanned ran, really skipped ({where}:8): Aleph is first",
        "Agreed : 5/6 pairs of test and model (83.333%)",
        "Decided by the scan : 5 (ran 4, vanished 1)",
        "Conditional, decided by the run : 0",
    ]


def test_a_report_of_a_scan_is_none_of_a_run(small, capsys):
    report = scan(small).to_json(small / "scan.json")

    assert main([str(report), "--repo", str(small)]) == 2
    assert capsys.readouterr().err == (
        f"error: {report} is not the report of a run; write one with pytest -p scan_truth.plugin --skip-report=FILE.\n"
    )


def test_a_run_of_nothing_proves_nothing(small, capsys):
    (small / "run.json").write_text("{}")

    assert main([str(small / "run.json"), "--repo", str(small)]) == 2
    assert "run.json is not a report of this" in capsys.readouterr().err
