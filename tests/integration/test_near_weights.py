"""A port whose weights are near the reference's, as quantised ones are: its code is held to the reference's all the same."""

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: F401 - pytester unloads what a run inside has loaded

import pytest_tfdebug
import pytest_tfdebug.goldens.fixture
from pytest_tfdebug import fill
from pytest_tfdebug.goldens.near_weights import near_weights
from pytest_tfdebug.goldens.weights import fingerprint

ROUNDING = """
import torch

def rounded(model, part):
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if part in name and weight.dim() == 2:
                groups = weight.view(-1, 16)
                step = groups.abs().amax(-1, keepdim=True) / 7
                weight.copy_(((groups / step).round() * step).view_as(weight))
    return model
"""
QUANTISED = """
import copy
import torch
from pytest_tfdebug import fill
from rounding import rounded
from transformers import Qwen3Config, Qwen3ForCausalLM

CONFIG = Qwen3Config(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                     num_key_value_heads=1, head_dim=16)
IDS = torch.arange(3, 19).view(2, 8)

def test_it(tf_golden):
    reference = fill(Qwen3ForCausalLM(CONFIG).eval(), seed=0)
    port = rounded(copy.deepcopy(reference), "proj")
    {change}
    before = {{name: (weight.data_ptr(), weight.clone()) for name, weight in port.named_parameters()}}
    try:
        tf_golden.check(port, reference=reference, input_ids=IDS{more})
    finally:
        for name, weight in port.named_parameters():
            assert weight.data_ptr() == before[name][0] and torch.equal(weight, before[name][1])
"""
EPSILON = "port.model.layers[1].self_attn.q_norm.variance_epsilon = 0.5"


@pytest.fixture
def run(pytester):
    """Record the reference's golden, and hold a quantised port to it."""

    def run_pytest(change="", more="", source=QUANTISED):
        pytester.syspathinsert()
        pytester.makepyfile(test_it=source.format(change=change, more=more), rounding=ROUNDING)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tf-golden=update")

    return run_pytest


def test_right_code_with_quantised_weights_is_told_as_that(run):
    result = run()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *model.layers.0.self_attn.q_proj (Linear): has other weights: *.q_proj.weight, and 13 parameters more",
            "*14 parameters differ from the reference's by 6.*e-02 to *e-02*",
            "*Proved: with the reference's numbers in them every output agrees: the code is right.",
            "*Next: fix how the port's weights are converted; if they are rounded on purpose, give*",
        ]
    )


@pytest.mark.parametrize("more", ["", ", tolerance=(0.05, 0.05)"])
def test_fault_of_the_code_is_named_behind_quantised_weights(run, more):
    result = run(EPSILON, more)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *in model.layers.1.self_attn.q_norm (Qwen3RMSNorm): has variance_epsilon 0.5",
            "*2 faults*Behind this one:",
            "*model.layers.0.self_attn.q_proj (Linear): has other weights: *.q_proj.weight, and 13 parameters more",
            "*The reference has 1e-06. Its inputs agree and its output does not*",
            "*14 parameters differ from the reference's by *",
        ]
    )
    result.stdout.no_fnmatch_line("*All weights with matching names are the recorded ones*")


#: A port with names of its own and a fused projection.
OWN_NAMES = """
import torch
from llama_port import load_port, load_reference
from rounding import rounded

IDS = torch.arange(3, 19).view(2, 8)

def test_it(tf_golden):
    reference = load_reference()
    port = rounded(load_port(reference), "")
    {change}
    tf_golden.check(port, reference=reference, input_ids=IDS)
"""


def test_right_code_with_quantised_weights_is_told_under_names_of_its_own(run):
    result = run(source=OWN_NAMES)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *in tokens (Embedding): has other weights: tokens.weight, and * parameters more",
            "*Proved: with the reference's numbers in them every output agrees: the code is right.",
        ]
    )


def test_fault_of_the_code_is_named_behind_quantised_weights_of_other_names(run):
    result = run("port.blocks[1].mixer_norm.eps = 0.5", source=OWN_NAMES)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E *in blocks.1.mixer_norm (Norm): *", "* parameters differ from the reference's by *"]
    )


def test_parts_are_found_in_a_fused_and_in_a_transposed_matrix():
    reference = torch.nn.ModuleDict(
        {name: torch.nn.Linear(32, rows, bias=False) for name, rows in (("q", 8), ("k", 4))}
    )
    pytest_tfdebug.fill(reference)
    port = torch.nn.ModuleDict(
        {"qk": torch.nn.Linear(32, 12, bias=False), "turned": torch.nn.Linear(8, 32, bias=False)}
    )
    recorded = fingerprint(reference)
    with torch.no_grad():
        port["qk"].weight.copy_(torch.cat([reference["q"].weight, reference["k"].weight]) * 1.01)
        port["turned"].weight.copy_(reference["q"].weight.T * 0.99)
        near = near_weights(port, reference, None, recorded)
        back = near_weights(reference, port, None, fingerprint(port))

    assert list(near.distances) == ["qk.weight", "turned.weight"]
    assert torch.equal(near.pairs["turned.weight"][1], reference["q"].weight.T)
    assert list(back.distances) == ["q.weight", "k.weight"]


class Folded(torch.nn.Module):
    """A convolution whose weight norm was folded when it was loaded, and a batch norm, if there is one."""

    def __init__(self, reference, *, is_wrong=False):
        super().__init__()
        conv, norm = reference.conv, getattr(reference, "norm", None)
        scale = torch.ones(len(conv.bias)) if norm is None else norm.weight / (norm.running_var + norm.eps).sqrt()
        shift = 0 if norm is None else norm.bias - norm.running_mean * scale
        self.kernel = torch.nn.Parameter((conv.weight.float() * scale[:, None, None]).to(conv.bias).detach())
        self.offset = torch.nn.Parameter((conv.bias * scale + shift).to(conv.bias).detach())
        self.is_wrong = is_wrong

    def forward(self, x):
        x = torch.nn.functional.conv1d(x, self.kernel, self.offset)
        return x.tanh() if self.is_wrong else x.relu()


class Normed(torch.nn.Module):
    def __init__(self, *, has_batch_norm=False):
        super().__init__()
        self.conv = torch.nn.Conv1d(8, 16, 3)
        if has_batch_norm:
            self.norm = torch.nn.BatchNorm1d(16)
        else:
            torch.nn.utils.parametrizations.weight_norm(self.conv, dim=0)

    def forward(self, x):
        x = self.conv(x)
        return (self.norm(x) if hasattr(self, "norm") else x).relu()


FOLDED = """
import torch
from pytest_tfdebug import fill
from test_near_weights import Folded, Normed

def test_it(tf_golden):
    reference = fill(Normed({norm}).eval(), seed=0).to(torch.{dtype})
    inputs = torch.linspace(-2, 2, 160).view(2, 8, 10).to(torch.{dtype})
    tf_golden.check(Folded(reference, is_wrong={is_wrong}), inputs, reference=reference)
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("norm", ["", "has_batch_norm=True"])
def test_norm_that_is_folded_into_a_port_is_what_the_reference_computes(pytester, norm, dtype):
    pytester.makepyfile(test_it=FOLDED.format(norm=norm, dtype=dtype, is_wrong=False))

    result = pytester.runpytest("--tf-golden=update", "-v")

    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*CoverageWarning*")


@pytest.mark.parametrize("norm", ["", "has_batch_norm=True"])
def test_folded_weights_that_are_rounded_hide_no_mistake(pytester, norm):
    pytester.makepyfile(test_it=FOLDED.format(norm=norm, dtype="bfloat16", is_wrong=True))

    result = pytester.runpytest("--tf-golden=update")

    result.stdout.fnmatch_lines(["*return x.tanh() if self.is_wrong else x.relu()*"])
    result.stdout.no_fnmatch_line("*has other weights*")


def test_folded_convolution_that_a_port_holds_as_a_matrix_is_what_the_reference_computes():
    pixels = [(torch.nn.Conv1d(8, 8, 1, bias=False), torch.nn.BatchNorm1d(8)) for _ in range(2)]
    reference = fill(torch.nn.Sequential(*(each for pair in pixels for each in pair)).eval(), seed=0)
    port = torch.nn.ParameterList()
    for conv, norm in pixels:
        factor = norm.weight / (norm.running_var + norm.eps).sqrt()
        port.append((conv.weight[..., 0] * factor[:, None]).detach())
    reference, port = reference.to(torch.bfloat16), port.to(torch.bfloat16)

    near = near_weights(port, reference, None, fingerprint(reference))

    assert near is not None
    assert (sorted(near.distances), near.are_folded) == (["0", "1"], True)
    assert near.pairs["0"][1].shape == (8, 8)


def test_sum_of_two_biases_is_what_an_lstm_computes():
    reference = fill(torch.nn.LSTM(8, 8), seed=0).to(torch.bfloat16)
    port = torch.nn.Linear(8, 32).to(torch.bfloat16)
    with torch.no_grad():
        port.weight.copy_(reference.weight_ih_l0)
        port.bias.copy_(reference.bias_ih_l0 + reference.bias_hh_l0)

    near = near_weights(port, reference, None, fingerprint(reference))

    assert near is not None
    assert (list(near.distances), near.are_folded) == (["bias"], True)
    assert torch.equal(near.pairs["bias"][1], reference.bias_ih_l0.float() + reference.bias_hh_l0.float())


@pytest.mark.parametrize("norm", ["", "has_batch_norm=True"])
def test_weights_that_mean_something_else_are_not_taken_from_the_reference(pytester, norm):
    """Each is near one of the reference's, and gives other outputs in its place."""
    pytester.makepyfile(test_it=FOLDED.format(norm=norm, dtype="float32", is_wrong=True))

    result = pytester.runpytest("--tf-golden=update")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *test_near_weights.py:* in Folded (Folded): *"])
    result.stdout.no_fnmatch_line("*parameters differ from the reference's*")


class Frozen(torch.nn.Module):
    """A batch norm of one's own, as DETR's."""

    def __init__(self):
        super().__init__()
        for name, value in (("weight", 1.1), ("bias", 0.1), ("running_mean", 0.2), ("running_var", 0.9)):
            self.register_buffer(name, torch.linspace(value - 0.2, value + 0.2, 8))

    def forward(self, x):
        scale, shape = self.weight * (self.running_var + 1e-5).rsqrt(), (1, -1, 1)
        return x * scale.view(shape) + (self.bias - self.running_mean * scale).view(shape)


class OfFrozen(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList(torch.nn.Conv1d(8, 8, 3, padding=1, bias=False) for _ in range(3))
        self.norms = torch.nn.ModuleList(Frozen() for _ in range(3))

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + norm(conv(x)).relu()
        return x


class FoldedFrozen(torch.nn.Module):
    def __init__(self, reference, *, wrong):
        super().__init__()
        self.convs, self.wrong = torch.nn.ModuleList(torch.nn.Conv1d(8, 8, 3, padding=1) for _ in range(3)), wrong
        with torch.no_grad():
            for own, conv, norm in zip(self.convs, reference.convs, reference.norms, strict=True):
                scale = norm.weight * (norm.running_var + 1e-5).rsqrt()
                own.weight.copy_(conv.weight * scale[:, None, None])
                own.bias.copy_(norm.bias - norm.running_mean * scale)

    def summed_first(self, x, conv):
        return (x + conv(x)).relu()  # the sum first

    def forward(self, x):
        for number, conv in enumerate(self.convs):
            x = self.summed_first(x, conv) if number == self.wrong else x + conv(x).relu()
        return x


FROZEN = """
import torch
from pytest_tfdebug import fill
from test_near_weights import FoldedFrozen, OfFrozen

def test_it(tf_golden):
    reference = fill(OfFrozen().eval(), seed=0)
    inputs = torch.linspace(-2, 2, 160).view(2, 8, 10).sin()
    tf_golden.check(FoldedFrozen(reference, wrong=1).eval(), inputs, reference=reference)
"""


def test_weights_that_are_folded_in_a_way_of_ones_own_hide_no_mistake_between_them(pytester):
    """Near the reference's, which have no factor, and right: what they give is the reference's."""
    pytester.makepyfile(test_it=FROZEN)

    result = pytester.runpytest("--tf-golden=update")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *test_near_weights.py:* in FoldedFrozen (FoldedFrozen): *", "*# the sum first*"])
    result.stdout.no_fnmatch_line("*has other weights*")


def pair_of_norms():
    models = [pytest_tfdebug.fill(torch.nn.Sequential(torch.nn.LayerNorm(64), torch.nn.LayerNorm(64))) for _ in "ab"]
    return *models, fingerprint(models[1])


def test_weight_of_another_norm_is_not_near():
    port, reference, recorded = pair_of_norms()
    with torch.no_grad():
        port[0].weight.copy_(reference[1].weight)

    assert near_weights(port, reference, None, recorded) is None


class Packed(torch.Tensor):
    """A weight that is stored in a way of its own, as torchao's are."""


def test_packed_weight_is_left_as_it_is():
    port, reference, recorded = pair_of_norms()
    port[0].weight = torch.nn.Parameter((reference[0].weight.detach() * 1.01).as_subclass(Packed))

    assert near_weights(port, reference, None, recorded) is None


def test_reference_that_is_not_the_goldens_is_not_taken():
    port, reference, recorded = pair_of_norms()
    with torch.no_grad():
        port[0].weight.mul_(1.01)
        near = near_weights(port, reference, None, recorded)
        reference[0].weight.mul_(1.1)

    assert list(near.distances) == ["0.weight"]
    assert near_weights(port, reference, None, recorded) is None


SCALED = """
import torch
from torch import nn
from pytest_tfdebug import fill

class Asked(nn.Module):
    def __init__(self):
        super().__init__()
        self.ask, self.answer = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        return self.answer((self.ask(x) * 0.3).relu())

class Port(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.out = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        return self.out(self.query(x).{activation}())

def converted(reference):
    port = Port()
    port.load_state_dict({{
        "query.weight": reference.ask.weight * 0.3,
        "query.bias": reference.ask.bias * 0.3,
        "out.weight": reference.answer.weight,
        "out.bias": reference.answer.bias,
    }})
    return port

held, goldens = [], []

def hold(reference):
    held.append(reference)
    port = {made}
    goldens[0].check(port.bfloat16(), torch.linspace(-2, 2, 64).view(4, 16).bfloat16(), reference=reference.bfloat16())

def test_it(tf_golden):
    goldens.append(tf_golden)
    try:
        hold(fill(Asked(), seed=0))
    finally:
        assert len(held) == 1
"""


def test_weights_that_a_conversion_computes_are_not_rounded_twice(pytester):
    pytester.makepyfile(test_it=SCALED.format(activation="relu", made="converted(reference)"))

    pytester.runpytest("--tf-golden=update").assert_outcomes(passed=1)


def test_wrong_code_behind_weights_that_a_conversion_computes_is_told(pytester):
    pytester.makepyfile(test_it=SCALED.format(activation="tanh", made="converted(reference)"))

    result = pytester.runpytest("--tf-golden=update")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*return self.out(self.query(x).tanh())*"])


def test_function_that_makes_a_port_and_checks_it_is_called_once(pytester):
    made = (
        "Port(); port.query.weight.data = reference.ask.weight * 0.3; port.query.bias.data = reference.ask.bias * 0.3"
    )
    pytester.makepyfile(test_it=SCALED.format(activation="tanh", made=made))

    result = pytester.runpytest("--tf-golden=update")

    result.stdout.fnmatch_lines(["*ParityError"])
    result.stdout.no_fnmatch_line("*AssertionError*")
