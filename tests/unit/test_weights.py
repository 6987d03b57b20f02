"""Parameters are known by their numbers, whatever their names and layout."""

import pytest
import torch

import pytest_tfdebug
from pytest_tfdebug.parity.proof import weights
from pytest_tfdebug.parity.proof.weights import is_same_weight, pair_weights
from pytest_tfdebug.values import Fingerprint, distance


def table(**tensors):
    return {name.replace("__", "."): (Fingerprint.of(tensor), tuple(tensor.shape)) for name, tensor in tensors.items()}


def random(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


A, B, C = (random(seed, 6, 4) for seed in range(3))


def test_same_numbers_are_one_parameter_under_any_name():
    found = pair_weights(table(x=A, y=B), table(p=B, q=A))

    assert found.partners == {"x": ("q",), "y": ("p",)}
    assert found.transposed == found.reordered == found.unknown == found.joined == set()
    assert found.known == {"x", "y"}


def test_transposed_parameter_is_told_as_such():
    found = pair_weights(table(x=A.T), table(p=A))

    assert (found.partners, found.transposed, found.reordered) == ({"x": ("p",)}, {"x"}, set())
    assert found.told(["x"]) == "'x' holds the numbers of 'p' transposed."


def test_square_parameter_is_seen_to_be_transposed_too():
    square = random(5, 5, 5)

    assert pair_weights(table(x=square.T), table(p=square)).transposed == {"x"}


@pytest.mark.parametrize("axis", [0, 1])
def test_another_order_along_an_axis_is_told_as_such(axis):
    found = pair_weights(table(x=A.roll(1, axis)), table(p=A))

    assert (found.partners, found.reordered) == ({"x": ("p",)}, {"x"})
    assert found.told(["x"]) == "'x' holds the numbers of 'p', possibly in another order than this code expects."


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_joined_siblings_are_known_in_any_order(order):
    parts = [(A, B, C)[place] for place in order]
    fused = table(attn__qkv__weight=torch.cat(parts))
    apart = table(self__q__weight=A, self__k__weight=B, self__v__weight=C)

    found, back = pair_weights(fused, apart), pair_weights(apart, fused)

    assert found.partners == {"attn.qkv.weight": ("self.q.weight", "self.k.weight", "self.v.weight")}
    assert back.partners == dict.fromkeys(apart, ("attn.qkv.weight",))
    assert (found.joined, back.joined) == ({"attn.qkv.weight"}, set(apart))


def test_parts_of_one_parameter_that_a_module_holds_under_unlike_names_are_known():
    places = random(80, 5, 8)
    own = table(tokens__first=places[:1], tokens__patches=places[1:].T.reshape(1, 8, 2, 2))

    both = table(embed__places=places)

    found, back = pair_weights(own, both), pair_weights(both, own)

    assert found.partners == {"tokens.first": ("embed.places",), "tokens.patches": ("embed.places",)}
    assert (found.joined, back.joined) == ({*own}, {"embed.places"})


def test_parts_of_one_shape_are_siblings_whatever_lies_between_them():
    gate, up, bias, more = random(81, 6, 8), random(82, 6, 8), random(83, 6), random(84, 6)
    own = table(bank__gate_w=gate, bank__gate_b=bias, bank__up_w=up, bank__up_b=more)

    found = pair_weights(own, table(experts__both=torch.cat([gate, up])))

    assert found.partners == {"bank.gate_w": ("experts.both",), "bank.up_w": ("experts.both",)}


def looked_into(own, apart):
    found = pair_weights(table(**own), table(**apart))
    weights.look_into(found, {name.replace("__", "."): tensor for name, tensor in own.items()}, table(**apart))
    return found


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_a_fused_parameter_are_told_as_they_lie_in_it(axis):
    gate, up, more = (random(seed, 6, 6) for seed in range(40, 43))

    found = looked_into(
        {"mlp__w": torch.cat([up, gate, more], axis)}, {"m__gate__w": gate, "m__up__w": up, "m__x__w": more}
    )

    assert found.partners == {"mlp.w": ("m.gate.w", "m.up.w", "m.x.w")}
    assert found.told(["mlp.w"]) == (
        "'mlp.w' holds the numbers of 'm.up.w', then those of 'm.gate.w', then those of 'm.x.w', possibly in another order "
        "than this code expects."
    )
    assert list(found.conventions()) == ["'mlp.w' holds 'm.up.w', then 'm.gate.w', then 'm.x.w' in one."]


@pytest.mark.parametrize(
    ("gate", "up", "fused"), [(A, B, torch.stack([A, B], 1).flatten(0, 1)), (A, A, torch.cat([A, A]))]
)
def test_no_order_is_told_of_parts_that_are_mixed_or_equal(gate, up, fused):
    found = looked_into({"mlp__w": fused}, {"m__gate__w": gate, "m__up__w": up})

    assert (found.joined, found.in_order) == ({"mlp.w"}, {})


def test_parameter_that_one_layer_alone_joins_in_another_order_is_misplaced():
    parts = [(random(60 + layer, 6, 4), random(70 + layer, 6, 4)) for layer in range(3)]
    own = {f"layers__{layer}__w": torch.cat(both[::-1] if layer == 1 else both) for layer, both in enumerate(parts)}
    apart = {f"layers__{layer}__gate__w": gate for layer, (gate, _) in enumerate(parts)}
    apart |= {f"layers__{layer}__up__w": up for layer, (_, up) in enumerate(parts)}

    found = looked_into(own, apart)

    assert [name for name in found.partners if found.is_misplaced(name)] == ["layers.1.w"]
    assert found.told(["layers.1.w"]) == (
        "'layers.1.w' holds the numbers of 'layers.1.up.w', then those of 'layers.1.gate.w' in another order than this "
        "code expects."
    )


class Gated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = (torch.nn.Linear(8, 6, bias=False) for _ in range(2))

    def forward(self, x):
        return torch.nn.functional.silu(self.gate(x)) * self.up(x)


class Fused(torch.nn.Module):
    def __init__(self, reference):
        super().__init__()
        self.w = torch.nn.Linear(8, 12, bias=False)
        self.w.weight.data = torch.cat([reference.up.weight, reference.gate.weight]).detach()

    def forward(self, x):
        gate, up = self.w(x).chunk(2, -1)
        return torch.nn.functional.silu(gate) * up


@pytest.mark.parametrize("is_stored", [False, True])
def test_report_says_what_comes_first_in_the_ports_fused_weight(is_stored, tmp_path):
    reference, x = pytest_tfdebug.fill(Gated(), seed=0), random(50, 3, 8)
    expected = pytest_tfdebug.trace(reference, x)
    if is_stored:
        expected.save(tmp_path / "reference.safetensors")
        expected = pytest_tfdebug.Trace.load(tmp_path / "reference.safetensors")

    report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(Fused(reference), x))

    assert "'w.weight' holds 'up.weight', then 'gate.weight' in one." in report.notes


def test_other_numbers_are_unknown():
    found = pair_weights(table(x=A, y=A * 1.001), table(p=A))

    assert found.unknown == {"y"}
    assert found.told(["y"]) == "No parameter of the reference holds the numbers of 'y'."
    assert found.told(["y"], "p") == "'y' does not hold the numbers of 'p'."


def test_cast_to_half_precision_is_no_other_parameter():
    assert pair_weights(table(x=A.half()), table(p=A)).unknown == {"x"}
    assert pair_weights(table(x=A.half()), table(p=A), is_cast=True).unknown == set()
    assert is_same_weight(table(x=A.half())["x"], table(p=A)["p"])
    assert not is_same_weight(table(x=A.roll(1, 0))["x"], table(p=A)["p"])
    assert not is_same_weight(table(x=A.T)["x"], table(p=A)["p"])


def test_layout_of_all_layers_is_no_fault_and_that_of_one_is():
    layers = {f"layers__{number}__w": random(10 + number, 6, 4) for number in range(4)}
    expected = table(**layers)
    turned = {name: tensor.T for name, tensor in layers.items()}

    usual = pair_weights(table(**turned), expected)
    odd = pair_weights(table(**(layers | {"layers__2__w": turned["layers__2__w"]})), expected)

    assert not any(usual.is_misplaced(name) for name in expected)
    assert [name for name in expected if odd.is_misplaced(name)] == ["layers.2.w"]


@pytest.mark.parametrize(
    "count",
    [5, 6],
)
def test_parameters_of_two_layers_in_each_others_place_are_misplaced(count):
    layers = {f"layers__{number}__w": random(20 + number, 6, 4) for number in range(count)}
    swapped = layers | {"layers__1__w": layers["layers__3__w"], "layers__3__w": layers["layers__1__w"]}
    expected = table(**layers)

    found = pair_weights(table(**swapped), expected)

    assert [name for name in expected if found.is_misplaced(name)] == ["layers.1.w", "layers.3.w"]
    assert found.told(["layers.1.w"]) == "'layers.1.w' holds the numbers of 'layers.3.w', which belong elsewhere."


def test_parameter_of_one_layer_that_is_unknown_is_known_in_the_others():
    layers = {f"layers__{number}__w": random(30 + number, 6, 4) for number in range(3)}
    found = pair_weights(table(**(layers | {"layers__1__w": C, "other": B})), table(**layers))

    assert found.unknown == {"layers.1.w", "other"}
    assert (found.is_known_elsewhere("layers.1.w"), found.is_known_elsewhere("other")) == (True, False)


def test_parameter_that_no_layer_repeats_is_not_misplaced_for_being_transposed():
    found = pair_weights(table(unembed=A.T), table(head__weight=A))

    assert "unembed" in found.transposed
    assert not found.is_misplaced("unembed")


def test_layouts_that_all_layers_share_are_conventions_unless_they_are_blamed():
    layers = range(2)
    parts = {(n, kind): random(10 * n + k, 6, 4) for n in layers for k, kind in enumerate("qkv")}
    wide = {n: random(100 + n, 6, 4) for n in layers}
    own = {f"b__{n}__qkv__weight": torch.cat([parts[n, kind] for kind in "qkv"]) for n in layers}
    own |= {f"b__{n}__up__weight": wide[n].T for n in layers}
    theirs = {f"layers__{n}__{kind}__weight": part for (n, kind), part in parts.items()}
    theirs |= {f"layers__{n}__w__weight": wide[n] for n in layers}
    biases = {(n, kind): random(50 + 10 * n + k, 6) for n in layers for k, kind in enumerate("qkv")}
    own |= {f"b__{n}__qkv__bias": torch.cat([biases[n, kind] for kind in "qkv"]) for n in layers}
    theirs |= {f"layers__{n}__{kind}__bias": part for (n, kind), part in biases.items()}

    found = pair_weights(table(**own), table(**theirs))

    assert {"b.0.qkv.bias", "b.1.qkv.bias"} <= found.joined  # as their weights, and so not told
    assert list(found.conventions()) == [
        "'b.*.up.weight' holds 'layers.*.w.weight' transposed.",
        "'b.*.qkv.weight' holds 'layers.*.q.weight' and 'layers.*.k.weight' and 'layers.*.v.weight' in one.",
    ]
    assert len(list(found.conventions(["b.0.up.weight", "b.1.up.weight"]))) == 1
    back = pair_weights(table(**theirs), table(**own))
    assert "'layers.*.k.weight' holds a part of 'b.*.qkv.weight'." in list(back.conventions())


def test_place_in_a_sequence_is_no_layer():
    sizes = {"mlp__0__weight": 10, "mlp__3__weight": 20}
    own = {f"stages__{n}__{name}": random(start + n, 6, 4) for n in range(1, 4) for name, start in sizes.items()}
    other = {
        f"layers__{n - 1}__{name}": own[f"stages__{n}__{mine}"]
        for n in range(1, 4)
        for name, mine in (("up__weight", "mlp__0__weight"), ("down__weight", "mlp__3__weight"))
    }

    found = pair_weights(table(**own), table(**other))

    assert not any(found.is_misplaced(name) for name in found.partners)


def test_parameter_in_whose_place_the_reference_has_none_is_not_misplaced():
    own = {f"model__{number}__conv__w": random(40 + number, 6, 4) for number in range(3, 7)}
    names = ["projections__0__w", "projections__1__w", "projections__2__w", "lateral__w"]

    found = pair_weights(table(**own), table(**dict(zip(names, own.values(), strict=True))))

    assert not any(found.is_misplaced(name) for name in found.partners)


def test_parameter_that_changes_nothing_is_told_where_the_other_sides_does():
    own = table(norm__scale=A, layers__0__w=B, layers__1__w=C)
    found = pair_weights(own, table(final__weight=A, h__0__w=B, h__1__w=C))

    told = list(found.unused({"layers.0.w"}, {"final.weight", "h.0.w", "h.1.w"}))

    assert told == ["'norm.scale' changes no output here; 'final.weight' does in the reference."]
    assert list(found.unused({"layers.0.w"}, {"h.0.w"})) == []


@pytest.mark.parametrize("count", [2, 5])
def test_number_of_unlike_things_is_no_layer(count):
    kinds = {"temporal__w": "attentions__0__w", "spatial__w": "attentions__1__w"}
    other = {f"h__{n}__{kind}": random(10 * n + k, 6, 4) for n in range(count) for k, kind in enumerate(kinds)}
    own = {f"layers__{n}__{kinds[kind]}": other[f"h__{n}__{kind}"] for n in range(count) for kind in kinds}
    first, second = "layers__0__attentions__0__w", "layers__1__attentions__0__w"

    found = pair_weights(table(**own), table(**other))
    odd = pair_weights(table(**(own | {first: own[second], second: own[first]})), table(**other))

    assert not any(found.is_misplaced(name) for name in found.partners)
    assert [name for name in odd.partners if odd.is_misplaced(name)] == (
        ["layers.0.attentions.0.w", "layers.1.attentions.0.w"] if count > 2 else []
    )


def test_parameters_of_the_reference_that_the_port_does_not_hold_are_told():
    theirs = table(final__weight=A, h__0__w=B, h__1__w=C)
    used = {"final.weight", "h.0.w", "h.1.w"}
    told = ["No parameter here holds the reference's final.weight, without which its outputs differ."]

    assert list(pair_weights(table(layers__0__w=B, layers__1__w=C), theirs).unused({"layers.0.w"}, used)) == told
    assert list(pair_weights(table(layers__0__w=B), theirs).unused({"layers.0.w"}, used - {"h.1.w"})) == told
    assert not list(
        pair_weights(table(w=B, own=random(9, 6, 4)), theirs).unused({"w", "own"}, used)
    )  # it may hold them otherwise
    assert not list(pair_weights(table(w=B), theirs).unused({"w"}, {"final.weight", "h.0.w"}, {"final.weight"}))


def test_thousands_of_parameters_of_one_size_take_few_comparisons_to_pair(monkeypatch):
    torch.manual_seed(0)
    names = [f"layers.{layer}.weight" for layer in range(2000)]
    own = {name: (Fingerprint.of(torch.randn(2, 2)), (2, 2)) for name in names}
    compared = []
    monkeypatch.setattr(weights, "distance", lambda *two: compared.append(two) or distance(*two))

    found = pair_weights(own, {name.replace("layers", "h"): own[name] for name in reversed(names)})
    misplaced = [name for name in names if found.is_misplaced(name)]

    assert found.partners == {name: (name.replace("layers", "h"),) for name in names}
    assert misplaced == []
    assert len(compared) < 10 * len(names)
