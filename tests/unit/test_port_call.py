"""How a port is called whose forward has other parameters than its reference's."""

import pytest
import torch
from torch import nn

from pytest_tfdebug import TFDebugError
from pytest_tfdebug.goldens.port_call import port_call

IDS, MASK = torch.arange(4).view(1, 4), torch.ones(1, 4)


def port(forward):
    return type("Port", (nn.Module,), {"forward": forward})()


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, input_ids, attention_mask=None: ...,
        lambda self, *args, **kwargs: ...,
        lambda self, **kwargs: ...,
        lambda self, input_ids=None, **kwargs: ...,
    ],
)
def test_port_that_takes_the_inputs_is_called_like_its_reference(forward):
    called = port_call(port(forward), (), {"input_ids": IDS, "attention_mask": MASK})

    assert (called.args, list(called.kwargs), called.names, called.note) == (
        (),
        ["input_ids", "attention_mask"],
        {},
        "",
    )


def test_positional_inputs_stay_as_they_are():
    called = port_call(port(lambda self, tokens, mask: ...), (IDS, MASK), {})

    assert (called.args, called.kwargs, called.note) == ((IDS, MASK), {}, "")


def test_leftover_inputs_fill_the_required_parameters_in_order():
    called = port_call(
        port(lambda self, ids, mask, scale=1.0: ...), (), {"input_ids": IDS, "attention_mask": MASK, "use_cache": False}
    )

    assert (called.kwargs["ids"] is IDS, called.kwargs["mask"] is MASK, len(called.kwargs)) == (True, True, 2)
    assert called.names == {"ids": "['input_ids']", "mask": "['attention_mask']"}
    assert called.note == "The port was called as ids=input_ids, mask=attention_mask, without use_cache=False."


def test_inputs_of_the_same_name_go_by_name():
    called = port_call(port(lambda self, mask, ids: ...), (), {"input_ids": IDS, "mask": MASK})

    assert called.kwargs["mask"] is MASK
    assert called.note == "The port was called as ids=input_ids."


def test_flags_and_none_that_the_port_does_not_know_are_left_out():
    called = port_call(
        port(lambda self, input_ids: ...), (), {"input_ids": IDS, "use_cache": False, "past_key_values": None}
    )

    assert list(called.kwargs) == ["input_ids"]
    assert called.note == "The port was called without use_cache=False, past_key_values=None."


def test_port_with_keywords_of_any_name_gets_the_flags():
    called = port_call(port(lambda self, ids, **kwargs: ...), (), {"input_ids": IDS, "use_cache": False})

    assert called.kwargs == {"ids": IDS, "use_cache": False}
    assert called.note == "The port was called as ids=input_ids."


def test_positional_only_parameter_is_given_by_its_place():
    def forward(self, ids, /, mask):
        del self, ids, mask

    called = port_call(port(forward), (), {"input_ids": IDS, "mask": MASK})

    assert called.args == (IDS,)
    assert called.kwargs == {"mask": MASK}


def test_inputs_are_paired_by_common_words_before_their_order():
    called = port_call(port(lambda self, mask, ids: ...), (), {"input_ids": IDS, "attention_mask": MASK})

    assert (called.kwargs["ids"] is IDS, called.kwargs["mask"] is MASK) == (True, True)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {"input_ids": IDS, "attention_mask": MASK}), ((IDS,), {"attention_mask": MASK, "use_cache": True})],
)
def test_all_inputs_that_the_port_seems_to_take_are_asked_for(args, kwargs):
    with pytest.raises(TFDebugError) as caught:
        port_call(port(lambda self, tokens, scale=1.0, mask=None: ...), args, kwargs)

    assert str(caught.value).endswith('port_inputs={"tokens": ..., "mask": ...}')


def test_parameter_that_was_left_out_is_known_by_the_references_input():
    hides = torch.tensor([[0, 1, 1, 1]])

    def lacking(mask, port_inputs, **kwargs):
        model = port(lambda self, tokens, mask=None, scale=1.0: ...)
        return port_call(model, (IDS,), {**mask, **kwargs}, port_inputs, names=("input_ids",)).lacking

    assert lacking({"attention_mask": hides}, {"tokens": IDS}) == ("mask", "attention_mask")
    assert lacking({"attention_mask": hides}, (IDS,)) == ("mask", "attention_mask")
    assert lacking({"attention_mask": hides}, {"tokens": IDS, "mask": hides.bool()}) is None
    assert lacking({"attention_mask": hides}, {"tokens": IDS, "scale": hides.clone()}) is None, "given by another name"
    assert lacking({"attention_mask": MASK}, {"tokens": IDS}) is None, "hides nothing"
    assert lacking({"token_type_ids": hides}, {"tokens": IDS}) is None, "the port takes nothing like it"
    assert lacking({}, {"tokens": IDS}, use_cache=True) is None


def test_inputs_that_cannot_be_told_apart_are_asked_for():
    with pytest.raises(TFDebugError) as caught:
        port_call(port(lambda self, mel, tokens, lengths=None: ...), (), {"input_features": MASK, "use_cache": True})

    assert str(caught.value) == (
        "Port cannot be called with the reference's inputs: missing a required argument: 'mel'.\n"
        "  It takes: forward(mel, tokens, lengths=None)\n"
        "  Given: input_features=tensor (1, 4), use_cache=True\n"
        'Name the port\'s own inputs: port_inputs={"mel": ..., "tokens": ...}'
    )


def test_too_many_positional_inputs_are_told():
    with pytest.raises(TFDebugError, match="too many positional arguments"):
        port_call(port(lambda self, ids: ...), (IDS, MASK), {})


def test_port_inputs_take_the_place_of_the_references():
    called = port_call(port(lambda self, ids, mask: ...), (IDS,), {"attention_mask": MASK}, {"mask": MASK, "ids": IDS})

    assert (called.args, called.kwargs) == ((), {"mask": MASK, "ids": IDS})
    assert called.names == {"mask": "['attention_mask']", "ids": "[0]"}


def test_positional_port_inputs_are_known_by_their_values():
    called = port_call(port(lambda self, tokens, extra: ...), (), {"input_ids": IDS}, (IDS.clone(), 3))

    assert (len(called.args), called.kwargs, called.names) == (2, {}, {"tokens": "['input_ids']"})


def test_other_ids_are_noticed_where_nothing_else_is_given():
    model = port(lambda self, ids: ...)

    assert port_call(model, (), {"input_ids": IDS}, {"ids": IDS + 1}).other == ("ids", "input_ids")
    assert port_call(model, (), {"input_ids": IDS}, {"ids": IDS.clone()}).other is None
    assert port_call(model, (), {"input_ids": IDS}, {"ids": IDS[:, :2]}).other is None
    assert port_call(model, (), {"pixel_values": MASK}, {"ids": IDS}).other is None


def test_port_inputs_that_the_port_does_not_take_are_refused():
    with pytest.raises(TFDebugError) as caught:
        port_call(port(lambda self, mel, tokens: ...), (), {"input_ids": IDS}, {"mel": MASK, "token": IDS})

    assert str(caught.value) == (
        "Port cannot be called with port_inputs: missing a required argument: 'tokens'.\n"
        "  It takes: forward(mel, tokens)\n"
        "  Given: mel=tensor (1, 4), token=tensor (1, 4)\n"
        'Name the port\'s own inputs: port_inputs={"mel": ..., "tokens": ...}'
    )


def test_port_inputs_of_another_kind_are_refused():
    with pytest.raises(TFDebugError) as caught:
        port_call(port(lambda self, ids: ...), (), {"input_ids": IDS}, IDS)

    assert str(caught.value) == (
        "port_inputs= is a dict of the port's keyword inputs, or a tuple or list of its positional ones; it is a Tensor."
    )


def test_port_inputs_may_be_a_list_and_numbers_are_no_tensor():
    model = port(lambda self, ids: ...)

    assert port_call(model, (), {"input_ids": IDS}, [IDS]).args == (IDS,)
    with pytest.raises(TFDebugError, match=r"^ids is a list of numbers, .* give torch.tensor\(ids\)"):
        port_call(model, (), {"input_ids": IDS}, {"ids": IDS.tolist()})
