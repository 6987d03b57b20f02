"""Sound models of unusual ways, as transformers has them, break no promise."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pytest_tfdebug.conform.promises import PROMISES
from pytest_tfdebug.conform.subject import Subject

SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
LLAMA = LlamaConfig(**SMALL, vocab_size=64, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0)
IDS = torch.arange(5, 23).view(2, 9)
BY_NAME = {promise.name: promise for promise in PROMISES}


def found(model_class, promise, config=LLAMA, **inputs):
    return BY_NAME[promise].find(Subject.of(model_class, config, inputs or {"input_ids": IDS}))


class HasALossForEachRow(LlamaForCausalLM):
    """The mean over the batch, with a value for each row, as in DAC; and in a module of its own."""

    def __init__(self, config):
        super().__init__(config)
        self.penalty = Mean()

    def forward(self, input_ids, **more):
        logits = super().forward(input_ids, **more).logits
        return {"loss": self.penalty(logits).expand(len(input_ids)), "logits": logits}


class Mean(torch.nn.Module):
    def forward(self, logits):
        return logits.square().mean()


class PicksTokens(LlamaForCausalLM):
    """Gives the tokens that are picked, row after row, as Flava does: three of one row and two of the other."""

    def forward(self, input_ids, **more):
        output = super().forward(input_ids, **more)
        return {"logits": output.logits, "picked": output.logits[(input_ids < 8) | (input_ids > 20)]}


class GivesATensorForEachRow(LlamaForCausalLM):
    """As SmolVLM gives its images."""

    def forward(self, input_ids, **more):
        logits = super().forward(input_ids, **more).logits
        return {"logits": logits, "images": tuple(row[: 2 + place] for place, row in enumerate(logits[:, :2]))}


class LooksForItsOwnClasses(LlamaForCausalLM):
    """Each row has three classes to look for, as in OmDet-Turbo."""

    def forward(self, input_ids, classes, **more):
        output = super().forward(input_ids, **more)
        output.logits = output.logits + classes.float().view(len(input_ids), 3, -1).mean((1, 2))[:, None, None]
        return output


@pytest.mark.parametrize(
    ("model_class", "promise"),
    [
        (HasALossForEachRow, "batch"),
        (PicksTokens, "batch"),
        (GivesATensorForEachRow, "batch"),
    ],
)
def test_a_sound_model_keeps_the_promise(model_class, promise):
    finding = found(model_class, promise)

    assert (finding.failure, finding.absent) == ("", "")


def test_each_row_brings_its_own_items_of_an_input():
    finding = found(LooksForItsOwnClasses, "batch", input_ids=IDS, classes=torch.arange(12).view(6, 2))

    assert (finding.failure, finding.absent) == ("", "")
