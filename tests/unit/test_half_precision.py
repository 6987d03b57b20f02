"""A port in half precision is held twice: in float32, where rounding hides nothing, and as it is."""

import copy

import pytest
import torch
from torch import nn

import llama_port
from bugs import BUGS
from injections import edit
from models import build
from pytest_tfdebug import Trace, compare, trace
from pytest_tfdebug.goldens.golden_file import load, save
from pytest_tfdebug.goldens.held_model import compare_with
from pytest_tfdebug.goldens.port_call import PortCall
from pytest_tfdebug.goldens.settings import CheckSettings
from pytest_tfdebug.invariance.api import CHECKS
from pytest_tfdebug.invariance.calls.observed_call import observe
from pytest_tfdebug.invariance.checks.base import Settings
from pytest_tfdebug.parity.tensors.tolerance import Tolerances
from pytest_tfdebug.tracing.record.leaves import replaced
from pytest_tfdebug.tracing.trace import in_float32
from pytest_tfdebug.tracing.values.rerun import Rerun

IDS = torch.randint(3, 60, (2, 16), generator=torch.Generator().manual_seed(0))
HALF = [torch.bfloat16, torch.float16]


def llama(dtype):
    """Return a Llama and a port of it under names of its own; its rotary frequencies stay in float32, as loaded ones do."""
    reference = llama_port.load_reference()
    port, frequencies = llama_port.load_port(reference), reference.model.rotary_emb.inv_freq.clone()
    reference = reference.to(dtype)
    reference.model.rotary_emb.inv_freq = frequencies
    return reference, port.to(dtype)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_right_port_passes_and_is_told_in_floors(dtype):
    reference, port = llama(dtype)

    report = compare(trace(reference, input_ids=IDS), trace(port, input_ids=IDS))

    assert report.ok, str(report)
    name = str(dtype).removeprefix("torch.")
    assert any(note.startswith(f"In float32 every output agrees; in {name} they are up to ") for note in report.notes)


def scale_residual(port):
    block = port.blocks[1]

    def forward(hidden, cos, sin):
        hidden = hidden * 0.99 + block.attention(block.attention_norm(hidden), cos, sin)
        return hidden + block.mixer(block.mixer_norm(hidden))

    block.forward = forward
    return "blocks.1"


def quicken(port):
    mixer = port.blocks[1].mixer
    mixer.forward = lambda hidden: mixer.narrow(nn.functional.hardswish(mixer.gate(hidden)) * mixer.widen(hidden))
    return "blocks.1.mixer"


def scale_weight(port):
    port.blocks[1].mixer.narrow.weight.data *= 1.01
    return "blocks.1.mixer.narrow"


def set_epsilon(port):
    port.blocks[1].mixer_norm.eps = 1e-5
    return "blocks.1.mixer_norm"


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("break_it", [scale_residual, quicken, scale_weight, set_epsilon], ids=lambda it: it.__name__)
def test_what_rounding_hides_is_named_under_names_of_its_own(break_it, dtype):
    reference, port = llama(dtype)
    where = break_it(port)

    report = compare(trace(reference, input_ids=IDS), trace(port, input_ids=IDS))

    assert report.culprit.path == where, str(report)
    name = str(dtype).removeprefix("torch.")
    assert f"Held in float32, where rounding to {name} hides nothing." in report.notes


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
@pytest.mark.parametrize(
    ("paths", "told"),
    [
        (["blocks.1.mixer_norm"], ["blocks.1.mixer_norm"]),
        (["norm"], ["norm"]),
        (["blocks.0.attention_norm", "norm"], ["blocks.0.attention_norm", "norm"]),
    ],
    ids=["one", "the last", "several"],
)
def test_epsilon_that_no_output_shows_is_told_with_its_place(dtype, paths, told):
    reference, port = llama(dtype)
    for path in paths:
        port.get_submodule(path).eps = 1.001e-6

    report = compare(trace(reference, input_ids=IDS), trace(port, input_ids=IDS))

    assert report.ok
    listed = ", ".join(f"{path}.eps=1.001e-06 instead of 1e-06" for path in told)
    assert report.unseen == [f"Modules hold other numbers, and no output shows more than rounding of them: {listed}."]


def test_error_that_cancels_out_in_sums_is_named_by_its_elements():
    reference, port = llama(torch.bfloat16)
    edit("blocks.1.attention", "softmax(-1)", "half().softmax(-1).to(value.dtype)")(port)

    report = compare(trace(reference, input_ids=IDS), trace(port, input_ids=IDS))

    assert report.culprit.path == "blocks.1.attention", str(report)
    assert not report.culprit.certain
    assert report.culprit.why_certain == "modules were paired by what they hold and return, and may be others"


def test_numbers_that_may_mean_something_else_are_not_told():
    reference, port = llama(torch.bfloat16)
    for block in port.blocks:  # what no partner holds, and what its class alone explains
        block.attention.scale, block.mixer_norm.power = 8.5, 0.5
    del port.norm.eps
    port.norm.forward = reference.model.norm.forward

    report = compare(trace(reference, input_ids=IDS), trace(port, input_ids=IDS))

    assert report.ok
    assert not report.unseen


class Norm(nn.Module):
    """Computes in float32, or in the dtype that it is given."""

    def __init__(self, is_wide):
        super().__init__()
        self.weight, self.is_wide = nn.Parameter(torch.ones(64)), is_wide

    def forward(self, x):
        wide = x.float() if self.is_wide else x
        return (wide + 3 - 3).to(x.dtype) * self.weight


class Model(nn.Module):
    def __init__(self, *, is_wide=True):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.norm, self.down = nn.Linear(64, 64), Norm(is_wide), nn.Linear(64, 64)

    def forward(self, x):
        return self.down(self.norm(self.up(x)))


X = torch.linspace(-1, 1, 32 * 64).view(32, 64).sin()


def test_module_that_lost_its_float32_is_named():
    reference, port = Model().bfloat16(), Model(is_wide=False).bfloat16()

    report = compare(trace(reference, X.bfloat16()), trace(port, X.bfloat16()))

    assert report.culprit.path == "norm"
    assert report.culprit.certain
    first, *_ = str(report).splitlines()
    assert first.endswith("in norm (Norm): is right in float32, and too far off in bfloat16")
    assert "times as much as the reference" in report.culprit.why


@torch.library.custom_op("half_precision_test::attend", mutates_args=())
def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    if query.dtype != torch.bfloat16:
        raise RuntimeError("bfloat16 alone")
    return nn.functional.scaled_dot_product_attention(query, key, value)


class KnowsHalfAlone(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.merge = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        return self.merge(torch.ops.half_precision_test.attend(*self.qkv(x).chunk(3, -1)))


AS_IT_IS = "Computed as it is, for it knows no float32: attend."


@pytest.mark.parametrize("is_right", [True, False])
def test_what_could_not_be_widened_is_told_once(is_right, tmp_path):
    model, x = KnowsHalfAlone().bfloat16(), X[:2, :16].view(1, 2, 16).bfloat16()
    port = copy.deepcopy(model)
    if not is_right:
        port.merge.weight.data *= 1.5
    trace(model, x).save(tmp_path / "golden.safetensors")

    for golden in (trace(model, x), Trace.load(tmp_path / "golden.safetensors")):
        report = compare(golden, trace(port, x))

        assert report.ok == is_right
        assert report.notes.count(AS_IT_IS) == str(report).count(AS_IT_IS) == 1


class MixesRows(KnowsHalfAlone):
    def forward(self, x):
        return super().forward(x) + x.mean(0)


@pytest.mark.parametrize(("model", "is_right"), [(KnowsHalfAlone(), True), (MixesRows(), False)])
def test_promise_tells_what_could_not_be_widened(model, is_right):
    model, x = model.bfloat16(), X[:, :16].view(4, 8, 16).bfloat16()
    call, _ = observe(model, (), {"x": x}, lambda: model(x=x))

    outcome = CHECKS["batch"].run(call, Settings())

    assert outcome.notes == [AS_IT_IS]
    assert not outcome.failure if is_right else outcome.failure.count(AS_IT_IS) == 1


def test_tolerance_that_was_given_holds_for_the_model_as_it_is():
    reference, port = llama(torch.bfloat16)
    scale_weight(port)

    report = compare(trace(reference, input_ids=IDS), trace(port, input_ids=IDS), atol=1.0)

    assert report.ok


def test_model_in_another_half_precision_is_said_to_be():
    reference, _ = llama(torch.bfloat16)

    report = compare(trace(reference, input_ids=IDS), trace(copy.deepcopy(reference).half(), input_ids=IDS))

    assert report.culprit.kind == "dtype"


def test_models_are_left_as_they_were():
    reference, port = llama(torch.bfloat16)
    scale_residual(port)
    before = [{name: tensor.clone() for name, tensor in each.state_dict().items()} for each in (reference, port)]

    compare(trace(reference, input_ids=IDS), trace(port, input_ids=IDS))

    for model, held in zip((reference, port), before, strict=True):
        assert all(torch.equal(tensor, held[name]) for name, tensor in model.state_dict().items())
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("architecture", ["gpt2", pytest.param("t5", marks=pytest.mark.nightly)])
def test_golden_of_half_precision_keeps_its_forward_in_float32(architecture, tmp_path):
    model, inputs = build(architecture)
    model = copy.deepcopy(model).bfloat16()
    inputs = replaced(inputs, lambda held: held.bfloat16() if held.is_floating_point() else held)
    bug = next(bug for bug in BUGS if bug.architecture == architecture)
    port = copy.deepcopy(model)
    bug.inject(port)
    recorded = trace(model, **inputs)
    recorded.save(tmp_path / "golden.safetensors")

    golden = type(recorded).load(tmp_path / "golden.safetensors")

    assert golden.wide is not None
    assert compare(golden, trace(copy.deepcopy(model), **inputs)).ok
    assert compare(golden, trace(port, **inputs)).culprit.path == bug.culprit


def held_to_its_golden(port, model, inputs, path):
    recorded = trace(model, **inputs)
    in_float32(recorded)
    save(path, recorded, model, "test_port")
    call = PortCall((), dict(inputs), reference=lambda: Rerun(model, (), dict(inputs)))
    return compare_with(load(path), port, call, CheckSettings(Tolerances(), explain_seconds=0))


def test_golden_of_half_precision_is_run_once_more_in_float32_too(tmp_path):
    model, inputs = build("gpt2")
    model = copy.deepcopy(model).bfloat16()
    in_training, of_another_kind = copy.deepcopy(model).train(), copy.deepcopy(model)
    of_another_kind.transformer.h[0].mlp.act = nn.SiLU()  # new, so in training mode, which changes nothing

    reports = [held_to_its_golden(port, model, inputs, tmp_path / "it") for port in (in_training, of_another_kind)]

    assert [report.culprit.kind for report in reports] == ["mode", "module"]
    assert "In eval mode every output agrees." in str(reports[0])
