"""Outputs in half precision that are equal bit for bit pass, with a warning of what differs in float32."""

from pathlib import Path

import torch
from torch import nn

from pytest_tfdebug import compare, fill, trace

NUMBER = 48**0.5


class Held(nn.Module):
    """Has its number in the dtype of the model."""

    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(61, 48), nn.Linear(48, 61)
        self.register_buffer("scale", torch.tensor(NUMBER), persistent=False)

    def forward(self, ids):
        return self.head(self.tokens(ids) * self.scale)


class Made(Held):
    """Makes it in the dtype of what it is given."""

    def forward(self, ids):
        hidden = self.tokens(ids)
        return self.head(hidden * torch.tensor(NUMBER, dtype=hidden.dtype))


class Wrong(Held):
    def forward(self, ids):
        return self.head(self.tokens(ids) * self.scale * 1.01)


def held(kind):
    right = fill(Held(), seed=0).eval()
    port = kind().eval()
    port.load_state_dict(right.state_dict())
    ids = torch.arange(3, 23).view(2, 10)
    return compare(*(trace(model.to(torch.bfloat16), ids) for model in (right, port)))


def test_number_that_follows_the_dtype_passes_with_a_warning():
    report = held(Made)

    assert report.ok
    (told,) = report.unseen
    where = f"test_same_as_it_is.py:{line_of('torch.tensor(NUMBER, dtype')} in Made (Made)"
    before = "In bfloat16 every output is the reference's, bit for bit; computed in float32 they differ: "
    assert told.startswith(f"{before}{where}")
    assert told.endswith("Either a number there follows the model's dtype, or bfloat16 hides what is wrong.")


def test_number_that_is_wrong_in_both_fails():
    assert not held(Wrong)


def line_of(text):
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)
