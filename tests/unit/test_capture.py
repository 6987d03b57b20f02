import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pytest_tfdebug.tensors import Leaf, readable, tensor_record
from pytest_tfdebug.tracing.record.state import Captures, capture

DTYPES = [
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.complex64, torch.complex128, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
]  # fmt: skip


def values(tensor):
    return tensor.flatten().view(torch.uint8).tolist()


def test_lazy_clone_shares_storage_until_a_write():
    source = torch.arange(4.0)

    copy = torch._lazy_clone(source)

    assert torch._C._is_cow_tensor(source)
    assert torch._C._is_cow_tensor(copy)
    source.add_(1)
    assert not torch._C._is_cow_tensor(source)
    assert copy.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "write",
    [
        lambda source, view: source.add_(1),
        lambda source, view: view.zero_(),
        lambda source, view: source.data.mul_(3),
        lambda source, view: source.__setitem__(1, 9.0),
        lambda source, view: source.detach().fill_(5),
        lambda source, view: torch.add(source, 1, out=source),
        lambda source, view: source.numpy().fill(3),
    ],
    ids=["source", "view", "data", "item", "detached", "out", "numpy"],
)
@pytest.mark.parametrize("what", ["whole", "view"])
def test_later_writes_do_not_reach_a_capture(write, what):
    source = torch.arange(6.0)
    view = source[1:5:2]

    kept = capture(source if what == "whole" else view)
    write(source, view)

    assert kept.tolist() == ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0] if what == "whole" else [1.0, 3.0])
    assert source.tolist() != [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_writes_to_a_capture_do_not_reach_the_source():
    source = torch.arange(3.0)

    capture(source).zero_()

    assert source.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", ["plain", "transposed", "expanded", "empty", "scalar"])
def test_every_dtype_and_form_is_captured_as_it_is(dtype, form):
    base = torch.randint(0, 2, (2, 3)).to(dtype)
    tensor = {
        "plain": base,
        "transposed": base.t(),
        "expanded": base[:1].expand(4, 3),
        "empty": base[:0],
        "scalar": base[0, 0],
    }[form]

    kept = capture(tensor)

    assert (kept.dtype, kept.shape) == (tensor.dtype, tensor.shape)
    assert values(kept) == values(tensor)


@pytest.mark.parametrize("foreign", ["numpy", "mapped", "shared"])
def test_storages_of_others_are_copied(foreign, tmp_path):
    if foreign == "numpy":
        array = np.arange(3, dtype=np.float32)
        tensor = torch.from_numpy(array)
    elif foreign == "mapped":
        save_file({"w": torch.arange(3.0)}, tmp_path / "w.safetensors")
        tensor = load_file(tmp_path / "w.safetensors")["w"]
    else:
        tensor = torch.arange(3.0).share_memory_()

    kept = capture(tensor)
    tensor.add_(1)

    assert kept.tolist() == [0.0, 1.0, 2.0]


def test_capture_is_detached():
    tensor = torch.ones(2, requires_grad=True) * 2

    assert not capture(tensor).requires_grad


def test_parameter_becomes_a_plain_tensor():
    assert type(capture(torch.nn.Parameter(torch.ones(2)))) is torch.Tensor


def test_inference_tensors_are_captured():
    with torch.inference_mode():
        tensor = torch.zeros(2)
        kept = capture(tensor)
        tensor.add_(1)

    assert kept.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_bsr], ids=str)
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_sparse_tensors_are_captured_dense(layout):
    sparse = torch.eye(2).to_sparse(layout=layout, blocksize=(1, 1) if layout == torch.sparse_bsr else None)

    assert capture(sparse).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_tensors_without_values_give_none():
    assert capture(torch.ones(2, device="meta")) is None


def test_tensor_inside_vmap_has_no_values_of_its_own():
    seen = []

    torch.vmap(lambda row: seen.append(capture(row)) or row)(torch.ones(2, 3))

    assert seen == [None]


def test_tensor_inside_grad_is_captured_and_can_be_read_after_it():
    captures, kept = Captures(), []

    def loss(x):
        kept.extend([captures.take(x), captures.take(x)])
        return x.sum()

    torch.func.grad(loss)(torch.ones(2))

    assert [tensor.tolist() for tensor in kept] == [[1.0, 1.0]] * 2


def test_conjugated_tensors_keep_their_values():
    tensor = torch.tensor([1 + 2j]).conj()

    assert capture(tensor).tolist() == [1 - 2j]


def test_unchanged_tensor_is_captured_once():
    captures = Captures()
    tensor = torch.ones(2)

    assert captures.take(tensor) is captures.take(tensor)


def test_what_a_model_owns_shares_no_memory_with_a_capture():
    owned = torch.nn.Parameter(torch.ones(3))
    place = owned.data_ptr()
    captures = Captures([owned])

    kept = [captures.take(owned), captures.take(owned[1:])]

    assert owned.data_ptr() == place
    assert not {tensor.untyped_storage().data_ptr() for tensor in kept} & {place}


@pytest.mark.parametrize("write", [lambda t: t.add_(1), lambda t: t.data.add_(1), lambda t: t[0].add_(1)])
def test_tensor_is_captured_again_after_a_write(write):
    captures = Captures()
    tensor = torch.zeros(2)

    before = captures.take(tensor)
    write(tensor)
    after = captures.take(tensor)

    assert before.tolist() == [0.0, 0.0]
    assert after.tolist() == tensor.tolist() != before.tolist()


def test_new_tensor_at_an_old_address_is_another_one():
    captures = Captures()

    kept = [captures.take(torch.full((2,), float(number))) for number in range(20)]

    assert [tensor[0].item() for tensor in kept] == list(map(float, range(20)))


def test_inference_tensors_are_captured_each_time():
    captures = Captures()
    with torch.inference_mode():
        tensor = torch.zeros(1)
        before = captures.take(tensor)
        tensor.add_(1)

        assert captures.take(tensor).item() == 1.0
    assert before.item() == 0.0


def test_record_names_shape_and_dtype_as_they_are_read():
    ragged = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)

    record = tensor_record(Leaf("[0]", ragged), readable(ragged))

    assert (record.leaf, record.shape, record.dtype) == ("[0]", (2, 2), "float32")
