"""The exported files are those of transformers' own debugger, byte by byte."""

import filecmp
from pathlib import Path

import pytest
import torch
from transformers.model_debugging_utils import model_addition_debugger_context

from models import IS_V5, build
from pytest_tfdebug import TFDebugError, Trace, trace


@pytest.mark.skipif(not IS_V5, reason="compared with the debugger of transformers 5")
@pytest.mark.parametrize("architecture", ["llama", "t5", "bert"])
def test_files_equal_those_of_the_transformers_debugger(architecture, tmp_path):
    model, inputs = build(architecture)
    inputs["use_cache"] = False

    exported = trace(model, **inputs).export_json(tmp_path / "ours")
    with (
        torch.no_grad(),
        model_addition_debugger_context(
            model, debug_path=str(tmp_path / "theirs"), do_prune_layers=False, use_repr=True
        ),
    ):
        model(**inputs)

    theirs = sorted((tmp_path / "theirs").iterdir())
    assert [path.name for path in theirs] == sorted(path.rpartition("/")[2] for path in exported)
    for path in theirs:
        assert filecmp.cmp(path, tmp_path / "ours" / path.name, shallow=False), f"{path.name} differs"


def test_stored_trace_is_exported_as_the_one_in_memory(tmp_path):
    model, inputs = build("llama")
    recorded = trace(model, **inputs)
    recorded.save(tmp_path / "t")

    one = recorded.export_json(tmp_path / "one")
    other = Trace.load(tmp_path / "t").export_json(tmp_path / "other")

    assert all(filecmp.cmp(*pair, shallow=False) for pair in zip(one, other, strict=True))


def test_print_options_are_left_as_they_were(tmp_path):
    from torch._tensor_str import PRINT_OPTS

    before = dict(vars(PRINT_OPTS))

    trace(torch.nn.Linear(2, 2), torch.ones(2)).export_json(tmp_path)

    assert vars(PRINT_OPTS) == before


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(0, 2),
        torch.ones(2).to(torch.float8_e4m3fn),
        torch.tensor([1 + 2j]),
        torch.tensor([True]),
        torch.ones(2, device="meta"),
        torch.ones(2, dtype=torch.bfloat16),
    ],
    ids=["empty", "float8", "complex", "bool", "meta", "bfloat16"],
)
@pytest.mark.filterwarnings("error")
def test_tensors_of_every_kind_are_exported(tensor, tmp_path):
    summary, full = trace(torch.nn.Identity(), tensor).export_json(tmp_path)

    assert f'"shape": "torch.Size({list(tensor.shape)})"' in Path(summary).read_text()
    assert str(tensor.dtype) in Path(full).read_text()


def test_empty_trace_and_an_unwritable_directory_are_told(tmp_path):
    with pytest.raises(TFDebugError, match=r"^The trace has no calls: there is nothing to export.$"):
        Trace("Model").export_json(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(TFDebugError, match=r"file cannot be written: File exists.$"):
        trace(torch.nn.Linear(2, 2), torch.ones(2)).export_json(tmp_path / "file")
