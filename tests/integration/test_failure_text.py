"""What a failed check looks like in a terminal: the answer first, as short or as long as was asked for."""

import re

import pytest

PORT = """
import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)) * SCALE)


class Port(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Mlp() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


SCALE = 1.0


def wrong():
    global SCALE
    SCALE = 1.5
    return Port()
"""

TESTS = """
import pytest
import torch
from transformers import BertConfig, BertModel, LlamaForCausalLM

from port import Port, wrong


def test_port(tf_golden, request):
    build = Port if request.config.getoption("tf_golden") == "update" else wrong
    tf_golden.check(build(), torch.linspace(-1, 1, 4).view(1, 4))


class Pooled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        config = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        self.bert = BertModel(config)

    def forward(self, input_ids, attention_mask):
        return self.bert(input_ids, attention_mask).last_hidden_state.mean(1)


@pytest.mark.padding_invariant(side="right", lengths=1)
def test_padding():
    Pooled().eval()(input_ids=torch.tensor([[1, 2, 3]]), attention_mask=torch.ones(1, 3).long())


class Quotient(torch.nn.Module):
    def forward(self, x):
        return x / 0


@pytest.mark.overflow_free
def test_overflow():
    torch.nn.Sequential(torch.nn.Identity(), Quotient())(torch.ones(1, 4))


@pytest.mark.invariant("clean_load")
def test_load():
    LlamaForCausalLM.from_pretrained(BERT)


def test_triage():
    torch.nn.Linear(65, 3)(torch.ones(2, 64))


def test_ordinary():
    assert 1 == 2
"""

_LINES = r"\d+(?:-\d+)?"
#: The first line of each failure: file and line, module, what is wrong.
ANSWERS = {
    "port": rf"port\.py:{_LINES} in blocks\.0 \(Mlp\): computes values that the reference never does",
    "padding": rf"test_it\.py:{_LINES} in Pooled \(Pooled\): is not invariant to padding; probably pooling over pads",
    "overflow": rf"test_it\.py:{_LINES} in 1 \(Quotient\): output has infs",
    "load": rf"test_it\.py:{_LINES} in LlamaForCausalLM: is not clean: 21 missing, 41 unexpected, 0 mismatched weights",
    "triage": r"Linear takes 65 features \(in_features\) and was given 64\.",
}
CHECKS = ("port", "padding", "overflow", "load")
#: What runs have printed, by columns and arguments: tests look at the same few runs.
_PRINTED: dict[tuple[int, tuple[str, ...]], str] = {}


@pytest.fixture
def run(pytester, bert, monkeypatch):
    """Return a function that runs the tests against the golden of the right port and returns what is printed."""

    def printed(*arguments, columns=80):
        if (columns, arguments) not in _PRINTED:
            monkeypatch.setenv("COLUMNS", str(columns))
            pytester.makepyfile(port=PORT, test_it=TESTS.replace("(BERT)", f"({str(bert)!r})"))
            pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\n")
            pytester.runpytest("--tf-golden=update", "-k", "port")
            _PRINTED[columns, arguments] = pytester.runpytest(*arguments).stdout.str()
        return _PRINTED[columns, arguments]

    return printed


def body(text, name):
    """Return the lines that pytest shows of one failed test."""
    shown = text.partition(f" test_{name} ___")[2]
    return re.split(r"\n(?:_{3,} test_|={3,} )", shown)[0].splitlines()[1:]


def test_first_line_of_every_check_is_the_answer(run):
    text = run()

    for name in ("padding", "overflow", "load"):
        assert re.fullmatch(ANSWERS[name], body(text, name)[0])
    port = body(text, "port")
    [place] = (place for place, line in enumerate(port) if line.startswith(">"))
    assert re.fullmatch(f"E +{ANSWERS['port']}", port[place + 1])


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "port",
            [
                "The model differs",
                "Next",
                "Tensor",
                "Drift",
                "All weights with matching names are the recorded ones",
                "Golden",
            ],
        ),
        ("padding", ["Pooled", "Diagnosis", "Next", "Tensor", "Drift"]),
        ("overflow", ["Where", "Next", "Not finite"]),
        ("load", ["LlamaForCausalLM loaded from", "Next", "missing, random now", "unexpected, left out"]),
    ],
)
def test_every_check_tells_its_parts_in_one_order(run, name, parts):
    lines = body(run(), name)

    places = [next(place for place, line in enumerate(lines) if line.startswith(f"  {part}")) for part in parts]

    assert places == sorted(places)


@pytest.mark.parametrize("name", CHECKS)
def test_summary_of_80_columns_shows_file_line_and_module(run, name):
    summary = run().partition(" short test summary info ")[2]

    [line] = re.findall(rf"FAILED test_it\.py::test_{name} - (.*)", summary)

    assert re.match(r"\w+\.py:\d+(-\d+)? in [\w.]+", line)
    assert re.match(line.removesuffix("...").replace("(", r"\(").replace(")", r"\)"), _plain(ANSWERS[name], line))


def _plain(answer, line):
    """Return an answer as text, with the line numbers of another."""
    return re.sub(r"\\(\W)", r"\1", answer.replace(_LINES, re.search(r":(\d+(?:-\d+)?) ", line)[1]))


@pytest.mark.parametrize(
    ("arguments", "columns"), [((), 80), pytest.param(("-n", "1"), 100, marks=pytest.mark.nightly), (("-q",), 80)]
)
def test_table_at_the_end_has_what_pytests_summary_does_not_say(run, arguments, columns):
    text = run(*arguments, columns=columns)

    table = text.partition(" tfdebug diagnoses =")[2].partition("\n====")[0].splitlines()[1:]
    found = dict(line.removeprefix("test_it.py::test_").split(": ", 1) for line in table)
    assert found.keys() == ANSWERS.keys() - set(CHECKS)
    assert all(re.fullmatch(ANSWERS[name], answer) for name, answer in found.items())


def test_line_is_all_that_tb_line_shows(run):
    text = run("--tb=line", "--show-capture=no")

    lines = text.partition(" FAILURES =")[2].partition("\n====")[0].splitlines()[1:]
    assert [re.sub(r".*test_it\.py:\d+: ", "", line) for line in lines[:4]] == [
        _plain(ANSWERS[name], line.partition(": ")[2]) for name, line in zip(CHECKS, lines, strict=False)
    ]


def test_quiet_is_the_answer_why_and_what_to_do(run):
    text = run("-q")

    assert [line.partition(":")[0] for line in body(text, "overflow")] == [
        "test_it.py",
        "  Where",
        "  finite.",
        "  Next",
        "test_it.py",
    ]
    assert "Next: to accept the new values, run with --tf-golden=update." in text
    assert not re.search(r"\n *(Drift|Tensor:|Golden:|Not finite|python: 3)", text)


def test_twice_verbose_leaves_nothing_out(run):
    text = run("-vv", "-k", "port")

    assert "Every tensor outside tolerance" not in run()
    assert "\n  Every tensor outside tolerance, in the order of computation:\n    blocks.0.down input " in text


@pytest.mark.parametrize(("columns", "arguments"), [(80, ()), (100, ("-n", "1"))])
def test_sentences_are_as_wide_as_the_terminal(run, columns, arguments):
    lines = body(run(*arguments, columns=columns), "padding")[1:]

    assert columns - 12 < max(map(len, lines)) <= columns


def test_triage_stands_before_the_traceback(run):
    lines = body(run(), "triage")

    assert lines[0].strip("-") == " tfdebug triage "
    assert lines[1] == "bucket: runtime/shape (in call)"
    assert ">       torch.nn.Linear(65, 3)(torch.ones(2, 64))" in lines[2:]


def test_failure_that_nothing_explains_is_as_pytest_shows_it(run):
    lines = body(run(), "ordinary")

    assert [line for line in lines if line] == [
        "    def test_ordinary():",
        ">       assert 1 == 2",
        "E       assert 1 == 2",
        "test_it.py:49: AssertionError",
    ]


def test_check_called_in_the_test_is_shown_by_its_answer_too(pytester):
    pytester.makepyfile(
        test_it="""
        import torch
        import pytest_tfdebug

        def test_it():
            model = torch.nn.Linear(2, 2)
            model.weight.data[0] = torch.inf
            with pytest_tfdebug.overflow_guard(model):
                model(torch.ones(1, 2))
        """
    )

    result = pytester.runpytest("-p", "no:cacheprovider", "--tb=short")

    result.stdout.fnmatch_lines(["E   Linear (Linear): weight has infs", "  Where: Linear (Linear): its weights*"])
    result.stdout.fnmatch_lines(["FAILED *::test_it - Linear (Linear): weight has infs"])
