"""``--tf-run-skipped``: what is skipped and passes now, each with the line to delete."""

import shutil
from pathlib import Path
from textwrap import dedent

import pytest

import pytest_tfdebug.run_skipped.hooks  # noqa: F401 - loaded once for all runs

REPOSITORY = Path(__file__).parents[2] / "fixtures" / "scan_repo"

UNITTEST = """
import unittest
from unittest import skip


class Mixin:
    def test_stale(self):
        assert True

    def test_true(self):
        raise ValueError("still broken\\nand more")


class TestModel(Mixin, unittest.TestCase):
    {skip}
    def test_stale(self):
        pass

    {skip}
    def test_true(self):
        pass
"""


@pytest.fixture
def listing(pytester):
    """Return a function that runs a file with the flag and returns its result and the lines of the closing section."""

    def run(source, *options, flag="--tf-run-skipped"):
        pytester.makepyfile(test_it=source)
        result = pytester.runpytest(flag, *options)
        assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
        lines = [line for line in result.outlines if line]
        first = next((at for at, line in enumerate(lines) if "tfdebug skipped tests" in line), len(lines) - 1)
        section = lines[first + 1 :]
        end = next((at for at, line in enumerate(section) if line.startswith("===")), len(section))
        return result, section[:end]

    return run


@pytest.mark.parametrize("skip", ['@unittest.skip("later")', '@skip(reason="later")'])
def test_stale_skip_is_listed_and_a_true_one_counted(listing, skip):
    result, lines = listing(UNITTEST.format(skip=skip))

    result.assert_outcomes(skipped=2)
    assert result.ret == 0
    assert lines == [
        "1 skip to delete: every test behind passes now.",
        "  test_it.py:14: later",
        "    test_it.py::TestModel::test_stale (without this override: Mixin.test_stale)",
        "Still failing: 1 test.",
        "    test_it.py::TestModel::test_true: ValueError: still broken",
    ]


def test_reports_are_those_of_a_run_without_the_flag(listing, pytester):
    source = UNITTEST.format(skip='@unittest.skip("later")') + "\ndef test_red():\n    assert False\n"
    result, _ = listing(source, "--junitxml=with.xml", "-rs")
    pytester.runpytest("--junitxml=without.xml")

    assert result.ret == 1
    result.assert_outcomes(skipped=2, failed=1)
    result.stdout.fnmatch_lines(["SKIPPED [[]1] test_it.py:14: later", "SKIPPED [[]1] test_it.py:18: later"])
    told = [
        [line.count(tag) for tag in ("<testcase", "<skipped", "<failure", "<error")]
        for line in (pytester.path.joinpath(name).read_text() for name in ("with.xml", "without.xml"))
    ]
    assert told[0] == told[1] == [3, 2, 1, 0]


def test_without_a_skip_it_says_so(listing):
    _, lines = listing("def test_it(): pass")

    assert lines == ["No test was skipped."]


#: Forms of a skip; the line to delete says why.
FORMS = {
    "mark": """
        @pytest.mark.skip(reason="later")
        def test_it(tmp_path):
            assert tmp_path
    """,
    "alias of a mark": """
        broken = pytest.mark.skip("later")

        @broken
        def test_it():
            assert True
    """,
    "mark of a module": """
        pytestmark = [
            pytest.mark.skip("later"),
        ]

        def test_it():
            assert True
    """,
    "mark in a class": """
        class TestIt:
            pytestmark = pytest.mark.skip("later")

            def test_it(self):
                assert True
    """,
    "mark on a class": """
        @pytest.mark.usefixtures("tmp_path")
        @pytest.mark.skip("later")
        class TestIt:
            def test_it(self):
                assert True
    """,
    "mark of a parameter": """
        @pytest.mark.parametrize("x", [
            pytest.param(1, marks=pytest.mark.skip("one")),
            pytest.param(2, marks=pytest.mark.skip("later")),
        ])
        def test_it(x):
            assert x == 2
    """,
    "unittest on a plain function": """
        @unittest.skip("later")
        def test_it():
            assert True
    """,
    "skipTest alone": """
        class Mixin:
            def test_it(self):
                assert True

        class TestIt(Mixin, unittest.TestCase):
            def test_it(self):
                self.skipTest("later")
    """,
    "unittest on a class": """
        @unittest.skip("later")
        class TestIt(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                cls.x = 1

            def test_it(self):
                assert self.x
    """,
    "coroutine": """
        class TestIt(unittest.IsolatedAsyncioTestCase):
            @unittest.skip("later")
            async def test_it(self):
                assert True
    """,
    "expanded": """
        class TestIt(unittest.TestCase):
            @parameterized.expand([(1,)])
            @unittest.skip("later")
            def test_it(self, x):
                assert x
    """,
    "over several lines, under and above other decorators": """
        class TestIt(unittest.TestCase):
            @unittest.mock.patch("os.getcwd")
            @unittest.skip(  # later
                reason="later",
            )
            @unittest.mock.patch("os.getpid")
            def test_it(self, getpid, getcwd):
                assert True
    """,
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_skip_is_lifted_and_placed(listing, form):
    source = "import pytest, unittest, unittest.mock\nfrom parameterized import parameterized\n" + dedent(FORMS[form])
    line = next(number for number, line in enumerate(source.splitlines(), 1) if "later" in line)

    result, lines = listing(source)

    assert lines[:2] == ["1 skip to delete: every test behind passes now.", f"  test_it.py:{line}: later"]
    assert result.ret == 0


@pytest.mark.parametrize("skip", ["@pytest.mark.skip", "@unittest.skip"])
def test_skip_without_a_reason_is_told_as_that(listing, skip):
    _, lines = listing(f"import pytest, unittest\n{skip}\ndef test_it():\n    assert True")

    assert lines[1].startswith("  test_it.py:")
    assert lines[1].endswith(": (no reason)")


@pytest.mark.parametrize(
    ("body", "fails"),
    [
        ("assert False", "assert False"),
        ("for at in range(2):\n            with self.subTest(at=at):\n                assert at == 0", "assert 1 == 0"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import warnings; warnings.warn('careful')", "UserWarning: careful"),
    ],
)
def test_test_that_still_fails_is_not_red(listing, pytester, body, fails):
    pytester.makeini("[pytest]\nfilterwarnings = error")
    source = f"import unittest\nclass TestIt(unittest.TestCase):\n    @unittest.skip('later')\n    def test_it(self):\n        {body}"

    result, lines = listing(source)

    result.assert_outcomes(skipped=1)
    assert result.ret == 0
    assert lines[0] == "No skipped test passes now."
    assert fails in lines[-1]


CONDITIONS = """
import unittest
import pytest

class Mixin:
    has_attentions = False

    def test_attentions(self):
        for _ in range(2):
            if not self.has_attentions:
                self.skipTest("no attentions")
        assert True

wanted = False
def slow(test_case):
    return unittest.skipUnless(wanted, "test is slow")(test_case)

class TestModel(Mixin, unittest.TestCase):
    @unittest.skipIf(len("ab") == 2, "two")
    def test_two(self):
        assert True

    @slow
    def test_slow(self):
        raise AssertionError("is not to run")

    def test_library(self):
        try:
            import no_such_library
        except ImportError:
            self.skipTest("no library")
        raise AssertionError("is not to run")

@pytest.fixture
def given():
    pytest.skip("no fixture")

def test_given(given):
    raise AssertionError("is not to run")

@pytest.mark.skipif(len("ab") == 2, reason="two")
def test_marked():
    assert True

def test_imported():
    pytest.importorskip("no_such_library")
"""


def test_conditional_skips_are_left_alone_and_counted(listing):
    _, lines = listing(CONDITIONS)

    assert lines == [
        "No skipped test passes now.",
        "Not run: 2 tests; the skip has a condition, which --tf-run-skipped=all sets aside (2 two).",
        (
            "Not run: 5 tests; the code of the test, or of what it uses, decides the skip (1 could not import "
            "'no_such_library': No module named 'no_such_library', 1 no attentions, 1 no fixture, ...)."
        ),
    ]


def test_all_runs_what_a_condition_skips_and_nothing_that_code_decides(listing):
    result, lines = listing(CONDITIONS, flag="--tf-run-skipped=all")

    assert result.ret == 0
    assert lines[:5] == [
        "2 skips with a condition to look at: it holds here, and every test behind passes all the same.",
        "  test_it.py:18: two",
        "    test_it.py::TestModel::test_two",
        "  test_it.py:40: two",
        "    test_it.py::test_marked",
    ]
    assert [line.split(";")[0] for line in lines[5:]] == ["Not run: 5 tests"]


def test_mark_that_a_conftest_adds_is_a_choice_of_the_run(listing, pytester):
    pytester.makeconftest(
        """
        import pytest
        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker(pytest.mark.skip(reason="needs --run-slow"))
        """
    )

    _, lines = listing("def test_it(): raise ValueError", flag="--tf-run-skipped=all")

    assert lines[-1] == (
        "Not run: 1 test; the code of the test, or of what it uses, decides the skip (1 needs --run-slow)."
    )


CLASS = """
import unittest

@unittest.skip("whole class")
class TestModel(unittest.TestCase):
    ready = 0

    @classmethod
    def setUpClass(cls):
        cls.ready += 1

    def test_one(self):
        assert self.ready == 1

    def test_two(self):
        assert self.ready == 2

    @unittest.skipIf(len("ab") == 2, "two")
    def test_three(self):
        assert True
"""


def test_class_is_set_up_once_and_its_skip_is_to_be_narrowed(listing):
    result, lines = listing(CLASS)

    result.assert_outcomes(skipped=3)
    assert lines[:4] == [
        "1 skip to narrow: a part of the tests behind passes now.",
        "  test_it.py:3: whole class (1 of 2 pass, 1 not run)",
        "    test_it.py::TestModel::test_one",
        "Still failing: 1 test.",
    ]


def test_test_behind_an_override_that_skips_itself_is_counted(listing):
    source = """
        import unittest

        class Mixin:
            has_attentions = False

            def test_it(self):
                if not self.has_attentions:
                    self.skipTest("no attentions")
                raise ValueError

        class TestIt(Mixin, unittest.TestCase):
            @unittest.skip("later")
            def test_it(self):
                pass
    """

    result, lines = listing(source)

    result.assert_outcomes(skipped=1)
    assert lines == [
        "No skipped test passes now.",
        "Not run: 1 test; the code of the test, or of what it uses, decides the skip (1 no attentions).",
    ]


@pytest.mark.parametrize(("reason", "told"), [("odd", "odd"), ("", "(no reason)")])
def test_empty_test_that_no_base_has_is_not_run(listing, reason, told):
    source = (
        "import unittest\nclass TestIt(unittest.TestCase):\n    def test_it(self):\n        '''Nothing.'''\n"
        f"        self.skipTest({reason!r})"
    )

    _, lines = listing(source)

    assert lines == [
        "No skipped test passes now.",
        f"Not run: 1 test; without the skip nothing is left to run (1 {told}).",
    ]


def test_override_is_left_out_in_a_plain_class_with_other_fixtures_too(listing):
    source = """
        import pytest
        class Base:
            def test_it(self, tmp_path):
                assert tmp_path.is_dir()
        class TestIt(Base):
            @pytest.mark.skip("later")
            def test_it(self):
                pass
    """

    _, lines = listing(source)

    assert lines[1:] == [
        "  test_it.py:6: later",
        "    test_it.py::TestIt::test_it (without this override: Base.test_it)",
    ]


def test_override_with_parameters_is_left_out(listing):
    source = """
        import pytest
        class Base:
            @pytest.mark.parametrize("x", [1])
            def test_it(self, x):
                assert x == 2
        class TestIt(Base):
            @pytest.mark.parametrize("x", [1])
            @pytest.mark.skip("later")
            def test_it(self, x):
                pass
    """

    _, lines = listing(source)

    assert lines[-1] == "    test_it.py::TestIt::test_it[1]: assert 1 == 2"


def test_workers_tell_the_same(listing):
    _, alone = listing(CONDITIONS, flag="--tf-run-skipped=all")
    _, shared = listing(CONDITIONS, "-n2", flag="--tf-run-skipped=all")

    assert len(alone) == 6
    assert shared == alone


def test_worker_that_dies_in_a_skipped_test_is_named_without_failing(listing):
    source = "import os, pytest\n@pytest.mark.skip('kills')\ndef test_it():\n    os._exit(1)\ndef test_other(): pass"

    result, lines = listing(source, "-n1")

    result.assert_outcomes(passed=1, skipped=1)
    assert "Worker gw0 ended before it reported what it had run." in lines


def test_run_that_stops_early_says_what_it_did_not_run(listing):
    source = "import pytest\n@pytest.mark.skip\ndef test_a(): assert True\ndef test_b(): assert False"

    result, lines = listing(source, "-x")

    assert result.ret == 1
    assert lines == ["Not run: 1 that were skipped; the run ended before."]


def test_trials_come_after_the_run_and_disturb_none_of_it(listing):
    source = """
        import pytest
        ran = []
        @pytest.fixture(scope="module")
        def shared():
            ran.append("up")
            yield
            ran.append("down")
        @pytest.mark.skip("later")
        def test_a(shared):
            ran.append("a")
        def test_b(shared):
            assert ran == ["up"]
        @pytest.mark.skip("later")
        def test_c(shared):
            assert ran == ["up", "down", "up", "a"]
    """

    result, lines = listing(source)

    result.assert_outcomes(passed=1, skipped=2)
    assert lines[0] == "2 skips to delete: every test behind passes now."


def test_test_that_is_not_run_leaves_no_fixture_to_the_next(listing, pytester):
    pytester.makepyfile(test_other="import pytest\n@pytest.mark.skip\ndef test_other(): assert True")
    source = """
        import sys, pytest
        @pytest.mark.skip
        def test_it(): assert True
        @pytest.mark.skipif("sys.platform")
        def test_machine(): assert True
    """

    _, lines = listing(source)

    assert lines[0] == "2 skips to delete: every test behind passes now."


def test_functions_that_skip_are_put_back(listing):
    import unittest

    before = (unittest.skip, unittest.case.skip, unittest.TestCase.skipTest, pytest.skip)

    listing("def test_it(): pass")

    assert (unittest.skip, unittest.case.skip, unittest.TestCase.skipTest, pytest.skip) == before


@pytest.mark.parametrize("mode", ["update", "missing"])
def test_goldens_are_not_recorded_in_the_same_run(pytester, mode):
    result = pytester.runpytest("--tf-run-skipped", f"--tf-golden={mode}")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    told = (
        f"--tf-run-skipped runs skipped tests, and --tf-golden={mode} would record what they check. Use one at a time."
    )
    result.stderr.fnmatch_lines([f"ERROR: {told}"])


def test_repository_with_every_form_of_skip_runs_as_without_the_flag(pytester):
    shutil.copytree(REPOSITORY, pytester.path, dirs_exist_ok=True)

    before, result = (
        pytester.runpytest("-W", "ignore::pytest.PytestCollectionWarning", "-vv", *flags)
        for flags in ((), ("--tf-run-skipped=all",))
    )

    assert result.parseoutcomes() == before.parseoutcomes()
    assert result.ret == before.ret
    skipped = sum(" SKIPPED" in line for line in result.outlines)
    named = len({line.split()[0].rstrip(":") for line in result.outlines if line.startswith("    tests/")})
    counted = sum(int(line.split()[2]) for line in result.outlines if line.startswith("Not run: "))
    assert skipped > 300
    assert named + counted == skipped
    result.stdout.no_fnmatch_line("*could not get code object*")  # as for a skip around an expanded test, which is None


def test_plugin_that_takes_no_test_twice_ends_in_the_list(listing, pytester):
    pytester.makeconftest(
        """
        import pytest
        seen = set()
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(item):
            if item in seen:
                raise RuntimeError("twice")
            seen.add(item)
            return (yield)
        """
    )

    result, lines = listing("import pytest\n@pytest.mark.skip\ndef test_it(): assert True")

    assert result.ret == 0
    assert lines[1:] == ["Still failing: 1 test.", "    test_it.py::test_it: RuntimeError: twice"]


def test_doctest_that_is_skipped_is_counted(listing):
    _, lines = listing("def it():\n    '''\n    >>> 1 / 0  # doctest: +SKIP\n    '''", "--doctest-modules")

    assert lines[1].startswith("Not run: 1 test; the code of the test")


def test_another_value_is_refused(pytester):
    result = pytester.runpytest("--tf-run-skipped=some")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--tf-run-skipped*'some'*"])


def test_path_behind_the_bare_flag_is_a_path(pytester):
    pytester.makepyfile(test_it="def test_it(): pass", test_other="def test_other(): pass")

    pytester.runpytest("--tf-run-skipped", "test_it.py").assert_outcomes(passed=1)
