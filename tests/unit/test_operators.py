"""Every operator of a forward: what it made, from what, and by which line."""

import gc
import inspect
import subprocess
import sys
import weakref

import pytest
import torch
from torch import nn

from pytest_tfdebug.tracing.values import operators
from pytest_tfdebug.tracing.values.operators import values_of as values_of_method

X = torch.linspace(-1, 1, 8).view(2, 4)
attention = nn.functional.scaled_dot_product_attention


class Calls(nn.Module):
    """A module whose forward is a function given to it."""

    def __init__(self, function, **children):
        super().__init__()
        self.function = function
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


def values_of(model, *args, **kwargs):
    return values_of_method(model, "forward", args, kwargs)


def values_in(function, *args, **children):
    return values_of(Calls(function, **children), *args)


def result(values):
    return values.values[values.results[0][1]]


def computed(values, value):
    """Return the operators that a value comes from, through views, nearest first."""
    made = [values.values[index] for index in value.producers]
    found = []
    for each in made:
        found += [each] if each.origin != "view" else computed(values, each)
    return found


def names(found):
    return [value.operator or f"{value.origin} {value.name}" for value in found]


def test_operands_are_found_through_views():
    values = values_in(lambda _, x: (x * 2).view(4, 2).t()[0].reshape(2, 2).exp(), X)

    assert names(computed(values, result(values))) == ["mul"]
    assert names(computed(values, computed(values, result(values))[0])) == ["input [0]"]


def test_splits_that_share_a_storage_are_values_of_their_own():
    def split(_, x):
        left, right = (x * 2).chunk(2, -1)
        return left + 1, right + 1

    values = values_in(split, X)
    left, right = (values.values[index] for _, index in values.results)

    assert left.producers != right.producers
    assert [values.values[one.producers[0]].print.mean for one in (left, right)] == pytest.approx(
        [part.mean().item() for part in (X * 2).chunk(2, -1)]
    )
    assert names(computed(values, left)) == names(computed(values, right)) == ["mul"]


def test_write_into_a_part_of_a_buffer_is_read_from_the_whole():
    def write(_, x):
        room = x.new_zeros(2, 6)
        room[:, :4] = x * 3
        return room + 1

    values = values_in(write, X)
    whole = values.values[result(values).producers[0]]
    written = next(value for value in values.values if value.operator == "copy_")

    assert names(computed(values, written)) == ["mul"]
    assert written.index in whole.producers
    assert whole.print.mean == pytest.approx(0.0, abs=1e-7)
    assert whole.print.high == pytest.approx(3.0)


def test_value_before_and_after_it_was_changed_in_place_is_two():
    def change(_, x):
        y = x * 2
        before = y + 0
        y.add_(1)
        return before, y.exp()

    values = values_in(change, X)
    before, after = (values.values[index] for _, index in values.results)

    assert names(computed(values, before)) == ["mul"]
    assert names(computed(values, after)) == ["add_"]
    assert computed(values, after)[0].print.mean == pytest.approx(1.0, abs=1e-6)
    assert "mul" in names(computed(values, computed(values, after)[0]))


def test_result_that_is_written_to_what_was_given_has_producers():
    def into(_, x):
        room = torch.empty(2, 4)
        torch.mul(x, 3, out=room)
        return room

    values = values_in(into, X)

    assert result(values).print.high == pytest.approx(3.0)
    assert "input [0]" in names(computed(values, result(values)))


def helper(x):
    return x.sin()


class Helped(nn.Module):
    def forward(self, x):
        return helper(x) + 1


def test_lines_of_helpers_and_of_the_forward_that_called_them_are_known():
    values = values_of(Helped(), X)
    sine = next(value for value in values.values if value.operator == "sin")
    added = next(value for value in values.values if value.operator == "add")

    assert [line.function for line in sine.lines] == ["helper", "forward"]
    assert sine.lines[0].line == inspect.getsourcelines(helper)[1] + 1
    assert [(line.file, line.line) for line in added.lines] == [
        (__file__, inspect.getsourcelines(Helped.forward)[1] + 1)
    ]


def test_each_value_belongs_to_the_innermost_module_under_way():
    inner = Calls(lambda self, x: self.linear(x) * 2, linear=nn.Linear(4, 4))
    values = values_in(lambda self, x: self.inner(x) + 1, X, inner=inner)
    paths = {call.index: call.path for call in values.calls}

    where = {value.operator: paths[value.call] for value in values.values if value.origin == "operator"}

    assert where == {"addmm": "inner.linear", "mul": "inner", "add": "Calls"}
    assert values.outputs[1] == [("", next(v.index for v in values.values if v.operator == "mul"))]
    assert values.inputs[1][0][1] == values.inputs[0][0][1]


def test_what_was_there_before_is_named():
    norm = nn.BatchNorm1d(4).eval()
    values = values_in(lambda self, x, scale: self.norm(x) * scale + torch.tensor(2.0), X, torch.ones(4), norm=norm)

    found = {(value.origin, value.name) for value in values.values if not value.producers and not value.operator}

    assert found >= {
        ("input", "[0]"),
        ("input", "[1]"),
        ("parameter", "norm.weight"),
        ("buffer", "norm.running_mean"),
    }
    assert set(values.parameters) == {"norm.weight", "norm.bias"}
    assert values.parameters["norm.weight"][1] == (4,)


def test_random_operators_are_marked():
    values = values_in(lambda _, x: torch.rand(2, 4) + x, X)

    assert {value.operator: value.is_random for value in values.values if value.operator in {"rand", "add"}} == {
        "rand": True,
        "add": False,
    }


def test_no_intermediate_is_kept_alive():
    seen = []

    def forward(_, x):
        y = x * 2
        seen.append(weakref.ref(y))
        y = y + 1
        gc.collect()
        seen.append(seen[0]() is None)
        return y

    values = values_in(forward, X)

    assert seen[1]
    assert len(values.values) >= 3


def test_storage_that_takes_the_place_of_a_dead_one_is_another():
    def forward(_, x):
        for step in range(50):
            x = (x * 1.01).cos() + step
        return x

    values = values_in(forward, X)

    assert all(max(value.producers, default=-1) < value.index for value in values.values)
    multiplied = [value for value in values.values if value.operator == "mul"]
    assert all(names(computed(values, value)) == ["add"] for value in multiplied[1:])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": torch.ones(5, 5, dtype=torch.bool).tril(1)},
        {"attn_mask": torch.linspace(-2, 0, 25).view(5, 5)},
        {"attn_mask": torch.arange(5).view(5, 1) > torch.arange(5)},
        {"enable_gqa": True},
    ],
    ids=["plain", "causal", "scale", "bool", "float", "hidden row", "gqa"],
)
def test_fused_attention_that_is_written_out_gives_the_same(options):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, 5, 8, generator=generator)
    key, value = (torch.randn(2, 2 if "enable_gqa" in options else 4, 5, 8, generator=generator) for _ in "kv")
    model = Calls(lambda _, *args: attention(*args, **options))

    returned = []
    model.register_forward_hook(lambda _module, _args, output: returned.append(output))
    values = values_of(model, query, key, value)

    torch.testing.assert_close(returned[0], attention(query, key, value, **options))
    assert any(value.operator == "_softmax" for value in values.values)
    assert not any("scaled_dot_product" in value.operator for value in values.values)


def test_fused_attention_on_arguments_that_it_refuses_says_so():
    with pytest.raises((RuntimeError, TypeError)):
        values_in(lambda _, x: attention(x, x, x, nonsense=1), X)


@pytest.mark.parametrize("is_fast", [True, False])
def test_fast_paths_are_off_inside_and_restored_even_after_an_error(is_fast):
    inside = []

    def forward(_, x):
        inside.append(torch.backends.mha.get_fastpath_enabled())
        raise KeyError("no")

    torch.backends.mha.set_fastpath_enabled(is_fast)
    try:
        with pytest.raises(KeyError):
            values_in(forward, X)

        assert inside == [False]
        assert torch.backends.mha.get_fastpath_enabled() is is_fast
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_encoder_layer_has_its_operators_instead_of_a_fast_path():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()

    values = values_of(layer, X.view(1, 2, 4))

    assert "native_layer_norm" in {value.operator for value in values.values}
    assert "_transformer_encoder_layer_fwd" not in {value.operator for value in values.values}


def test_fused_attention_of_torchs_own_layer_is_written_out_too():
    layer = nn.MultiheadAttention(4, 2, batch_first=True).eval()

    values = values_in(lambda self, x: self.layer(x, x, x, need_weights=False)[0], X.view(1, 2, 4), layer=layer)

    assert "_softmax" in {value.operator for value in values.values}


def test_sparse_and_meta_tensors_are_passed_over():
    model = Calls(lambda self, x: (torch.sparse.mm(self.held, x), torch.empty(3, device="meta") + 1)[0])
    model.register_buffer("held", torch.eye(2).to_sparse())

    values = values_of(model, X)

    assert result(values).shape == (2, 4)


def test_torchs_compiler_is_not_imported():
    code = f"""
        import sys, torch
        from pytest_tfdebug.tracing.values.operators import values_of
        values = values_of(torch.nn.Linear(4, 4), "forward", (torch.ones(2, 4),), {{}})
        assert values.values
        print("torch._dynamo" in sys.modules, {operators.__name__!r})
    """

    ran = subprocess.run([sys.executable, "-c", inspect.cleandoc(code)], capture_output=True, text=True, check=True)

    assert ran.stdout.split()[0] == "False"
