"""An output that is gone is named at the statement that should return it."""

import importlib
import linecache
from textwrap import dedent

import pytest
import torch

from pytest_tfdebug import compare, trace

_REFERENCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.bias = torch.nn.Parameter(torch.ones(()))

    def forward(self, x, early=False):
        x = self.linear(x)
        if early:
            return x
        made = {"logits": x, "scale": x.mean()}
        if self.bias is not None:
            made["bias"] = self.bias + 1
        return made
"""


@pytest.fixture
def model_of(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name, text):
        (tmp_path / f"{name}.py").write_text(dedent(text))
        torch.manual_seed(0)
        return importlib.import_module(name).Model().eval()

    return make


@pytest.mark.parametrize(
    ("old", "new", "source", "reference"),
    [
        (
            '    if self.bias is not None:\n            made["bias"] = self.bias + 1\n',
            "    pass\n",
            "pass",
            "if self.bias is",
        ),
        ('"scale": x.mean()}', "}", 'made = {"logits": x, }', 'made = {"logits": x, "scale"'),
        (_REFERENCE[_REFERENCE.index("        made = ") :], '        return {"logits": x}\n', "return {", "made = {"),
    ],
)
def test_output_that_is_gone_is_named_where_it_should_be_returned(model_of, old, new, source, reference):
    assert _REFERENCE.count(old) == 1
    expected = trace(model_of(f"reference_{len(new)}", _REFERENCE), torch.ones(2, 4))
    actual = trace(model_of(f"port_{len(new)}", _REFERENCE.replace(old, new)), torch.ones(2, 4))

    culprit = compare(expected, actual).culprit

    assert "an output is gone" in culprit.explanation
    assert line(culprit.source).startswith(source)
    assert line(culprit.reference).startswith(reference)


def line(at):
    return linecache.getline(at.file, at.first).strip()
