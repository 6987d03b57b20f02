"""What would pass in place of outputs that agree."""

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import pytest_tfdebug
from pytest_tfdebug.parity.tensors.coarseness import told_coarse
from pytest_tfdebug.parity.tensors.tolerance import DEFAULTS, Tolerance

FLOAT = DEFAULTS["float32"]


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def told(output, tolerance=FLOAT):
    return told_coarse("logits", output, tolerance)


def with_columns(value, count=3):
    output = numbers(2, 10, 31)
    output[..., -count:] = value
    return output


def with_massive_token():
    output = numbers(2, 10, 31)
    output[:, 0] *= 1e4
    return output


@pytest.mark.parametrize("low", [-1e4, -1e9, torch.finfo(torch.float32).min])
def test_masked_vocabulary_gives_no_scale_to_the_rest(low):
    assert told(with_columns(low)) == ""


def test_massive_token_gives_no_scale_to_the_others():
    assert told(with_massive_token()) == ""


def test_boxes_hide_the_scores_beside_them():
    output = torch.cat([numbers(2, 50, 4) * 1e5, numbers(2, 50, 1)], -1)

    assert "logits[..., 4:] would pass too" in told(output)


def test_tiny_outputs_pass_as_zeros():
    assert told(numbers(2, 10, 31) * 1e-7) == (
        "A port that returns zeros for logits would pass too: up to 1e-05 is allowed there, and its values are spread "
        "over 2e-07. Its values are as small as the absolute tolerance. Return what they are computed from as well, "
        "take weights that give more (pytest_tfdebug.fill(model)), or give tolerance=(rtol, atol)."
    )


def test_saturated_probabilities_tell_little():
    assert "Return the logits as well." in told((numbers(4, 10, 40) * 60).softmax(-1))


@pytest.mark.parametrize(
    "output",
    [
        numbers(2, 10, 31),
        numbers(2, 10, 31) * 1e-3,
        numbers(2, 10, 31).log_softmax(-1),
        numbers(2, 10, 31).sigmoid(),
        numbers(2, 10, 31).relu(),
        numbers(2, 10, 31) * (numbers(2, 10, 31) > 1.3),
        with_columns(float("-inf")),
        numbers(2, 10, 31) * (torch.arange(10) < 7)[:, None],
        torch.zeros(2, 10, 31),
        nn.functional.one_hot(torch.arange(20), 31).float(),
        torch.tensor(3.0),
        torch.ones(2, 3),
    ],
    ids=["plain", "small", "log", "sigmoid", "relu", "sparse", "inf", "padded", "zeros", "one-hot", "number", "ones"],
)
def test_ordinary_outputs_are_told_apart(output):
    assert told(output) == ""


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_as_coarse_as_it_is(dtype):
    assert told(numbers(2, 10, 31).to(dtype), DEFAULTS[str(dtype).removeprefix("torch.")]) == ""


def test_tolerance_that_allows_everything_is_told():
    assert "would pass too" in told(numbers(2, 10, 31), Tolerance(0.0, 100.0))
    assert told(numbers(2, 10, 31), Tolerance(0.0, 0.1)) == ""


class LastWords(nn.Module):
    """A language model whose logits are masked, or as small as the absolute tolerance."""

    def __init__(self, scale=1.0, *, is_masked=False):
        super().__init__()
        config = LlamaConfig(
            vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4
        )
        self.llama, self.scale = pytest_tfdebug.fill(LlamaForCausalLM(config).eval(), seed=0), scale
        self.is_masked = is_masked

    def forward(self, input_ids):
        logits = self.llama(input_ids).logits * self.scale
        return torch.cat([logits[..., :90], torch.full_like(logits[..., 90:], -1e9)], -1) if self.is_masked else logits


IDS = torch.arange(20).view(2, 10)
TEST = """
import pytest_tfdebug
from test_coarseness import IDS, LastWords

def test_it(tf_golden):
    tf_golden.check(LastWords({port}), reference=LastWords({reference}), input_ids=IDS)
"""


def test_check_warns_of_what_would_have_passed(pytester):
    pytester.makepyfile(TEST.format(port="0.0", reference="1e-7"))

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tf-golden=update", "-W", "default")

    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*CoverageWarning: LastWords: A port that returns zeros for output would pass too: *"])


def test_check_fails_zeros_beside_a_masked_vocabulary(pytester):
    pytester.makepyfile(TEST.format(port="0.0, is_masked=True", reference="is_masked=True"))

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tf-golden=update", "-W", "default")

    result.assert_outcomes(failed=1)


class Map(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, pixels):
        return self.conv(pixels)


class OtherMap(nn.Module):
    def __init__(self, order):
        super().__init__()
        self.layer, self.order = nn.Conv2d(3, 4, 3, padding=1), order

    def forward(self, pixels):
        return self.layer(pixels).permute(self.order)


@pytest.mark.parametrize(("order", "warns"), [((0, 2, 3, 1), False), ((0, 3, 1, 2), False), ((0, 3, 2, 1), True)])
def test_exchanged_axes_of_a_square_map_are_told(order, warns):
    pixels = numbers(1, 3, 8, 8)
    reference, port = pytest_tfdebug.fill(Map()), OtherMap(order)
    port.layer.load_state_dict(reference.conv.state_dict())

    report = pytest_tfdebug.compare(pytest_tfdebug.trace(reference, pixels), pytest_tfdebug.trace(port, pixels))

    assert report.ok
    assert any("width and height may be exchanged" in text for text in report.unseen) == warns
