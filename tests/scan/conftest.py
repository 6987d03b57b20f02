"""Small repositories, written by the tests that scan them."""

import textwrap
from pathlib import Path

import pytest

COMMON = """
    class ModelTesterMixin:
        has_attentions = True

        def test_forward(self):
            assert True

        def test_attentions(self):
            if not self.has_attentions:
                self.skipTest("no attentions")
            assert True
"""
HEAD = """
    import sys
    import unittest
    import pytest
    from parameterized import parameterized
    from ...test_modeling_common import ModelTesterMixin
    from ...testing_utils import *
"""
DECORATORS = """
    import os
    import sys
    import unittest
    import pytest

    class NotHere(unittest.SkipTest):
        pass

    def needs_gpu(test):
        if not sys.flags.dev_mode:
            test.skipTest("no GPU")

    def slow(test_case):
        return unittest.skipUnless(os.environ.get("RUN_SLOW"), "test is slow")(test_case)

    def require_gpu(test_case):
        return unittest.skipUnless(False or os.environ.get("GPU"), "test requires a GPU")(test_case)

    def heavy(test_case):
        return slow(require_gpu(test_case))

    skip_all = pytest.mark.skip(reason="why")

    def broken(reason):
        return unittest.skip(f"broken: {reason}")
"""


def write(root, files):
    """Write dedented texts, or bytes, by path."""
    for path, content in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            file.write_text(textwrap.dedent(content).lstrip("\n"))


@pytest.fixture
def written(tmp_path):
    """Return a function that writes files of any layout, and returns their root."""

    def make(files):
        write(tmp_path, files)
        return tmp_path

    return make


@pytest.fixture
def repo(tmp_path):
    """Return a function that makes a repository of models, each from the source of its test file."""

    def make(common=COMMON, extra=None, **models):
        root = tmp_path / "repo"
        files = {"tests/test_modeling_common.py": common, "tests/testing_utils.py": DECORATORS}
        files |= {
            f"tests/models/{model}/test_modeling_{model}.py": textwrap.dedent(HEAD) + textwrap.dedent(source)
            for model, source in models.items()
        }
        write(root, files | (extra or {}))
        for directory in (root / "tests").rglob("*"):
            if directory.is_dir():
                (directory / "__init__.py").touch()
        (root / "tests" / "__init__.py").touch()
        return root

    return make


@pytest.fixture
def fixture_repo():
    """The miniature repository of ``fixtures/``."""
    return Path(__file__).parents[2] / "fixtures" / "scan_repo"


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path, monkeypatch):
    """Keep the user's cache out of the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
