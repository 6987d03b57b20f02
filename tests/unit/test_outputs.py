"""Every output of a reference is held to one of the port's element by element, or the comparison does not pass."""

import itertools
import re

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, DacConfig, DacModel, LlamaConfig, LlamaForCausalLM

from pytest_tfdebug import TFDebugError, compare, trace
from pytest_tfdebug.parity.pair.pairing import chosen, likeness

IDS = torch.randint(3, 64, (2, 6), generator=torch.Generator().manual_seed(0))


def llama():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, use_cache=False, **sizes)).eval()


def bert():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return BertModel(BertConfig(vocab_size=64, **sizes)).eval()


def codec():
    torch.manual_seed(0)
    sizes = {"encoder_hidden_size": 8, "decoder_hidden_size": 32, "hidden_size": 32, "codebook_dim": 4}
    return DacModel(
        DacConfig(downsampling_ratios=[2, 2], upsampling_ratios=[2, 2], n_codebooks=2, codebook_size=16, **sizes)
    ).eval()


class Wrapped(nn.Module):
    """A port that computes as its reference does, and returns what a function makes of that."""

    def __init__(self, model, returned):
        super().__init__()
        self.own, self.returned = model, returned

    def forward(self, *args, **kwargs):
        return self.returned(self.own(*args, **kwargs))


def report_of(reference, returned, *args, outputs=None, positions=None, **inputs):
    """Return the report on a port that returns what a function makes of its reference's outputs."""
    expected, actual = (trace(model, *args, **inputs) for model in (reference, Wrapped(reference, returned)))
    return compare(expected, actual, outputs=outputs, positions=positions)


def test_codec_whose_decoder_returns_zeros_fails():
    audio = torch.randn(1, 1, 64, generator=torch.Generator().manual_seed(0))
    named = {"[0]": "audio_values", "[1]": "audio_codes"}

    wrong = report_of(codec(), lambda out: (out.audio_values * 0, out.audio_codes), audio, outputs=named)
    right = report_of(codec(), lambda out: (out.audio_values, out.audio_codes), audio, outputs=named)
    silent = report_of(codec(), lambda out: (out.audio_values * 0, out.audio_codes), audio)

    assert (wrong.ok, right.ok, silent.ok) == (False, True, False)
    assert wrong.divergences[-1].comparison.expected.leaf == ".audio_values"


@pytest.mark.parametrize("axis", [0, 1], ids=["time", "vocabulary"])
def test_logits_in_another_order_fail_where_names_do_not_pair(axis):
    wrong = report_of(llama(), lambda out: out.logits[0].flip(axis), IDS[:1])
    right = report_of(llama(), lambda out: out.logits[0], IDS[:1])

    assert not wrong.ok
    assert right.ok
    assert right.output_notes == ["logits element by element (by value, (6, 64) here)"]


def test_one_wrong_row_fails_where_names_do_not_pair():
    def one_row(out):
        logits = out.logits.clone()
        logits[1, 4] += 1e-4
        return logits

    assert not report_of(llama(), one_row, IDS).ok


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (lambda out: out.logits.transpose(0, 1), "by value, (6, 2, 64) here, its axes in the order (1, 0, 2)"),
        (
            lambda out: out.logits.permute(2, 0, 1)[None],
            "by value, (1, 64, 2, 6) here, its axes in the order (1, 2, 0)",
        ),
        (lambda out: out.logits.flatten(0, 1), "by value, (12, 64) here"),
        (
            lambda out: out.logits.view(2, 3, 2, 64).permute(0, 3, 1, 2),  # a map where the reference has a sequence
            "by value, (2, 64, 3, 2) here, its axes in the order (0, 2, 3, 1)",
        ),
        (lambda out: {"scores": out.logits}, "by value scores"),
    ],
)
def test_output_in_another_layout_is_compared_and_the_layout_is_told(returned, told):
    report = report_of(llama(), returned, IDS)

    assert report.ok
    assert report.output_notes == [f"logits element by element ({told})"]
    assert f"Outputs: {report.output_notes[0]}." in " ".join(str(report).split())


def test_map_with_its_channels_in_another_order_fails():
    assert not report_of(llama(), lambda out: out.logits.flip(2).view(2, 3, 2, 64).permute(0, 3, 1, 2), IDS).ok


def test_what_nothing_is_held_to_fails_and_says_what_to_write():
    def returned(out):
        return {"states": out.last_hidden_state, "spans": out.last_hidden_state[..., :7]}

    report = report_of(bert(), returned, IDS)

    lines = " ".join(str(report).split())
    assert (report.ok, report.culprit.path, report.culprit.certain) == (False, "Wrapped", True)
    assert report.culprit.explanation == (
        "Wrapped returns nothing that could be compared with the reference's 'pooler_output' (2, 32): not compared. "
        "Compared: last_hidden_state element by element (by value states). "
        "It also returns 'spans' (2, 6, 7), which no output of the reference was found to be."
    )
    assert 'outputs={"states": "last_hidden_state"}' in lines  # nothing here has the form of the other


def test_port_of_the_same_class_name_that_returns_less_was_not_compared():
    class BertModel(Wrapped):
        """A port that is called as its reference."""

    reference = bert()
    port = BertModel(reference, lambda out: {"last_hidden_state": out.last_hidden_state})

    report = compare(trace(reference, IDS), trace(port.eval(), IDS))

    assert "in BertModel (BertModel): an output is gone: pooler_output" in str(report)


def test_what_outputs_does_not_list_is_left_out_and_said_to_be():
    report = report_of(bert(), lambda out: out.last_hidden_state, IDS, outputs={"": "last_hidden_state"})

    assert report.ok
    assert report.output_notes[1] == "pooler_output not compared (left out by outputs=)"


def test_parts_are_put_together():
    def pieces(out):
        return {"first": out.last_hidden_state[:, 0], "rest": out.last_hidden_state[:, 1:], "pooled": out.pooler_output}

    parts = {"first": "last_hidden_state[:, 0]", "rest": "last_hidden_state[:, 1:]"}

    only_first = 'If only these count: outputs={"first": "last_hidden_state"}, positions=(slice(None), 0).'

    assert report_of(bert(), pieces, IDS, outputs=parts).ok
    with pytest.raises(TFDebugError, match=r"the parts of 'last_hidden_state' are 320 of its 384 elements"):
        report_of(bert(), pieces, IDS, outputs={"rest": "last_hidden_state[:, 1:]"})
    with pytest.raises(TFDebugError, match=r"'first' \(2, 32\) is not its \[:, 1:\]"):
        report_of(bert(), pieces, IDS, outputs={"first": "last_hidden_state[:, 1:]"})
    with pytest.raises(TFDebugError, match=re.escape(only_first)):
        report_of(bert(), pieces, IDS, outputs={"first": "last_hidden_state[:, 0]"})


@pytest.mark.parametrize("scale", [1, 2])
def test_port_may_return_only_the_positions_that_an_index_picks(scale):
    def first(out):
        return {"first": out.logits[:, 0] * scale}

    report = report_of(llama(), first, IDS, outputs={"first": "logits"}, positions=(slice(None), 0))

    assert report.ok is (scale == 1)
    if report.ok:
        told = (
            "logits element by element (128 of its 768 elements count, by outputs=, at the positions that count first)"
        )
        assert report.output_notes == [told]


@pytest.mark.parametrize("second", ["logits", "logits[:, 0]"])
def test_two_entries_for_the_same_elements_are_refused(second):
    def twice(out):
        return {"a": out.logits, "b": (out.logits if second == "logits" else out.logits[:, 0]) * 7}

    with pytest.raises(TFDebugError, match=re.escape(f"outputs=: 'b' is {second!r}, and another entry is so already.")):
        report_of(llama(), twice, IDS, outputs={"a": "logits", "b": second})


def test_output_of_the_same_name_and_another_shape_fails_beside_outputs():
    def cut(out):
        return {"states": out.last_hidden_state, "pooler_output": out.pooler_output[:, :3]}

    report = report_of(bert(), cut, IDS, outputs={"states": "last_hidden_state"})

    assert report.divergences[-1].comparison.problem == "shape"


def test_two_outputs_that_were_swapped_fail():
    def swapped(out):
        return {"last_hidden_state": out.hidden_states[0], "hidden_states": (out.last_hidden_state,)}

    assert not report_of(bert(), swapped, IDS, output_hidden_states=True, outputs=None).ok


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ({"logit": "logits"}, "outputs=: the port returns no 'logit'; it returns ''."),
        ({"": "scores"}, "outputs=: the reference returns no 'scores'; it returns 'logits'."),
        (["logits"], "outputs=\\['logits'\\] is not a dict of the port's outputs and the reference's"),
    ],
)
def test_outputs_that_name_nothing_are_refused(outputs, said):
    with pytest.raises(TFDebugError, match=said):
        report_of(llama(), lambda out: out.logits, IDS, outputs=outputs)


def test_only_the_positions_that_count_are_compared():
    mask = torch.ones_like(IDS)
    mask[1, 4:] = 0

    def noise_at_padding(out):
        return out.logits + torch.randn_like(out.logits) * (1 - mask[..., None])

    def packed(out):
        return out.logits[mask.bool()]

    for returned in (noise_at_padding, packed):
        assert not report_of(llama(), returned, IDS, attention_mask=mask).ok
        assert report_of(llama(), returned, IDS, attention_mask=mask, positions=mask).ok
    assert not report_of(llama(), lambda out: out.logits + 1, IDS, attention_mask=mask, positions=mask).ok
    assert report_of(llama(), noise_at_padding, IDS, attention_mask=mask, positions=(slice(None), slice(None, 4))).ok


def test_cache_that_a_port_does_not_return_is_said_uncompared():
    report = report_of(llama(), lambda out: out.logits, IDS, use_cache=True)

    assert report.ok
    assert any("not compared (a cache that is not returned here)" in told for told in report.output_notes)


@pytest.mark.parametrize(
    "returned",
    [
        lambda logits, keys: (logits, (keys * 3, keys * 4)),
        lambda logits, keys: {"logits": logits, "past_key_values": torch.stack([keys * 3, keys * 4])},
    ],
    ids=["under no name", "of another shape"],
)
def test_cache_is_compared_where_something_is_returned_that_may_be_it(returned):
    def wrong(out):
        return returned(out.logits, out.past_key_values.layers[0].keys)

    assert not report_of(llama(), wrong, IDS, use_cache=True).ok


class Scores(nn.Module):
    """Returns an output whose name only contains that of a cache."""

    def forward(self, x):
        return {"states": x, "uncached_scores": x.exp()}


def test_output_whose_name_contains_cache_is_no_cache():
    assert not report_of(Scores(), lambda out: {"states": out["states"]}, torch.ones(2, 3)).ok


class Cut(nn.Module):
    """Returns none of its positions."""

    def forward(self, x):
        return x[:, :0]


def test_output_without_elements_is_not_said_to_be_compared():
    assert report_of(Cut(), lambda out: out, torch.ones(2, 3)).output_notes == ["the output has no elements"]


def test_model_may_not_return_less_than_it_did():
    model = bert()
    expected = trace(model, IDS)
    model.pooler = None

    assert not compare(expected, trace(model, IDS)).ok


class Inverted(nn.Module):
    """A port of BERT that means by its mask what is hidden."""

    def __init__(self, model, scale=1.0):
        super().__init__()
        self.own, self.scale = model, scale

    def forward(self, input_ids, attention_mask):
        return self.own.own(input_ids, attention_mask=1 - attention_mask).last_hidden_state * self.scale


class Plain(nn.Module):
    """BERT, of a class of its own."""

    def __init__(self, model):
        super().__init__()
        self.own = model

    def forward(self, input_ids, attention_mask):
        return self.own(input_ids, attention_mask=attention_mask).last_hidden_state


@pytest.mark.parametrize("hidden", [0, 2])
def test_mask_that_another_model_means_the_other_way_round_is_a_note(hidden):
    mask = torch.ones(2, 6)
    mask[:, 6 - hidden :] = 0
    reference = Plain(bert())

    report, wrong = (
        compare(trace(reference, IDS, attention_mask=mask), trace(port, IDS, attention_mask=1 - mask))
        for port in (Inverted(reference), Inverted(reference, 1.5))
    )
    same = compare(trace(reference, IDS, attention_mask=mask), trace(reference, IDS, attention_mask=1 - mask))

    assert report.ok
    assert "['attention_mask'] is a mask with other numbers than in the expected forward." in str(report)
    assert (wrong.ok, wrong.culprit.kind == "inputs") == (False, False)
    assert (same.ok, same.culprit.kind) == (False, "inputs")


def test_names_that_are_most_alike_belong_together_each_once():
    mine, theirs = ["text.states", "image.pooled", "image.states"], ["image_output.states", "text_output.states"]

    pairs = chosen(itertools.product(mine, theirs), lambda own, other: -likeness(own, other))

    assert set(pairs) == {("text.states", "text_output.states"), ("image.states", "image_output.states")}


class Scaled(nn.Module):
    """Returns what a function makes of a product, and of the number that it was given."""

    def __init__(self, returned=lambda product, scale: product):
        super().__init__()
        self.returned = returned

    def forward(self, x, scale=1.0):
        return self.returned(x @ x.T, scale)


class OwnScaled(Scaled):
    """The same under a name of its own."""


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", [Scaled, OwnScaled])
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (lambda x, _: (x, 3.5), lambda x, _: (x, 99.0)),
        (lambda x, _: {"x": x, "count": 3}, lambda x, _: {"x": x, "count": 4}),
        (lambda x, _: {"x": x, "is_done": True}, lambda x, _: {"x": x, "is_done": False}),
        (lambda x, _: {"x": x, "label": "cat"}, lambda x, _: {"x": x, "label": "dog"}),
        (lambda x, _: {"x": x, "ids": x.argmax(-1).tolist()}, lambda x, _: {"x": x, "ids": [0]}),
        (lambda x, _: (x, [[1, 2], [3]]), lambda x, _: (x, [[1, 2], [4]])),
        (lambda x, _: x.tolist(), lambda x, _: (x * 2).tolist()),
        (lambda x, _: {"x": x, "boxes": x.numpy()}, lambda x, _: {"x": x, "boxes": x.numpy() * 0}),
        (lambda x, _: x.numpy(), lambda x, _: x.numpy() * 0),
        (lambda x, _: (x, x.numpy().max()), lambda x, _: (x, x.numpy().min())),
    ],
)
def test_numbers_texts_and_arrays_are_compared_like_tensors(kind, right, wrong):
    expected = trace(Scaled(right), X)

    agrees, differs = (compare(expected, trace(kind(returned), X)) for returned in (right, wrong))

    assert (agrees.ok, differs.ok) == (True, False)
    assert all("element by element" in told for told in agrees.output_notes)


def test_fractions_agree_within_the_tolerance_of_the_outputs_dtype():
    expected = trace(Scaled(lambda x, _: (x, 3.5)), X)
    half = trace(Scaled(lambda x, _: (x.bfloat16(), 3.5)), X)

    assert compare(expected, trace(Scaled(lambda x, _: (x, 3.500001)), X)).ok
    assert not compare(expected, trace(Scaled(lambda x, _: (x, 3.501)), X)).ok
    assert compare(half, trace(Scaled(lambda x, _: (x.bfloat16(), 3.501)), X)).ok


def test_number_that_a_port_does_not_return_can_be_left_out():
    expected, actual = trace(Scaled(lambda x, _: {"x": x, "count": 3}), X), trace(OwnScaled(), X)

    report, told = compare(expected, actual), compare(expected, actual, outputs={"": "x"})

    assert "could be compared with the reference's 'count' (): not compared" in report.culprit.explanation
    assert told.ok


def test_object_beside_tensors_that_cannot_be_looked_into_is_told():
    opaque = iter  # an iterator: whoever looks into it takes its values away

    report = compare(*(trace(Scaled(lambda x, _: {"x": x, "rest": opaque([x])}), X) for _ in range(2)))

    assert report.output_notes == ["x element by element", "rest not compared (no tensor can be found in it)"]
    assert report.notes == report.unseen
    assert report.unseen[0].startswith(
        "What Scaled returns as 'rest' was not compared, for no tensor can be found in it: <list_iterator object at "
    )


def test_caches_configurations_and_dtypes_among_outputs_are_no_unknown_objects():
    config, model = LlamaConfig(), llama()

    def cached(_x, _scale):
        return {"x": _x, "config": config, "dtype": _x.dtype, "nothing": None, "cache": model(IDS, use_cache=True)}

    report = compare(*(trace(Scaled(cached), X) for _ in range(2)))

    assert (report.ok, report.notes, report.unseen) == (True, [], [])


def test_other_numbers_among_the_inputs_are_told_and_blamed_where_outputs_differ():
    unused = compare(*(trace(Scaled(), X, scale=scale) for scale in (1.0, 2.0)))
    used = compare(*(trace(Scaled(lambda x, scale: x * scale), X, scale=scale) for scale in (1.0, 2.0)))

    assert (unused.ok, unused.notes) == (True, ["'Scaled' is given scale=2.0 instead of 1.0."])
    assert (used.culprit.kind, used.culprit.certain) == ("inputs", True)
    assert "'Scaled' is given scale=2.0 instead of 1.0." in used.culprit.explanation


def test_outputs_whose_values_cannot_be_read_are_told_as_not_compared():
    report = compare(*(trace(Scaled(lambda x, _: {"x": x, "meta": x.to("meta")}), X) for _ in range(2)))

    assert report.output_notes == ["x element by element", "meta not compared (its values cannot be read)"]
    assert report.notes == ["Not compared: meta, whose values cannot be read."]


class Closed(dict):
    def items(self):
        raise OSError("closed")


def test_output_that_raises_when_read_is_told_as_not_compared():
    report = compare(*(trace(Scaled(lambda x, _: {"x": x, "rest": Closed(x=x)}), X) for _ in range(2)))

    assert report.output_notes == ["x element by element", "rest not compared (no tensor can be found in it)"]


@pytest.mark.parametrize(
    "returned",
    [
        lambda x, _: x * 0,
        lambda x, _: x * float("nan"),
        lambda x, _: {"scores": x[x > 9], "boxes": x[:0]},
        lambda x, _: {"logits": x.abs() * float("inf"), "best": x.argmax(-1)},
    ],
)
def test_outputs_that_hold_one_number_or_nothing_are_said_to_show_little(returned):
    report = compare(*(trace(Scaled(returned), X) for _ in range(2)))

    assert report.ok
    assert report.notes[0].startswith("Most faults would pass: the outputs agree, but they are empty, one number ")
    assert "pytest_tfdebug.fill(model)" in report.notes[0]


def test_one_output_whose_numbers_differ_is_enough():
    report = compare(*(trace(Scaled(lambda x, _: {"x": x, "zeros": x * 0}), X) for _ in range(2)))

    assert (report.ok, report.unseen) == (True, [])


def test_model_that_returns_nothing_has_nothing_to_compare():
    with pytest.raises(TFDebugError, match=r"^Nothing was compared: "):
        compare(*(trace(Scaled(lambda _x, _: None), X) for _ in range(2)))
