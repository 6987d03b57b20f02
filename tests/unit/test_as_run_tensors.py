"""Tensors of every kind: read by one reader, in a trace, a file, a fingerprint and a failing check."""

import warnings

import pytest
import torch
from torch import nn

from pytest_tfdebug import Trace, compare, trace
from pytest_tfdebug.goldens.weights import fingerprint
from pytest_tfdebug.overflow.guard import overflow_guard
from pytest_tfdebug.tensors import readable

BASE = torch.linspace(-1, 1, 32).view(4, 8)
ONE = torch.ones(1)


class Packed(torch.Tensor):
    """A tensor that holds int8 numbers and stands for floats, as torchao's do."""

    @staticmethod
    def __new__(cls, numbers, scale):
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=torch.float32)

    def __init__(self, numbers, scale):
        self.numbers, self.scale = numbers, scale

    def dequantize(self):
        return self.numbers.float() * self.scale

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return type(args[0])(args[0].numbers, args[0].scale)
        raise NotImplementedError(f"Packed has no {func}")


def nested(layout):
    return lambda x: torch.nested.nested_tensor([x[:3], x[:2]], layout=layout)


def quantized(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)


def in_bytes(dtype):
    return lambda x: (x * 100).to(torch.int8).view(torch.uint8).view(dtype)


KINDS = {
    "qint8": quantized,
    "float8_e4m3fn": lambda x: x.to(torch.float8_e4m3fn),
    "float8_e5m2": lambda x: x.to(torch.float8_e5m2),
    "uint4": in_bytes(torch.uint4),
    "bits8": in_bytes(torch.bits8),
    "coo": lambda x: x.relu().to_sparse(),
    "csr": lambda x: x.relu().to_sparse_csr(),
    "nested": nested(torch.strided),
    "jagged": nested(torch.jagged),
    "packed": lambda x: Packed((x * 100).to(torch.int8), 0.01),
}
if hasattr(torch, "float4_e2m1fn_x2"):
    KINDS["float4"] = in_bytes(torch.float4_e2m1fn_x2)


class Holding(nn.Module):
    """Hands a tensor that it holds through a child."""

    def __init__(self, tensor):
        super().__init__()
        self.register_buffer("held", tensor)
        self.inner = nn.Identity()

    def forward(self, _x):
        return self.inner(self.held)


@pytest.fixture(autouse=True)
def prototypes():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(Sparse|nested tensors|quantize).*")
        yield


@pytest.mark.as_run(
    "tensors",
    works="Read as numbers, or as bytes if torch cannot compute with the dtype. Nested tensors are padded with zeros.",
    limits="`DTensor`: see [ranks](#several-ranks).",
)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_tensors_of_every_kind_are_read_stored_and_told_apart(kind, tmp_path):
    model, wrong = Holding(kind(BASE)), Holding(kind(BASE + 0.5))

    recorded = trace(model, ONE)
    recorded.save(tmp_path / "trace.safetensors")
    loaded = Trace.load(tmp_path / "trace.safetensors")
    right, failing = compare(loaded, trace(model, ONE)), compare(loaded, trace(wrong, ONE))

    assert recorded["inner"].outputs[0].tensor is not None
    assert right.ok
    assert right.coverage.compared == right.coverage.expected == 2
    assert not failing.ok
    assert failing.culprit.path == "Holding"
    assert "Holding" in str(failing).splitlines()[0]
    assert fingerprint(model) == fingerprint(Holding(kind(BASE)))
    assert fingerprint(model) != fingerprint(wrong)
    assert len(recorded.to_dataframe()) == 4


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=["nested", "jagged"])
def test_nested_tensors_are_read_padded_with_zeros(layout):
    read = readable(nested(layout)(BASE))

    assert torch.equal(read[0], BASE[:3])
    assert torch.equal(read[1, :2], BASE[:2])
    assert read[1, 2].tolist() == [0.0] * 8


def encoder(*, is_wrong=False):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.TransformerEncoder(layer, 2).eval()
    if is_wrong:
        model.layers[1].norm2.bias.data += 1
    return model


@pytest.mark.as_run("tensors", works="`nn.TransformerEncoder` with a padding mask.")
@pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
def test_encoder_with_a_padding_mask_is_traced_checked_and_watched(fast):
    mask = torch.tensor([[False, False, False], [False, False, True]])
    inputs = torch.linspace(-1, 1, 48).view(2, 3, 8)
    model, wrong = encoder(), encoder(is_wrong=True)
    for parameter in (*model.parameters(), *wrong.parameters()):
        parameter.requires_grad_(not fast)

    expected = trace(model, inputs, src_key_padding_mask=mask)
    report = compare(expected, trace(wrong, inputs, src_key_padding_mask=mask))

    assert compare(expected, trace(model, inputs, src_key_padding_mask=mask)).ok
    assert report.culprit.path.startswith("layers.1")
    with overflow_guard(model) as guard, torch.no_grad():
        model(inputs, src_key_padding_mask=mask)
    assert guard.forwards == 1


@pytest.mark.as_run("tensors", limits="Of a tensor that cannot be read, only the shape is compared.")
def test_kind_that_cannot_be_read_is_said_to_have_no_values():
    class Refusing(Packed):
        def dequantize(self):
            raise NotImplementedError("no way")

    recorded = trace(Holding(Refusing(torch.ones(2, 2, dtype=torch.int8), 1.0)), ONE)

    assert recorded["inner"].outputs[0].tensor is None
    assert recorded["inner"].outputs[0].shape == (2, 2)
    assert isinstance(fingerprint(Holding(Refusing(torch.ones(2, 2, dtype=torch.int8), 1.0)))["held"], str)
