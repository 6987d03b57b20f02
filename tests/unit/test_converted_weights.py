"""A weight that was loaded as it is, where the port holds the others converted."""

from pathlib import Path

import pytest
import torch
from torch import nn

import gemma3_port
from pytest_tfdebug import compare, fill, trace
from pytest_tfdebug.parity.proof import prove
from rewriting import module_of


@pytest.fixture(autouse=True)
def _as_long_as_it_takes(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 20.0)


def report_on(reference, port, *inputs):
    return compare(trace(reference.eval(), *inputs), trace(port.eval(), *inputs))


def test_norm_without_the_one_that_all_others_hold_is_told_as_its_weight(tmp_path):
    text = Path(gemma3_port.__file__).read_text().replace("* (1 + self.weight)", "* self.weight")
    module = module_of(text, tmp_path / "folded_port.py")
    reference = gemma3_port.load_reference()
    port = module.load_port(reference)
    norms = [each for name, each in port.named_modules() if isinstance(each, module.Norm) and name != "norm"]
    with torch.no_grad():
        for each in norms:
            each.weight += 1
    ids = torch.arange(3, 25).view(2, 11)

    culprit = report_on(reference, port, ids).culprit

    assert (culprit.path, culprit.kind, culprit.weights, culprit.certain) == ("norm", "weights", ("norm.weight",), True)
    assert culprit.why == "'norm.weight' holds the reference's numbers as they are."
    assert culprit.proved.startswith(
        "with norm.weight plus 1, as blocks.0.attention.key_norm.weight holds the reference's every output agrees"
    )

    with torch.no_grad():
        port.norm.weight += 1
    assert report_on(reference, port, ids).ok


def angles(length, half):
    return torch.arange(length)[:, None] * 100.0 ** -torch.linspace(0, 1, half)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16, bias=False) for _ in range(4))

    def forward(self, x):
        query, key, value = (
            each(x).view(*x.shape[:2], 2, 8).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        scores = self.turned(query) @ self.turned(key).mT / 8**0.5
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


class InHalves(Attention):
    def turned(self, x):
        turn = torch.cat([angles(x.shape[2], 4)] * 2, -1)
        first, second = x.chunk(2, -1)
        return x * turn.cos() + torch.cat([-second, first], -1) * turn.sin()


class InPairs(Attention):
    def turned(self, x):
        turn, pairs = angles(x.shape[2], 4), x.unflatten(-1, (4, 2))
        first, second = pairs[..., 0], pairs[..., 1]
        turned = first * turn.cos() - second * turn.sin(), second * turn.cos() + first * turn.sin()
        return torch.stack(turned, -1).flatten(3)


def in_pairs(weight):
    return weight.view(2, 2, 4, 16).transpose(1, 2).reshape(16, 16)


def test_key_that_was_loaded_in_another_order_than_the_query_is_told_as_its_weight():
    reference = fill(nn.Sequential(InHalves(), nn.Tanh(), InHalves()), seed=0)
    port = nn.Sequential(InPairs(), nn.Tanh(), InPairs())
    port.load_state_dict(reference.state_dict())
    with torch.no_grad():
        for each in (port[0], port[2]):
            each.query.weight.copy_(in_pairs(each.query.weight))
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))

    culprit = report_on(reference, port, x).culprit

    assert (culprit.path, culprit.kind, culprit.certain) == ("0.key", "weights", True)
    assert culprit.proved.startswith(
        "with 0.key.weight with halves as pairs in 2 blocks of axis 0, for 0.query.weight lies in another order too (2 times)"
    )

    with torch.no_grad():
        for each in (port[0], port[2]):
            each.key.weight.copy_(in_pairs(each.key.weight))
    assert report_on(reference, port, x).ok


class WithKeys(nn.Module):
    """Attention that returns its keys too, as a cache would hold them."""

    def __init__(self, attention, scale=1.0):
        super().__init__()
        self.attention, self._scale = attention, scale

    def forward(self, x):
        keys = self.attention.turned(self.attention.key(x).unflatten(-1, (2, 8)).transpose(1, 2))
        return {"last": self.attention(x * self._scale), "keys": keys}


def test_order_that_comes_of_weights_in_another_order_is_no_fault():
    reference, own = fill(InHalves(), seed=0), InPairs()
    own.load_state_dict(reference.state_dict())
    with torch.no_grad():
        for each in (own.query, own.key):
            each.weight.copy_(in_pairs(each.weight))
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))

    culprit = report_on(WithKeys(reference), WithKeys(own, 1.5), x).culprit

    assert culprit.wrong != "puts elements in another order than the reference"
    assert culprit.source.first == WithKeys.forward.__code__.co_firstlineno + 2
