"""Reports and caches that anyone may have written: the scan answers, or says in a line what is wrong."""

import contextlib
import io
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from damaged import damaged_bytes, damaged_json, is_text
from pytest_tfdebug.scan import answer
from pytest_tfdebug.scan.baseline import compact
from pytest_tfdebug.scan.cli import FAILED, OK, UNANSWERED, main

#: How the ratchet shows what it found.
FORMS = ["", "--format=json", "--format=markdown", "--format=github"]


def answered(place, *arguments):
    """Run a scan, which may fail in a line, and return its exit code and what it warns of; its cache is beside."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        code = main([argument for argument in arguments if argument])
    assert code in (OK, FAILED, UNANSWERED)
    shown, told = map(_written, (out, err))
    assert is_text(shown)
    assert is_text(told)
    return code, told


def _written(stream):
    stream.seek(0)
    return stream.read()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory for the reports."""
    return tmp_path_factory.mktemp("damaged")


@pytest.fixture(scope="module")
def repo(place):
    """Two models of the miniature repository: a damaged cache means a new scan."""
    whole = Path(__file__).parents[2] / "fixtures" / "scan_repo"
    models = {path.name for path in (whole / "tests" / "models").iterdir()}
    shutil.copytree(whole, place / "repo", ignore=shutil.ignore_patterns(*models - {"alpha", "beta", "__init__.py"}))
    return str(place / "repo")


@pytest.fixture(scope="module")
def report(place, repo):
    answered(place, "--repo", repo, "--output_dir", str(place))
    return (place / "all_tests_scan_result.json").read_bytes()


@pytest.fixture(scope="module")
def kept(place, report):
    """The cache file of the repository, and what a scan that went well left in it."""
    (file,) = (place / "cache").rglob("*.answers")
    return file, file.read_bytes()


@given(st.data())
def test_baseline_of_changed_bytes_is_refused_in_a_line(place, repo, report, data):
    file = place / "baseline.json"
    file.write_bytes(data.draw(damaged_bytes(report)))
    code, told = answered(place, "--repo", repo, "--baseline", str(file))
    assert code != UNANSWERED or f"{file} " in told


@given(st.data())
def test_baseline_may_be_any_json(place, repo, report, data):
    file, document = place / "baseline.json", data.draw(damaged_json(json.loads(report)))
    file.write_text(json.dumps(document))
    code, told = answered(place, "--repo", repo, "--baseline", str(file), data.draw(st.sampled_from(FORMS)))
    assert code != UNANSWERED or f"{file} " in told


@given(st.data())
def test_compact_baseline_may_be_any_json(place, repo, report, data):
    file = place / "compact.json"
    whole = json.loads("".join(compact(json.loads(report))))
    file.write_text(json.dumps(data.draw(damaged_json(whole))))
    code, told = answered(place, "--repo", repo, "--baseline", str(file), data.draw(st.sampled_from(FORMS)))
    assert code != UNANSWERED or f"{file} " in told


@given(st.data())
def test_cache_of_changed_bytes_changes_no_answer(place, repo, report, kept, data):
    file, whole = kept
    file.write_bytes(data.draw(damaged_bytes(whole)))
    code, _ = answered(place, "--repo", repo, "--output_dir", str(place))
    assert code == OK
    assert (place / "all_tests_scan_result.json").read_bytes() == report


@pytest.mark.nightly
@given(st.data())
def test_cache_with_right_checksums_may_hold_anything(place, repo, kept, data):
    file, whole = kept
    file.write_bytes(answer._text(data.draw(damaged_json(json.loads(whole[9:])))))
    answered(place, "--repo", repo, "--output_dir", str(place))
