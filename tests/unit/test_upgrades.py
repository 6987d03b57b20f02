"""A golden of another version of the same model: what is only called otherwise passes, and the rest is named."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch

from models import build
from pytest_tfdebug import Trace, compare, trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.records import TensorRecord


@cache
def recorded(name: str) -> Trace:
    model, inputs = build(name)
    return trace(model, **inputs)


def of_other_version(name: str, change: Callable[[TensorRecord], TensorRecord | None]) -> Trace:
    """Return the trace of a model whose outputs another version returns in another way."""
    made = recorded(name)
    calls = [
        call
        if call.outputs is None
        else replace(call, outputs=tuple(it for it in map(change, call.outputs) if it is not None))
        for call in made.calls
    ]
    return replace(made, calls=calls, again=None)


def renamed(old: str, new: str) -> Callable[[TensorRecord], TensorRecord]:
    return lambda record: replace(record, leaf=record.leaf.replace(old, new))


def shuffled(record: TensorRecord) -> TensorRecord:
    if "keys" not in record.leaf or record.tensor is None:
        return record
    return replace(record, tensor=record.tensor.flip(2), leaf=record.leaf.replace("past_key_values", "cache"))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("llama", ".past_key_values", ".cache"),
        ("t5", ".past_key_values", ".cache"),
        ("mamba", ".cache_params", ".cache"),
    ],
)
def test_cache_of_another_name_passes_with_a_note(name: str, old: str, new: str) -> None:
    report = compare(of_other_version(name, renamed(old, new)), recorded(name))

    assert report.ok
    assert f"Only called otherwise here, with the expected values: {new[1:]!r} is {old[1:]!r}." in report.notes


def test_cache_of_another_layout_of_its_record_passes() -> None:
    nested = of_other_version("mamba", lambda it: replace(it, leaf=it.leaf.replace(".conv_states[0]", ".conv_states")))

    report = compare(nested, recorded("mamba"), internal="fail")

    assert report.ok
    assert report.coverage.root


def test_values_of_another_name_that_differ_fail_as_a_missing_output() -> None:
    report = compare(of_other_version("llama", shuffled), recorded("llama"))

    assert str(report).startswith(str(report.culprit.source))
    assert "an output is gone: cache.layers[0].keys" in str(report).splitlines()[0]


def test_output_that_is_gone_is_named_in_the_first_line() -> None:
    less = of_other_version("llama", lambda it: None if "past_key_values" in it.leaf else it)

    report = compare(recorded("llama"), less)

    assert "an output is gone: past_key_values.layers[0].keys" in str(report).splitlines()[0]
    assert "goes wrong" not in str(report)


def test_output_of_another_shape_is_named_where_all_else_agrees() -> None:
    def unprojected(record: TensorRecord) -> TensorRecord:
        is_it = record.leaf == ".text_model_output.pooler_output"
        return replace(record, tensor=torch.ones(2, 48), shape=(2, 48)) if is_it else record

    report = compare(of_other_version("clip", unprojected), recorded("clip"))

    first = str(report).splitlines()[0]
    assert "an output has another shape: text_model_output.pooler_output is (2, 24), and was (2, 48)" in first
