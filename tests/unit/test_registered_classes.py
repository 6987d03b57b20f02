"""A class that is registered with torch's pytree is looked into wherever the package looks into nested values."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.utils import _pytree

from pytest_tfdebug import Trace, compare, trace
from pytest_tfdebug.tracing.record.leaves import CacheWatch, replaced, walk
from pytest_tfdebug.tracing.record.state import kept


class Ragged:
    """Values and lengths, without a ``__dict__``; its text holds the numbers of its tensors."""

    __slots__ = ("lengths", "name", "values")

    def __init__(self, values, lengths, name="rows"):
        self.values, self.lengths, self.name = values, lengths, name

    def __repr__(self):
        return f"Ragged({self.values}, {self.lengths})"


class Pair(NamedTuple):
    left: object
    right: object


@dataclass
class Box:
    content: object


class OwnCache:
    def __init__(self, state):
        self.state = state


@pytest.fixture(scope="module", autouse=True)
def _registered():
    _pytree.register_pytree_node(
        Ragged,
        lambda node: ([node.values, node.lengths], {"name": node.name}),
        lambda children, context: Ragged(*children, **context),
    )
    yield
    getattr(_pytree, "_deregister_pytree_node", _pytree.SUPPORTED_NODES.pop)(Ragged)  # torch 2.6 has none


def ragged(shift=0.0):
    return Ragged(torch.arange(3.0) + shift, torch.tensor([1, 2]), "words")


class Doubling(nn.Module):
    def forward(self, rows):
        return Ragged(rows.values * 2, rows.lengths, rows.name)


def test_trace_and_its_file_hold_its_tensors_and_not_its_text(tmp_path):
    traced = trace(Doubling(), ragged())
    traced.save(tmp_path / "t.safetensors")
    loaded = Trace.load(tmp_path / "t.safetensors")

    (call,) = loaded
    assert [record.leaf for record in (*call.inputs, *call.outputs)] == ["[0][0]", "[0][1]", "[0]", "[1]"]
    assert call.skeleton["args"] == [{"items": {"0": {"leaf": 0}, "1": {"leaf": 1}}}]
    assert compare(loaded, trace(Doubling(), ragged())).ok
    other = compare(loaded, trace(Doubling(), ragged(shift=1.0)))
    assert other.culprit.kind == "inputs"


def test_write_into_a_registered_class_is_one_to_its_cache():
    cache, watch = OwnCache(ragged()), CacheWatch()
    watch.written([cache])
    cache.state.values.add_(1)
    in_place = watch.written([cache])
    cache.state.values = torch.zeros(3)
    replaced_one = watch.written([cache])

    assert [[leaf.path for leaf in look] for look in (in_place, replaced_one)] == [["OwnCache.state[0]"]] * 2


def test_kept_call_does_not_see_what_is_written_into_it_later():
    given = {"rows": [ragged()]}
    held = kept(given)
    given["rows"][0].values.add_(1)

    assert held["rows"][0].values.tolist() == [0, 1, 2]
    assert given["rows"][0].values.tolist() == [1, 2, 3]


def test_its_tensors_can_be_replaced():
    made = replaced(ragged(), lambda tensor: tensor * 0)

    assert [leaf.tensor.sum().item() for leaf in walk(made)] == [0, 0]
    assert made.name == "words"
