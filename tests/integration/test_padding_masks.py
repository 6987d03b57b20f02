"""A mask that lets pads through is blamed on the forward that made it, however far down it is handed."""

import linecache

import pytest
import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

from pytest_tfdebug import InvarianceError, assert_padding_invariant, fill
from pytest_tfdebug.invariance.api import CHECKS
from pytest_tfdebug.invariance.calls.observed_call import observe
from pytest_tfdebug.invariance.checks.base import Settings

IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [5, 6, 7, 0, 0, 0]])
INPUTS = {"input_ids": IDS, "attention_mask": (IDS != 0).long()}


def bert():
    torch.manual_seed(0)
    return BertModel(
        BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, vocab_size=60)
    )


class Wrapped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = bert()


class OneTooLong(Wrapped):
    """Leaves the first pad of each row visible."""

    def forward(self, input_ids, attention_mask):
        longer = attention_mask.clone()
        longer[:, 1:] |= attention_mask[:, :-1]
        return self.bert(input_ids, attention_mask=longer)


class OneTooLongInside(torch.nn.Module):
    """Calls the wrapper with a good mask."""

    def __init__(self):
        super().__init__()
        self.inner = OneTooLong()

    def forward(self, input_ids, attention_mask):
        return self.inner(input_ids, attention_mask.bool().long())


class Dropped(LlamaForCausalLM):
    """Does not pass the mask on, so that positions are counted from the pads on as well."""

    def forward(self, input_ids, attention_mask=None, **others):
        return super().forward(input_ids, **others)


def dropped():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return Dropped(LlamaConfig(**sizes, vocab_size=60))


class Inverted(torch.nn.Module):
    """Gives torch's layer transformers' mask, which says the opposite."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(60, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, input_ids, attention_mask):
        return self.layer(self.embed(input_ids), src_key_padding_mask=attention_mask.bool())


class Centred(Wrapped):
    """Takes the mean of the states from each, pads included."""

    def forward(self, input_ids, attention_mask):
        states = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        return states - states.mean(1, keepdim=True)


@pytest.mark.parametrize(
    ("build", "path", "line", "told"),
    [
        (OneTooLong, "OneTooLong", "longer[:, 1:] |=", "its mask is on at 1 pad position."),
        (OneTooLongInside, "inner", "longer[:, 1:] |=", "its mask is on at 1 pad position."),
        (Inverted, "Inverted", "attention_mask.bool()", "its key_padding_mask is False at 2 pad positions, and only "),
    ],
)
def test_forward_that_made_the_mask_wrong_is_blamed(build, path, line, told):
    with pytest.raises(InvarianceError) as caught:
        assert_padding_invariant(build().eval(), INPUTS, side="right")

    culprit = caught.value.culprit
    assert (culprit.path, culprit.kind) == (path, "glue")
    assert line in "".join(linecache.getlines(culprit.source.file)[culprit.source.first - 1 : culprit.source.last])
    assert told.rstrip(".") in str(caught.value).splitlines()[0]


def test_dropped_mask_is_told_where_positions_shift_with_it():
    given = {"input_ids": IDS[:1], "attention_mask": torch.ones(1, 6, dtype=torch.long)}

    with pytest.raises(InvarianceError) as caught:
        assert_padding_invariant(dropped().eval(), given, side="left", position_ids="never")

    assert (caught.value.culprit.path, caught.value.culprit.kind) == ("Dropped", "glue")
    told = "; probably 'model' takes a mask and was given none, although 'Dropped' had one"
    assert str(caught.value).splitlines()[0].endswith(told)


def test_leak_outside_of_attention_is_not_put_down_to_attention():
    with pytest.raises(InvarianceError) as caught:
        assert_padding_invariant(Centred().eval(), INPUTS, side="right")

    told = "; probably the pads are treated there like real tokens, and attention_mask is ignored"
    assert caught.value.culprit.path == "Centred"
    assert str(caught.value).count(told.removeprefix("; probably ")) == 1
    assert str(caught.value).splitlines()[0].endswith(told)


def test_call_with_gradients_is_repeated_with_gradients():
    """Without them torch's layer takes a fast path, which gives NaN for the row that the mask hides whole."""
    model = Inverted().eval()
    call, output = observe(model, (), INPUTS, lambda: model(**INPUTS))
    with torch.no_grad():
        fast = model(**INPUTS)
    check = CHECKS["padding"]

    outcome = check.run(call, Settings(side="right"))

    assert fast.isnan().any()
    assert not output.isnan().any()
    assert outcome.culprit.path == "Inverted"
    assert "; probably its key_padding_mask is False at" in outcome.failure


class CrossBlock(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.other = torch.nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x, memory, memory_pad):
        return x + self.other(x, memory, memory, need_weights=False)[0]  # NO MASK


class Translator(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.block = torch.nn.Embedding(32, 16), CrossBlock()

    def forward(self, input_ids, attention_mask, decoder_input_ids):
        return self.block(self.table(decoder_input_ids), self.table(input_ids), attention_mask == 0)


def test_mask_of_another_name_and_code_is_seen_where_it_is_not_handed_on():
    ids = torch.tensor([[3, 4, 5, 6], [7, 8, 9, 10]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "decoder_input_ids": ids[:, :3]}

    with pytest.raises(InvarianceError) as caught:
        assert_padding_invariant(fill(Translator().eval(), seed=0), inputs)

    assert caught.value.culprit.path == "block"
    line = CrossBlock.forward.__code__.co_firstlineno + 1
    assert caught.value.culprit.source.holds(__file__, line)
    told = "probably 'block.other' takes a mask and was given none, although 'block' had one"
    assert told in str(caught.value).partition("\n")[0]
