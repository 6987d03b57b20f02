import subprocess
import sys

import pytest_tfdebug

HEAVY = {"torch", "transformers", "numpy", "pandas", "safetensors", "libcst", "huggingface_hub"}


def test_every_public_name_resolves():
    for name in pytest_tfdebug.__all__:
        assert getattr(pytest_tfdebug, name) is not None


def test_the_plugin_imports_no_heavy_module():
    code = "import sys, pytest_tfdebug.plugin; print(*{name.partition('.')[0] for name in sys.modules})"

    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()

    assert not HEAVY & set(loaded)
