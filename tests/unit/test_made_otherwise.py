"""A module that was made with another argument than the reference's of its class and weights."""

import inspect
import re
from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

import pytest_tfdebug
from pytest_tfdebug.parity.proof import prove
from pytest_tfdebug.records import ChangeRecord

SIZES = {"encoder_attention_heads": 4, "encoder_ffn_dim": 48, "encoder_layers": 2, "max_source_positions": 12}
MEL = torch.randn(2, 8, 24, generator=torch.Generator().manual_seed(1))


class Hear(nn.Module):
    def __init__(self, reference, **made):
        super().__init__()
        self.low = nn.Conv1d(8, 32, 3, padding=1)
        self.high = nn.Conv1d(32, 32, 3, **{"stride": 2, "padding": 1, **made})
        for own, other in ((self.low, reference.conv1), (self.high, reference.conv2)):
            own.load_state_dict(other.state_dict())

    def forward(self, mel):
        return nn.functional.gelu(self.high(nn.functional.gelu(self.low(mel))))


class HearsAndCutsOff(Hear):
    def forward(self, mel):
        return nn.functional.relu(self.high(nn.functional.gelu(self.low(mel))))


class ForgetsTheFirst(Hear):
    def forward(self, mel):
        return nn.functional.gelu(self.high(self.low(mel)))


class PadsByHand(Hear):
    def forward(self, mel):
        return nn.functional.relu(self.high(nn.functional.pad(nn.functional.gelu(self.low(mel)), (1, 1))))


class Listener(nn.Module):
    def __init__(self, hear, reference):
        super().__init__()
        self.hear, self.places = hear, nn.Parameter(reference.embed_positions.weight.detach().clone())
        self.blocks, self.last = reference.layers, reference.layer_norm

    def forward(self, mel):
        x = self.hear(mel).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x, None)
        return self.last(x)


def line_of(text):
    lines, first = inspect.getsourcelines(Hear)
    return first + next(number for number, line in enumerate(lines) if text in line)


@pytest.fixture
def report_on(monkeypatch, one_thread):
    def report(kind, *, seconds=1.0, **made):
        monkeypatch.setattr(prove, "SECONDS", seconds)
        config = WhisperConfig(d_model=32, num_mel_bins=8, **SIZES)
        reference = pytest_tfdebug.fill(WhisperEncoder(config).eval(), seed=0)
        port = Listener(kind(reference, **made), reference).eval()
        return pytest_tfdebug.compare(pytest_tfdebug.trace(reference, MEL), pytest_tfdebug.trace(port, MEL))

    return report


def test_padding_mode_is_proved_where_the_convolution_is_made(report_on):
    report = report_on(Hear, padding_mode="replicate")

    culprit = report.culprit
    assert (culprit.path, culprit.certain) == ("hear.high", True)
    assert culprit.source.first == line_of("self.high =")
    assert str(report).startswith(f"{culprit.source} in hear.high (Conv1d): is made otherwise than the reference's")
    change = "padding_mode='zeros', as the reference has, instead of padding_mode='replicate'"
    told = f"with {change} at test_made_otherwise.py:{culprit.source.first} every output agrees"
    assert culprit.proved == f"{told}, also on inputs that were not searched"


def test_padding_mode_is_named_beside_a_second_mistake(report_on):
    report = report_on(HearsAndCutsOff, padding_mode="replicate")

    made, cut = report.culprits
    assert made.source.first == line_of("self.high =")
    assert [(each.old, each.new) for each in made.changes] == [("padding_mode='replicate'", "padding_mode='zeros'")]
    assert cut.source.first == inspect.getsourcelines(HearsAndCutsOff)[1] + 2


def test_activation_that_is_missing_beside_it_is_found_too(report_on):
    report = report_on(ForgetsTheFirst, seconds=4.0, padding_mode="replicate")

    lacking, made = report.culprits
    assert lacking.source.first == inspect.getsourcelines(ForgetsTheFirst)[1] + 2
    assert re.match(r"with gelu of the convolution of line \d+, as modeling_whisper.py:\d+ does, at", lacking.proved)
    assert made.source.first == line_of("self.high =")
    assert (
        "  2 faults: after these 2 changes every output agrees, also on inputs that were not searched. Behind this one:"
        in str(report).splitlines()
    )


CHANGES = {
    "times 4.0": ("number", "", "4.0"),
    "4.0 instead of 2.0": ("number", "2.0", "4.0"),
    "gelu added": ("call", "", "gelu"),
    "without add": ("left out", "add", ""),
    "a and b exchanged": ("weights", "", "a and b exchanged"),
}


def test_change_of_a_fault_behind_is_told_in_few_words(report_on):
    report = report_on(HearsAndCutsOff, padding_mode="replicate")
    (behind,) = report.behind

    for told, change in CHANGES.items():
        changes = (ChangeRecord("port", "port.py", 3, *change),)
        text = str(replace(report, behind=(replace(behind, changes=changes),)))
        assert f"; {told}" in text.splitlines()[2]


def test_padding_by_hand_is_no_mistake_of_the_convolution(report_on):
    report = report_on(PadsByHand, padding=0)

    assert not report.ok
    assert "is made otherwise" not in str(report)
