"""A recording that reduces each tensor as it is seen keeps what is kept of a recording of everything."""

import gc

import pytest
import torch
from torch import nn

from models import build
from pytest_tfdebug import record
from pytest_tfdebug.goldens.golden_file import is_same
from pytest_tfdebug.tracing.file.codec import TraceFile
from pytest_tfdebug.tracing.file.document import encode
from pytest_tfdebug.tracing.file.stored_tensors import KEPT, sampled
from pytest_tfdebug.tracing.record.modules import Selection
from pytest_tfdebug.tracing.trace import recorded_forward

HIDDEN = torch.linspace(-1, 1, 4 * 32 * 64).view(4, 32, 64).sin()


class InPlace(nn.Module):
    """Writes to what was recorded, also behind torch's back, and returns views, masks and whole numbers."""

    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(64, 64), nn.ReLU(inplace=True), nn.Linear(64, 64)

    def forward(self, hidden):
        wide = self.act(self.up(hidden))
        wide.data.mul_(2)
        narrow = self.down(wide[:, ::2])
        wide.add_(1)
        return {"narrow": narrow, "wide": wide, "mask": wide > 0, "places": wide.argmax(-1)}


class Loop(nn.Module):
    """Calls one module many times."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(64, 96)

    def forward(self, hidden):
        state, states = hidden.new_zeros(4, 96), []
        for step in range(hidden.shape[1]):
            state = self.cell(hidden[:, step], state)
            states.append(state)
        return torch.stack(states), state


def seeded(model):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model().eval()


def of_fixture(name, method="forward", **more):
    model, inputs = build(name)
    return model, {**inputs, **more}, method


FORWARDS = {
    "in place": lambda: (seeded(InPlace), {"hidden": HIDDEN}, "forward"),
    "loop": lambda: (seeded(Loop), {"hidden": HIDDEN}, "forward"),
    "llama": lambda: of_fixture("llama", output_hidden_states=True),
    "vit": lambda: of_fixture("vit"),
    "mixtral": lambda: of_fixture("mixtral"),
    "generate": lambda: of_fixture("gpt2", "generate", max_new_tokens=6, do_sample=False),
}


def recorded(forward, *, is_sampled=False):
    model, inputs, method = forward
    return recorded_forward(model, (), dict(inputs), Selection(), method=method, is_sampled=is_sampled)


@pytest.mark.parametrize("name", FORWARDS)
def test_reduction_as_tensors_are_seen_keeps_what_that_of_all_keeps(name):
    forward = FORWARDS[name]()

    (tensors, document), (wanted, told) = (
        encode(trace) for trace in (recorded(forward, is_sampled=True), sampled(recorded(forward)))
    )

    assert document == told
    assert tensors.keys() == wanted.keys()
    for key, tensor in tensors.items():
        assert tensor.dtype == wanted[key].dtype
        assert torch.equal(tensor.nan_to_num(), wanted[key].nan_to_num()), key


@pytest.mark.parametrize("name", FORWARDS)
def test_same_forward_is_the_golden_that_it_became(name):
    forward, extra = FORWARDS[name](), {"test": "", "weights": {}, "kept": {}}
    golden = TraceFile(recorded(forward, is_sampled=True), extra)

    assert is_same(golden, recorded(forward, is_sampled=True), extra)

    model, inputs, method = forward
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3
    assert not is_same(golden, recorded((model, inputs, method), is_sampled=True), extra)


def test_cache_of_a_later_step_is_kept_like_any_tensor():
    model, inputs, _ = of_fixture("gpt2")
    with record(model) as steps, torch.no_grad():
        first = model(**inputs, use_cache=True)
        model(input_ids=inputs["input_ids"][:, :1], past_key_values=first.past_key_values, use_cache=True)

    held = sampled(steps)

    roots = [call for call in held.calls if call.parent is None]
    assert len(roots) == 2
    given = [record_ for record_ in roots[1].inputs if "past_key_values" in record_.leaf]
    assert given
    assert all(record_.digest is not None or record_.tensor.numel() <= KEPT for record_ in given)
    assert roots[1].inputs[0].tensor is not None


def _most_held(depth):
    """Return the most bytes of activations that were alive at once while a model of some depth was recorded."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(depth))).eval()
    own = {each.untyped_storage()._cdata for each in (*model.parameters(), HIDDEN)}
    most = 0

    def look(_module, _args):
        nonlocal most
        alive = [each for each in gc.get_objects() if type(each) is torch.Tensor and each.layout == torch.strided]
        held = {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in alive}
        most = max(most, sum(size for place, size in held.items() if place not in own))

    for each in model.modules():
        each.register_forward_pre_hook(look)
    recorded_forward(model, (HIDDEN,), {}, Selection(), is_sampled=True)
    return most


@pytest.fixture
def nothing_old():
    """Let ``gc.get_objects()`` list what is made from here on: with all that earlier tests have loaded it takes a minute."""
    gc.collect()
    gc.freeze()  # for good, as what the suite itself has loaded


def test_what_a_recording_holds_does_not_grow_with_depth(nothing_old):
    shallow, deep = _most_held(3), _most_held(40)

    assert deep < shallow + 4 * HIDDEN.numel() * 4
