"""How close values come to the ends of a dtype's range, from a run in another dtype."""

import pytest
import torch
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from pytest_tfdebug import ActivationOverflowError, overflow_guard


class Scale(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


class VarianceNorm(nn.Module):
    """A norm that squares in the dtype that it is given."""

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def verdict(model, x, **settings):
    """Return the message of the failure, or None."""
    try:
        with torch.no_grad(), overflow_guard(model, **settings):
            model(x)
    except ActivationOverflowError as error:
        return str(error)
    return None


@pytest.mark.parametrize("factor", [7e4, 4e4, -4e4])
def test_float32_run_predicts_the_overflow_of_float16(factor):
    model, x = nn.Sequential(nn.Identity(), Scale(factor)), torch.ones(1, 4)

    message = verdict(model, x, dtype="float16", headroom=2.0)

    assert verdict(model, x) is None
    assert verdict(model, x, dtype="bfloat16", headroom=2.0) is None
    answer, why, *_ = message.splitlines()
    assert answer.startswith("test_overflow_headroom.py:")
    assert answer.endswith(f" in 1 (Scale): leaves a headroom of {65504 / abs(factor):.2g} for float16, less than 2")
    assert why == f"  Its output reaches {abs(factor):.2e}, and float16 ends at 6.55e+04."


def test_dtype_alone_asks_for_a_headroom_of_one():
    assert verdict(Scale(6e4), torch.ones(1, 4), dtype="float16") is None
    assert "less than 1\n" in verdict(Scale(7e4), torch.ones(1, 4), dtype="float16")


def test_headroom_alone_is_over_the_dtype_of_each_tensor():
    half, single = torch.ones(1, 4, dtype=torch.float16), torch.ones(1, 4)

    assert verdict(Scale(4e4), single, headroom=2.0) is None
    assert "for float16, less than 2" in verdict(Scale(4e4), half, headroom=2.0)


def test_ten_tightest_modules_are_listed_tightest_first():
    model = nn.Sequential(*(Scale(10.0) for _ in range(12)))

    lines = verdict(model, torch.full((1, 4), 1e-6), dtype="float16", headroom=2.0).splitlines()

    table = lines[lines.index("  The 10 tightest modules:") + 1 :]
    assert lines[2].startswith("  The first to leave less than 2 was test_overflow_headroom.py:")
    assert table[0] == "    headroom= 6.55e-02 abs_max= 1.00e+06 < [0] 11: Scale: output"
    assert table[2] == "    headroom= 6.55e-01 abs_max= 1.00e+05 < [0] 10: Scale: output"
    assert len(table) == 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_overflow_that_a_norm_absorbs_is_seen_from_its_square(dtype):
    """The square of 300 is 9e4, so the variance of float16 is inf, and the output is 0: finite, and wrong."""
    x = torch.full((1, 4), 300.0, dtype=dtype)
    model = nn.Sequential(nn.Identity(), VarianceNorm())
    assert VarianceNorm()(x.half()).abs().max() == 0

    message = verdict(model, x, dtype="float16").splitlines()

    assert verdict(model, x) is None
    assert message[0].endswith(" in 1 (VarianceNorm): leaves a headroom of 0.73 for float16, less than 1")
    assert message[1] == "  The square of its input reaches 9.00e+04, and float16 ends at 6.55e+04."
    assert message[2].startswith("  Next: cast the norm's input to float32 in its forward")
    assert message[5] == (
        "    headroom= 7.28e-01 abs_max= 3.00e+02 > [0] 1: VarianceNorm: input[0], squared in the norm: 9.00e+04"
    )


def test_norm_that_computes_in_float32_by_its_own_source_absorbs_nothing():
    x = torch.full((1, 4), 300.0)

    assert verdict(nn.Sequential(LlamaRMSNorm(4)), x, dtype="float16") is None


def test_modules_that_do_not_square_are_not_held_to_a_square():
    assert verdict(nn.Sequential(Scale(1.0)), torch.full((1, 4), 300.0), dtype="float16") is None


def test_ignored_module_is_not_held_to_headroom():
    model = nn.Sequential(nn.Sequential(VarianceNorm()), nn.Identity())

    assert verdict(model, torch.full((1, 4), 300.0), dtype="float16", ignore="*.0") is None


def test_guard_tells_the_tightest_modules_when_nothing_fails():
    with overflow_guard(nn.Sequential(Scale(2.0), Scale(3.0)), dtype="float16") as guard:
        guard._hooks.recorder.model(torch.ones(1, 4))

    assert [(tight.frame.path, tight.value) for tight in guard.tightest] == [
        ("1", 6.0),
        ("Sequential", 6.0),
        ("0", 2.0),
    ]
    assert guard.tightest[0].ratio == 65504 / 6
