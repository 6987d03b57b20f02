"""``--fix``: which skips are stale or could say why, and what becomes of their source."""

import textwrap

import pytest

from pytest_tfdebug.scan.cli import main

HEAD = "import unittest\nfrom ...test_modeling_common import ModelTesterMixin\n\n\n"
COMMON = """
    from parameterized import parameterized

    class ModelTesterMixin:
        has_attentions = True

        def test_forward(self):
            assert getattr(self, "is_strict", True) or self.has_attentions

        @parameterized.expand([("one",), ("two",)])
        def test_many(self, name):
            assert True
"""
CLASS = "class MTest(ModelTesterMixin, unittest.TestCase):\n"


@pytest.fixture
def fix(repo, tmp_path, monkeypatch, capsys):
    """Return a function that writes a model's test, fixes the repository, and returns the test and what was said."""
    monkeypatch.chdir(tmp_path)

    def call(body, *options, kind="stale", head=""):
        root = repo(COMMON, m="")
        file = root / "tests/models/m/test_modeling_m.py"
        file.write_text(HEAD + head + CLASS + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n")
        assert main(["--repo", str(root), "--fix", kind, *(options or ["--write"])]) == 0
        captured = capsys.readouterr()
        assert not list(tmp_path.glob("*.json"))
        text = file.read_text().removeprefix(HEAD + head + CLASS)
        return textwrap.dedent(text), captured.out, captured.err

    return call


STALE = {
    "an override of nothing": (
        """
        x = 1

        @unittest.skip("no base has it")
        def test_gone(self):
            pass

        def test_own(self):
            assert 1
        """,
        "x = 1\n\ndef test_own(self):\n    assert 1\n",
    ),
    "an override that skips in its body": (
        'x = 1\n\ndef test_gone(self):\n    """Not for this one."""\n    self.skipTest("why")',
        "x = 1\n",
    ),
    "the first and the only member": ('@unittest.skip("why")\ndef test_gone(self): pass', "pass\n"),
    "the first of two": (
        '@unittest.skip("why")\ndef test_gone(self): pass\n\n# kept\nx = 1',
        "# kept\nx = 1\n",
    ),
}
KEPT = {
    "an override of a base's test": '@unittest.skip("why")\ndef test_forward(self):\n    pass\n',
    "an override of an expanded test": '@unittest.skip("why")\ndef test_many_0_one(self):\n    pass\n',
    "a test of its own that is skipped": '@unittest.skip("flaky")\ndef test_own(self):\n    assert 1\n',
    "an override that hangs on something": '@unittest.skipIf(x, "why")\ndef test_gone(self):\n    pass\n',
}


@pytest.mark.parametrize("case", STALE)
def test_what_is_stale_goes(fix, case):
    body, after = STALE[case]

    assert fix(body)[0] == after


@pytest.mark.parametrize("case", KEPT)
def test_what_is_not_stale_stays(fix, case):
    text, _, err = fix(KEPT[case])

    assert (text, err) == (KEPT[case], "Nothing to fix.\n")


def test_override_stays_where_a_base_is_not_known(fix):
    body = '@unittest.skip("why")\ndef test_gone(self):\n    pass\n'

    text = fix("pass", head=f"from elsewhere import Strange\nclass Base(Strange):\n{textwrap.indent(body, '    ')}\n")[
        2
    ]
    assert text == "Nothing to fix.\n"


def test_override_stays_that_hides_the_test_of_an_heir(fix):
    head = 'class Off(unittest.TestCase):\n    @unittest.skip("why")\n    def test_forward(self): pass\n\nclass OnTest(Off, ModelTesterMixin): pass\n\n'

    assert fix("pass", head=head)[2] == "Nothing to fix.\n"


def test_diff_by_default(fix):
    body = 'x = 1\n\n@unittest.skip("why")\ndef test_gone(self):\n    pass\n'

    text, out, err = fix(body, "--diff")

    assert text == body
    assert out.splitlines()[:2] == [
        "--- a/tests/models/m/test_modeling_m.py",
        "+++ b/tests/models/m/test_modeling_m.py",
    ]
    changed = [line for line in out.splitlines()[2:] if line[0] in "+-"]
    assert changed == ["-", '-    @unittest.skip("why")', "-    def test_gone(self):", "-        pass"]
    assert err.splitlines() == [
        "tests/models/m/test_modeling_m.py:9: MTest.test_gone skips a test that no base gives it",
        "1 skip(s) in 1 file(s) to rewrite with --write.",
    ]


REASONS = {
    "a comment on its line": ("@unittest.skip  # too slow", '@unittest.skip(reason="too slow")  # too slow'),
    "a comment above": (
        '# too "slow"\n@pytest.mark.skip()',
        '# too "slow"\n@pytest.mark.skip(reason="too \\"slow\\"")',
    ),
    "an empty one": ('@unittest.skip("")  # too slow', '@unittest.skip(reason="too slow")  # too slow'),
    "a comment for a tool": ("@unittest.skip  # noqa: X", '@unittest.skip(reason="Not for this model.")  # noqa: X'),
    "one that is there": ('@unittest.skip("why")  # too slow', '@unittest.skip("why")  # too slow'),
}


@pytest.mark.parametrize("case", REASONS)
def test_reason_that_stands_beside_a_skip(fix, case):
    before, after = REASONS[case]
    rest = '\ndef test_forward(self):\n    """Not for\n    this model."""\n'

    assert fix(before + rest, kind="reasons", head="import pytest\n")[0] == after + rest


def test_reason_that_stands_nowhere(fix):
    body = "@unittest.skip\ndef test_forward(self):\n    pass\n"

    text, _, err = fix(body, kind="reasons")

    assert text == body
    assert err.startswith(
        "tests/models/m/test_modeling_m.py:6: MTest.test_forward is skipped without a reason, and nothing beside it says why\n"
    )


def test_line_ends_and_mode_stay(repo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = repo(COMMON, m="")
    file = root / "tests/models/m/test_modeling_m.py"
    body = '    x = "\xe4"\n    @unittest.skip("why")\n    def test_gone(self): pass\n    y = 1\n'
    file.write_bytes(f"{HEAD}{CLASS}{body}".replace("\n", "\r\n").encode())
    file.chmod(0o755)

    assert main(["--repo", str(root), "--fix", "stale", "--write"]) == 0

    expected = f'{HEAD}{CLASS}    x = "\xe4"\n    y = 1\n'
    assert file.read_bytes() == expected.replace("\n", "\r\n").encode()
    assert file.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--write"], "--diff and --write go with --fix stale"),
        (["--fix", "stale", "--format", "json"], "--format cannot be combined with --fix"),
        (["--fix", "stale", "--output_dir", "out"], "--output_dir cannot be combined with --fix"),
        (["--fix", "stale", "--test_method_name", "test_forward"], "--test_method_name cannot be combined with --fix"),
    ],
)
def test_options_that_do_not_go_together(fixture_repo, capsys, options, message):
    assert main(["--repo", str(fixture_repo), *options]) == 2
    assert f"error: {message}" in capsys.readouterr().err


def test_file_that_cannot_be_read_is_named(repo, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    root = repo(COMMON, m=CLASS + "    pass\n", n="x = (\n")

    assert main(["--repo", str(root), "--fix", "stale"]) == 0

    assert not list(tmp_path.rglob("*.json"))
    assert "warning: left out: tests/models/n/test_modeling_n.py: line " in capsys.readouterr().err
