"""The README's examples run as they are printed: every Python block that begins with a file name."""

import re
from pathlib import Path

import pytest
import transformers
from transformers import BertForSequenceClassification, BertModel, LlamaForCausalLM  # noqa: F401 - loaded once for all examples

import pytest_tfdebug.goldens.fixture
import pytest_tfdebug.parity.compare  # noqa: F401
from padding_leaks import LEAKS

BLOCK = re.compile(r"```python\n# (test_\w+\.py)\n(.*?)```", re.DOTALL)
REPORT = re.compile(r"```text\n(BertForSequenceClassification .*?)```", re.DOTALL)
NUMBER = re.compile(r"-?\d[\d.e+-]*")
README = Path(__file__).parents[2] / "README.md"
EXAMPLES = BLOCK.findall(README.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "source"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_of_the_readme_runs(pytester, name, source):
    pytester.makepyfile(**{name.removesuffix(".py"): source})

    recorded = pytester.runpytest_inprocess("--tf-golden=update")
    checked = pytester.runpytest_inprocess()

    assert recorded.ret == 0
    assert checked.ret == 0


@pytest.mark.skipif(transformers.__version__.startswith("4."), reason="it edits lines of transformers 5")
def test_the_padding_report_of_the_readme_is_that_of_its_example(pytester, monkeypatch):
    leak = next(leak for leak in LEAKS if leak.name == "bert-mask-ignored-in-one-layer")
    source = dict(EXAMPLES)["test_padding.py"]
    built = "return BertForSequenceClassification(config).eval()"
    pytester.makepyfile(test_padding=f"# test_padding.py\n{source.replace(built, 'return leaky(config)')}")

    def leaky(config):
        model = BertForSequenceClassification(config).eval()
        leak.inject(model.bert)
        return model

    monkeypatch.setattr("builtins.leaky", leaky, raising=False)
    result = pytester.runpytest_inprocess("test_padding.py")

    shown = REPORT.search(README.read_text(encoding="utf-8"))[1].splitlines()
    assert shown[0] in result.outlines  # its numbers are whole: the line and the pads
    printed = {NUMBER.sub("#", line) for line in result.outlines}
    assert [line for line in shown if NUMBER.sub("#", line) not in printed] == []
