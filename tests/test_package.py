import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest_tfdebug

HEAVY = {"msgspec", "torch", "transformers", "numpy", "pandas", "safetensors", "libcst", "huggingface_hub"}


#: Libraries that are dependencies and are imported only by what uses them.
UNUSED = """
import sys
for name in ("pandas", "libcst", "tqdm", "transformers"):
    sys.modules[name] = None
import torch, pytest_tfdebug, pytest_tfdebug.plugin
model = torch.nn.Linear(2, 2)
recorded = pytest_tfdebug.trace(model, torch.ones(1, 2))
print(pytest_tfdebug.compare(recorded, pytest_tfdebug.trace(model, torch.ones(1, 2))).ok)
"""


def test_there_are_no_more_public_names_than_one_can_know():
    assert len(pytest_tfdebug.__all__) <= 24


def test_no_name_of_a_class_stands_for_two_things():
    files = Path(pytest_tfdebug.__file__).parent.rglob("*.py")
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    names = Counter(node.name.lstrip("_") for node in nodes if isinstance(node, ast.ClassDef))

    assert [name for name, count in names.items() if count > 1] == []


def test_every_public_name_resolves():
    for name in pytest_tfdebug.__all__:
        assert getattr(pytest_tfdebug, name) is not None


def test_plugin_imports_no_heavy_module():
    code = "import sys, pytest_tfdebug.plugin; print(*{name.partition('.')[0] for name in sys.modules})"

    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()

    assert not HEAVY & set(loaded)


def test_model_that_is_not_of_transformers_is_traced_and_compared_without_it():
    done = subprocess.run([sys.executable, "-c", UNUSED], check=False, capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("True\n", "")
