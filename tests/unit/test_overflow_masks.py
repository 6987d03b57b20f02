"""What is -inf by design is no fault, and nothing else is excused by it."""

import pytest
import torch
from torch import nn

from pytest_tfdebug import ActivationOverflowError, overflow_guard
from pytest_tfdebug.report.overflow import place as tensor_place
from pytest_tfdebug.tracing.record.masks import has_masked_row, is_mask_input, is_mask_name

INF = float("inf")
SCORES = torch.zeros(2, 3, 4, 4)
ADDITIVE = torch.triu(torch.full((4, 4), -INF), 1)[None, None]
PADDING = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])


class Adds(nn.Module):
    def forward(self, scores, mask):
        return scores + mask


class Fills(nn.Module):
    def forward(self, scores, attention_mask):
        if attention_mask.dim() == 2:
            attention_mask = attention_mask[:, None, None].bool()
        return scores.masked_fill(~attention_mask, -INF)


class FillsWhereTrue(nn.Module):
    def forward(self, scores, mask):
        return scores.masked_fill(mask, -INF)


class Scores(nn.Module):
    """Hands its scores to a softmax that is told of no mask."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.softmax = nn.Softmax(-1)

    def forward(self, scores, attention_mask):
        return self.softmax(self.inner(scores, attention_mask))


@pytest.mark.parametrize("is_on_device", [False, True])
@pytest.mark.parametrize(
    ("inner", "mask"),
    [
        (Adds(), ADDITIVE),
        (Adds(), ADDITIVE.expand(2, 3, 4, 4)),
        (Fills(), ADDITIVE == 0),
        (Fills(), PADDING),
        (FillsWhereTrue(), ADDITIVE < 0),
    ],
)
def test_scores_of_minus_infinity_where_the_mask_hides_are_no_fault(inner, mask, is_on_device, monkeypatch):
    if is_on_device:
        monkeypatch.setattr("pytest_tfdebug.overflow.extremes.is_read_at_once", lambda _: False)

    with overflow_guard(Scores(inner)) as guard:
        guard._hooks.recorder.model(SCORES, mask)


def test_frame_says_that_its_minus_infinity_is_the_masks():
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = Scores(Adds())
            self.last = nn.LayerNorm(4)

        def forward(self, scores, attention_mask):
            return self.last(self.scores(scores, attention_mask) / 0)

    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(Late()) as guard:
        guard._hooks.recorder.model(SCORES, ADDITIVE)

    assert "abs_max=      inf > [0] scores.inner: Adds: input[1] (a mask)" in str(caught.value)
    assert "abs_max=      inf < [0] scores.inner: Adds: output (-inf only where a mask is)" in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value"),
    [((0, 0, 3, 0), -INF), ((0, 0, 0, 3), INF), ((0, 0, 0, 3), float("nan"))],
    ids=["minus infinity where the mask hides nothing", "infinity behind the mask", "nan behind the mask"],
)
def test_nothing_else_is_excused_by_a_mask(place, value):
    class Spoils(nn.Module):
        def forward(self, scores, mask):
            scores = scores + mask
            scores[place] = value
            return scores

    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(Scores(Spoils())) as guard:
        guard._hooks.recorder.model(SCORES, ADDITIVE)

    assert tensor_place(caught.value.fault.frame) == "< [0] inner: Spoils: output"


@pytest.mark.parametrize("is_on_device", [False, True])
@pytest.mark.parametrize("mask", [torch.ones(2, 4, dtype=torch.int64), torch.zeros(2, 4, dtype=torch.bool)])
def test_mask_of_one_value_hides_nothing(mask, is_on_device, monkeypatch):
    class Lowers(nn.Module):
        def forward(self, scores, mask):
            return scores - INF

    if is_on_device:
        monkeypatch.setattr("pytest_tfdebug.overflow.extremes.is_read_at_once", lambda _: False)

    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(Scores(Lowers())) as guard:
        guard._hooks.recorder.model(SCORES, mask)

    assert tensor_place(caught.value.fault.frame) == "< [0] inner: Lowers: output"


def test_mask_with_nan_is_a_fault():
    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(Scores(Adds())) as guard:
        guard._hooks.recorder.model(SCORES, ADDITIVE * 0)

    assert tensor_place(caught.value.fault.frame) == "> [0] Scores: Scores: input[1]"


@pytest.mark.parametrize(
    ("leaf", "parameters", "expected"),
    [
        ("['attention_mask']", (), True),
        ("['position_bias']", (), True),
        ("[1]", ("hidden_states", "attention_mask"), True),
        ("[0]", ("hidden_states", "attention_mask"), False),
        ("[0]['full_attention_mask']", ("inputs",), True),
        ("['attention_mask']['full_attention']", (), True),
        ("['causal_mask_mapping']['sliding_attention']", (), True),
        ("['text_self_attention_masks']", (), True),
        ("['mask_features']", (), False),
        ("['masks_queries_logits']", (), False),
        ("['masked_lm_labels']", (), False),
        ("['bias']", (), False),
        ("['hidden_states']", (), False),
        ("[3]", ("hidden_states",), False),
    ],
)
def test_masks_are_known_by_their_names(leaf, parameters, expected):
    assert is_mask_input(leaf, parameters) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CausalMask", True),
        ("SwinRelativePositionBias", True),
        ("encoder.relative_attention_bias", True),
        ("BertForMaskedLM", False),
        ("Mask2FormerAttention", False),
        ("Sam3MaskDecoder", False),
        ("vit.embeddings.mask_token", False),
        ("attention_mask.proj", False),
    ],
)
def test_modules_and_parameters_of_masks_are_known_by_their_last_word(name, expected):
    assert is_mask_name(name) is expected


@pytest.mark.parametrize(
    ("mask", "expected"),
    [(PADDING, False), (PADDING * 0, True), (ADDITIVE, False), (ADDITIVE[..., :1, 1:], True), (torch.zeros(3), False)],
)
def test_row_that_hides_everything_is_recognised(mask, expected):
    assert has_masked_row(mask) is expected
