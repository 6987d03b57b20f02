"""``tfdebug env``."""

import json
import subprocess
import sys
from importlib.metadata import version

import transformers

from pytest_tfdebug.environment import main


def test_module_prints_the_environment(capsys):
    assert main([]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert f"torch: {version('torch')}" in lines
    assert "default_dtype: float32" in lines
    assert any(line.startswith("cache: in force=") for line in lines)


def test_module_prints_json_with_every_field_and_no_secret(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_aaaabbbbccccddddeeee")
    monkeypatch.setenv("HUGGING_FACE_HUB_TOKEN", "my-other-secret")
    monkeypatch.setenv("HF_HOME", "/caches/my-other-secret/hf_aaaabbbbccccddddeeee")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    command = [sys.executable, "-m", "pytest_tfdebug", "env", "--json"]

    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert "secret" not in printed
    assert "hf_aaaa" not in printed
    assert "HF_HUB_OFFLINE" in printed
    assert json.loads(printed)["transformers"] == transformers.__version__
    assert list(json.loads(printed)) == [
        "python",
        "torch",
        "cuda",
        "transformers",
        "safetensors",
        "huggingface_hub",
        "tokenizers",
        "pytest_tfdebug",
        "os",
        "cpu",
        "gpu",
        "driver",
        "default_dtype",
        "tf32",
        "deterministic",
        "threads",
        "attention_implementation",
        "offline",
        "cache",
        "devices",
        "git_commit",
        "git_dirty",
    ]
