"""Repositories that nobody has read yet: nothing in them is run, and one bad file never ends a scan."""

import gc
import json
import os
import subprocess
import sys
import time
from functools import cache

import libcst
import pytest

from pytest_tfdebug.scan import scan
from pytest_tfdebug.scan.cli import main
from pytest_tfdebug.scan.render import cell

TEST = "class {0}Test(ModelTesterMixin, unittest.TestCase):\n    {1}\n"
SKIP = '@unittest.skip("why")\n    def test_forward(self): pass'
#: How many times as long as libcst takes for 3,000 plain classes a scan may take, whatever the file; the worst takes 7
#: to 12 times, by the machine, and one step too many for each pair of classes hundreds.
PATIENCE = 36
#: Modules that the scan imports, or that what it imports does.
MODULES = [
    "__future__",
    "argparse",
    "ast",
    "concurrent",
    "copy",
    "dataclasses",
    "enum",
    "gc",
    "hashlib",
    "heapq",
    "inspect",
    "json",
    "libcst",
    "multiprocessing",
    "numbers",
    "pathlib",
    "pickle",
    "queue",
    "re",
    "struct",
    "subprocess",
    "tempfile",
    "textwrap",
    "tqdm",
    "typing",
    "typing_extensions",
    "zlib",
]


@pytest.fixture
def good(repo):
    return repo(aleph=TEST.format("A", SKIP), beth=TEST.format("B", "pass"))


def add(root, name, content):
    """Add a model whose test file is this, and return the path of the file."""
    file = root / "tests" / "models" / name / f"test_modeling_{name}.py"
    file.parent.mkdir()
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return f"tests/models/{name}/test_modeling_{name}.py"


@cache
def plain():
    """Return the seconds that libcst takes for 3,000 plain classes."""
    return seconds(lambda: libcst.parse_module("class A:\n    x = 1\n" * 3000))[0]


def seconds(run):
    """Return the seconds that a call takes, without what the collector does to objects of other tests, and its result."""
    gc.collect()
    gc.freeze()
    try:
        start = time.process_time()
        result = run()
        return time.process_time() - start, result
    finally:
        gc.unfreeze()


def scanned(root):
    """Return a scan that took no longer than it may, and found what the good files hold."""
    took, result = seconds(lambda: scan(root))
    assert took < PATIENCE * plain()
    assert "aleph" in result["test_forward"].models_skipped
    assert "beth" in result["test_forward"].models_ran
    return result


def test_nothing_of_the_repository_is_imported(good, tmp_path):
    for module in MODULES:
        (good / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({module!r} + '\\n')\n")
    paths = [path for path in sys.path if path and path != str(good)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest_tfdebug.scan", "--test_method_name", "test_forward"],
        cwd=good,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=True,
        capture_output=True,
        text=True,
    )

    assert "Skipped : 1/2" in done.stdout
    assert not (tmp_path / "ran").exists()


def head(source=""):
    return f"import unittest\nfrom ...test_modeling_common import ModelTesterMixin\n{source}\n"


CLASS = "class MTest(ModelTesterMixin, unittest.TestCase):\n    {}\n"
NAMED = {
    "another encoding": (b"# coding: latin-1\nx = '\xe4'\n", "not UTF-8: 'utf-8' codec can't decode"),
    "100 MB": (b"x = 1\n" * 17_000_000, "102,000,000 bytes, more than the"),
    "brackets": ("x = " + "[" * 5000 + "]" * 5000 + "\n", "line 1: too many nested parentheses"),
    "brackets that do not end": ("x = " + "(" * 50 + "\n", "line 1: '(' was never closed"),
    "a string that does not end": ("x = 'a\n", "line 1: unterminated string literal"),
    "a docstring that does not end": ('"""\n\n', "line 1: unterminated triple-quoted string literal"),
    "a chain of operators": (
        head() + "@unittest.skip(" + "-" * 100_000 + "1)\n" + CLASS.format("pass"),
        "an expression of more operators than can be read",
    ),
    "an f-string of 200,000 parts": (
        head() + CLASS.format('@unittest.skip(f"' + "{a}" * 200_000 + '")\n    def test_forward(self): pass'),
        "a statement of 600,0",
    ),
}


@pytest.mark.parametrize("kind", NAMED)
def test_file_that_cannot_be_read_is_named(good, kind):
    content, reason = NAMED[kind]
    path = add(good, "m", content)

    result = scanned(good)

    assert reason in result.skipped_files[path]
    assert "m" not in {case.model for case in result["test_forward"].cases}


def test_pipe_is_not_waited_for(good):
    path = add(good, "m", "")
    (good / path).unlink()
    os.mkfifo(good / path)

    assert scanned(good).skipped_files == {path: "not a regular file"}


def test_name_that_is_no_text(good, tmp_path, monkeypatch):
    path = add(good, "m", head() + CLASS.format(SKIP))
    odd = os.fsencode(good / path).replace(b"modeling_m", b"modeling_\xff")
    try:
        os.rename(os.fsencode(good / path), odd)  # noqa: PTH104 - a path of bytes
    except OSError:
        pytest.skip("this file system has no such names")
    monkeypatch.chdir(tmp_path)

    for _ in range(2):
        assert main(["--repo", str(good)]) == 0
    report = json.loads((tmp_path / "all_tests_scan_result.json").read_text())
    assert "aleph" in report["test_forward"]["models_skipped"]


READ = {
    "1,000 branches": (
        "def test_forward(self):\n        if sys.a0: self.skipTest('why')\n"
        + "".join(f"        elif sys.a{index}: assert 1\n" for index in range(1000)),
        ("conditional", "why"),
    ),
    "a wide format": ("@unittest.skip('%999999999d' % 1)\n    def test_forward(self): pass", ("skipped", None)),
    "a wide argument": ("@unittest.skip('%*d' % (999999999, 1))\n    def test_forward(self): pass", ("skipped", None)),
    "a wide placeholder": (
        "@unittest.skip('{:>999999999}'.format(1))\n    def test_forward(self): pass",
        ("skipped", None),
    ),
    "a long product": ("@unittest.skip('why' * 999999999)\n    def test_forward(self): pass", ("skipped", None)),
    "a long number": ("@unittest.skip(str(" + "9" * 5000 + "))\n    def test_forward(self): pass", ("skipped", None)),
    "a division by zero": ("@unittest.skip('why' + str(1 % 0))\n    def test_forward(self): pass", ("skipped", None)),
    "a number in bytes": (
        "@unittest.skipIf(-2 in b'a', 'why')\n    def test_forward(self): pass",
        ("conditional", "why"),
    ),
    "2,000 operands": (
        "@unittest.skipIf("
        + " or ".join(["sys.flags.quiet"] * 2000)
        + ", 'why')\n    def test_forward(self): assert 1",
        None,
    ),
    "two names for each other": ("test_forward = test_other\n    test_other = test_forward", ("ran", "")),
    "a test that calls itself": ("def test_forward(self): self.test_forward()", ("ran", "")),
}


@pytest.mark.parametrize("kind", READ)
def test_body_or_decorator_beyond_measure_is_read_or_named(good, kind):
    body, expected = READ[kind]
    path = add(good, "m", head("import sys") + CLASS.format(body))

    result = scanned(good)

    found = [case.state for case in result["test_forward"].cases if case.model == "m"]
    if expected is None:
        assert found or path in result.skipped_files
    else:
        assert [state.state for state in found] == [expected[0]]
        assert expected[1] in {None, found[0].reason}


@pytest.mark.parametrize(
    "bases",
    [
        "class A0(ModelTesterMixin): pass\n" + "".join(f"class A{at + 1}(A{at}): pass\n" for at in range(3000)),
        "".join(f"class A{at}: pass\n" for at in range(1000))
        + f"class A3000({', '.join(f'A{at}' for at in range(1000))}, ModelTesterMixin): pass\n",
        "class A0(ModelTesterMixin): pass\n" + "".join(f"class A{at + 1}(A{at}): x{at} = {at}\n" for at in range(3000)),
    ],
    ids=["in a chain", "side by side", "in a chain, each with a name"],
)
def test_bases_beyond_measure_are_followed_or_named(good, bases):
    path = add(good, "m", head(bases) + "class MTest(A3000, unittest.TestCase): pass\n")

    result = scanned(good)

    assert path in result.skipped_files or "m" in result["test_forward"].models_ran


def test_deep_blocks_are_named(good):
    blocks = "".join(f"{'    ' * depth}if x:\n" for depth in range(2000))
    path = add(good, "m", f"{blocks}{'    ' * 2000}pass\n")

    assert path in scanned(good).skipped_files


@pytest.mark.parametrize("content", [None, "[" * 200_000, '{"a": ' * 200_000, "\udcff"])
def test_baseline_that_is_no_report(good, tmp_path, capsys, content):
    file = tmp_path / "baseline.json"
    if content is None:
        os.mkfifo(file)
    else:
        file.write_text(content, errors="surrogateescape")

    assert main(["--repo", str(good), "--baseline", str(file)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


SPOILT = {
    "a pickle": lambda kept: b"\x80\x05cposix\nsystem\n(S'exit 1'\ntR.",
    "nothing": lambda kept: b"",
    "brackets": lambda kept: b"[" * 200_000,
    "the first half": lambda kept: kept[: len(kept) // 2],
    "another version": lambda kept: kept.replace(b"scan 2", b"scan 1"),
}


@pytest.mark.parametrize("form", ["--verbose", *(f"--format={form}" for form in ("json", "markdown", "github"))])
def test_what_a_repository_says_does_not_steer_the_terminal(good, tmp_path, monkeypatch, capsys, form):
    monkeypatch.chdir(tmp_path)
    reason = f"no \x1b[2J, \\x9b2J or {chr(0x202E)}back"
    add(good, "gimel", head(TEST.format("G", SKIP.replace("why", reason))))

    main(["--repo", str(good), "--test_method_name", "test_forward", form])

    written = "".join(capsys.readouterr())
    told = r"no \x1b[2J, \x9b2J or \u202eback"
    shown = {"--format=json": told.replace("\\", "\\\\"), "--format=markdown": cell(told)}.get(form, told)
    assert shown in written
    assert not set(written) & {"\x1b", "\x9b", chr(0x202E)}


@pytest.mark.parametrize("kind", SPOILT)
def test_spoilt_cache_is_a_cold_scan(good, tmp_path, monkeypatch, capsys, kind):
    monkeypatch.chdir(tmp_path)
    main(["--repo", str(good)])
    first = capsys.readouterr()
    [kept] = (tmp_path / "cache").rglob("*.answers")
    kept.write_bytes(SPOILT[kind](kept.read_bytes()))

    main(["--repo", str(good)])

    assert capsys.readouterr() == first


def test_flipped_bit_anywhere_in_the_cache_is_a_cold_scan(good, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["--repo", str(good)])
    first = capsys.readouterr()
    [kept] = (tmp_path / "cache").rglob("*.answers")
    content = kept.read_bytes()

    for at in range(0, len(content), max(1, len(content) // 60)):
        spoilt = bytearray(content)
        spoilt[at] ^= 1 << at % 8
        kept.write_bytes(spoilt)
        main(["--repo", str(good)])
        assert capsys.readouterr() == first, at
