"""Write a tree of model tests of the size and forms of transformers' own, for timing the scanner.

394 models are 9 MB. The share of each form (decorators over one line and several, bodies, vanished tests, flags,
conditions on classes) follows a count of transformers 5.0; most bytes are bodies and expected numbers, as there.
"""

from __future__ import annotations

import random
from pathlib import Path

_COMMON, _GENERATION = 100, 40

_DECORATORS = '''"""Decorators of the tests."""

import os
import unittest


def slow(test_case):
    return unittest.skipUnless(os.environ.get("RUN_SLOW"), "test is slow")(test_case)


def is_torch_available():
    return False


def require_torch(test_case):
    return unittest.skipUnless(os.environ.get("USE_TORCH", "1"), "test requires PyTorch")(test_case)


def require_torch_accelerator(test_case):
    return unittest.skipUnless(os.environ.get("ACCELERATOR"), "test requires an accelerator")(test_case)
'''


def _mixin(dots: str, name: str, tests: int, prefix: str) -> str:
    lines = [f"from {dots}testing_utils import require_torch_accelerator, slow", "", "", f"class {name}:"]
    lines += [f"    has_{index} = True" for index in range(tests)]
    for index in range(tests):
        lines.append("")
        lines += {1: ["    @slow"], 2: ["    @require_torch_accelerator"]}.get(index % 6, [])
        lines.append(f"    def test_{prefix}_{index}(self):")
        if index % 3 == 0:
            lines += [f"        if not self.has_{index}:", f'            self.skipTest(reason="Model has no {index}")']
        lines += [f"        value_{line} = self.run({line}, [{line}, {line + 1}])" for line in range(12)]
    return "\n".join(lines) + "\n"


_MODEL = '''{licence}
"""Testing suite for the PyTorch {title} model."""

import unittest

from ...generation.test_utils import GenerationTesterMixin
from ...test_modeling_common import ModelTesterMixin
from ...testing_utils import is_torch_available, require_torch, require_torch_accelerator, slow

MODEL = "{title}"


class {title}ModelTester:
    def __init__(self, parent, batch_size=13, seq_length=7, hidden_size=32):
{tester}

@require_torch
class {title}ModelTest(ModelTesterMixin, GenerationTesterMixin, unittest.TestCase):
    all_model_classes = ({title}Model, {title}ForCausalLM) if is_torch_available() else ()
{tests}

@require_torch
class {title}IntegrationTest(unittest.TestCase):
{integration}'''


def _model(title: str, number: int, random_: random.Random) -> str:
    tester = [f"        self.option_{index} = batch_size * {index}" for index in range(40)]
    for index in range(8):
        tester += ["", f"    def create_and_check_{index}(self, config, inputs):"]
        tester += [f"        result_{line} = self.parent.call(config, inputs, {line})" for line in range(10)]
    lines = [f"    has_{index} = False" for index in random_.sample(range(_COMMON), 2)]
    tests = random_.sample(range(_COMMON), 11)
    lines += [f"    test_common_{tests.pop()} = False"] if number % 4 == 0 else []
    lines += [
        "\n" + _SKIPS[position % len(_SKIPS)].format(test=f"test_common_{index}", title=title)
        for position, index in enumerate(tests)
    ]
    for index in range(6):
        lines += ["", f"    def test_model_{index}(self):"]
        lines += ["        config_and_inputs = self.model_tester.prepare_config_and_inputs()"]
        lines += [f"        self.model_tester.create_and_check_{index}(*config_and_inputs)"]
    integration = []
    for index in range(5):
        rows = (", ".join(f"{random_.uniform(-9, 9):.4f}" for _ in range(9)) for _ in range(24))
        integration += ["", "    @slow", f"    def test_inference_{index}(self):", "        expected = ["]
        integration += [f"            [{row}]," for row in rows]
        integration += ["        ]", '        self.assertEqual(self.run("a prompt"), expected)  # it\'s exact']
    return _MODEL.format(
        licence="# A licence that every file begins with." * 6,
        title=title,
        tester="\n".join(tester) + "\n",
        tests="\n".join(lines) + "\n",
        integration="\n".join(integration) + "\n",
    )


_SKIPS = (
    '    @unittest.skip(reason="{title} does not support it")\n    def {test}(self):\n        pass',
    '    @unittest.skip("It is tested in individual model tests")\n    def {test}(self):\n        pass',
    "    @unittest.skip(\n        reason=\"{title} isn't \"\n        'yet'\n    )\n    def {test}(self):\n        pass",
    '    def {test}(self):\n        self.skipTest("{title} has none")',
    "    @slow\n    @require_torch_accelerator\n    def {test}(self):\n        super().{test}()",
    '    @unittest.skip(reason=f"{{MODEL}} cannot")\n    def {test}(self):\n        pass',
)


def generate(root: Path, models: int = 394) -> None:
    """Write the tree below a directory."""
    random_ = random.Random(0)  # noqa: S311 - the same tree every time
    files = {
        "testing_utils.py": _DECORATORS,
        "test_modeling_common.py": _mixin(".", "ModelTesterMixin", _COMMON, "common"),
        "generation/test_utils.py": _mixin("..", "GenerationTesterMixin", _GENERATION, "generate"),
        "models/__init__.py": "",
    }
    for number in range(models):
        path = f"models/model_{number}/test_modeling_model_{number}.py"
        files[path] = _model(f"Model{number}", number, random_)
    for path, text in files.items():
        file = root / "tests" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(text, encoding="utf-8")
