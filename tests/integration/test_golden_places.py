"""Where goldens lie: variants, names that differ in case alone, memory behind a URL, and what is no golden."""

import os
import tempfile
import time

import fsspec.implementations.memory  # its files are gone where it is loaded again
import pytest

import pytest_tfdebug.goldens.fixture
import pytest_tfdebug.goldens.place  # noqa: F401 - loaded once for all runs

SUITE = """
import pytest
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

ONES = torch.ones(2, 4)
"""
CHECK = SUITE + "def test_it(tf_golden):\n    tf_golden.check(build(), ONES)\n"
GOLDEN = "goldens/test_it/test_it.safetensors"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n"


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest on a suite."""

    def run_pytest(suite, *arguments):
        pytester.makepyfile(test_it=suite)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    return run_pytest


def names(pytester):
    return sorted(path.name for path in pytester.path.glob("goldens/*/*"))


# --- variants -----------------------------------------------------------------------------------------------------------


def test_variant_is_written_on_request_and_found_by_device_or_dtype(pytester, run):
    plain = run(CHECK, "--tf-golden=update")
    special = run(CHECK, "--tf-golden=update", "--tf-golden-variant=device")
    (pytester.path / GOLDEN).unlink()
    found = run(CHECK)
    other = run(CHECK.replace("check(build()", "check(build().bfloat16()").replace("ONES)", "ONES.bfloat16())"), "--tf-golden=update",
                "--tf-golden-variant=dtype")  # fmt: skip

    plain.stdout.fnmatch_lines(["1 new", f"  new      {GOLDEN}"])
    special.stdout.fnmatch_lines(["1 new", "  new      goldens/test_it/test_it@cpu.safetensors"])
    found.assert_outcomes(passed=1)
    other.stdout.fnmatch_lines(["1 new", "  new      goldens/test_it/test_it@bfloat16.safetensors"])
    assert names(pytester) == ["test_it@bfloat16.safetensors", "test_it@cpu.safetensors"]


def test_plain_golden_serves_where_there_is_no_variant(pytester, run):
    run(CHECK, "--tf-golden=update")

    run(CHECK, "--tf-golden-variant=laptop").assert_outcomes(passed=1)

    assert names(pytester) == ["test_it.safetensors"]


def test_variant_of_a_name_is_held_to_itself(pytester, run):
    run(CHECK, "--tf-golden=update")
    wrong, laptop = (
        CHECK.replace("build(),", "torch.nn.Sequential(*build(), torch.nn.Tanh()),"),
        "--tf-golden-variant=laptop",
    )
    run(wrong, "--tf-golden=missing", laptop)

    failed = run(CHECK, laptop)
    failed.stdout.fnmatch_lines(["*Golden: goldens/test_it/test_it@laptop.safetensors"])
    run(CHECK).assert_outcomes(passed=1)


def test_update_writes_the_variant_that_a_check_would_take(pytester, run):
    run(CHECK, "--tf-golden=update", "--tf-golden-variant=device")

    result = run(CHECK.replace("ONES)", "2 * ONES)"), "--tf-golden=update")

    result.stdout.fnmatch_lines(["1 changed", "  changed  goldens/test_it/test_it@cpu.safetensors"])


@pytest.mark.parametrize("variant", ["a/b", "a@b", ".a"])
def test_variant_that_is_no_file_name_is_refused(run, variant):
    result = run(CHECK, "--tf-golden=update", f"--tf-golden-variant={variant}")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [f"*TFDebugError: variant={variant!r} of a golden is not 'device', 'dtype' or a name of *"]
    )


# --- names in another case ---------------------------------------------------------------------------------------------


def test_names_that_differ_in_case_alone_are_said_to_share_a_golden(run):
    source = (
        "@pytest.mark.parametrize('it', ['a', 'A'])\n"
        "def test_it(tf_golden, it):\n    tf_golden.check(build(), ONES if it == 'a' else -ONES)\n"
    )

    recorded = run(SUITE + source, "--tf-golden=update")

    recorded.assert_outcomes(passed=1, failed=1)
    recorded.stdout.fnmatch_lines(["*GoldenError: Two tests write one golden, *", "*its own name=*"])


# --- what is no golden ---------------------------------------------------------------------------------------------------


def as_fifo(path):
    path.unlink()
    os.mkfifo(path)


def as_directory(path):
    path.unlink()
    path.mkdir()


def as_link_to_nothing(path):
    path.unlink()
    path.symlink_to("nothing")


def as_link_to_itself(path):
    path.unlink()
    path.symlink_to(path.name)


@pytest.mark.parametrize("mode", ["check", "update", "missing"])
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (as_fifo, "test_it.safetensors is a FIFO, not a golden."),
        (as_directory, "test_it.safetensors is a directory, not a golden."),
        (as_link_to_nothing, "test_it.safetensors is a symlink to nothing, which does not exist."),
        (as_link_to_itself, "test_it.safetensors cannot be read: Too many levels of symbolic links."),
        (lambda path: path.write_text(POINTER), "is a git-lfs pointer: the golden itself was not downloaded."),
    ],
    ids=["FIFO", "directory", "dangling", "loop", "pointer"],
)
def test_what_is_no_golden_is_said_in_a_line_and_left_alone(pytester, run, make, told, mode):
    run(CHECK, "--tf-golden=update")
    make(pytester.path / GOLDEN)
    started = time.process_time()

    result = run(CHECK, f"--tf-golden={mode}")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"E  *GoldenError: *{told}"])
    assert "--tf-golden=update" not in result.stdout.str().partition("GoldenError: ")[2].partition("short test")[0]
    assert os.path.lexists(pytester.path / GOLDEN)
    assert names(pytester) == ["test_it.safetensors"]
    assert time.process_time() - started < 5


def test_pointer_is_told_with_what_to_type(pytester, run):
    run(CHECK, "--tf-golden=update")
    (pytester.path / GOLDEN).write_text(POINTER)

    run(CHECK).stdout.fnmatch_lines(["E  *To download it, run: git lfs pull"])


def test_golden_that_may_not_be_read_is_not_said_to_be_missing(pytester, run, monkeypatch):
    run(CHECK, "--tf-golden=update")
    golden = pytester.path / GOLDEN
    real = type(golden).open

    def refuse(self, *arguments, **keywords):
        if self == golden:
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *arguments, **keywords)

    monkeypatch.setattr(type(golden), "open", refuse)

    for mode in ("check", "missing"):
        result = run(CHECK, f"--tf-golden={mode}")
        result.stdout.fnmatch_lines(["E  *GoldenError: *test_it.safetensors cannot be read: Permission denied."])
        assert "has no golden yet" not in result.stdout.str()


def test_folder_that_is_a_file_is_said(pytester, run):
    (pytester.path / "goldens").write_text("")

    result = run(CHECK, "--tf-golden=missing")

    result.stdout.fnmatch_lines(["E  *GoldenError: *test_it.safetensors cannot be written: *"])


# --- URLs -----------------------------------------------------------------------------------------------------------------


def test_golden_lives_in_memory_behind_a_url(pytester, run, monkeypatch):
    where = "--tf-golden-dir=memory://goldens/port"
    changed = CHECK.replace("build(),", "torch.nn.Sequential(*build(), torch.nn.Tanh()),")

    missing = run(CHECK, where)
    recorded = run(CHECK, where, "--tf-golden=update")
    checked = run(CHECK, where)
    failed = run(changed, where)
    updated = run(changed, where, "--tf-golden=update")
    after = run(changed, where)

    missing.stdout.fnmatch_lines(
        ["*has no golden yet: memory://goldens/port/test_it/test_it.safetensors does not exist."]
    )
    recorded.stdout.fnmatch_lines(["1 new", "  new      memory://goldens/port/test_it/test_it.safetensors"])
    checked.assert_outcomes(passed=1)
    failed.stdout.fnmatch_lines(["*Golden: memory://goldens/port/test_it/test_it.safetensors"])
    updated.stdout.fnmatch_lines(["1 changed"])
    after.assert_outcomes(passed=1)
    assert not (pytester.path / "goldens").exists()


def test_damaged_golden_behind_a_url_is_named_by_its_url(pytester, run, monkeypatch):
    where = "--tf-golden-dir=memory://damaged"
    fsspec.filesystem("memory").pipe_file("/damaged/test_it/test_it.safetensors", b"half")

    result = run(CHECK, where)

    result.stdout.fnmatch_lines(
        ["E  *GoldenError: memory://damaged/test_it/test_it.safetensors (4 bytes) is empty, truncated or not a *"]
    )
    assert tempfile.gettempdir() not in result.stdout.str().partition("GoldenError")[2].partition("\n")[0]


def test_url_without_its_library_is_an_error_of_the_test(run):
    result = run(CHECK, "--tf-golden-dir=nothing://goldens")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*tf_golden.check(*",
            "E  *GoldenError: nothing://goldens cannot be reached: Protocol not known: nothing*",
            "test_it.py:*: GoldenError",
        ]
    )
    result.stdout.no_fnmatch_line("*contextlib.py*")


def test_command_for_a_missing_golden_has_the_place_that_was_typed(run):
    result = run(CHECK, "--tf-golden-dir=memory://none", "--tf-golden-variant=mine")

    result.stdout.fnmatch_lines(
        ["*test_it.py::test_it --tf-golden=missing --tf-golden-dir=memory://none --tf-golden-variant=mine"]
    )
