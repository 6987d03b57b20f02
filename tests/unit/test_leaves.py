from collections import OrderedDict, UserDict
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import _pytree
from transformers import DynamicCache
from transformers.modeling_outputs import BaseModelOutput

from pytest_tfdebug.tracing.record.leaves import is_cache, walk, walk_inputs


class Pair(NamedTuple):
    left: object
    right: object


@dataclass
class Box:
    content: object
    label: str = "box"


class Registered:
    def __init__(self, first, second):
        self.first = first
        self.second = second


@pytest.fixture(scope="module", autouse=True)
def _registered():
    _pytree.register_pytree_node(
        Registered,
        lambda node: ([node.first, node.second], None),
        lambda children, _: Registered(*children),
        flatten_with_keys_fn=lambda node: (
            [(_pytree.GetAttrKey("first"), node.first), (_pytree.GetAttrKey("second"), node.second)],
            None,
        ),
    )
    yield
    getattr(_pytree, "_deregister_pytree_node", _pytree.SUPPORTED_NODES.pop)(Registered)  # torch 2.6 has none


def tensors(count):
    return [torch.full((1,), float(number)) for number in range(count)]


atoms = st.one_of(
    st.none(), st.integers(), st.text(max_size=3), st.builds(lambda: torch.zeros(1)), st.builds(lambda: torch.zeros(0))
)
keys = st.one_of(st.text(max_size=3), st.integers(-2, 2), st.booleans())


def nest(children):
    return st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        st.dictionaries(keys, children, max_size=3),
        st.dictionaries(keys, children, max_size=3).map(OrderedDict),
        st.dictionaries(st.text(max_size=3), children, max_size=3).map(UserDict),
        st.builds(Pair, children, children),
        st.builds(Box, children),
        st.builds(Registered, children, children),
    )


def reach(value, path):
    return eval("value" + path, {"value": value})  # noqa: S307 - what a path promises


@given(st.recursive(atoms, nest, max_leaves=12))
def test_every_path_reaches_its_tensor(value):
    leaves = walk(value)

    assert all(reach(value, path) is tensor for path, tensor in leaves)
    assert len({path for path, _ in leaves}) == len(leaves)


@given(st.recursive(atoms, nest, max_leaves=12))
def test_every_tensor_is_found(value):
    def count(part):
        if isinstance(part, torch.Tensor):
            return 1
        if isinstance(part, (dict, UserDict)):
            return sum(map(count, part.values()))
        if isinstance(part, (list, tuple)):
            return sum(map(count, part))
        if isinstance(part, (Box, Registered)):
            return sum(map(count, vars(part).values()))
        return 0

    assert len(walk(value)) == count(value)


def test_tensor_alone_has_the_empty_path():
    (tensor,) = tensors(1)

    assert walk(tensor) == [("", tensor)]


def test_model_output_is_reached_by_attributes_without_those_that_are_none():
    first, second, third = tensors(3)

    leaves = walk(BaseModelOutput(last_hidden_state=first, hidden_states=(second, third)))

    assert [leaf.path for leaf in leaves] == [".last_hidden_state", ".hidden_states[0]", ".hidden_states[1]"]
    assert [leaf.tensor for leaf in leaves] == [first, second, third]


def test_cache_is_looked_into_where_that_is_asked_for():
    cache = DynamicCache()
    cache.update(torch.ones(1, 1, 2, 4), torch.zeros(1, 1, 2, 4), 0)

    leaves = walk((cache,))

    assert [leaf.path for leaf in leaves] == ["[0].layers[0].keys", "[0].layers[0].values"]
    assert all(reach((cache,), path) is tensor for path, tensor in leaves)
    assert walk((cache,), into_caches=False) == []


@pytest.mark.parametrize("is_slotted", [False, True])
def test_cache_of_any_make_is_looked_into(is_slotted):
    tensor = torch.ones(1)

    @dataclass(slots=is_slotted)
    class StateCache:
        state: object

    assert [leaf.path for leaf in walk(StateCache(tensor))] == [".state"]
    assert is_cache(StateCache(tensor))


def test_cache_without_attributes_is_no_error():
    class EmptyCache:
        __slots__ = ()

    assert walk([EmptyCache()]) == []


def test_inputs_are_named_by_position_and_keyword():
    first, second, third = tensors(3)

    leaves = walk_inputs((first, [second]), {"mask": third, "flag": True})

    assert [leaf.path for leaf in leaves] == ["[0]", "[1][0]", "['mask']"]


def test_value_that_holds_itself_is_walked_once():
    (tensor,) = tensors(1)
    value = [tensor]
    value += [value, value, {"again": value}]

    assert [leaf.path for leaf in walk(value)] == ["[0]"]


def test_generator_is_not_consumed():
    generator = (tensor for tensor in tensors(1))

    assert walk([generator]) == []
    assert next(generator).item() == 0.0


def test_structured_return_of_torch_is_a_tuple():
    assert [leaf.path for leaf in walk(torch.max(torch.ones(2, 2), dim=0))] == ["[0]", "[1]"]


def test_dataclass_type_is_no_value():
    assert walk({"kind": Box}) == []
