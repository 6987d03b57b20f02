import copy
import math
import os
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from golden_files import opened, rewritten
from pytest_tfdebug import GoldenError, TFDebugError, Trace, compare, trace
from pytest_tfdebug.tracing.file.codec import TraceFile, read, read_extra, write


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 3)
        self.act = nn.ReLU()

    def forward(self, x, *, scale):
        hidden = self.act(self.lin(x))
        return {"hidden": hidden * scale, "view": hidden[:, ::2], "flag": hidden > 0, "text": "done"}


def recorded():
    torch.manual_seed(0)
    return trace(Pair(), torch.tensor([[1.0, 2.0]]), scale=2)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Path, tensors and document of a file."""
    path = tmp_path_factory.mktemp("codec") / "trace.safetensors"
    write(path, recorded(), {"test": "t"})
    document, tensors = opened(path)
    return path, tensors, document


def use(loaded):
    """Do with a trace what a user does."""
    str(loaded)
    loaded.to_dataframe()
    str(compare(loaded, loaded))


def test_trace_is_read_back_as_it_was(stored):
    loaded = read(stored[0], Trace)

    assert isinstance(loaded, TraceFile)
    assert loaded.extra == {"test": "t"}
    expected = recorded()
    for one, other in zip(expected.calls, loaded.trace.calls, strict=True):
        for name in ("index", "path", "class_name", "call", "parent", "depth", "parameters", "has_children", "error"):
            assert getattr(one, name) == getattr(other, name)
        assert one.skeleton == other.skeleton
        assert one.site is None or one.site[1:] == other.site[1:]
    for one, other in zip(expected.records(), loaded.trace.records(), strict=True):
        assert (one.leaf, one.shape, one.dtype) == (other.leaf, other.shape, other.dtype)
        assert torch.equal(one.tensor, other.tensor)
    assert str(expected) == str(loaded.trace)


def test_same_trace_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        recorded().save(tmp_path / name)

    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_tensor_that_several_leaves_show_is_stored_once(stored):
    _, tensors, document = stored

    places = [leaf[1] for call in document["calls"] for leaf in [*call["inputs"], *call["outputs"]]]
    assert len(places) > len(set(places)) == len(document["tensors"])
    assert sum(not name.startswith("#") for name in tensors) == len(document["tensors"])


def test_call_that_did_not_return_is_read_back(tmp_path):
    class Raises(nn.Module):
        def forward(self, x):
            raise ValueError

    from pytest_tfdebug import record

    with pytest.raises(ValueError, match=r"^$"), record(model := Raises()) as calls:
        model(torch.ones(1))
    calls.save(tmp_path / "t")

    loaded = Trace.load(tmp_path / "t")

    assert (loaded["Raises"].outputs, loaded["Raises"].error) == (None, "ValueError")


def test_source_files_are_named_without_folders_of_this_machine(stored):
    _, _, document = stored

    files = {call["site"][0] for call in document["calls"] if call["site"]}
    assert files
    assert not any(os.path.isabs(file) for file in files)  # noqa: PTH117


def test_missing_file_is_named(tmp_path):
    with pytest.raises(GoldenError, match=r"nothing.safetensors does not exist.$"):
        read(tmp_path / "nothing.safetensors", Trace)


def test_directory_is_no_file(tmp_path):
    with pytest.raises(GoldenError) as caught:
        read(tmp_path, Trace)
    assert str(caught.value) == f"{tmp_path} is not a file."


@pytest.mark.parametrize("content", [b"", b"\x00" * 8, b"GIF89a", b"\xff" * 4096])
def test_what_is_not_safetensors_is_said_to_be(tmp_path, content):
    path = tmp_path / "t"
    path.write_bytes(content)

    with pytest.raises(GoldenError) as caught:
        read(path, Trace)
    assert str(caught.value).startswith(
        f"{path} ({len(content):,} bytes) is empty, truncated or not a safetensors file: "
    )
    assert read_extra(path) is None


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_file_of_another_program_is_said_to_be(tmp_path, metadata):
    save_file({"w": torch.ones(2)}, tmp_path / "t", metadata=metadata)

    with pytest.raises(GoldenError, match=r"is a safetensors file of another program: it has no 'tfdebug' metadata.$"):
        read(tmp_path / "t", Trace)
    assert read_extra(tmp_path / "t") is None


@pytest.mark.parametrize("version", [1, 3, 99, 0, "1", None, True, 1.0])
def test_format_that_is_not_known_is_refused_with_what_to_do(tmp_path, stored, version):
    _, tensors, document = stored
    rewritten(tmp_path / "t", document, tensors, format=version)

    with pytest.raises(GoldenError) as caught:
        read(tmp_path / "t", Trace)
    assert f"has format version {version!r}; this version of pytest-tfdebug reads up to 2.\nUpgrade" in str(
        caught.value
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_damaged_metadata_is_said_to_be(tmp_path, text):
    save_file({"w": torch.ones(2)}, tmp_path / "t", metadata={"tfdebug": text})

    with pytest.raises(GoldenError, match="has damaged 'tfdebug' metadata: "):
        read(tmp_path / "t", Trace)
    assert not read_extra(tmp_path / "t")


def edited(stored, path, edit):
    _, tensors, document = stored
    document, tensors = copy.deepcopy(document), dict(tensors)
    edit(document, tensors)
    return rewritten(path, document, tensors)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (
            lambda document, tensors: document["calls"][0]["inputs"][0].__setitem__(1, 99),
            "the document names tensor 99 of 6.",
        ),
        (
            lambda document, tensors: tensors.pop("Pair#0.input[0]"),
            "the metadata names a tensor 'Pair#0.input[0]' that the file does not hold.",
        ),
        (
            lambda document, tensors: tensors.update({"Pair#0.input[0]": torch.ones(2, 2)}),
            "the metadata says float32[1, 2] for 'Pair#0.input[0]' and the file holds float32[2, 2].",
        ),
        (
            lambda document, tensors: tensors.update({"Pair#0.input[0]": torch.ones(1, 2).half()}),
            "the metadata says float32[1, 2] for 'Pair#0.input[0]' and the file holds float16[1, 2].",
        ),
        (
            lambda document, tensors: document["calls"][1].update(parent=2),
            "the call tree is not in order at call 1.",
        ),
        (
            lambda document, tensors: document["calls"].reverse(),
            "the call tree is not in order at call 0.",
        ),
        (
            lambda document, tensors: document["calls"][1].update(parent=-1),
            "the call tree is not in order at call 1.",
        ),
    ],
    ids=["place", "missing", "shape", "dtype", "parent", "order", "negative"],
)
def test_document_that_disagrees_with_its_tensors_is_refused(stored, tmp_path, edit, text):
    path = edited(stored, tmp_path / "t", edit)

    with pytest.raises(GoldenError) as caught:
        read(path, Trace)
    assert str(caught.value) == f"{path}: {text}"


def places(value, found):
    """Collect every place of a JSON value as its container and key."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        found.append((value, key))
        places(value[key], found)
    return found


values = st.sampled_from(
    [None, True, -1, 0, 3, 10**30, 1.5, math.inf, math.nan, "", "x", [], {}, [1], {"leaf": 9}, {"items": 3}, [None] * 5]
)


@given(st.data())
def test_no_edit_of_the_document_leads_to_another_error(stored, tmp_path_factory, data):
    def edit(document, tensors):
        for _ in range(data.draw(st.integers(1, 2))):
            found = places(document, [])
            container, key = found[data.draw(st.integers(0, len(found) - 1))]
            container[key] = copy.deepcopy(data.draw(values))

    path = edited(stored, stored[0].parent / "edited", edit)

    try:
        loaded = Trace.load(path)
        use(loaded)
        loaded.save(stored[0].parent / "again")
    except TFDebugError:
        pass


def test_no_damage_of_the_bytes_leads_to_another_error(stored):
    content = stored[0].read_bytes()
    path = stored[0].parent / "damaged"
    generator = random.Random(0)
    refused = 0

    for number in range(600):
        damaged = bytearray(content)
        for _ in range(1 + number % 3):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        if number % 4 == 0:
            del damaged[generator.randrange(len(damaged)) :]
        path.write_bytes(damaged)
        try:
            use(Trace.load(path))
        except TFDebugError:
            refused += 1

    assert refused > 150


def test_error_of_safetensors_while_writing_is_one_of_ours(tmp_path, monkeypatch):
    import safetensors.torch
    from safetensors import SafetensorError

    def fail(*args, **kwargs):
        raise SafetensorError("Error while serializing: I/O error: No space left")

    monkeypatch.setattr(safetensors.torch, "save_file", fail)

    with pytest.raises(GoldenError, match=r"t cannot be written: Error while serializing: I/O error: No space left.$"):
        recorded().save(tmp_path / "t")
    assert list(tmp_path.iterdir()) == []


def test_file_has_the_permissions_of_other_new_files(tmp_path):
    recorded().save(tmp_path / "t")
    (tmp_path / "plain").write_text("")

    assert (tmp_path / "t").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_parent_that_is_a_file_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(GoldenError, match="cannot be written: "):
        recorded().save(tmp_path / "file" / "t")
