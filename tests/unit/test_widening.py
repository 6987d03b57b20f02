"""A forward in another dtype than its weights have, without a copy of the model, and nothing of it touched."""

import copy

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from models import ARCHITECTURES, build
from pytest_tfdebug.tracing.record.leaves import replaced, walk
from pytest_tfdebug.tracing.values import widening
from pytest_tfdebug.tracing.values.widening import TO_FLOAT64, changed, narrowed, to_float32, widened

X = torch.linspace(-1, 1, 2 * 5 * 8).view(2, 5, 8).sin()


def cast(inputs, dtype):
    return replaced(inputs, lambda held: held.to(dtype) if held.is_floating_point() else held)


def in_float32(model, *args, **kwargs):
    with widened(model, (args, kwargs), to_float32(model)) as (given, casts):
        return model(*given[0], **given[1]), casts


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_forward_gives_what_a_float32_copy_gives_bit_for_bit(architecture, dtype):
    model, inputs = build(architecture)
    model, inputs = copy.deepcopy(model).to(dtype), cast(inputs, dtype)
    before = {name: (tensor, tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}

    found, casts = in_float32(model, **inputs)

    with torch.no_grad():
        wanted = copy.deepcopy(model).float()(**cast(inputs, torch.float32))
    pairs = zip(walk(found), walk(wanted), strict=True)
    assert all(torch.equal(one.tensor, other.tensor) for one, other in pairs)
    assert not casts.notes
    for name, tensor in model.state_dict(keep_vars=True).items():
        assert tensor is before[name][0]
        assert torch.equal(tensor, before[name][1])


@pytest.mark.parametrize(
    ("module", "count"),
    [
        (nn.LSTM(8, 8, batch_first=True), 1),
        (nn.GRU(8, 8), 1),
        (nn.MultiheadAttention(8, 2), 3),
        (nn.TransformerEncoderLayer(8, 2), 1),
        (nn.RMSNorm(8), 1),
        (nn.BatchNorm1d(5), 1),
        (nn.ConvTranspose1d(5, 5, 3), 1),
        (nn.Bilinear(8, 8, 3), 2),
    ],
    ids=lambda each: type(each).__name__,
)
def test_functions_that_ask_for_one_dtype_are_given_one(module, count):
    low = copy.deepcopy(module).bfloat16().eval()

    found, _ = in_float32(low, *[X.bfloat16()] * count)

    with torch.no_grad():
        wanted = copy.deepcopy(low).float()(*[X.bfloat16().float()] * count)
    assert torch.equal(walk(found)[0].tensor, walk(wanted)[0].tensor)


class Tied(nn.Module):
    """Uses a child's weight itself, one weight twice, a child twice, a buffer that it writes to, and a plain tensor."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.head = nn.Embedding(8, 8), nn.Linear(8, 8, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("cache", torch.zeros(2, 5, 8))
        self.own = nn.Parameter(torch.randn(8))
        self.table = torch.randn(8)

    def forward(self, ids, fails=None):
        self.cache[:, : ids.shape[1]] = self.tokens(ids) * self.own
        hidden = self.head(self.head(self.cache + self.table.to(self.own.dtype)))
        if fails is not None:
            raise fails
        return nn.functional.linear(hidden.to(self.head.weight.dtype), self.tokens.weight)


IDS = torch.arange(10).view(2, 5) % 8


def test_weights_are_widened_whoever_uses_them():
    model = Tied().bfloat16()
    model.table = model.table.bfloat16()

    found, _ = in_float32(model, IDS)

    wide = copy.deepcopy(model).float()
    wide.table = wide.table.float()
    with torch.no_grad():
        assert torch.equal(found, wide(IDS))
    assert model.cache.dtype == torch.bfloat16
    assert not model.cache.any()


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_whatever_ends_a_forward_leaves_the_model_as_it_was(error):
    model, default = Tied().bfloat16(), torch.get_default_dtype()
    before = {name: (tensor, tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}

    with (
        pytest.raises(type(error)),
        widened(model, ((IDS, error), {}), TO_FLOAT64) as ((args, kwargs), _),
    ):
        model(*args, **kwargs)

    after = model.state_dict(keep_vars=True)
    assert all(after[name] is held and torch.equal(held, was) for name, (held, was) in before.items())
    assert torch.get_default_dtype() == default


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return torch.ops.widening_test.half_alone(self.linear(x)) * 2


@torch.library.custom_op("widening_test::half_alone", mutates_args=())
def half_alone(x: torch.Tensor) -> torch.Tensor:
    if x.dtype != torch.bfloat16:
        raise RuntimeError("bfloat16 alone")
    return x + 1


def test_what_knows_half_precision_alone_is_computed_as_it_is_and_told():
    found, casts = in_float32(Half().bfloat16(), X.bfloat16())

    assert found.dtype == torch.float32
    assert casts.notes == ["Computed as it is, for it knows no float32: half_alone."]


def test_cast_to_another_dtype_is_the_forwards_own():
    class Rounds(nn.Linear):
        def forward(self, x):
            return super().forward(x).half().float()

    found, _ = in_float32(Rounds(8, 8).bfloat16(), X.bfloat16())

    assert torch.equal(found, found.half().float())


def test_narrowed_weights_give_what_a_copy_in_half_precision_gives():
    model, inputs = build("llama")

    with narrowed(model, ((), inputs), torch.bfloat16) as ((_, given), _casts):
        found = model(**given).logits

    with torch.no_grad():
        assert torch.equal(found, copy.deepcopy(model).bfloat16()(**inputs).logits)


def test_changed_weights_give_what_a_changed_copy_gives():
    model, inputs = build("gpt2")
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.copy_(parameter.half().float())

    with changed(model, lambda tensor: tensor.half().float()):
        found = model(**inputs).logits

    with torch.no_grad():
        assert torch.equal(found, other(**inputs).logits)


class Held(TorchDispatchMode):
    """Adds up the bytes of the casts that live at once."""

    def __init__(self):
        super().__init__()
        self._alive, self.most = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in ("_to_copy", "to"):
            storage = result.untyped_storage()
            self._alive.append((StorageWeakRef(storage), storage.nbytes()))
        self._alive = [(ref, size) for ref, size in self._alive if not ref.expired()]
        self.most = max(self.most, sum(size for _, size in self._alive))
        return result


@pytest.mark.parametrize(("size", "wider"), [(4, None), (8, TO_FLOAT64)], ids=["float32", "float64"])
def test_no_more_than_one_layer_is_held_twice(size, wider):
    torch.manual_seed(0)
    model, x = nn.Sequential(*[nn.Linear(256, 256) for _ in range(24)]).bfloat16(), torch.randn(4, 256).bfloat16()

    with Held() as held, widened(model, ((x,), {}), wider or to_float32(model)) as ((args, _), _casts):
        model(*args)

    layer = 256 * 256 * size
    assert layer <= held.most < 2 * layer


def test_large_matrix_is_widened_in_pieces(monkeypatch):
    torch.manual_seed(0)
    head, x = nn.Linear(64, 1000, bias=False).bfloat16(), torch.randn(4, 64).bfloat16()
    monkeypatch.setattr(widening, "_LARGE", 64 * 64)

    with Held() as held, widened(head, ((x,), {}), to_float32(head)) as ((args, _), _casts):
        found = head(*args)

    torch.testing.assert_close(found, x.float() @ head.weight.float().T, rtol=1e-6, atol=1e-6)
    assert held.most < 4 * (64 * 64 + 64 * 4 + 1)
