"""The file of a golden: small, checked, refused in one line."""

import json
import random
import time

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from golden_files import header_of, opened, rewritten
from pytest_tfdebug import GoldenError, TFDebugError, Trace, compare, record, trace
from pytest_tfdebug.goldens.golden_file import load, save
from pytest_tfdebug.goldens.settings import parse_size
from pytest_tfdebug.tracing.file.codec import read, read_extra, shown_size, write
from pytest_tfdebug.tracing.file.document import MOST_CALLS
from pytest_tfdebug.tracing.file.stored_tensors import KEPT, OF_OUTPUTS


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, hidden):
        return hidden + self.down(torch.relu(self.up(self.norm(hidden))))


class Model(nn.Module):
    def __init__(self, width=64, blocks=4, words=400):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, words)

    def forward(self, ids, note=""):
        hidden = self.embed(ids)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture(scope="module")
def ids():
    return torch.arange(4 * 128).view(4, 128) % 400


@pytest.fixture(scope="module")
def golden(model, ids, tmp_path_factory):
    path = tmp_path_factory.mktemp("goldens") / "test_port.safetensors"
    save(path, trace(model, ids), model, "test_it.py::test_port")
    return path


def test_golden_keeps_as_much_of_every_tensor_and_more_of_outputs(golden, model, ids):
    whole = sum(record.tensor.nbytes for record in trace(model, ids).records())
    held = load(golden).trace

    assert golden.stat().st_size < whole / 20
    assert torch.equal(held["Model"].inputs[0].tensor, ids)
    output = held["Model"].outputs[0].digest
    for record_ in held.records():
        assert record_.tensor is not None or len(record_.digest.elements) == KEPT or record_.digest is output
    assert (len(output.elements), len(output.tops)) == (OF_OUTPUTS // 2, 4 * 128 * 8)


def test_small_model_is_kept_whole(tmp_path):
    small = nn.Linear(4, 4)
    save(tmp_path / "t", trace(small, torch.ones(2, 4)), small, "test")

    assert all(record_.tensor is not None for record_ in load(tmp_path / "t").trace.records())


def test_trace_keeps_every_element(model, ids, tmp_path):
    trace(model, ids).save(tmp_path / "t")

    for one, other in zip(trace(model, ids).records(), Trace.load(tmp_path / "t").records(), strict=True):
        assert torch.equal(one.tensor, other.tensor)


def test_digest_is_read_as_written_and_written_as_read(golden, tmp_path):
    held = Trace.load(golden)
    held.save(tmp_path / "t")
    again = Trace.load(tmp_path / "t")

    for one, other in zip(held.records(), again.records(), strict=True):
        assert one.statistics == other.statistics
        if one.digest is not None:
            for name in ("elements", "sums", "tops", "top_places"):
                assert torch.equal(getattr(one.digest, name), getattr(other.digest, name))
            assert one.digest.norm == other.digest.norm
    assert "embed (Embedding) -> float32[4, 128, 64] in [-4.34, 4.1]" in str(held)
    assert len(held.to_dataframe()) == len(list(held.records()))


PLACES = {
    "embed": (17, 3),
    "blocks.0.norm": (5,),
    "blocks.1.up": (100, 7),
    "blocks.3.down": (3, 90),
    "head": (311, 40),
}


@pytest.mark.parametrize("path", PLACES)
def test_one_wrong_weight_is_named_by_a_bounded_golden_by_calls_alone(model, ids, golden, path):
    port = Model().eval()
    port.load_state_dict(model.state_dict())
    with torch.no_grad():
        port.get_submodule(path).weight[PLACES[path]] += 0.2
    held = Trace.load(golden)

    explained = compare(held, trace(port, ids))
    held.again = None
    by_calls = compare(held, trace(port, ids))

    assert (explained.culprit.path, by_calls.culprit.path) == (path, path)
    assert by_calls.culprit.divergence.metrics.sampled >= 64
    assert "estimated from" in str(by_calls)


def test_right_model_agrees_and_the_same_bytes_stay(model, ids, golden):
    before = golden.read_bytes()

    report = compare(Trace.load(golden), trace(model, ids))
    written = save(golden, trace(model, ids), model, "test_it.py::test_port")

    assert report.ok
    assert written.status == "unchanged"
    assert golden.read_bytes() == before


def test_another_number_of_threads_or_a_moved_line_rewrites_nothing(model, ids, golden):
    before = golden.read_bytes()
    moved = trace(model, ids)
    for call in moved.calls:
        call.site = call.site and call.site._replace(line=call.site.line + 3)
        call.source = None
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    written = save(golden, moved, model, "test_it.py::test_port")
    torch.set_num_threads(threads)

    assert written.status == "unchanged"
    assert golden.read_bytes() == before


def test_every_flipped_bit_is_damage(golden, tmp_path):
    content, generator = golden.read_bytes(), random.Random(0)
    header = int.from_bytes(content[:8], "little") + 8
    places = [generator.randrange(8, header) for _ in range(60)] + [
        generator.randrange(header, len(content)) for _ in range(60)
    ]
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << generator.randrange(8)
        (tmp_path / "t").write_bytes(damaged)

        with pytest.raises(GoldenError, match=r"damaged|not a safetensors file"):
            Trace.load(tmp_path / "t")


def test_damage_is_named_with_its_tensor_and_what_to_do(golden, tmp_path):
    document, tensors = opened(golden)
    path = rewritten(tmp_path / "t", document, tensors)
    content = bytearray(path.read_bytes())
    content[-5] ^= 4
    path.write_bytes(content)

    with pytest.raises(GoldenError) as caught:
        read(path, Trace)
    assert str(caught.value).splitlines()[0].startswith(f"{path} is damaged: the bytes of its tensor '")
    assert str(caught.value).splitlines()[1] == "Restore it from version control."


def test_header_of_a_golden_says_its_test_and_the_checksums(golden):
    assert read_extra(golden) == {"test": "test_it.py::test_port"}
    assert header_of(golden).keys() == {"format", "extra", "checksums", "checksum"}
    assert header_of(golden)["format"] == 2


def old_header(calls):
    call = {"path": "m", "class": "M", "index": 0, "call": 0, "parent": None, "inputs": [], "outputs": []}
    return json.dumps({"format": 1, "extra": {"test": "t"}, "calls": [call | {"index": n} for n in range(calls)]})


@pytest.mark.parametrize(
    ("place", "told"),
    [("header", " bytes; up to 8,000,000 are read."), ("document", "50,000 calls; up to 20,000 are read.")],
)
def test_file_of_50_000_calls_is_refused_soon(golden, tmp_path, place, told):
    document, tensors = opened(golden)
    if place == "header":
        save_file(tensors, tmp_path / "t", metadata={"tfdebug": old_header(50_000) + " " * 3_000_000})
    else:
        document["calls"] = [document["calls"][0] | {"index": n} for n in range(50_000)]
        rewritten(tmp_path / "t", document, tensors)

    started = time.process_time()
    with pytest.raises(GoldenError) as caught:
        read(tmp_path / "t", Trace)
    read_extra(tmp_path / "t")

    assert time.process_time() - started < 6  # a second, on a machine that does nothing else
    assert told in str(caught.value)


def test_more_calls_than_are_read_are_not_written(tmp_path):
    layer = nn.Identity()
    with record(layer) as recorded:
        for _ in range(MOST_CALLS + 1):
            layer(torch.ones(1))

    with pytest.raises(GoldenError, match=r"The trace has 20,001 calls; a file holds up to 20,000\."):
        recorded.save(tmp_path / "t")
    assert not (tmp_path / "t").exists()


def digests(document):
    return [entry for entry in document["tensors"] if isinstance(entry[2], dict)]


@pytest.mark.parametrize(
    "change",
    [
        {"kept": [0, 10**9]},
        {"kept": [-1, 64]},
        {"kept": [0, 0]},
        {"sums": ["int64", 0, 4]},
        {"sums": ["float32", 0, 31]},
        {"sums": ["nothing", 0, 32]},
        {"tops": [0, 10**6, 5]},
        {"added": [0, 1]},
        {"numbers": None},
        {"numbers": 10**9},
    ],
    ids=str,
)
def test_digest_that_is_not_of_its_form_is_refused(golden, tmp_path, change):
    document, tensors = opened(golden)
    digests(document)[0][2].update(change)
    rewritten(tmp_path / "t", document, tensors)

    with pytest.raises(GoldenError):
        Trace.load(tmp_path / "t")


@pytest.mark.parametrize("shape", [[], [0], [-4], [3.5], "x", None])
def test_digest_of_another_shape_is_refused(golden, tmp_path, shape):
    document, tensors = opened(golden)
    digests(document)[0][0] = shape
    rewritten(tmp_path / "t", document, tensors)

    with pytest.raises(GoldenError):
        Trace.load(tmp_path / "t")


def test_file_that_would_be_too_large_is_not_written(model, ids, tmp_path):
    (tmp_path / "t").write_text("old")

    with pytest.raises(GoldenError, match=r"t would take 4\.6 MB, and tf_golden_max_size is 10 kB."):
        write(tmp_path / "t", trace(model, ids), max_size=10_000)
    assert (tmp_path / "t").read_text() == "old"


@pytest.mark.parametrize(
    ("text", "size"), [("1 MB", 10**6), ("64 kB", 64_000), ("1.5gb", 1_500_000_000), ("12", 12), (5, 5), ("7 b", 7)]
)
def test_size_is_read(text, size):
    assert parse_size(text, "budget") == size


@pytest.mark.parametrize("text", ["", "MB", "-1 MB", "0", "1 TB", None, True, [], "1e3"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(TFDebugError, match="is not a size such as"):
        parse_size(text, "budget")


def test_sizes_are_shown_as_people_write_them():
    assert [shown_size(size) for size in (1, 83_210, 13_400_000, 1_800_000_000)] == [
        "1 kB",
        "83 kB",
        "13.4 MB",
        "1.8 GB",
    ]
