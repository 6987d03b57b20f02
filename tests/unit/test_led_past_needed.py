"""A fault that was led past is told as long as not every output agrees without the value that led past it."""

from pathlib import Path

import pytest
import torch
from torch import nn

from pytest_tfdebug import compare, fill, trace
from pytest_tfdebug.parity.proof import prove


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


class Attention(nn.Module):
    def __init__(self, width, scale, window, *, fills):
        super().__init__()
        self.scale, self.window, self.fills = scale, window, fills
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x):
        query, key, value = self.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        scores = torch.tanh(query @ key.mT * self.scale / 50.0) * 50.0  # SCALE
        at = torch.arange(x.shape[1])
        apart = at[:, None] - at[None]
        if self.fills:
            seen = (apart >= 0) & (apart <= self.window)  # WINDOW
            scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        else:
            seen = (at[None] <= at[:, None]) & (at[None] > at[:, None] - self.window)
            scores = scores + torch.where(seen, 0.0, torch.finfo(scores.dtype).min)
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


class Small(nn.Module):
    def __init__(self, factor, scale, window, *, fills):
        super().__init__()
        self.factor, self.tokens = factor, nn.Embedding(61, 32)
        self.norms = nn.ModuleList(Norm(32) for _ in range(9))
        self.mixers = nn.ModuleList(Attention(32, scale, window, fills=fills) for _ in range(2))
        self.ups = nn.ModuleList(nn.Linear(32, 64, bias=False) for _ in range(2))
        self.downs = nn.ModuleList(nn.Linear(64, 32, bias=False) for _ in range(2))

    def forward(self, ids):
        x = self.tokens(ids) * self.factor  # FACTOR
        for at, (mixer, up, down) in enumerate(zip(self.mixers, self.ups, self.downs, strict=True)):
            first, second, third, fourth = self.norms[4 * at : 4 * at + 4]
            x = x + second(mixer(first(x)))
            x = x + fourth(down(torch.nn.functional.gelu(up(third(x)))))
        return torch.nn.functional.linear(self.norms[8](x), self.tokens.weight)


@pytest.mark.usefixtures("one_thread")
def test_no_changes_alone_are_said_to_mend_what_they_do_not(monkeypatch):
    monkeypatch.setattr(prove, "SECONDS", 20.0)
    ids = torch.randint(0, 61, (2, 12), generator=torch.Generator().manual_seed(3))
    right = fill(Small(32**0.5, 24**-0.5, 5, fills=False).eval(), seed=0)
    wrong = Small(5.6875, 8**-0.5, 5, fills=True).eval()
    wrong.load_state_dict(right.state_dict())

    report = compare(trace(right, ids), trace(wrong, ids))

    told = f"with the reference's values after test_led_past_needed.py:{line_of('# SCALE')} every output agrees"
    assert report.told_of_faults == told
    assert {line_of("# FACTOR"), line_of("# SCALE"), line_of("# WINDOW")} <= {it.source.first for it in report.culprits}


def line_of(mark):
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(mark))
