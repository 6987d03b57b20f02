"""What a golden of any model cannot see."""

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, YosoConfig, YosoForMaskedLM

from pytest_tfdebug import fill
from pytest_tfdebug.goldens.blind_spots import blind_spots
from pytest_tfdebug.goldens.port_call import PortCall

IDS = torch.arange(12).view(2, 6)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(12, 4), nn.LayerNorm(4), nn.Linear(4, 4)
        nn.init.zeros_(self.head.bias)

    def forward(self, input_ids, attention_mask=None, past=None):
        hidden = self.head(self.norm(self.embed(input_ids)))
        return hidden if attention_mask is None else hidden * attention_mask[..., None]


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
def test_mask_that_hides_nothing_is_named(mask):
    assert told(fill(Model()), IDS, attention_mask=mask) == ["attention_mask=1"]
    assert told(fill(Model()), IDS, attention_mask=mask.tril()) == []


def test_one_token_after_others_in_a_cache_has_an_order():
    assert told(fill(Model()), IDS[:, :1], past=[torch.rand(2, 3)]) == []


@pytest.mark.parametrize("values", [torch.rand(2, 1), torch.rand(3), torch.rand(2, 3).to_sparse()])
def test_numbers_that_are_not_tokens_have_none(values):
    assert told(fill(Model()), values) == []


def test_inputs_that_cannot_be_read_are_left_alone():
    assert told(fill(Model()), torch.ones(2, 6, device="meta")) == []


class Conditioned(nn.Module):
    """Computes a condition, and uses it or not."""

    def __init__(self, *, is_used):
        super().__init__()
        self.embed, self.body, self.audio = nn.Embedding(12, 4), nn.Linear(4, 4), nn.Linear(3, 4)
        self.is_used = is_used

    def forward(self, input_ids, input_features):
        condition = self.audio(input_features)
        hidden = self.embed(input_ids)
        return self.body(hidden + condition if self.is_used else hidden)


def features():
    return torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))


def test_input_and_the_module_that_drops_it_are_named():
    assert told(fill(Conditioned(is_used=True)), IDS, features()) == []
    assert told(fill(Conditioned(is_used=False)), IDS, features()) == ["input_features", "audio"]


def bert():
    config = BertConfig(vocab_size=60, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2)
    return fill(BertModel(config).eval())


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = bert()

    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        return self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def test_what_a_wrapper_drops_is_named():
    mask = torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0]])
    types = torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)

    assert told(bert(), IDS, attention_mask=mask, token_type_ids=types) == []
    assert told(Wrapped(), IDS, attention_mask=mask, token_type_ids=types) == ["token_type_ids", "bert.pooler"]


def test_mask_that_transformers_ignores_is_named():
    config = YosoConfig(
        vocab_size=60,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        use_expectation=True,
    )
    mask = torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0]])

    assert "attention_mask" in told(fill(YosoForMaskedLM(config).eval()), IDS, attention_mask=mask)


class Router(nn.Module):
    """Chooses experts by scores and a bias, whose gradient is none."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(4, 8)
        self.register_buffer("correction_bias", torch.zeros(8))
        self.register_buffer("unused", torch.zeros(8))

    def forward(self, hidden):
        scores = self.score(hidden).sigmoid()
        chosen = (scores + self.correction_bias).topk(2, -1).indices
        return torch.zeros_like(scores).scatter(-1, chosen, scores.gather(-1, chosen))


def test_buffer_of_zeros_is_named_until_it_is_filled():
    model = Router()
    hidden = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0))

    assert told(model, hidden) == ["unused", "correction_bias=0"]
    assert told(fill(model), hidden) == ["unused"]
    assert model.correction_bias.unique().numel() == 8
    assert not model.unused.any()


class Limits(nn.Module):
    """Reads a limit and positions that change something only far from what they are."""

    def __init__(self):
        super().__init__()
        self.register_buffer("limit", torch.tensor(-1e-6))

    def forward(self, hidden, position_ids):
        return torch.minimum(-hidden.abs(), self.limit) * (position_ids / 1000).clamp(min=1.0)[..., None]


def test_what_has_an_effect_only_far_off_is_not_dead():
    hidden = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0))

    assert told(Limits(), hidden, IDS) == []


def test_looking_for_what_is_dead_leaves_the_model_as_it_was():
    model = bert()
    kept = {name: (each.clone(), each.requires_grad, each.data_ptr()) for name, each in model.named_parameters()}
    torch.manual_seed(3)
    first = torch.rand(2)
    torch.manual_seed(3)
    told(model, IDS)

    assert torch.equal(torch.rand(2), first)
    for name, each in model.named_parameters():
        values, wanted, place = kept[name]
        assert torch.equal(each, values)
        assert (each.requires_grad, each.data_ptr(), each.grad) == (wanted, place, None)
    assert not any(module._forward_hooks for module in model.modules())


def test_check_warns_of_an_input_without_effect(pytester):
    pytester.makepyfile(
        """
        import pytest_tfdebug
        from test_blind_spots import Conditioned, IDS, features

        def test_it(tf_golden):
            tf_golden.check(pytest_tfdebug.fill(Conditioned(is_used=False)), IDS, features())
        """
    )
    told = (
        "*CoverageWarning: Conditioned: input_features has no effect on any output, whatever it holds.",
        "*Look at the module that should read it, or leave it out of the call.",
    )

    for mode in ("update", "check"):
        result = pytester.runpytest_inprocess("-p", "no:cacheprovider", f"--tf-golden={mode}", "-W", "default")

        result.assert_outcomes(passed=1, warnings=1)
        result.stdout.fnmatch_lines(told)
