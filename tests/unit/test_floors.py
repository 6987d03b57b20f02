"""How far a forward is from itself in float64, and what a comparison makes of that."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import pytest_tfdebug
from pytest_tfdebug import TFDebugError, Trace
from pytest_tfdebug.parity.tensors.tolerance import FLOORS
from pytest_tfdebug.tracing.file.stored_tensors import sampled
from pytest_tfdebug.tracing.values.precision import measure_floors

HIDDEN = torch.linspace(-1, 1, 4 * 16 * 64).view(4, 16, 64).sin()
EPS = torch.finfo(torch.float32).eps


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)
        self.turned = torch.linspace(1, 2, 64)  # no buffer: it is not cast with the model

    def forward(self, hidden):
        scale = hidden.to(torch.float32).square().mean(-1, keepdim=True).rsqrt().to(hidden.dtype)
        return hidden + self.down(torch.relu(self.up(hidden * scale * self.turned.to(hidden.dtype))))


@pytest.fixture
def model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(Block(), Block()).eval()


def test_floor_is_the_distance_from_the_exact_forward(model):
    recorded = pytest_tfdebug.trace(model, HIDDEN)
    exact = copy.deepcopy(model).double()
    for block in exact:
        block.turned = block.turned.double()
        block.forward = lambda hidden, own=block: (
            hidden + own.down(torch.relu(own.up(hidden * hidden.square().mean(-1, keepdim=True).rsqrt() * own.turned)))
        )

    floors = measure_floors(recorded)

    with torch.no_grad():
        wanted = exact(HIDDEN.double())
    output = recorded.calls[0].outputs[0]
    apart = float((output.tensor.double() - wanted).norm() / wanted.norm())
    assert output.floor == pytest.approx(apart, rel=0.06)  # two digits are kept
    assert EPS / 4 < output.floor < 4 * EPS
    assert recorded.calls[0].inputs[0].floor == 0
    assert floors[0].startswith("floors of ")


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16], ids=str)
def test_output_that_the_model_rounds_itself_has_a_floor(model, dtype):
    rounded = nn.Sequential(model, Rounds(dtype))

    report = pytest_tfdebug.compare(*(pytest_tfdebug.trace(rounded, HIDDEN) for _ in range(2)), tolerance="fp64")

    assert report.ok
    floor = report.calls[0].expected.outputs[0].floor
    assert 0 <= floor < 1e-2


class Rounds(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, hidden):
        return hidden.to(self.dtype)


def test_digests_have_the_floors_of_whole_tensors(model):
    whole, kept = (pytest_tfdebug.trace(model, HIDDEN) for _ in range(2))
    kept = replace(sampled(kept), again=kept.again)

    measure_floors(whole)
    measure_floors(kept)

    both = [(one.floor, other.floor) for one, other in zip(whole.records(), kept.records(), strict=True)]
    assert [other for _, other in both] == pytest.approx([one for one, _ in both], rel=0.6, abs=EPS)


def test_model_and_the_process_are_left_as_they_were(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state, dtype = torch.random.get_rng_state(), torch.get_default_dtype()

    measure_floors(pytest_tfdebug.trace(model, HIDDEN))

    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_default_dtype() == dtype


def test_half_precision_has_floors_of_its_own(model):
    half = copy.deepcopy(model).bfloat16()
    recorded = pytest_tfdebug.trace(half, HIDDEN.bfloat16())
    measure_floors(recorded)

    assert 1e-4 < recorded.calls[0].outputs[0].floor < 0.03


def test_tensor_of_few_elements_is_not_taken_for_exact_by_luck(model):
    class Summed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, hidden):
            return self.inner(hidden).sum()

    whole = Summed()
    recorded = pytest_tfdebug.trace(whole, HIDDEN)

    measure_floors(recorded)

    usual = sorted(record.floor for record in recorded.records())[len(list(recorded.records())) // 2]
    assert recorded.calls[0].outputs[0].floor >= usual > 0


class Choosing(nn.Module):
    """Chooses by the last digit of what it is given."""

    def forward(self, hidden):
        place = (hidden * 3 - hidden - hidden - hidden).argmax(-1)
        return hidden * (1 + place[..., None]), place


def test_what_falls_otherwise_in_float64_keeps_the_tolerance_of_its_dtype():
    model = Choosing()
    recorded = pytest_tfdebug.trace(model, HIDDEN)

    told = measure_floors(recorded)

    assert recorded.calls[0].outputs[0].floor is None
    assert recorded.calls[0].outputs[1].floor is None
    assert told[-1] == "in float64 Choosing give another result, so the tolerance of the dtype applies there"


class Narrow(nn.Module):
    def forward(self, hidden):
        if hidden.dtype == torch.float64:
            raise ValueError("float32 alone\nand more")
        return hidden + 1


def test_model_that_cannot_run_in_float64_is_named():
    model = nn.Sequential(nn.ReLU(), Narrow())
    recorded = pytest_tfdebug.trace(model, HIDDEN)

    with pytest.raises(TFDebugError) as caught:
        measure_floors(recorded)

    assert str(caught.value) == (
        'Sequential cannot be run in float64: 1 raises ValueError: float32 alone\nRecord it without tolerance="fp64".'
    )


def test_floors_of_a_file_are_those_that_were_measured(model, tmp_path):
    recorded = pytest_tfdebug.trace(model, HIDDEN)
    measure_floors(recorded)
    plain = pytest_tfdebug.trace(model, HIDDEN)
    recorded.save(tmp_path / "floors.safetensors")
    plain.save(tmp_path / "plain.safetensors")

    held, without = (Trace.load(tmp_path / f"{name}.safetensors") for name in ("floors", "plain"))

    assert [record.floor for record in held.records()] == [record.floor for record in recorded.records()]
    with pytest.raises(TFDebugError, match="Floors are measured where the forward was recorded"):
        pytest_tfdebug.compare(without, plain, tolerance="fp64")


def test_comparison_allows_a_multiple_of_the_floor_and_no_more(model):
    """An error of a tenth of the default tolerance is seen, and what the arithmetic explains is not."""
    recorded = pytest_tfdebug.trace(model, HIDDEN * 1e-3)
    measure_floors(recorded)
    output = recorded.calls[0].outputs[0]

    def agrees(share, tolerance):
        off = output.tensor * (1 + share * output.floor)
        call = replace(recorded.calls[0], outputs=(replace(output, tensor=off),))
        actual = replace(recorded, calls=[call, *recorded.calls[1:]])
        return pytest_tfdebug.compare(recorded, actual, tolerance=tolerance).ok

    assert agrees(0.9 * FLOORS, "fp64")
    assert not agrees(3 * FLOORS, "fp64")
    assert agrees(3 * FLOORS, "dtype")


def test_source_of_tolerances_that_does_not_exist_is_refused(model):
    recorded = pytest_tfdebug.trace(model, HIDDEN)

    with pytest.raises(TFDebugError, match=r"^tolerance='fp32' is not 'dtype', 'fp64', a pair"):
        pytest_tfdebug.compare(recorded, recorded, tolerance="fp32")


def test_model_in_float64_keeps_the_tolerance_of_its_dtype(model):
    wide = copy.deepcopy(model).double()
    recorded = pytest_tfdebug.trace(wide, HIDDEN.double())

    assert measure_floors(recorded) == []
    assert pytest_tfdebug.compare(recorded, recorded, tolerance="fp64").ok
