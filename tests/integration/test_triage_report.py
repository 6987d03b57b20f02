"""The section ``tfdebug triage``: where it appears, where it does not, and that it costs nothing before a failure."""

import json
import sys

import pytest

BROKEN = """
    import pytest
    import unittest

    @pytest.fixture
    def checkpoint():
        from transformers import AutoModel
        return AutoModel()

    def test_function():
        from transformers import AdamW

    class TestClass:
        def test_method(self):
            from transformers import AdamW

    class TestCase(unittest.TestCase):
        def setUp(self):
            self.name = "AdamW"

        def test_case(self):
            from transformers import AdamW

        def test_sub(self):
            with self.subTest(part=1):
                from transformers import AdamW

    def test_setup(checkpoint):
        pass

    def test_teardown(request):
        def finish():
            from transformers import AdamW
        request.addfinalizer(finish)

    def test_chained():
        try:
            from transformers import AdamW
        except ImportError as error:
            raise RuntimeError("the port could not be imported") from error

    def test_ordinary():
        assert 1 == 2

    @pytest.mark.xfail
    def test_expected():
        from transformers import AdamW

    def test_passing():
        pass
"""


def sections(reports):
    return {report.nodeid.rpartition("::")[2] + ":" + report.when: body_of(report) for report in reports}


def body_of(report):
    """Return what stands before the traceback of a report; None where triage says nothing."""
    before, title, after = report.longreprtext.partition(" tfdebug triage ")
    assert not title or not before.strip("-")
    return after.lstrip("-\n").partition("\n\n")[0] if title else None


def test_failed_tests_of_every_kind_get_the_section(pytester):
    pytester.makepyfile(test_broken=BROKEN)

    result = pytester.inline_run("-p", "no:cacheprovider")
    found = sections(report for report in result.getreports("pytest_runtest_logreport") if report.failed)

    assert found.pop("test_ordinary:call") is None
    assert set(found) == {
        "test_function:call",
        "test_method:call",
        "test_case:call",
        "test_sub:call",
        "test_setup:setup",
        "test_teardown:teardown",
        "test_chained:call",
    }
    for name, body in found.items():
        assert body is not None, name
        assert body.startswith("bucket: "), name
    assert "bucket: auto-class (in setup)" in found["test_setup:setup"]
    assert "bucket: install/version (in teardown)" in found["test_teardown:teardown"]
    assert "smallest fix: from torch.optim import AdamW" in found["test_chained:call"]


@pytest.mark.parametrize("workers", ["0", pytest.param("1", marks=pytest.mark.nightly)])
def test_triage_is_in_the_terminal_on_the_page_and_in_the_file(pytester, workers):
    pytester.makepyfile(test_broken=BROKEN, test_uncollected="from transformers import AdamW\n")

    flags = ["--tf-html=page", "--tf-json=checks.json", "--continue-on-collection-errors", "-n", workers]
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *flags)
    checks = json.loads((pytester.path / "checks.json").read_text())["checks"]
    found = {check["test"].rpartition("::")[2] + ":" + check["name"]: check for check in checks}

    assert {check["check"] for check in checks} == {"triage"}
    assert {"test_function:", "test_setup:setup", "test_teardown:teardown", "test_uncollected.py:collection"} <= set(
        found
    )
    assert not any(name.startswith(("test_ordinary", "test_expected")) for name in found)
    assert found["test_function:"]["headline"].startswith("AdamW is gone from transformers")
    assert found["test_function:"]["advice"] == "Smallest fix: from torch.optim import AdamW"
    pages = [(pytester.path / "page" / "checks" / f"{check['id']}.html").read_text() for check in checks]
    assert all("Smallest fix: " in page and "bucket: " in page for page in pages)
    for name in ("test_function", "TestClass.test_method", "TestCase.test_case"):
        shown = result.stdout.str().partition(f" {name} ___")[2].partition("\n____")[0]
        assert shown.count("- tfdebug triage -") == shown.count("bucket: install/version (in call)") == 1, name


def test_passed_and_expected_failures_get_none(pytester):
    pytester.makepyfile(test_broken=BROKEN)

    result = pytester.inline_run("-k", "expected or passing", "-p", "no:cacheprovider")
    reports = result.getreports("pytest_runtest_logreport")

    assert len(reports) == 6
    assert set(sections(reports).values()) == {None}


def test_terminal_shows_the_section(pytester):
    pytester.makepyfile("def test_it():\n    from transformers import AdamW\n")

    result = pytester.runpytest("-p", "no:cacheprovider")

    result.stdout.fnmatch_lines(
        [
            "*- tfdebug triage -*",
            "bucket: install/version (in call)",
            "what happened: AdamW is gone from transformers *: use torch.optim.AdamW.",
            "smallest fix: from torch.optim import AdamW",
            "next step: python -c *",
        ]
    )


@pytest.mark.parametrize(
    "arguments", [["--show-capture=no"], ["--show-capture=stdout"], ["--tb=native"], ["--tb=short"]]
)
def test_terminal_shows_the_section_whatever_is_captured(pytester, arguments):
    pytester.makepyfile("def test_it():\n    from transformers import AdamW\n")

    result = pytester.runpytest("-p", "no:cacheprovider", *arguments)

    assert result.stdout.str().count("bucket: install/version (in call)") == 1


def test_collection_error_is_triaged(pytester):
    pytester.makepyfile("from transformers import AdamW\n\ndef test_it():\n    pass\n")

    result = pytester.runpytest("-p", "no:cacheprovider")

    result.stdout.fnmatch_lines(
        [
            "*- tfdebug triage -*",
            "bucket: install/version (in collection)",
            "smallest fix: from torch.optim import AdamW",
        ]
    )


@pytest.mark.parametrize("arguments", [["--show-capture=no"], ["--show-capture=log"], ["-n", "1", "--show-capture=no"]])
def test_collection_error_is_triaged_whatever_is_captured(pytester, arguments):
    pytester.makepyfile("from transformers import AdamW\n\ndef test_it():\n    pass\n")

    result = pytester.runpytest("-p", "no:cacheprovider", *arguments)

    result.stdout.fnmatch_lines(["*- tfdebug triage -*", "bucket: install/version (in collection)"])
    assert result.stdout.str().count("- tfdebug triage -") == 1


def test_collection_error_of_another_kind_is_left_alone(pytester):
    pytester.makepyfile("import no_such_module_of_mine\n")

    assert "tfdebug triage" not in pytester.runpytest("-p", "no:cacheprovider").stdout.str()


def test_off_shows_nothing(pytester):
    pytester.makepyfile(test_broken=BROKEN)

    result = pytester.runpytest("--tf-triage=off", "-p", "no:cacheprovider")

    assert "tfdebug triage" not in result.stdout.str()


def test_off_in_the_ini_file_is_overruled_by_the_flag(pytester):
    pytester.makepyfile("def test_it():\n    from transformers import AdamW\n")
    pytester.makeini("[pytest]\ntf_triage = off\n")

    assert "tfdebug triage" not in pytester.runpytest("-p", "no:cacheprovider").stdout.str()
    assert "tfdebug triage" in pytester.runpytest("--tf-triage=auto", "-p", "no:cacheprovider").stdout.str()


def test_other_value_is_refused_with_the_valid_ones(pytester):
    result = pytester.runpytest("--tf-triage=on")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--tf-triage*'on'*auto*off*"])


def test_nothing_is_imported_before_a_failure(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other plugins may import what they like
    pytester.makepyfile(
        """
        import sys

        HEAVY = {"torch", "transformers", "numpy", "pandas", "safetensors", "libcst", "huggingface_hub"}

        def test_it():
            assert not HEAVY & set(sys.modules)
            ours = {name for name in sys.modules if name.startswith("pytest_tfdebug")}
            assert not {name for name in ours if name.startswith(("pytest_tfdebug.triage", "pytest_tfdebug.environment"))}
        """
    )

    result = pytester.runpytest_subprocess("-p", "pytest_tfdebug.plugin", "-p", "no:cacheprovider")

    result.assert_outcomes(passed=1)


def test_failure_imports_no_library_of_its_own(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other plugins may import what they like
    pytester.makepyfile("def test_it():\n    assert 1 == 2\n")
    pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure():
            heavy = {"torch", "transformers", "numpy", "pandas", "safetensors", "libcst", "huggingface_hub"}
            print("loaded:", sorted(heavy & set(sys.modules)), "pytest_tfdebug.triage.plugin" in sys.modules)
        """
    )

    result = pytester.runpytest_subprocess("-p", "pytest_tfdebug.plugin", "-p", "no:cacheprovider")

    result.stdout.fnmatch_lines(["loaded: [[]] True"])


def test_control_characters_are_written_out_everywhere(pytester):
    pytester.makepyfile(
        r"""
        def test_it():
            from transformers import AutoConfig
            AutoConfig.for_model("la\x1b[31mma\x07\u202e")
        """
    )

    result = pytester.runpytest("--junitxml=report.xml", "-p", "no:cacheprovider")
    section = result.stdout.str().partition("- tfdebug triage -")[2].partition("\n\n")[0]

    assert "bucket: auto-class" in section
    assert not any(character in section for character in "\x1b\x07\u202e")
    assert r"\x07" in section
    assert r"\u202e" in section


def test_long_messages_are_cut(pytester):
    pytester.makepyfile(
        """
        def test_it():
            from transformers import AutoConfig
            AutoConfig.for_model("x" * 3000)
        """
    )

    result = pytester.inline_run("-p", "no:cacheprovider")
    (body,) = [body for body in sections(result.getreports("pytest_runtest_logreport")).values() if body]

    assert len(body) < 2000
    assert "characters ..." in body


@pytest.mark.nightly
def test_absurdly_long_message_does_not_break_the_run(pytester):
    pytester.makepyfile("def test_it():\n    raise OSError('cuda.torch.so' * 1_000_000)\n")

    result = pytester.runpytest("--tb=line", "-p", "no:cacheprovider")

    result.assert_outcomes(failed=1)
    assert "tfdebug triage" not in result.stdout.str()


def test_tokens_are_never_shown(pytester, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz")
    pytester.makepyfile(
        """
        def test_it():
            from transformers import AutoModelForSeq2SeqLM, LlamaConfig
            AutoModelForSeq2SeqLM.from_config(LlamaConfig(), token="hf_abcdefghijklmnopqrstuvwxyz")
        """
    )

    result = pytester.inline_run("-p", "no:cacheprovider")
    (body,) = [body for body in sections(result.getreports("pytest_runtest_logreport")).values() if body]

    assert "token" in body
    assert "hf_abc" not in body


def test_error_that_cannot_be_printed_does_not_break_the_run(pytester):
    pytester.makepyfile(
        """
        class Unprintable(OSError):
            def __str__(self):
                raise ValueError("no text")

        def test_it():
            raise Unprintable
        """
    )

    result = pytester.runpytest("-p", "no:cacheprovider")

    result.assert_outcomes(failed=1)
    assert "INTERNALERROR" not in result.stdout.str()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no exception groups")
def test_exception_group_is_looked_into(pytester):
    pytester.makepyfile(
        """
        def test_it():
            errors = [ValueError("other")]
            try:
                from transformers import AdamW
            except ImportError as error:
                errors.append(error)
            raise ExceptionGroup("several", errors)
        """
    )

    result = pytester.runpytest("-p", "no:cacheprovider")

    result.stdout.fnmatch_lines(["bucket: install/version (in call)"])
