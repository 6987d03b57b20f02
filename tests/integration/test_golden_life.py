"""The life of a golden: missing, recorded, checked, unchanged, changed, truncated, orphaned, deleted.

Each stage is tested in one process, and the last test has them all at once under pytest-xdist.
"""

import json
from importlib.metadata import version

import pytest
import torch  # noqa: F401 - pytester unloads what a run inside this process has loaded

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs
from golden_files import header_of, opened

PORT = """
import os
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, hidden):
        residual = hidden
        hidden = self.norm(hidden)
        hidden = self.down(torch.relu(self.up(hidden)) * SCALE)
        return residual + hidden

class Port(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))

    def forward(self, hidden):
        for block in self.blocks:
            hidden = block(hidden)
        return hidden

SCALE = float(os.environ.get("SCALE", "1"))

def build():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    return Port().eval()
"""
TESTS = """
import unittest
import pytest
import pytest_tfdebug
import torch
from port import build

HIDDEN = torch.linspace(-1, 1, 2 * 3 * 8).view(2, 3, 8)

def test_port(tf_golden):
    tf_golden.check(build(), HIDDEN, reference=build)

@pytest.mark.parametrize("rows", [1, 2])
def test_sizes(tf_golden, rows):
    tf_golden.check(build(), HIDDEN[:rows])

def test_two(tf_golden):
    tf_golden.check(build(), HIDDEN, name="long")
    tf_golden.check(build(), HIDDEN[:, :1], name="short")

class TestClass:
    def test_port(self, tf_golden):
        tf_golden.check(build(), HIDDEN)

class CaseTest(unittest.TestCase):
    def test_without_a_fixture(self):
        pytest_tfdebug.golden().check(build(), HIDDEN)

    @pytest.mark.usefixtures("tf_golden")
    def test_with_usefixtures(self):
        pytest_tfdebug.golden().check(build(), HIDDEN)
"""
FILES = [
    "test_it/CaseTest.test_with_usefixtures.safetensors",
    "test_it/CaseTest.test_without_a_fixture.safetensors",
    "test_it/TestClass.test_port.safetensors",
    "test_it/test_port.safetensors",
    "test_it/test_sizes[1].safetensors",
    "test_it/test_sizes[2].safetensors",
    "test_it/test_two.long.safetensors",
    "test_it/test_two.short.safetensors",
    "test_other/test_port.safetensors",
]


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest on the suite; keyword arguments are environment variables."""
    pytester.makepyfile(port=PORT, test_it=TESTS, test_other="\n".join(TESTS.splitlines()[:12]))

    def run_pytest(*arguments, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)
        for name in environment:
            monkeypatch.delenv(name)
        return result

    return run_pytest


def goldens(pytester):
    folder = pytester.path / "goldens"
    return {str(file.relative_to(folder)): file for file in sorted(folder.rglob("*")) if file.is_file()}


def content(pytester):
    return {name: (file.read_bytes(), file.stat().st_mtime_ns) for name, file in goldens(pytester).items()}


def test_golden_is_missing_then_recorded_then_checked_and_left_alone(pytester, run):
    missing = run()
    assert goldens(pytester) == {} if (pytester.path / "goldens").exists() else True
    recorded = run("--tf-golden=update")
    first = content(pytester)
    checked = run()
    again = run("--tf-golden=update")

    missing.assert_outcomes(failed=8)
    missing.stdout.fnmatch_lines(
        [
            "*test_it.py::test_port has no golden yet: goldens/test_it/test_port.safetensors does not exist.",
            "*To record it, run: pytest test_it.py::test_port --tf-golden=missing",
        ]
    )
    recorded.assert_outcomes(passed=8)
    recorded.stdout.fnmatch_lines(
        ["*tfdebug goldens*", "9 new", *(f"  new      goldens/{name}".replace("[", "[[]") for name in FILES)]
    )
    assert list(first) == FILES
    checked.assert_outcomes(passed=8)
    checked.stdout.no_fnmatch_line("*tfdebug goldens*")
    again.stdout.fnmatch_lines(["9 unchanged"])
    assert content(pytester) == first


def test_changed_port_fails_names_its_lines_and_is_accepted_by_an_update(pytester, run):
    run("--tf-golden=update")
    before = content(pytester)

    failed = run("test_it.py", SCALE="1.5")
    updated = run("--tf-golden=update", SCALE="1.5")
    accepted = run(SCALE="1.5")

    failed.assert_outcomes(failed=7)
    failed.stdout.fnmatch_lines(
        [
            "*port.py:12 in blocks.0 (Block): *",
            "*Regression or drift: it is probably a regression: *",
            "*'blocks.0.up' and 'blocks.0.down'.",
            "*Next: fix the port; do not update the golden.",
            "*Tensor: input [[]0] of 'blocks.0.down', shape (2, 3, 16), float32",
            "*Mismatched elements: * / 96 (*%)",
            "*Drift (*",
            "*blocks.0.up *equal",
            "*blocks.2 *<- outside tolerance",
            "*All weights with matching names are the recorded ones.",
            "*Golden: goldens/test_it/test_port.safetensors",
        ]
    )
    failed.stdout.fnmatch_lines(["E *port.py:12 in blocks.0 (Block): *", "test_it.py:*: ParityError"])
    updated.assert_outcomes(passed=8)
    updated.stdout.fnmatch_lines(
        ["9 changed", "  changed  goldens/test_it/test_port.safetensors", "*greatest difference *, relative L2 *"]
    )
    assert list(content(pytester)) == list(before)
    assert content(pytester) != before
    accepted.assert_outcomes(passed=8)


def test_damaged_golden_fails_by_name_and_an_update_replaces_it(pytester, run):
    run("--tf-golden=update")
    file = goldens(pytester)["test_it/test_port.safetensors"]
    file.write_bytes(file.read_bytes()[:-100])

    failed = run()
    updated = run("--tf-golden=update")

    failed.assert_outcomes(failed=1, passed=7)
    failed.stdout.fnmatch_lines(["*GoldenError: *test_port.safetensors (*bytes) is empty, truncated or not a safe*"])
    updated.stdout.fnmatch_lines(["1 changed, 8 unchanged", "  changed  goldens/test_it/test_port.safetensors"])
    run().assert_outcomes(passed=8)


def test_only_missing_goldens_are_written_when_asked_for_those(pytester, run):
    run("--tf-golden=update")
    goldens(pytester)["test_it/test_port.safetensors"].unlink()
    before = content(pytester)

    written = run("--tf-golden=missing")

    written.assert_outcomes(passed=8)
    written.stdout.fnmatch_lines(["1 new", "  new      goldens/test_it/test_port.safetensors"])
    assert list(goldens(pytester)) == FILES
    assert all(content(pytester)[name] == value for name, value in before.items())


def test_goldens_of_deleted_tests_are_listed_and_stay(pytester, run):
    run("--tf-golden=update")
    pytester.makepyfile(test_it=TESTS.split("@pytest.mark.parametrize", maxsplit=1)[0])
    gone = [name for name in FILES if name.startswith("test_it/") and name != "test_it/test_port.safetensors"]

    checked = run()
    updated = run("--tf-golden=update")

    listed = [f"  goldens/{name}" for name in gone]
    told = "Goldens whose test no longer exists (git rm deletes them):"
    checked.stdout.fnmatch_lines([told, *(line.replace("[", "[[]") for line in listed)])
    updated.stdout.fnmatch_lines([told])
    assert list(goldens(pytester)) == FILES


def test_goldens_of_a_deleted_test_file_are_named_and_stay(pytester, run):
    run("--tf-golden=update")
    (pytester.path / "test_other.py").unlink()

    result = run("--tf-golden=update")

    result.stdout.fnmatch_lines(
        [
            "No test of this run uses these:",
            "  goldens/test_other (1 golden): there is no test_other.py beside its directory.",
        ]
    )
    assert list(goldens(pytester)) == FILES


def test_goldens_of_tests_that_were_left_out_are_not_called_orphans(pytester, run):
    run("--tf-golden=update")

    by_keyword = run("-k", "sizes")
    by_file = run("test_other.py")
    by_name = run("test_it.py::test_port", "--tf-golden=update")

    for result in (by_keyword, by_file, by_name):
        result.stdout.no_fnmatch_line("*no longer exist*")
    assert list(goldens(pytester)) == FILES


def test_other_weights_are_told_apart_from_other_code(pytester, run):
    run("--tf-golden=update")

    failed = run("test_it.py::test_port", SEED="1")

    failed.stdout.fnmatch_lines(
        [
            "*port.py:12 in blocks.0.up (Linear): *",
            "*The weights differ, not the code: 'blocks.0.up.weight' is not the recorded one, nor are * others.",
        ]
    )


def test_argument_that_an_upgrade_took_away_is_the_first_line(pytester):
    """As ``head_mask``, which transformers 5 removed from the forward of BERT."""
    model = """
        import torch
        from transformers import BertModel

        class Bert(BertModel):
            def forward(self, input_ids, {taken}**kwargs):
                return super().forward(input_ids){scaled}
    """
    pytester.makepyfile(
        bert=model.format(taken="head_mask=None, ", scaled="[0] * head_mask"),
        test_bert="""
            import pytest_tfdebug, torch
            from bert import Bert
            from transformers import BertConfig

            def test_bert(tf_golden):
                sizes = dict(hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1, vocab_size=20)
                model = pytest_tfdebug.fill(Bert(BertConfig(**sizes), add_pooling_layer=False).eval())
                tf_golden.check(model, torch.arange(8).view(2, 4), head_mask=torch.linspace(0, 1, 8))
        """,
    )
    pytester.syspathinsert()
    pytester.runpytest_inprocess("--tf-golden=update").assert_outcomes(passed=1)
    pytester.makepyfile(bert=model.format(taken="", scaled=""))

    result = pytester.runpytest_inprocess()

    result.stdout.fnmatch_lines(
        [
            "E *GoldenError: The argument head_mask is gone: *test_bert.safetensors was recorded with it, and Bert no longer takes it.",
            "E * It takes: input_ids",
            "E *If that is meant, leave head_mask= out of the call. To record it again, run: pytest test_bert.py::test_bert *",
        ]
    )
    result.stdout.no_fnmatch_line("*no option*")


def test_off_skips_the_checks(run):
    result = run("--tf-golden=off")

    result.assert_outcomes(skipped=8)


def test_file_holds_the_tree_the_weights_and_where_it_comes_from(pytester, run):
    run("--tf-golden=update")
    file = goldens(pytester)["test_it/test_port.safetensors"]
    document, tensors = opened(file)

    assert "blocks.0.up#0.output" in tensors
    assert header_of(file)["format"] == 2
    assert [call["path"] for call in document["calls"]][:3] == ["Port", "blocks.0", "blocks.0.norm"]
    assert document["extra"]["test"] == "test_it.py::test_port"
    assert "blocks.0.up.weight" in document["extra"]["weights"]
    assert document["extra"]["provenance"]["torch"] == version("torch")
    assert str(pytester.path) not in json.dumps([document, header_of(file)])


@pytest.mark.nightly
def test_workers_of_xdist_write_the_same_files_and_say_it_once(pytester, run, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as many as here
    gone = pytester.makepyfile(test_gone=(pytester.path / "test_other.py").read_text())
    run("--tf-golden=update")
    gone.write_text("")
    alone = {name: data for name, (data, _) in content(pytester).items() if "gone" not in name}
    files = goldens(pytester)
    files["test_it/test_port.safetensors"].write_bytes(b"cut")
    files["test_it/test_two.long.safetensors"].unlink()

    checked = run("-n", "1", SCALE="1.5")
    updated = run("-n", "2", "--tf-golden=update")

    checked.assert_outcomes(failed=8)
    checked.stdout.fnmatch_lines(["*port.py:12 in blocks.0 (Block): *"])
    checked.stdout.fnmatch_lines(["*is empty, truncated or not a safetensors file*"])
    checked.stdout.fnmatch_lines(["*has no golden yet: goldens/test_it/test_two.long.safetensors does not exist."])
    updated.assert_outcomes(passed=8)
    updated.stdout.fnmatch_lines(
        ["1 new, 1 changed, 7 unchanged", "  new      goldens/test_it/test_two.long.safetensors"]
    )
    updated.stdout.fnmatch_lines(
        ["Goldens whose test no longer exists (git rm deletes them):", "*goldens/test_gone/test_port.safetensors"]
    )
    assert {name: data for name, (data, _) in content(pytester).items() if "gone" not in name} == alone


def test_error_of_a_failed_check_carries_its_report(pytester, run):
    pytester.makepyfile(
        test_it="""
        import pytest
        import pytest_tfdebug
        import torch
        from port import build

        HIDDEN = torch.linspace(-1, 1, 2 * 3 * 8).view(2, 3, 8)

        def test_port(tf_golden, request):
            if request.config.getoption("tf_golden") == "update":
                tf_golden.check(build(), HIDDEN)
                return
            with pytest.raises(pytest_tfdebug.ParityError) as caught:
                tf_golden.check(build(), HIDDEN)
            report = caught.value.report
            assert isinstance(report, pytest_tfdebug.ParityReport) and not report
            assert report.culprit.path == "blocks.0"
            assert "Next: to accept the new values, run with --tf-golden=update." in str(report)
        """
    )
    run("--tf-golden=update")

    run("test_it.py", SCALE="1.5").assert_outcomes(passed=1)
