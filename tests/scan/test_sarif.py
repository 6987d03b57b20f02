"""The ratchet as SARIF."""

import json

import pytest

from pytest_tfdebug.scan.cli import main

TEST = "class {0}Test(ModelTesterMixin, unittest.TestCase):\n    {1}\n"
SKIP = '@unittest.skip("{}")\n    def test_forward(self): pass'


@pytest.fixture
def compared(repo, tmp_path, monkeypatch, capsys):
    """Return what the ratchet says of a model that skips a test now: exit code and document."""

    def compare(before, after):
        monkeypatch.chdir(tmp_path)
        root = repo(beth=TEST.format("B", before))
        main(["--repo", str(root), "--output_dir", str(tmp_path / "base")])
        file = root / "tests" / "models" / "beth" / "test_modeling_beth.py"
        text = file.read_text()
        file.write_text(text[: text.index("class ")] + after)
        capsys.readouterr()
        earlier = tmp_path / "base" / "all_tests_scan_result.json"
        code = main(["--repo", str(root), "--format", "sarif", "--baseline", str(earlier)])
        return code, json.loads(capsys.readouterr().out)

    return compare


def test_a_new_skip_is_an_error_at_its_line(compared):
    code, document = compared("pass", TEST.format("B", SKIP.format("why")))

    [run] = document["runs"]
    [result] = run["results"]
    assert (code, document["version"], result["ruleId"], result["level"]) == (1, "2.1.0", "skip-new", "error")
    assert result["message"]["text"] == "test_forward of beth (BTest): why"
    [place] = result["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "tests/models/beth/test_modeling_beth.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 8},
    }
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "skip-new"


def test_a_reason_that_changed_is_a_warning_with_both(compared):
    code, document = compared(SKIP.format("why"), TEST.format("B", SKIP.format("because")))

    [result] = document["runs"][0]["results"]
    assert (code, result["level"]) == (0, "warning")
    assert result["message"]["text"].endswith("why -> because")


def test_nothing_new_is_a_document_without_results(compared):
    code, document = compared("pass", TEST.format("B", "pass"))

    assert (code, document["runs"][0]["results"]) == (0, [])


def test_a_skip_that_moves_keeps_its_fingerprint(compared):
    first, second = (
        compared("pass", TEST.format("B", f"{gap}{SKIP.format('why')}"))[1]["runs"][0]["results"][0]
        for gap in ("", "first = 1\n    ")
    )

    assert first["locations"] != second["locations"]
    assert first["partialFingerprints"] == second["partialFingerprints"]


def test_sarif_needs_something_to_compare_with(repo, capsys):
    assert main(["--repo", str(repo(beth=TEST.format("B", "pass"))), "--format", "sarif"]) == 2

    assert "give --baseline FILE or --base REV" in capsys.readouterr().err
