"""Layers of several kinds in another pattern than the reference's, whatever says of which kind one is."""

from pathlib import Path

import pytest
import torch
from torch import nn

import gemma3_port
from pytest_tfdebug import compare, fill, trace
from pytest_tfdebug.parity.proof import prove
from rewriting import module_of

BASES = {True: 10.0, False: 1000.0}


def table(base, length=6, size=4):
    return (torch.arange(length)[:, None] * base ** -torch.linspace(0, 1, size)).cos()


def mask(reach, length=6):
    places = torch.arange(length)
    return (places[:, None] - places).abs() <= reach


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.out = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, angles, visible):
        turned = self.query(x) * angles
        return self.out((turned @ turned.mT).masked_fill(~visible, -1e9).softmax(-1) @ x)


class Reference(nn.Module):
    def __init__(self, pattern):
        super().__init__()
        self.layers = nn.ModuleList(ReferenceLayer(each) for each in pattern)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class ReferenceLayer(nn.Module):
    def __init__(self, is_sliding):
        super().__init__()
        self.self_attn, self.is_sliding = Mixer(), is_sliding

    def forward(self, x):
        return x + self.self_attn(x, table(BASES[self.is_sliding]), mask(1 if self.is_sliding else 6))


class Port(nn.Module):
    def __init__(self, pattern):
        super().__init__()
        self.blocks = nn.ModuleList(map(Block, pattern))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Block(nn.Module):
    def __init__(self, local):
        super().__init__()
        self.width = 4
        self.everywhere = not local
        self.base = BASES[local]
        self.mixer = Mixer()

    def forward(self, x):
        return x + self.mixer(x, table(self.base), mask(6 if self.everywhere else 1))


def report_on(port, expected):
    torch.manual_seed(0)
    reference = fill(Reference(expected), seed=0)
    with torch.no_grad():
        for own, theirs in zip(port.blocks, reference.layers, strict=True):
            own.mixer.load_state_dict(theirs.self_attn.state_dict())
    x = torch.randn(2, 6, 4)
    return compare(trace(reference, x), trace(port.eval(), x))


@pytest.mark.parametrize(
    ("own", "expected", "others"),
    [
        ((False, True, True, False, True, True), (True, True, False, True, True, False), "0, 2, 3, 5"),
        ((False, True, False, True), (True, False, True, False), "0, 1, 2, 3"),
    ],
)
def test_pattern_of_layers_is_told_where_it_is_written(own, expected, others):
    culprit = report_on(Port(own), expected).culprit

    assert (culprit.path, culprit.certain) == ("blocks.0", True)
    assert culprit.wrong == "is made as a layer of another kind: everywhere=True instead of False"
    assert (
        culprit.why
        == f"With the reference's pattern of layers, in which {others} are others than here, every output agrees."
    )
    assert culprit.source.first == Block.__init__.__code__.co_firstlineno + 3
    assert culprit.why_certain == "the layers were run in the reference's pattern, and every output agrees"


def test_port_is_left_as_it_was_where_another_pattern_does_not_help():
    port = Port((True, False, True, False))
    port.blocks[1].base = 20.0

    assert not report_on(port, (True, False, True, False)).ok
    assert [(each.everywhere, each.base) for each in port.blocks] == [
        (False, 10.0),
        (True, 20.0),
        (False, 10.0),
        (True, 1000.0),
    ]


class Fixed(Block):
    """A layer that runs as the kind alone that it was made as."""

    def __init__(self, local):
        super().__init__(local)
        self._made = self.everywhere

    def forward(self, x):
        assert self.everywhere == self._made
        return super().forward(x)


def test_pattern_in_which_a_layer_cannot_run_is_passed_over():
    port = Port((True, False, True, False))
    port.blocks = nn.ModuleList(map(Fixed, (True, False, True, False)))
    port.blocks[1]._made = False
    port.blocks[1].everywhere = False

    report = report_on(port, (True, False, True, False))

    assert not report.ok
    assert not any("raised" in note for note in report.notes)


def test_layer_that_is_given_what_another_one_is_to_be_given_is_told_at_its_caller(monkeypatch, tmp_path, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 20.0)
    text = Path(gemma3_port.__file__).read_text().replace("if (place + 1) % 3 else", "if place % 3 else")
    module = module_of(text, tmp_path / "wrong_port.py")
    reference = gemma3_port.load_reference()
    ids = torch.arange(3, 25).view(2, 11)

    report = compare(*(trace(model, input_ids=ids) for model in (reference, module.load_port(reference))))

    (culprit,) = report.culprits
    line = 1 + text[: text.index("x = block(x")].count("\n")
    assert (culprit.path, culprit.source.first) == ("Gemma3", line)
    assert culprit.wrong == "gives 'blocks.0' the angles and mask that another layer's is to be given"
    assert culprit.proved == (
        "with the angles and mask of another layer instead of its own, in blocks.0 those of blocks.1, "
        f"at wrong_port.py:{line} every output agrees"
    )
    assert [(each.kind, each.old, each.new) for each in culprit.changes] == [
        ("operand", "angles and mask", "angles and mask of another layer")
    ]
    assert compare(*(trace(model, input_ids=ids) for model in (reference, gemma3_port.load_port(reference)))).ok
