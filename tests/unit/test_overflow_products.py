"""Headroom of matrix products inside a forward."""

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import pytest_tfdebug
from pytest_tfdebug import ActivationOverflowError, overflow_guard


class LateScale(nn.Module):
    """Whole numbers as weights, and a scale that comes late."""

    def __init__(self):
        super().__init__()
        weights = torch.randint(-7, 8, (32, 64), generator=torch.Generator().manual_seed(0))
        self.weight, self.scale = nn.Parameter(weights.float()), nn.Parameter(torch.full((32,), 0.002))

    def forward(self, hidden):
        return nn.functional.linear(hidden, self.weight) * self.scale


class Scores(nn.Module):
    """An attention that divides its scores late."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, hidden):
        return ((self.query(hidden) @ self.key(hidden).transpose(-1, -2)) / 8).softmax(-1) @ hidden


class Widened(Scores):
    """The same in float32."""

    def forward(self, hidden):
        query, key = self.query(hidden).to(torch.float32), self.key(hidden).to(torch.float32)
        return ((query @ key.transpose(-1, -2)) / 8).softmax(-1).to(hidden.dtype) @ hidden


def hidden(scale):
    return torch.randn(2, 8, 64, generator=torch.Generator().manual_seed(0)) * scale


def guarded(model, scale):
    with torch.no_grad(), overflow_guard(model, dtype="float16"):
        model(hidden(scale))


@pytest.mark.parametrize(
    ("model", "scale", "name"), [(LateScale(), 900, "linear"), (pytest_tfdebug.fill(Scores()), 150, "matmul")]
)
def test_product_before_a_late_scale_leaves_no_room(model, scale, name):
    assert not model.half()(hidden(scale).half()).isfinite().all()

    with pytest.raises(ActivationOverflowError) as caught:
        guarded(model.float(), scale)

    assert str(caught.value).startswith("test_overflow_products.py:")
    assert f"in {type(model).__name__}" in " ".join(str(caught.value).split())
    assert f"Its result of {name}, before the forward goes on with it, reaches" in " ".join(str(caught.value).split())
    guarded(model, 1)


def test_forward_that_widens_itself_has_room():
    guarded(pytest_tfdebug.fill(Widened()), 150)


def test_model_of_transformers_with_ordinary_scores_has_room():
    config = LlamaConfig(
        vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    config._attn_implementation = "eager"
    model = pytest_tfdebug.fill(LlamaForCausalLM(config).eval())

    with torch.no_grad(), overflow_guard(model, dtype="float16", headroom=2.0):
        model(torch.arange(20).view(2, 10))


def test_forward_that_raises_leaves_no_mode_behind():
    model = LateScale()

    with pytest.raises(RuntimeError, match="shapes"), overflow_guard(model, dtype="float16"):
        model(torch.ones(2, 3))

    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize("raised", [KeyboardInterrupt, pytest.skip.Exception, ValueError])
def test_what_leaves_a_forward_leaves_no_mode_of_torch_behind(raised):
    class Leaves(torch.nn.Module):
        def forward(self, x):
            raise raised("left")

    model = Leaves()

    with pytest.raises(raised), overflow_guard(model, dtype="float16"):
        model(torch.ones(2))

    assert not torch.overrides._get_current_function_mode_stack()
