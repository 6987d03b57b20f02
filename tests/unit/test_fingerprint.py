import pytest
import torch
from torch import nn

from pytest_tfdebug.goldens.weights import fingerprint


def model(size=64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(size, size), nn.BatchNorm1d(size))


def differing(before, after):
    return [name for name, there in fingerprint(after).items() if fingerprint(before)[name] != there]


def test_equal_weights_have_equal_fingerprints():
    assert fingerprint(model()) == fingerprint(model())
    assert list(fingerprint(model())) == [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    ]


@pytest.mark.parametrize("size", [3, 64, 200])
@pytest.mark.parametrize(
    "change",
    [
        lambda weight: weight.view(-1)[-1].add_(1e-6),
        lambda weight: weight.view(-1)[0].mul_(-1),
        lambda weight: weight.copy_(weight.t().clone()),
        lambda weight: weight.copy_(weight.flip(0).clone()),
        lambda weight: weight.copy_(weight.roll(1).clone()),
    ],
    ids=["last", "sign", "transposed", "flipped", "rolled"],
)
def test_every_change_of_a_weight_is_seen(size, change):
    before, changed = model(size), model(size)
    with torch.no_grad():
        change(changed[0].weight)

    assert differing(before, changed) == ["0.weight"]


def test_cast_weight_and_another_shape_are_seen():
    assert differing(model(), model().double())[0] == "0.weight"
    assert fingerprint(model(3))["0.weight"] != fingerprint(model(4))["0.weight"]


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.int64], ids=str
)
@pytest.mark.parametrize("numel", [0, 1, 7, 5000])
def test_every_dtype_and_size_has_a_fingerprint(dtype, numel):
    holder = nn.Module()
    holder.register_buffer("values", torch.ones(numel + 1).to(dtype)[1:])
    other = nn.Module()
    other.register_buffer("values", torch.ones(numel).to(dtype))

    assert fingerprint(holder) == fingerprint(other)


def test_tied_weights_stand_under_each_of_their_names():
    tied = nn.Module()
    tied.one = nn.Linear(2, 2, bias=False)
    tied.two = nn.Linear(2, 2, bias=False)
    tied.two.weight = tied.one.weight

    found = fingerprint(tied)

    assert list(found) == ["one.weight", "two.weight"]
    assert found["one.weight"] == found["two.weight"]


def test_meta_weights_have_a_fingerprint_of_their_form():
    assert fingerprint(nn.Linear(2, 2, device="meta")) == fingerprint(nn.Linear(2, 2, device="meta"))
