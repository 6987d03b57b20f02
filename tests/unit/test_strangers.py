"""Texts of goldens, tests and repositories are shown, and obeyed by nobody."""

from __future__ import annotations

import textwrap

import pytest

from pytest_tfdebug.github import workflow_command
from pytest_tfdebug.redaction import leaving
from pytest_tfdebug.scan import scan
from pytest_tfdebug.scan.cli import main

_COMMANDS = ("::stop-commands::x", "  ::add-mask::x", "say ##[error]x", "##vso[task.setvariable]x", "##teamcity[x]")
_TOKEN = "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3g"


@pytest.fixture(params=["GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION"])
def server(request, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv(request.param, "true")


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("command", _COMMANDS)
def test_text_begins_no_command_under_a_ci_server(command):
    shown = leaving(f"first\n{command}\nlast", keep="\n")

    lines = [line.strip() for line in shown.splitlines()]
    assert not any(line.startswith("::") or "##[" in line or "##vso[" in line or "##team" in line for line in lines)
    assert shown.replace(": :", "::").replace("# #", "##") == f"first\n{command}\nlast"


def test_text_is_shown_as_it_is_without_a_ci_server(monkeypatch):
    for name in ("CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION", "JENKINS_URL", "CODEBUILD_BUILD_ID"):
        monkeypatch.delenv(name, raising=False)

    assert leaving("::x ##[y]") == "::x ##[y]"


def test_annotation_holds_no_escape_and_no_secret():
    told = workflow_command("error", f"a\x1b[31mred \u202e {_TOKEN}\nb", file="x\x1b.py")

    assert told == r"::error file=x\x1b.py::a\x1b[31mred \u202e hf_***%0Ab"


_SKIP = """
import unittest
from ...test_modeling_common import ModelTesterMixin
class MTest(ModelTesterMixin, unittest.TestCase):
    @unittest.skip({reason!r})
    def test_forward(self): pass
"""


@pytest.fixture
def skipping(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the answers are written

    def make(reason):
        common = tmp_path / "tests/test_modeling_common.py"
        common.parent.mkdir(parents=True)
        common.write_text("class ModelTesterMixin:\n    def test_forward(self): assert 1\n")
        file = tmp_path / "tests/models/m/test_modeling_m.py"
        file.parent.mkdir(parents=True)
        file.write_text(textwrap.dedent(_SKIP.format(reason=reason)))
        return tmp_path

    return make


@pytest.mark.parametrize(
    "arguments", [("--verbose",), ("--format", "json"), ("--format", "markdown"), ("--format", "github")]
)
def test_token_in_the_reason_of_a_skip_is_masked_in_every_format(skipping, capsys, arguments):
    root = skipping(f"needs {_TOKEN}")

    main(["--repo", str(root), "--no-cache", *arguments])

    told = capsys.readouterr()
    assert _TOKEN not in told.out + told.err
    assert "needs hf" in told.out.replace("\\_", "_")
    assert _TOKEN not in scan(root).dumps()


def test_reason_is_text_alone_in_markdown(skipping, capsys):
    root = skipping("<img src=x> [a](http://b) `c` @team | ::stop-commands::")

    main(["--repo", str(root), "--no-cache", "--format", "markdown"])

    shown = next(line for line in capsys.readouterr().out.splitlines() if "img" in line)
    assert r"&lt;img src=x&gt; \[a\](http://b) \`c\` &#64;team \| ::stop-commands::" in shown
