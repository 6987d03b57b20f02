"""A run that uses nothing of the plugin pays nothing for it."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "numpy", "pandas", "safetensors", "libcst", "huggingface_hub", "jinja2", "msgspec")
SUITE = f"""
import sys
import pytest

HEAVY = {HEAVY!r}

def test_plain():
    assert not {{name.partition(".")[0] for name in sys.modules}} & set(HEAVY)

@pytest.mark.parametrize("number", [1, 2])
def test_more(number, tmp_path):
    assert not {{name.partition(".")[0] for name in sys.modules}} & set(HEAVY)
"""
ALONE = ("-p", "pytest_tfdebug.plugin", "-p", "no:cacheprovider", "-s")
#: What the plugin adds to what pytest and its own plugins import. Each module more is paid by every run of pytest: what
#: the whole costs beside ``import pytest`` is a figure of ``make bench``.
OWN = {
    "pytest_tfdebug",
    "pytest_tfdebug.errors",
    "pytest_tfdebug.options",
    "pytest_tfdebug.plugin",
    "pytest_tfdebug.running",
}
IMPORT = """
import sys, pytest, logging, importlib
before = set(sys.modules)
import pytest_tfdebug.plugin
print(*(set(sys.modules) - before))
"""


@pytest.fixture(autouse=True)
def _without_other_plugins(monkeypatch):
    """Leave out what else is installed: other plugins may import what they like."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def test_no_heavy_module_is_imported_in_a_run_without_ours(pytester):
    pytester.makepyfile(SUITE)
    pytester.makeconftest(
        f"""
        def pytest_unconfigure():
            import sys
            print("imported at the end:", sorted({{name.partition(".")[0] for name in sys.modules}} & set({HEAVY!r})))
        """
    )

    result = pytester.runpytest_subprocess(*ALONE)

    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*imported at the end: []"])


def test_failing_test_of_nothing_of_ours_imports_no_heavy_module(pytester):
    pytester.makepyfile(SUITE + "\ndef test_fails():\n    assert 1 == 2\n")
    pytester.makeconftest(
        f"""
        def pytest_unconfigure():
            import sys
            print("imported at the end:", sorted({{name.partition(".")[0] for name in sys.modules}} & set({HEAVY!r})))
        """
    )

    result = pytester.runpytest_subprocess(*ALONE)

    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*imported at the end: []"])


def test_plugin_imports_these_modules_and_no_other():
    done = subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True)

    assert set(done.stdout.split()) == OWN
