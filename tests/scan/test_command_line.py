"""``python -m pytest_tfdebug.scan``: what it writes, prints and exits with."""

import json
import os
import subprocess
import sys
import threading

import pandas as pd
import pytest

from pytest_tfdebug.scan.cli import main

TEST = "class {0}Test(ModelTesterMixin, unittest.TestCase):\n    {1}\n"
SKIP = '@unittest.skip("{}")\n    def test_forward(self): pass'
BARE = "@unittest.skip\n    def test_forward(self): pass"


@pytest.fixture
def small(repo):
    return repo(
        aleph=TEST.format("A", SKIP.format("Aleph is first")),
        beth=TEST.format("B", "pass"),
        gimel=TEST.format("G", "test_forward = None"),
    )


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command line in a directory of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def change(root, model, source):
    file = root / "tests" / "models" / model / f"test_modeling_{model}.py"
    text = file.read_text()
    file.write_text(text[: text.index("class ")] + source)


def test_all_tests_are_written_and_shown_as_a_table(small, run, tmp_path):
    code, out, err = run("--repo", small)

    assert code == 0
    assert out.splitlines() == [
        "test             origin  ran  skipped  partial  conditional  vanished  empty  skipped %",
        "test_forward     common    1        2        0            0         1      0      66.7%",
        "test_attentions  common    3        0        0            0         0      0       0.0%",
        "total                      4        2        0            0         1      0      33.3%",
    ]
    assert err.splitlines() == [
        "🔬 Parsing 3 model test files once each...",
        f"📄 JSON saved to {tmp_path / 'all_tests_scan_result.json'}",
    ]
    table = pd.read_json(tmp_path / "all_tests_scan_result.json").T
    assert table.loc["test_forward", "models_skipped"] == ["aleph", "gimel"]
    assert round(table.loc["test_forward", "skipped_proportion"], 4) == 0.6667


def test_one_test_reads_as_in_the_transformers_documentation(small, run, tmp_path):
    code, out, err = run(
        "--repo", small, "--test_method_name", "test_forward", "--output_dir", tmp_path / "new" / "out"
    )

    assert code == 0
    assert out.splitlines() == [
        "== test_forward ==",
        "Ran    : 1/3",
        "Skipped : 2/3 (66.7%)",
        " - aleph: Aleph is first  (ATest, tests/models/aleph/test_modeling_aleph.py:8)",
        " - gimel: test_forward = None  (GTest, tests/models/gimel/test_modeling_gimel.py:8)",
    ]
    assert "JSON saved to" in err
    assert list(json.loads((tmp_path / "new" / "out" / "scan_test_forward.json").read_text())) == ["test_forward"]


def test_more_than_ten_reasons_are_shown_with_verbose(repo, run):
    root = repo(**{f"m{index:02}": TEST.format("A", SKIP.format(index)) for index in range(12)})

    short = run("--repo", root, "--test_method_name", "test_forward")[1].splitlines()
    verbose = run("--repo", root, "--test_method_name", "test_forward", "--verbose")[1].splitlines()

    assert short[-1] == " - ... 2 more, with --verbose"
    assert len([line for line in short if "(ATest" in line]) == 10
    assert len([line for line in verbose if "(ATest" in line]) == 12


def test_formats(small, run, tmp_path):
    as_json = run("--repo", small, "--format", "json")[1]
    as_markdown = run("--repo", small, "--format", "markdown")[1]
    as_github = run("--repo", small, "--format", "github")[1]

    assert json.loads(as_json) == json.loads((tmp_path / "all_tests_scan_result.json").read_text())
    assert "| `test_forward` | common | 1 | 2 | 66.7% |" in as_markdown.splitlines()
    assert (tmp_path / "all_tests_scan_result.md").read_text() == as_markdown
    assert as_github.splitlines() == [
        "::notice file=tests/models/aleph/test_modeling_aleph.py,line=8,title=test_forward is skipped::aleph (ATest): Aleph is first",
        "::warning file=tests/models/gimel/test_modeling_gimel.py,line=8,title=test_forward is vanished::gimel (GTest): test_forward = None",
    ]


def test_unknown_test_suggests_the_nearest_and_writes_nothing(small, run, tmp_path):
    code, out, err = run("--repo", small, "--test_method_name", "test_forwrd")

    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == "error: 'test_forwrd' is not one of the 2 common tests; did you mean test_forward?"
    assert list(tmp_path.glob("*.json")) == []


def test_directory_that_is_none(run, tmp_path):
    assert run("--repo", tmp_path / "none")[0::2] == (
        2,
        f"error: {tmp_path / 'none'} is not a directory; name the root of a repository with --repo.\n",
    )


def test_directory_without_model_tests(run, tmp_path):
    code, _, err = run("--repo", tmp_path)

    assert code == 2
    assert err == (
        "error: No model tests here: no file such as tests/models/bert/test_modeling_bert.py. Run in the root of a "
        "repository, name it with --repo, or name the directory of its models' tests with --models-dir.\n"
    )


def test_models_without_a_common_test(repo, run):
    code, _, err = run("--repo", repo(common="class ModelTesterMixin: pass\n", m=TEST.format("A", "pass")))

    assert code == 2
    assert err.splitlines()[-1].startswith("error: No common tests: no class of the 1 models inherits")


def test_output_directory_that_is_a_file(small, run, tmp_path):
    (tmp_path / "file").write_text("kept")

    code, out, err = run("--repo", small, "--output_dir", tmp_path / "file")

    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: Cannot write {tmp_path / 'file' / 'all_tests_scan_result.json'}: ")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.fixture
def spoilt(small):
    """Add every kind of file that cannot be read."""
    models = small / "tests" / "models"
    for model, content in {
        "he": b"class ATest(\n",
        "waw": "x = 'ä'\n".encode("latin-1"),
        "zayin": b"",
        "teth": b"def test_a():\n    x = = 1\n",
        "nun": b"x = 1\0\n",
    }.items():
        (models / model).mkdir()
        (models / model / f"test_modeling_{model}.py").write_bytes(content)
    (models / "heth").mkdir()
    (models / "heth" / "test_modeling_heth.py").symlink_to("gone.py")
    (models / "yod" / "test_modeling_yod.py").mkdir(parents=True)
    return small


def test_unreadable_files_are_named_and_left_out(spoilt, run, tmp_path):
    code, out, err = run("--repo", spoilt)

    assert code == 0
    assert "test_forward     common    1        2" in out
    assert err.splitlines()[1:9] == [
        "warning: 7 file(s) left out:",
        "  tests/models/he/test_modeling_he.py: line 1: '(' was never closed",
        "  tests/models/heth/test_modeling_heth.py: broken symlink",
        "  tests/models/nun/test_modeling_nun.py: holds a null byte",
        "  tests/models/teth/test_modeling_teth.py: line 2: invalid syntax",
        "  tests/models/waw/test_modeling_waw.py: not UTF-8: 'utf-8' codec can't decode byte 0xe4 in position 5: invalid continuation byte",
        "  tests/models/yod/test_modeling_yod.py: a directory, not a file",
        "  tests/models/zayin/test_modeling_zayin.py: empty",
    ]
    assert (tmp_path / "all_tests_scan_result.json").exists()


def test_unreadable_files_fail_a_strict_scan(spoilt, run, tmp_path):
    code, out, err = run("--repo", spoilt, "--strict")

    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == "error: 7 unreadable file(s), named above, with --strict."
    assert list(tmp_path.glob("*.json")) == []


def test_strict_scan_of_readable_files(small, run):
    assert run("--repo", small, "--strict")[0] == 0


def test_baseline_of_an_unchanged_tree_passes(small, run, tmp_path):
    run("--repo", small, "--output_dir", tmp_path / "base")

    code, out, _ = run("--repo", small, "--baseline", tmp_path / "base" / "all_tests_scan_result.json")

    assert (code, out) == (0, f"No skip has changed since {tmp_path / 'base' / 'all_tests_scan_result.json'}.\n")
    assert not (tmp_path / "all_tests_scan_result.json").exists()


def test_baseline_catches_new_skips_and_counts_gone_and_changed_ones(small, run, tmp_path):
    run("--repo", small, "--output_dir", tmp_path / "base")
    change(small, "aleph", TEST.format("A", SKIP.format("another reason")))
    change(small, "beth", TEST.format("B", SKIP.format("fresh")))
    change(small, "gimel", TEST.format("G", "pass"))

    code, out, _ = run("--repo", small, "--baseline", tmp_path / "base" / "all_tests_scan_result.json")

    assert code == 1
    assert out.splitlines() == [
        "New skips : 1",
        " - test_forward of beth: fresh  (BTest, tests/models/beth/test_modeling_beth.py:8)",
        "   2 of 3 models skip this one; 2 say why",
        "Changed reasons : 1",
        " - test_forward of aleph: Aleph is first -> another reason  (ATest, tests/models/aleph/test_modeling_aleph.py:8)",
        "Gone skips : 1",
        " - test_forward of gimel: test_forward = None  (GTest, tests/models/gimel/test_modeling_gimel.py:8)",
        "Run the tests instead of skipping them.",
    ]


def test_gone_skip_and_a_changed_reason_pass(small, run, tmp_path):
    run("--repo", small, "--output_dir", tmp_path / "base")
    change(small, "aleph", TEST.format("A", SKIP.format("another reason")))
    change(small, "gimel", TEST.format("G", "pass"))

    assert run("--repo", small, "--baseline", tmp_path / "base" / "all_tests_scan_result.json")[0] == 0


def test_skip_that_loses_its_reason_fails(small, run, tmp_path):
    run("--repo", small, "--output_dir", tmp_path / "base")
    change(small, "aleph", TEST.format("A", BARE))

    code, out, _ = run("--repo", small, "--baseline", tmp_path / "base" / "all_tests_scan_result.json")

    assert code == 1
    lines = out.splitlines()
    assert lines[:2] == [
        "Skips without a reason : 1",
        " - test_forward of aleph: (no reason)  (ATest, tests/models/aleph/test_modeling_aleph.py:8)",
    ]
    assert lines[-1] == "Give each skip a reason."


def test_new_vanished_test_fails(small, run, tmp_path):
    run("--repo", small, "--output_dir", tmp_path / "base")
    change(small, "beth", TEST.format("B", "test_forward = False"))

    assert run("--repo", small, "--baseline", tmp_path / "base" / "all_tests_scan_result.json")[0] == 1


def test_ratchet_as_annotations(small, run, tmp_path):
    run("--repo", small, "--output_dir", tmp_path / "base")
    change(small, "beth", TEST.format("B", SKIP.format("100% new,\\nreally")))

    code, out, _ = run(
        "--repo", small, "--format", "github", "--baseline", tmp_path / "base" / "all_tests_scan_result.json"
    )

    assert code == 1
    assert out == (
        "::error file=tests/models/beth/test_modeling_beth.py,line=8,title=New skip%3A test_forward"
        "::beth (BTest): 100%25 new,%0Areally; 3 of 3 models skip this one; 2 say why\n"
    )


def test_baseline_tells_classes_of_one_name_in_two_files_apart(small, run, tmp_path):
    other = small / "tests" / "models" / "aleph" / "test_modeling_flax_aleph.py"
    head = (small / "tests" / "models" / "aleph" / "test_modeling_aleph.py").read_text().partition("class ")[0]
    other.write_text(head + TEST.format("A", "pass"))
    run("--repo", small, "--output_dir", tmp_path / "base")
    other.write_text(head + TEST.format("A", SKIP.format("fresh")))

    code, out, _ = run("--repo", small, "--baseline", tmp_path / "base" / "all_tests_scan_result.json")

    assert code == 1
    line = len(head.splitlines()) + 2
    assert out.splitlines()[:2] == [
        "New skips : 1",
        f" - test_forward of aleph: fresh  (ATest, tests/models/aleph/test_modeling_flax_aleph.py:{line})",
    ]


def test_report_of_one_test_is_no_baseline_of_others(small, run, tmp_path):
    run("--repo", small, "--test_method_name", "test_forward", "--output_dir", tmp_path / "base")
    file = tmp_path / "base" / "scan_test_forward.json"

    assert run("--repo", small, "--test_method_name", "test_forward", "--baseline", file)[0] == 0
    code, _, err = run("--repo", small, "--baseline", file)
    assert (code, err.splitlines()[-1]) == (
        2,
        f"error: {file} is the report of one test; compare it with --test_method_name test_forward.",
    )
    code, _, err = run("--repo", small, "--test_method_name", "test_attentions", "--baseline", file)
    assert (code, err.splitlines()[-1]) == (
        2,
        f"error: {file} has no test test_attentions; write a report of it, or of all tests, before the change.",
    )


def test_reason_of_any_characters_is_written_and_shown_on_one_line(small, run, tmp_path):
    change(small, "aleph", TEST.format("A", SKIP.format(r"half \ud800 of a pair\nand more")))

    code, out, _ = run("--repo", small, "--test_method_name", "test_forward", "--format", "markdown")
    assert code == 0
    assert json.loads((tmp_path / "scan_test_forward.json").read_text())["test_forward"]["tests"][0]["reason"] == (
        "half \\ud800 of a pair\nand more"  # the half of a character is shown as it is written
    )
    _, out, _ = run("--repo", small, "--test_method_name", "test_forward", "--no_cache")
    assert r" - aleph: half \ud800 of a pair and more  (ATest, tests/models/aleph" in out


def test_what_the_terminal_cannot_show_is_escaped(small, tmp_path):
    change(small, "aleph", TEST.format("A", SKIP.format("zu groß")))
    scan = [sys.executable, "-m", "pytest_tfdebug.scan", "--repo", str(small), "--test_method_name", "test_forward"]
    done = subprocess.run(
        scan, cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=True, capture_output=True
    )

    assert rb" - aleph: zu gro\xdf  (ATest" in done.stdout


def test_baseline_is_never_overwritten(small, run, tmp_path):
    run("--repo", small)
    before = (tmp_path / "all_tests_scan_result.json").read_bytes()
    change(small, "beth", TEST.format("B", SKIP.format("fresh")))

    code, _, err = run("--repo", small, "--baseline", "all_tests_scan_result.json", "--output_dir", ".")

    assert code == 2
    assert "is what the scan is compared with; name another directory" in err
    assert (tmp_path / "all_tests_scan_result.json").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Cannot read"),
        ("{", "is not JSON"),
        ("[]", "is not a report of this scanner"),
        ("{}", "is not a report of this scanner (it has no test); write it with python -m pytest_tfdebug.scan."),
        (
            '{"scan_baseline":1,"tests":[],"models":[],"files":[],"reasons":[],"classes":[]}',
            "is not a whole baseline (it has no test); write it with python -m pytest_tfdebug.scan.",
        ),
        ('{"test_a": {"models_ran": []}}', "is not a report of this scanner"),
        (
            '{"test_a": {"models_ran": [], "models_skipped": [], "models_partially_skipped": [], "tests": [{}]}}',
            "is not a report of this scanner",
        ),
        (
            '{"test_a": {"models_ran": [[]], "models_skipped": 1, "models_partially_skipped": [], "tests": []}}',
            "is not a report of this scanner",
        ),
    ],
)
def test_baseline_that_is_none(small, run, tmp_path, content, message):
    file = tmp_path / "base.json"
    if content is not None:
        file.write_text(content)

    code, _, err = run("--repo", small, "--baseline", file)

    assert code == 2
    assert message in err


def git(root, *arguments):
    options = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *options, *arguments], cwd=root, check=True, capture_output=True)  # noqa: S607 - git is on PATH


def test_revision_may_hold_links_and_names_of_any_bytes(small, run):
    models = small / "tests" / "models"
    (models / "beth" / "test_modeling_link.py").symlink_to("../aleph/test_modeling_aleph.py")
    (models / "beth" / "loop.py").symlink_to("loop.py")
    (models / "beth" / os.fsdecode(b"\xff.txt")).touch()
    (models / "gimel" / "test_modeling_bad.py").write_bytes(b"\xff")
    git(small, "init", "-q")
    git(small, "add", "-A")
    git(small, "commit", "-qm", "First")

    code, out, err = run("--repo", small, "--base", "HEAD")

    assert (code, out) == (0, "No skip has changed since HEAD.\n")
    assert "warning: left out of HEAD: tests/models/gimel/test_modeling_bad.py: not UTF-8" in err


def test_revision_is_compared_without_touching_the_work_tree(small, run):
    git(small, "init", "-q")
    git(small, "add", "-A")
    git(small, "commit", "-qm", "First")
    change(small, "beth", TEST.format("B", SKIP.format("fresh")))
    files = {path: path.read_bytes() for path in small.rglob("*") if path.is_file() and ".git" not in path.parts}

    code, out, _ = run("--repo", small, "--base", "HEAD")

    assert code == 1
    assert out.splitlines()[:2] == [
        "New skips : 1",
        " - test_forward of beth: fresh  (BTest, tests/models/beth/test_modeling_beth.py:8)",
    ]
    assert files == {
        path: path.read_bytes() for path in small.rglob("*") if path.is_file() and ".git" not in path.parts
    }


def test_revision_that_does_not_exist(small, run):
    git(small, "init", "-q")

    code, _, err = run("--repo", small, "--base", "nowhere")

    assert code == 2
    assert err.startswith("error: 'nowhere' is not a revision of ")


def test_revision_outside_git(small, run):
    code, _, err = run("--repo", small, "--base", "HEAD")

    assert code == 2
    assert "is not a git repository" in err


def answers(tmp_path):
    return sorted((tmp_path / "cache").rglob("*.answers"))


def test_second_scan_is_answered_from_the_cache(small, run, tmp_path):
    first = run("--repo", small)
    before = (tmp_path / "all_tests_scan_result.json").read_bytes()

    second = run("--repo", small)

    assert second[:2] == first[:2]
    assert "Parsing" in first[2]
    assert "Parsing" not in second[2]
    assert (tmp_path / "all_tests_scan_result.json").read_bytes() == before


@pytest.mark.parametrize(
    "path", ["tests/models/beth/test_modeling_beth.py", "tests/test_modeling_common.py", "tests/testing_utils.py"]
)
def test_edited_file_is_read_again(small, run, path):
    run("--repo", small)
    (small / path).write_text((small / path).read_text() + "\n# edited\n")

    assert "Parsing" in run("--repo", small)[2]


def test_new_file_is_seen(small, run):
    run("--repo", small)
    new = small / "tests" / "models" / "daleth" / "test_modeling_daleth.py"
    new.parent.mkdir()
    new.write_text((small / "tests" / "models" / "aleph" / "test_modeling_aleph.py").read_text())

    assert "test_forward     common    1        3" in run("--repo", small)[1]


def test_module_that_comes_to_shadow_an_import_is_seen(repo, run):
    root = repo(m="from elsewhere import Mixin\nclass ATest(Mixin, ModelTesterMixin, unittest.TestCase): pass\n")
    assert "base class(es) not found" in run("--repo", root)[2]
    (root / "elsewhere.py").write_text("class Mixin:\n    test_forward = None\n")

    assert "test_forward     common    0        1" in run("--repo", root)[1]


def test_no_cache_leaves_no_cache(small, run, tmp_path):
    run("--repo", small, "--no_cache")

    assert not (tmp_path / "cache").exists()


def test_spoilt_cache_is_no_error(small, run, tmp_path):
    first = run("--repo", small)
    for file in (tmp_path / "cache").rglob("*"):
        if file.is_file():
            file.write_bytes(b"\x80\x05cposix\nsystem\n(S'exit 1'\ntR.")

    assert run("--repo", small) == first


@pytest.mark.parametrize("spoil", [lambda kept: kept[:-100], lambda kept: kept[:-100] + b"?" + kept[-99:]])
def test_answer_that_was_kept_but_is_not_whole_is_not_used(small, run, tmp_path, spoil):
    first = run("--repo", small)
    [kept] = answers(tmp_path)
    kept.write_bytes(spoil(kept.read_bytes()))

    assert run("--repo", small) == first


def test_report_that_would_not_change_is_left_alone(small, run, tmp_path):
    run("--repo", small)
    report = tmp_path / "all_tests_scan_result.json"
    text, before = report.read_text(), report.stat()

    run("--repo", small)

    assert report.stat().st_mtime_ns == before.st_mtime_ns
    report.write_text(text.replace("aleph", "ALEPH"))
    run("--repo", small)
    assert report.read_text() == text


def test_report_in_the_repository_itself_leaves_the_answer_standing(small, run):
    run("--repo", small, "--output_dir", small)

    assert "Parsing" not in run("--repo", small, "--output_dir", small)[2]


def test_cache_that_cannot_be_written_is_no_error(small, run, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    assert run("--repo", small)[0] == 0


def process(root, *arguments, **environment):
    command = [sys.executable, "-m", "pytest_tfdebug.scan", "--repo", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def test_concurrent_scans_give_one_answer(small, tmp_path):
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(process(small, "--format", "json", "--output_dir", str(tmp_path / "out")))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {(done.returncode, done.stdout) for done in found} == {
        (0, (tmp_path / "out" / "all_tests_scan_result.json").read_text())
    }
    assert len(answers(tmp_path)) == 1
    assert list((tmp_path / "cache").rglob(".*")) == []


def test_command_imports_neither_torch_nor_pytest_nor_pandas(small, tmp_path):
    code = (
        "import sys; from pytest_tfdebug.scan.cli import main;"
        f"main(['--repo', {str(small)!r}, '--output_dir', {str(tmp_path)!r}]);"
        "print(*{name.partition('.')[0] for name in sys.modules}, sep='\\n')"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()

    assert not {"torch", "pytest", "pandas", "numpy", "transformers"} & set(loaded)


def test_warm_scan_imports_no_parser(small, tmp_path):
    process(small, "--output_dir", str(tmp_path))
    code = (
        "import sys; from pytest_tfdebug.scan.cli import main;"
        f"main(['--repo', {str(small)!r}, '--output_dir', {str(tmp_path)!r}]);"
        "print(*sys.modules, sep='\\n')"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()

    assert not {"libcst", "pytest_tfdebug.scan.scanner", "multiprocessing"} & set(loaded)
