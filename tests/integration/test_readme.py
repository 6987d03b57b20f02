"""The README's examples run as they are printed: every Python block that begins with a file name."""

import re
from pathlib import Path

import pytest
from transformers import BertModel, LlamaForCausalLM  # noqa: F401 - loaded once for all examples

import pytest_tfdebug.goldens.fixture
import pytest_tfdebug.parity.compare  # noqa: F401

BLOCK = re.compile(r"```python\n# (test_\w+\.py)\n(.*?)```", re.DOTALL)
README = Path(__file__).parents[2] / "README.md"
EXAMPLES = BLOCK.findall(README.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "source"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_of_the_readme_runs(pytester, name, source):
    pytester.makepyfile(**{name.removesuffix(".py"): source})

    recorded = pytester.runpytest_inprocess("--tf-golden=update")
    checked = pytester.runpytest_inprocess()

    assert recorded.ret == 0
    assert checked.ret == 0
