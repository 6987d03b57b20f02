"""What fails a change that is compared with an earlier report, and what does not."""

import gc
import json
import time
from collections import Counter

import pytest

from pytest_tfdebug.scan.baseline import changes, lines, load
from pytest_tfdebug.scan.errors import ScanError

HEAD = "import unittest\nfrom ...test_modeling_common import ModelTesterMixin\n\n"
CLASS = "class {0}Test(ModelTesterMixin, unittest.TestCase):\n    {1}\n"
SKIP = '@unittest.skip("{}")\n    def test_forward(self): pass'
BARE = "@unittest.skip\n    def test_forward(self): pass"


@pytest.fixture
def small(repo):
    return repo(
        aleph=CLASS.format("A", SKIP.format("first")), beth=CLASS.format("B", BARE), gimel=CLASS.format("G", "pass")
    )


@pytest.fixture
def ratchet(small, tmp_path, monkeypatch, capsys):
    """Return a function that compares the tree with what it was at first, and returns the code and the output."""
    from pytest_tfdebug.scan.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["--repo", str(small), "--output_dir", "base"]) == 0
    capsys.readouterr()

    def call(*options):
        code = main(["--repo", str(small), "--baseline", "base/all_tests_scan_result.json", *options])
        return code, capsys.readouterr().out

    return call


def source(root, model):
    return root / "tests" / "models" / model / f"test_modeling_{model}.py"


def test_skip_that_the_baseline_holds_without_a_reason_is_accepted(ratchet):
    assert ratchet() == (0, "No skip has changed since base/all_tests_scan_result.json.\n")


def test_strict_reasons_ask_for_the_reasons_that_the_baseline_lacks(ratchet):
    code, out = ratchet("--strict-reasons")

    assert code == 1
    assert out.splitlines()[:2] == [
        "Skips without a reason : 1",
        " - test_forward of beth: (no reason)  (BTest, tests/models/beth/test_modeling_beth.py:8)",
    ]


def test_strict_reasons_without_a_baseline(small, tmp_path, monkeypatch, capsys):
    from pytest_tfdebug.scan.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["--repo", str(small), "--strict-reasons"]) == 1
    assert "Skips without a reason : 1" in capsys.readouterr().out
    source(small, "beth").write_text(HEAD + CLASS.format("B", "pass"))

    assert main(["--repo", str(small), "--strict-reasons"]) == 0


def test_renamed_class_skips_anew(small, ratchet):
    file = source(small, "aleph")
    file.write_text(file.read_text().replace("ATest", "AnotherTest"))

    code, out = ratchet()

    assert code == 1
    assert [line for line in out.splitlines() if line[0] != " "][:2] == ["New skips : 1", "Gone skips : 1"]


def test_skip_that_moves_to_another_test_of_the_same_tree_is_new(small, ratchet):
    file = source(small, "aleph")
    file.write_text(file.read_text().replace("test_forward", "test_attentions"))

    code, out = ratchet()

    assert code == 1
    assert [line for line in out.splitlines() if line[0] != " "][:2] == ["New skips : 1", "Gone skips : 1"]


def test_new_skips_come_first_and_once(small, ratchet):
    source(small, "gimel").write_text(HEAD + CLASS.format("G", BARE))
    source(small, "aleph").write_text(HEAD + CLASS.format("A", SKIP.format("another")))

    code, out = ratchet()

    assert code == 1
    assert out.splitlines()[0] == "New skips : 1"
    assert out.count("gimel:") == 1


@pytest.mark.parametrize("form", ["json", "markdown", "github"])
def test_changes_in_the_form_that_is_asked_for(small, ratchet, form):
    source(small, "gimel").write_text(HEAD + CLASS.format("G", SKIP.format("a|b")))

    code, out = ratchet("--format", form)

    assert code == 1
    if form == "json":
        [change] = json.loads(out)
        assert (change["change"], change["test"], change["model"], change["reason"]) == (
            "new",
            "test_forward",
            "gimel",
            "a|b",
        )
    elif form == "markdown":
        assert out.splitlines()[2:] == [
            (
                "| new | `test_forward` | gimel | a\\|b | tests/models/gimel/test_modeling_gimel.py:5 | "
                "3 of 3 models skip this one; 2 say why |"
            )
        ]
    else:
        assert out.startswith(
            "::error file=tests/models/gimel/test_modeling_gimel.py,line=5,title=New skip%3A test_forward"
        )


def entry(model, cls, reason="why"):
    return {"model": model, "class": cls, "state": "skipped", "reason": reason, "file": f"{model}.py", "line": 1}


def report(**tests):
    models = sorted({each["model"] for entries in tests.values() for each in entries})
    return {
        name: {"models_ran": [], "models_skipped": models, "models_partially_skipped": [], "tests": entries}
        for name, entries in tests.items()
    }


def seconds(before, after, expected):
    """Return the seconds that a comparison takes, which finds these kinds of changes."""
    gc.collect()
    gc.disable()  # what other tests have left would be looked through as well
    try:
        started = time.process_time()

        assert Counter(change.kind for change in changes(before, after)) == expected

        return time.process_time() - started
    finally:
        gc.enable()


def test_thousands_of_skips_of_one_class_are_compared_at_once():
    def turned(number):
        entries = [{**entry("m", "MTest"), "file": f"{at}.py"} for at in range(number)]
        return seconds(report(test_a=entries), report(test_a=entries[::-1]), {})

    assert turned(20_000) < 50 * turned(2000)


def test_report_that_takes_long_to_read_is_refused(tmp_path):
    with (tmp_path / "all.json").open("wb") as file:
        file.truncate(60_000_001)

    with pytest.raises(ScanError) as caught:
        load(tmp_path / "all.json")

    assert str(caught.value) == (
        f"Cannot read {tmp_path / 'all.json'}: 60,000,001 bytes, more than the 60,000,000 that are read; "
        "write it with python -m pytest_tfdebug.scan."
    )


#: Bodies that test nothing -> what stands in the file above the class.
EMPTIED = {
    "pass": "def test_forward(self): pass",
    "a docstring and return": 'def test_forward(self):\n        """Does nothing."""\n        return',
    "a return above the rest": "def test_forward(self):\n        return\n        assert 1",
    "a loop over nothing": "def test_forward(self):\n        for each in ():\n            assert each",
    "a loop over an empty range": "def test_forward(self):\n        for each in range(0):\n            assert each",
    "a branch that is never taken": "def test_forward(self):\n        if False:\n            assert 1",
    "a loop that does nothing": "def test_forward(self):\n        for each in self.all_model_classes:\n            pass",
}


@pytest.mark.parametrize("body", EMPTIED.values(), ids=EMPTIED)
def test_test_that_is_emptied_fails_as_a_new_skip_does(small, ratchet, body):
    source(small, "gimel").write_text(HEAD + CLASS.format("G", body))

    code, out = ratchet()

    assert code == 1
    assert out.splitlines()[:3] == [
        "Emptied tests : 1",
        " - test_forward of gimel: its body tests nothing  (GTest, tests/models/gimel/test_modeling_gimel.py:5)",
        "   3 of 3 models skip this one; 1 says why",
    ]


def test_github_is_told_what_was_emptied(small, ratchet):
    source(small, "gimel").write_text(HEAD + CLASS.format("G", "def test_forward(self): pass"))

    code, out = ratchet("--format", "github")

    assert code == 1
    assert "(no reason)" not in out.partition("gimel")[2].partition("\n")[0]
    assert "gimel (GTest): its body tests nothing" in out


def test_skip_that_becomes_an_empty_body_is_an_emptied_test(small, ratchet):
    source(small, "aleph").write_text(HEAD + CLASS.format("A", "def test_forward(self): pass"))

    assert ratchet()[1].startswith("Emptied tests : 1\n - test_forward of aleph: its body tests nothing")


@pytest.mark.parametrize(
    "body",
    [
        "for each in (1,):\n            assert each",
        "if self.fast:\n            assert 1",
        "with self.subTest():\n            assert 1",
        "for each in range(2):\n            assert each",
        "while self.more():\n            pass\n        assert 1",
    ],
)
def test_body_that_may_test_something_is_not_empty(small, ratchet, body):
    source(small, "gimel").write_text(HEAD + CLASS.format("G", f"def test_forward(self):\n        {body}"))

    assert ratchet()[0] == 0


def test_many_new_skips_take_ten_lines_with_how_many_models_share_them(repo, tmp_path, monkeypatch, capsys):
    from pytest_tfdebug.scan.cli import main

    monkeypatch.chdir(tmp_path)
    root = repo(**{f"m{number:02}": CLASS.format("M", "pass") for number in range(14)})
    assert main(["--repo", str(root), "--write-baseline", "skips"]) == 0
    assert capsys.readouterr().err.endswith(f"Baseline saved to {tmp_path / 'skips'}\n")
    for number in range(13):
        source(root, f"m{number:02}").write_text(HEAD + CLASS.format("M", BARE if number else SKIP.format("why")))

    assert main(["--repo", str(root), "--baseline", "skips"]) == 1

    out = capsys.readouterr().out.splitlines()
    assert len(out) == 10
    assert out[0] == "New skips : 13"
    assert out[7:9] == ["   13 of 14 models skip this one; 1 says why", " - ... 7 more, with --verbose"]


def test_changes_of_several_kinds_that_fail_take_ten_lines_together():
    bare, told = (
        [entry("m", f"{name}Test", "" if at else "why") for at, name in enumerate("AB")],
        entry("m", "CTest", "b"),
    )
    emptied = [{**entry("m", f"{name}Test"), "state": "empty"} for name in "DEFGH"]
    before = report(test_a=[entry("m", "BTest", "why"), entry("m", "CTest", "a")])
    after = report(test_a=[*bare, told, *emptied], test_b=emptied)

    short, long = (list(lines(changes(before, after), after, verbose=verbose)) for verbose in (False, True))

    assert len(short) <= 10 < len(long)
    assert [line for line in short if not line.startswith(" ")][:-1] == [
        "New skips : 1",
        "Emptied tests : 10",
        "Skips without a reason : 1",
        "Changed reasons : 1",
    ]


def test_written_baseline_holds_what_the_report_does_and_is_small(tmp_path, monkeypatch):
    from pytest_tfdebug.scan.cli import main
    from scan_tree import generate

    generate(tmp_path / "tree", 30)
    monkeypatch.chdir(tmp_path)
    tree = ["--repo", str(tmp_path / "tree")]
    assert main([*tree, "--output_dir", ".", "--write-baseline", "base.json"]) == 0
    whole, small = load(tmp_path / "all_tests_scan_result.json"), load(tmp_path / "base.json")

    assert changes(whole, small) == changes(small, whole) == []
    assert main([*tree, "--baseline", "base.json"]) == 0
    test = next(test for test in whole if any(entry["state"] == "skipped" for entry in whole[test]["tests"]))
    at = next(at for at, entry in enumerate(whole[test]["tests"]) if entry["state"] == "skipped")
    fresh = whole[test]["tests"].pop(at)
    assert [(change.kind, change.entry["model"]) for change in changes(whole, small)] == [("new", fresh["model"])]
    assert (tmp_path / "all_tests_scan_result.json").stat().st_size > 30 * (tmp_path / "base.json").stat().st_size


def test_report_of_36_megabytes_is_read(tmp_path):
    whole = report(test_a=[{**entry("m", f"Test{number}", "x" * 900)} for number in range(37_000)])
    (tmp_path / "all.json").write_text(json.dumps(whole))

    assert (tmp_path / "all.json").stat().st_size > 36_000_000
    assert load(tmp_path / "all.json") == whole


def test_baseline_of_another_version_is_refused_in_a_line(tmp_path):
    (tmp_path / "base.json").write_text('{"scan_baseline": 2}')

    with pytest.raises(ScanError) as caught:
        load(tmp_path / "base.json")

    assert str(caught.value) == (
        f"{tmp_path / 'base.json'} is not a whole baseline (version 2, and this one reads 1); "
        "write it with python -m pytest_tfdebug.scan."
    )


def test_report_of_too_many_values_is_refused(tmp_path):
    (tmp_path / "all.json").write_text(f"[{'[],' * 1_100_000}[]]")

    with pytest.raises(ScanError, match=r"2,200,002 values, more than the 2,000,000 that are read\); write it with"):
        load(tmp_path / "all.json")
