"""Several mistakes of one port are named in one run, each with what mends it."""

import json
import sys
from pathlib import Path

import pytest
import torch
from transformers.models.llama import modeling_llama

import llama_port
import pytest_tfdebug
from pytest_tfdebug.parity.closeness import SAME
from pytest_tfdebug.parity.proof import prove, several
from pytest_tfdebug.parity.proof.matching import OpenValues
from pytest_tfdebug.parity.proof.same_operands import ends_of_regions
from pytest_tfdebug.parity.record import parity_record
from rewriting import module_of

EPS = ("mean(-1, keepdim=True) + self.eps", "mean(-1, keepdim=True) + 1e-2")
SCALE = ("query.shape[-1] ** -0.5", "0.25")
SILU = ("nn.functional.silu(gate)", "nn.functional.gelu(gate)")
VAR = (
    "return hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True)",
    "variance = hidden.var(-1, keepdim=True)\n        return hidden * torch.rsqrt(variance",
)
SPREAD = (VAR[0], VAR[1].replace("hidden.var(-1, keepdim=True)", "hidden.abs().mean(-1, keepdim=True).pow(1.9)"))
AXIS = ("softmax(-1)", "softmax(-2)")
NO_NORM = ("self.head(self.norm(hidden))", "self.head(hidden)")


@pytest.fixture(autouse=True)
def _as_long_as_it_takes(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 20.0)


@pytest.fixture
def report_on(monkeypatch, tmp_path):
    """Return the report on the port of Llama with some mistakes, and the line of each."""

    def report(*edits, dtype=torch.float32):
        text = Path(llama_port.__file__).read_text()
        for old, _ in edits:
            assert text.count(old) == 1
        lines = [text[: text.index(old)].count("\n") + 1 for old, _ in edits]
        for old, new in edits:
            text = text.replace(old, new)
        module = module_of(text, tmp_path / "wrong_port.py")
        monkeypatch.setitem(sys.modules, "wrong_port", module)
        reference = pytest_tfdebug.fill(llama_port.load_reference(), seed=0)
        port = module.load_port(reference)
        with torch.no_grad():
            for own, theirs in zip(port.blocks, reference.model.layers, strict=True):
                own.attention_norm.scale.copy_(theirs.input_layernorm.weight)
                own.mixer_norm.scale.copy_(theirs.post_attention_layernorm.weight)
            port.norm.scale.copy_(reference.model.norm.weight)
        ids = torch.arange(3, 23).view(2, 10)
        for model in (reference, port):  # buffers stay: the port computes its frequencies in float32
            for parameter in model.parameters():
                parameter.data = parameter.data.to(dtype)
        traces = (pytest_tfdebug.trace(model, input_ids=ids) for model in (reference, port))
        return pytest_tfdebug.compare(*traces), lines

    return report


def test_two_mistakes_of_a_port_in_half_precision_are_told_in_one_run(report_on):
    report, lines = report_on(SILU, SCALE, dtype=torch.bfloat16)

    assert sorted(each.source.first for each in report.culprits) == sorted(lines)
    assert report.told_of_faults == "after these 2 changes every output agrees, also on inputs that were not searched"


def test_two_mistakes_of_one_run_have_each_its_change_and_diff(report_on, tmp_path):
    report, (mixer, scale) = report_on(SILU, SCALE)

    assert [each.source.first for each in report.culprits] == [scale, mixer]
    assert [(each.line, each.kind, each.new[:8]) for culprit in report.culprits for each in culprit.changes] == [
        (scale, "number", "0.353553"),
        (mixer, "call", "silu"),
    ]
    assert report.culprit is report.culprits[0]
    assert "and with 1 other change every output agrees" in report.culprit.proved
    assert not any(culprit.certain for culprit in report.culprits)

    told = str(report).splitlines()
    assert f"wrong_port.py:{scale} in blocks.0.attention (Attention)" in told[0]
    assert (
        told[1]
        == "  2 faults: after these 2 changes every output agrees, also on inputs that were not searched. Behind this one:"
    )
    assert f"wrong_port.py:{mixer} in blocks.0.mixer (Mixer)" in told[2]
    assert told[2].endswith("silu instead of gelu (reference: activations.py:103)")

    added = [line for culprit in report.culprits for line in culprit.patch.splitlines() if line.startswith("+  ")]
    assert [line.strip("+ ") for line in added] == [
        "scores = query @ key.mT * 0.3535533905932738",
        "return self.narrow(nn.functional.silu(gate) * wide)",
    ]
    assert "gelu(gate)" in (tmp_path / "wrong_port.py").read_text()  # nothing is written


def test_two_changes_that_give_the_references_value_mend_what_it_led_past(report_on, monkeypatch):
    for search in ("best", "inside"):  # neither change shows anything right alone, as it were
        monkeypatch.setattr(several._Changes, search, lambda *_: [])
    report, lines = report_on(SCALE, AXIS)

    assert [change.line for culprit in report.culprits for change in culprit.changes] == lines
    assert [change.old for culprit in report.culprits for change in culprit.changes] == ["0.25", "-2"]
    assert report.told_of_faults == "after these 2 changes every output agrees, also on inputs that were not searched"


def test_one_mistake_is_told_as_one(report_on):
    report, (line,) = report_on(SILU)

    assert [each.source.first for each in report.culprits] == [line]
    assert report.told_of_faults == ""
    assert "+        return self.narrow(nn.functional.silu(gate) * wide)" in report.culprit.patch.splitlines()


def test_variance_in_place_of_the_mean_square_is_told_with_its_change(report_on):
    report, (norm, mixer) = report_on(VAR, SILU)  # the first has a line more

    assert [change.line for culprit in report.culprits for change in culprit.changes] == [norm, mixer + 1]
    assert {change.old: change.new for culprit in report.culprits for change in culprit.changes} == {
        "var": "mean of squares",
        "gelu": "silu",
    }


def test_change_in_the_way_of_the_references_value_mends_no_part(report_on, monkeypatch):
    monkeypatch.setattr(prove, "SECONDS", 3.0)
    report, (line,) = report_on(SPREAD)  # ``hidden * hidden`` is what the reference squares, and leads nowhere

    assert [(each.source.first, each.changes) for each in report.culprits] == [(line, ())]


def test_record_of_four_mistakes_is_six_thousand_characters_at_most(report_on, tmp_path):
    report, (eps, scale, mixer, _) = report_on(EPS, SCALE, SILU, NO_NORM)
    told = json.dumps(parity_record("test_port.py::test_port", report, in_detail=False).to_dict())
    folder = str(Path(modeling_llama.__file__).parent)  # where things are installed makes no difference

    *first, last = report.culprits
    assert [each.source.first for each in first] == [eps, scale, mixer]
    assert [(each.side, each.kind, each.old) for each in last.changes] == [("reference", "left out", "model.norm")]
    assert last.proved.startswith("your port lacks model.norm, called at modeling_llama.py:")
    assert len(told.replace(str(tmp_path), "/home/me/port").replace(folder, "/home/me/transformers")) <= 6000


class Steps(torch.nn.Module):
    """Three steps with a weight each; what each does with it may be done otherwise."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(40, 16)
        self.first, self.second, self.third = (torch.nn.Parameter(torch.ones(16)) for _ in range(3))
        self.head = torch.nn.Linear(16, 40)

    def forward(self, ids):
        x = self.embed(ids)
        x = (self.first * x.tanh()).exp()
        x = (self.second * x.sin()).sigmoid()
        return self.head((self.third * x.cos()).tanh())


class OtherSteps(Steps):
    def forward(self, ids):
        x = self.embed(ids)
        x = (self.first + x.cumsum(-1)).exp()
        x = (self.second + x.cumsum(-1)).sigmoid()
        return self.head((self.third + x.cumsum(-1)).tanh())


def test_what_both_sides_compute_from_the_same_values_ends_where_another_weight_is_used(monkeypatch):
    monkeypatch.setattr(prove, "SECONDS", 0.0)
    reference = pytest_tfdebug.fill(Steps(), seed=0)
    port = OtherSteps()
    port.load_state_dict(reference.state_dict())
    ids = torch.arange(3, 23).view(2, 10)
    pair = pytest_tfdebug.compare(*(pytest_tfdebug.trace(model, ids) for model in (reference, port))).explained.pair
    opened, missing = (
        OpenValues(side, matches, SAME, [index for _, index in side.table.results], known=weights.known)
        for side, matches, weights in (
            (pair.port, pair.matches, pair.weights),
            (pair.reference, pair.back_matches, pair.back),
        )
    )

    def weights_of(side, index):
        return {name for each in side.ancestors(index) if (name := side.parameter(each))}

    regions = [
        tuple(
            [side.values[index].operator for index in ends]
            for side, ends in ((pair.port, mine), (pair.reference, theirs))
        )
        for mine, theirs in ends_of_regions(pair, opened, missing, weights_of)
    ]

    assert regions[0] == (["cumsum"], ["tanh"])
    assert (["cumsum", "exp", "add"], ["sin", "exp", "mul"]) in regions


class Mixed(torch.nn.Module):
    """Three shares of each token and the one before it, which are multiplied and added."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(40, 16)
        self.shares = torch.nn.Parameter(torch.ones(3, 16))
        self.into = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(3))
        self.last = torch.nn.Parameter(torch.ones(16))
        self.head = torch.nn.Linear(16, 40)

    def forward(self, ids):
        x = self.embed(ids)
        before = torch.nn.functional.pad(x, (0, 0, 1, -1))
        parts = zip(self.into, self.shares, strict=True)
        a, b, c = (into(x * share + before * (1 - share)) for into, share in parts)
        return self.head((self.last * (a.exp() * b.sin() + c)).tanh())


class Rolled(Mixed):
    def forward(self, ids):
        x = self.embed(ids)
        before = x.roll(1, 1)
        parts = zip(self.into, self.shares, strict=True)
        a, b, c = (into(torch.lerp(before, x, share)) for into, share in parts)
        return self.head((self.last * (a.cumsum(-1) * b.cos() + c)).sigmoid())


def test_term_that_the_reference_adds_to_another_is_no_part_of_a_mend(monkeypatch):
    monkeypatch.setattr(prove, "SECONDS", 5.0)
    reference = pytest_tfdebug.fill(Mixed(), seed=0)
    port = Rolled()
    port.load_state_dict(reference.state_dict())
    ids = torch.arange(3, 23).view(2, 10)
    report = pytest_tfdebug.compare(*(pytest_tfdebug.trace(model, ids) for model in (reference, port)))

    changes = [change for culprit in report.culprits for change in culprit.changes]
    assert "taken as 0" not in {change.new for change in changes}  # ``share * x`` is the reference's, too
    assert {change.old: change.new for change in changes} == {"sigmoid": "tanh"}
