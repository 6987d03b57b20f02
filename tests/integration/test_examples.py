"""Each example passes as it stands, and finds the bug that is put into it here."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import transformers

from nightly import every_second

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Folder -> file, what is edited in it, into what, and what the first line of the failure says.
BUGS = {
    "port": ("my_moe.py", "F.silu(gate)", "F.gelu(gate)", "my_moe.py:58 in blocks.0.moe.experts.0 (GLU)"),
    "goldens_in_ci": ("test_encoder.py", "nn.GELU()", "nn.SiLU()", "test_encoder.py:18 in feed.1 (SiLU)"),
    "padding": (
        "test_pooling.py",
        "(hidden * mask).sum(1) / mask.sum(1)",
        "hidden.mean(1)",
        "test_pooling.py:13-15 in Embedder",
    ),
    "float16": (
        "test_float16.py",
        "return model",
        "model.lm_head.weight.data *= 1e5; return model",
        "in lm_head (Linear): leaves a headroom of",
    ),
}


@pytest.fixture(params=every_second(BUGS))
def example(request, pytester):
    if request.param == "port" and transformers.__version__.startswith("4."):
        pytest.skip("the port reads weights as transformers 5 names them")
    shutil.copytree(EXAMPLES / request.param, pytester.path, dirs_exist_ok=True)
    return request.param


def test_example_passes_and_fails_with_a_bug_in_it(example, pytester, monkeypatch):
    if (pytester.path / "goldens").exists():
        monkeypatch.setenv("CI", "true")
    else:
        pytester.runpytest_inprocess("--tf-golden=update").assert_outcomes(passed=1)
    pytester.runpytest_inprocess().assert_outcomes(passed=1)
    file, old, new, told = BUGS[example]
    source = (pytester.path / file).read_text(encoding="utf-8")
    assert source.count(old) == 1
    (pytester.path / file).write_text(source.replace(old, new), encoding="utf-8")

    result = pytester.run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider")  # with proofs

    result.assert_outcomes(failed=1)
    assert told in result.stdout.str()


def test_ratchet_passes_and_fails_with_one_more_skip(tmp_path):
    shutil.copytree(EXAMPLES / "skip_ratchet", tmp_path, dirs_exist_ok=True)
    scan = [sys.executable, "-m", "pytest_tfdebug", "scan", "--no-cache", "--baseline", "skips.json"]
    before = subprocess.run(scan, cwd=tmp_path, capture_output=True, text=True, check=False)
    file = tmp_path / "tests/models/alpha/test_modeling_alpha.py"
    file.write_text(f'{file.read_text()}\n    @unittest.skip("later")\n    def test_forward(self):\n        pass\n')

    after = subprocess.run(scan, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (before.returncode, after.returncode) == (0, 1)
    assert "test_forward of alpha: later" in after.stdout
