"""The table of values in a file: what is written is read, and what is not of its form is refused."""

import copy
import json
import time
import zlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from golden_files import opened, rewritten
from pytest_tfdebug import GoldenError, Trace, trace
from pytest_tfdebug.tracing.file.values_file import NUMBERS, TABLE, decode_values, encode_values

X = torch.linspace(-1, 1, 8).view(2, 4)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(4), nn.Linear(4, 4)
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x):
        held = x.new_zeros(2, 6)
        held[:, :4] = self.layer(self.norm(x)) * self.scale
        return {"hidden": held, "mask": x > 0}


def values_of(model, *args, **kwargs):
    return trace(model, *args, **kwargs).again.values()


@pytest.fixture(scope="module")
def encoded():
    return encode_values(values_of(Model(), X))


def table_of(tensors):
    return json.loads(zlib.decompress(tensors[TABLE].numpy().tobytes()))


def packed(table):
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return torch.frombuffer(bytearray(zlib.compress(text, 9)), dtype=torch.uint8)


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Return a function that loads a trace file whose two tensors of values were replaced."""
    path = tmp_path_factory.mktemp("files") / "trace.safetensors"
    model = Model()
    trace(model, X).save(path)
    document, tensors = opened(path)

    def replaced(**changed):
        changed = {{"table": TABLE, "numbers": NUMBERS}[name]: tensor for name, tensor in changed.items()}
        rewritten(path, document, tensors | changed)
        return Trace.load(path)

    return replaced


def test_table_is_read_as_it_was_written():
    model = Model()
    values = values_of(model, X)

    found = decode_values(encode_values(values))

    assert [call.path for call in found.calls] == [call.path for call in values.calls]
    assert (found.inputs, found.outputs, found.results) == (values.inputs, values.outputs, values.results)
    assert found.parameters.keys() == values.parameters.keys()
    for one, other in zip(values.values, found.values, strict=True):
        for name in ("index", "operator", "origin", "name", "call", "producers", "shape", "dtype", "is_random"):
            assert getattr(one, name) == getattr(other, name)
        assert [line[:3:2] for line in one.lines] == [line[:3:2] for line in other.lines] or one.lines
        assert (one.print.elements, one.print.finite) == (other.print.elements, other.print.finite)
        assert list(other.print[2:9]) == pytest.approx(list(one.print[2:9]), rel=1e-6)
        assert [length for length, _ in one.print.axes] == [length for length, _ in other.print.axes]


def test_table_holds_the_text_of_lines_and_no_path_of_this_machine():
    text = zlib.decompress(encode_values(values_of(Model(), X))[TABLE].numpy().tobytes()).decode()

    assert "held[:, :4] = self.layer(self.norm(x)) * self.scale" in text
    assert torch.__file__.rpartition("/")[0] not in text


def test_what_was_read_is_written_the_same():
    first = encode_values(values_of(Model(), X))

    second = encode_values(decode_values(dict(first)))

    assert table_of(first) == table_of(second)
    assert torch.equal(first[NUMBERS], second[NUMBERS])


def test_file_without_a_table_has_no_values(tmp_path):
    assert decode_values({"other": X}) is None


def test_trace_is_loaded_with_its_values(load):
    assert load().again.values().results[0][0] == "['hidden']"


def size_of(layers):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 99}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=layers)).eval()
    tensors = encode_values(values_of(model, input_ids=torch.arange(8).view(1, 8)))
    return sum(tensor.nbytes for tensor in tensors.values())


def test_layer_takes_about_ten_kilobytes():
    assert size_of(6) - size_of(2) < 4 * 12_000


def refused_or_read(load, **changed):
    """Load a file: nothing but a GoldenError may come of it, in time. Return whether it was read."""
    started = time.process_time()
    try:
        values = load(**changed).again
        if values is not None:
            values.values()
    except GoldenError:
        return False
    finally:
        assert time.process_time() - started < 5
    return True


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=4))
def test_flipped_bytes_are_refused(encoded, load, flips):
    table = encoded[TABLE].clone()
    for place, mask in flips:
        table[place % len(table)] ^= mask

    if torch.equal(table, encoded[TABLE]):
        return
    assert not refused_or_read(load, table=table)


def places(value, above=()):
    """Yield the place of each entry of a nested document."""
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in rows:
        yield (*above, key)
        yield from places(inner, (*above, key))


def with_entry(table, place, entry):
    table = copy.deepcopy(table)
    inner = table
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = entry
    return table


odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.integers(-3, 60),
    st.floats(),
    st.text(max_size=3),
    st.just([]),
    st.just({}),
    st.just([[]]),
    st.just([-1]),
    st.just([10**9] * 3),
)


@given(st.data(), odd)
def test_another_entry_anywhere_is_read_or_refused_and_nothing_else(encoded, load, data, entry):
    table = table_of(encoded)

    refused_or_read(load, table=packed(with_entry(table, data.draw(st.sampled_from(list(places(table)))), entry)))


@pytest.mark.parametrize("change", [lambda numbers: numbers[:-1], lambda numbers: torch.cat([numbers, numbers[:1]])])
def test_numbers_that_do_not_match_the_places_of_the_table_are_refused(encoded, load, change):
    with pytest.raises(GoldenError, match="damaged"):
        load(table=encoded[TABLE], numbers=change(encoded[NUMBERS]))


@given(st.data())
def test_missing_entry_is_read_or_refused_and_nothing_else(encoded, load, data):
    table = table_of(encoded)
    place = data.draw(st.sampled_from(list(places(table))))
    inner = table
    for key in place[:-1]:
        inner = inner[key]
    del inner[place[-1]]

    refused_or_read(load, table=packed(table))


def far(table, *place, entry=10**6):
    return packed(with_entry(table, place, entry))


@pytest.mark.parametrize(
    "change",
    [
        lambda table: far(table, "values", 5, 5, entry=[10**6]),
        lambda table: far(table, "values", 5, 5, entry=[-1]),
        lambda table: far(table, "values", 5, 5, entry=[5]),
        lambda table: far(table, "values", 5, 4),
        lambda table: far(table, "values", 5, 4, entry=-1),
        lambda table: far(table, "values", 5, 3),
        lambda table: far(table, "values", 5, 1),
        lambda table: far(table, "chains", 1, entry=[10**6]),
        lambda table: far(table, "outputs", 0, 1, entry=[["", 10**6]]),
        lambda table: far(table, "inputs", 0, 0),
        lambda table: far(table, "calls", 1, 4),
        lambda table: far(table, "calls", entry=[]),
        lambda table: far(table, "values", 0, 5, entry="text"),
    ],
)
def test_index_out_of_range_is_refused(encoded, load, change):
    with pytest.raises(GoldenError, match="damaged"):
        load(table=change(table_of(encoded)))


@pytest.mark.parametrize("caller", [1, 2], ids=["itself", "a later one"])
def test_call_that_is_not_after_its_caller_is_refused(encoded, load, caller):
    table = table_of(encoded)
    table["calls"][1][4] = table["calls"][caller][0]

    with pytest.raises(GoldenError):
        load(table=packed(table))


def test_two_calls_of_one_number_are_refused(encoded, load):
    table = table_of(encoded)
    table["calls"][2][0] = table["calls"][1][0]

    with pytest.raises(GoldenError):
        load(table=packed(table))


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"null", b"{}", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"calls": ' + b"9" * 10_000 + b"}"],
    ids=["empty", "list", "null", "object", "string", "bytes", "deep", "long number"],
)
def test_another_document_is_refused(load, text):
    with pytest.raises(GoldenError):
        load(table=packed(text))


def test_compressed_bomb_is_refused(load, monkeypatch):
    monkeypatch.setattr("pytest_tfdebug.tracing.file.document.LONGEST_DOCUMENT", 1_000_000)

    with pytest.raises(GoldenError, match="more than 1,000,000 bytes"):
        load(table=packed(b" " * 50_000_000))


@pytest.mark.parametrize("cut", [0, 1, 20])
def test_table_that_was_cut_is_refused(encoded, load, cut):
    with pytest.raises(GoldenError):
        load(table=encoded[TABLE][:cut])


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 2)])
def test_too_few_numbers_or_of_another_shape_are_refused(load, shape):
    with pytest.raises(GoldenError):
        load(numbers=torch.zeros(shape))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_read_or_refused(encoded, load, number):
    refused_or_read(load, numbers=torch.full_like(encoded[NUMBERS], number))


@pytest.mark.parametrize("name", ["table", "numbers"])
def test_tensor_of_another_dtype_is_refused(load, name):
    with pytest.raises(GoldenError):
        load(**{name: torch.zeros(8, dtype=torch.int32)})
