"""What a golden of any model cannot see."""

import pytest
import torch
from torch import nn

from pytest_tfdebug import fill
from pytest_tfdebug.goldens.port_call import PortCall
from pytest_tfdebug.goldens.recording import blind_spots

IDS = torch.arange(12).view(2, 6)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(12, 4), nn.LayerNorm(4), nn.Linear(4, 4)
        nn.init.zeros_(self.head.bias)

    def forward(self, input_ids, attention_mask=None, past=None):
        return self.head(self.norm(self.embed(input_ids)))


def told(model, *args, **kwargs):
    return [spot.told for spot in blind_spots(model, PortCall(args, kwargs))]


def test_weights_that_do_nothing_are_named_by_their_number():
    model = Model()

    assert told(model, IDS) == ["norm.bias and 1 more=0", "norm.weight=1"]
    assert told(fill(model), IDS) == []


@pytest.mark.parametrize("ids", [IDS[:, :1], torch.full((2, 6), 5), torch.tensor([[1, 1], [2, 2]])])
def test_rows_of_one_token_cannot_show_an_order(ids):
    assert told(fill(Model()), ids) == ["the order of input_ids"]


@pytest.mark.parametrize("mask", [torch.ones(2, 6), torch.ones(2, 6, dtype=torch.int64)])
def test_a_mask_that_hides_nothing_is_named(mask):
    assert told(fill(Model()), IDS, attention_mask=mask) == ["attention_mask=1"]
    assert told(fill(Model()), IDS, attention_mask=mask.tril()) == []


def test_one_token_after_others_in_a_cache_has_an_order():
    assert told(fill(Model()), IDS[:, :1], past=[torch.rand(2, 3)]) == []


@pytest.mark.parametrize("values", [torch.rand(2, 1), torch.rand(3), torch.rand(2, 3).to_sparse()])
def test_numbers_that_are_not_tokens_have_none(values):
    assert told(fill(Model()), values) == []


def test_inputs_that_cannot_be_read_are_left_alone():
    assert told(fill(Model()), torch.ones(2, 6, device="meta")) == []
