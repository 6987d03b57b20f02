"""A port beside its reference: what each verdict takes, and what a sweep refuses to judge."""

import copy
import io
import sys
from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

import pytest_tfdebug
from pytest_tfdebug.data.sweep import BlindSpot
from pytest_tfdebug.sweeping.fields import fields

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
LLAMA = LlamaConfig(**SIZES)
MISTRAL = MistralConfig(**SIZES, sliding_window=4096)


def hearing_all_but(**pinned):
    """Return what builds a copy of Llama with some fields pinned."""

    def build(config):
        heard = copy.deepcopy(config)
        for name, value in pinned.items():
            setattr(heard, name, value)
        return LlamaForCausalLM(heard)

    return build


def verdicts(report):
    return {row.field: row.verdict for row in report.rows if row.verdict not in ("agrees", "never")}


@pytest.mark.parametrize(("model_class", "config"), [(LlamaForCausalLM, LLAMA), (MistralForCausalLM, MISTRAL)])
def test_copy_of_the_reference_follows_every_field(model_class, config):
    report = pytest_tfdebug.sweep(model_class, config, build=model_class)

    assert report.ok
    assert verdicts(report) == {}
    assert all(row.error < 1e-4 for row in report.rows if row.verdict == "agrees")


def test_field_that_the_port_pins_is_ignored_with_its_culprit():
    report = pytest_tfdebug.sweep(LlamaForCausalLM, LLAMA, build=hearing_all_but(rms_norm_eps=1e-6, hidden_act="silu"))

    assert not report
    assert verdicts(report) == {"rms_norm_eps": "ignored", "hidden_act": "ignored"}
    rows = {row.field: row for row in report.rows}
    assert rows["hidden_act"].culprit.path == "model.layers.0.mlp.act_fn"
    assert (rows["rms_norm_eps"].own, rows["rms_norm_eps"].value) == (1e-6, 0.1)
    assert rows["rms_norm_eps"].reference_moved > 0.1
    assert rows["rms_norm_eps"].port_moved == 0.0


def test_field_that_the_port_follows_wrongly_differs():
    def build(config):
        heard = copy.deepcopy(config)
        heard.rms_norm_eps *= 1 if heard.rms_norm_eps == LLAMA.rms_norm_eps else 2
        return LlamaForCausalLM(heard)

    assert verdicts(pytest_tfdebug.sweep(LlamaForCausalLM, LLAMA, build=build)) == {"rms_norm_eps": "differs"}


def test_port_that_raises_is_honest():
    def build(config):
        if config.attention_bias:
            raise NotImplementedError("In this port:\n  no biases here")
        return LlamaForCausalLM(config)

    report = pytest_tfdebug.sweep(LlamaForCausalLM, LLAMA, build=build)

    assert report.ok
    assert verdicts(report) == {"attention_bias": "refused"}
    assert str(report).startswith("llama port: 14 of 14 fields matter; 13 agree, 1 is refused: attention_bias\n")
    assert "refused  attention_bias False -> True: " in str(report)
    assert "(NotImplementedError: no biases here)" in str(report)


def test_port_that_refuses_every_other_value_was_not_compared():
    def build(config):
        if config.to_dict() != LLAMA.to_dict():
            raise NotImplementedError("one configuration alone")
        return LlamaForCausalLM(config)

    with pytest.raises(pytest_tfdebug.TFDebugError, match=r"^Nothing was compared: .*one configuration alone"):
        pytest_tfdebug.sweep(LlamaForCausalLM, LLAMA, build=build)


def test_parameters_that_one_side_alone_has_are_said():
    report = pytest_tfdebug.sweep(LlamaForCausalLM, LLAMA, build=hearing_all_but(mlp_bias=False))

    assert verdicts(report) == {"mlp_bias": "ignored"}
    assert (
        "the reference alone has model.layers.0.mlp.gate_proj.bias, model.layers.0.mlp.up_proj.bias and 1 more"
        in str(report)
    )


def test_what_is_known_passes_until_it_agrees():
    build = hearing_all_but(hidden_act="silu")

    known = pytest_tfdebug.sweep(LlamaForCausalLM, LLAMA, build=build, known={"hidden_act": "hard-coded"})
    outdated = pytest_tfdebug.sweep(LlamaForCausalLM, LLAMA, build=build, known={"hidden_act": "", "rope_theta": ""})

    assert known.ok
    assert "1 known to fail" in str(known)
    assert not outdated
    assert "rope_theta is in known=, but it agrees now: remove it." in str(outdated)


def test_port_of_any_structure_is_loaded_and_called_by_the_user():
    def load(port, reference):
        port.inner.load_state_dict(reference.state_dict())

    report = pytest_tfdebug.sweep(
        LlamaForCausalLM,
        LLAMA,
        build=lambda config: SimpleNamespace(inner=LlamaForCausalLM(config)),
        load=load,
        forward=lambda port, inputs: port.inner(inputs["input_ids"]).logits.numpy(),
    )

    assert report.ok
    assert verdicts(report) == {}


def test_alone_it_says_which_value_shows_a_field():
    report = pytest_tfdebug.sweep(MistralForCausalLM, MISTRAL, inputs={"input_ids": torch.arange(10)[None]})

    blind = {spot.field: spot for spot in report.blind}
    assert report.ok
    assert (blind["sliding_window"].own, blind["sliding_window"].value) == (4096, 3)
    assert "sliding_window=4096: leaving it out gives the same; use 3" in str(report)
    assert "rope_theta" not in blind


def test_model_in_the_place_of_its_class_is_refused():
    with pytest.raises(pytest_tfdebug.TFDebugError, match=r"and got a Linear: give its class, Linear\.$"):
        pytest_tfdebug.sweep(torch.nn.Linear(2, 2), LLAMA)


def test_blind_spot_names_the_other_value_that_passes():
    left_out = BlindSpot("sliding_window", 4096, 3, {}, None).record()
    other = BlindSpot("rms_norm_eps", 1e-6, 0.1, {}, 1e-12).record()

    assert left_out.in_short == "sliding_window=4096 (use 3)"
    assert other.in_short == "rms_norm_eps=1e-06 (1e-12 gives the same, use 0.1)"


def test_longer_prompt_shows_a_window_that_is_short():
    config = MistralConfig(**SIZES, sliding_window=8)

    short, long = (
        pytest_tfdebug.sweep(MistralForCausalLM, config, inputs={"input_ids": torch.arange(tokens)[None]})
        for tokens in (6, 20)
    )

    assert "sliding_window" in {spot.field for spot in short.blind}
    assert "sliding_window" not in {spot.field for spot in long.blind}


def test_bug_in_a_blind_spot_fails_at_the_value_showing_it():
    inputs = {"input_ids": torch.arange(10)[None], "use_cache": False}
    (spot,) = [
        spot
        for spot in pytest_tfdebug.sweep(MistralForCausalLM, MISTRAL, inputs=inputs).blind
        if spot.field == "sliding_window"
    ]

    def passes(golden_of, window):
        models = [
            pytest_tfdebug.fill(MistralForCausalLM(MistralConfig(**SIZES, sliding_window=each)).eval())
            for each in (golden_of, window)
        ]
        return pytest_tfdebug.compare(*(pytest_tfdebug.trace(model, **inputs) for model in models)).ok

    assert passes(spot.own, spot.instead)
    assert not passes(spot.value, spot.instead)


def test_large_configuration_is_refused_with_the_values_to_make_small():
    with pytest.raises(pytest_tfdebug.TFDebugError) as caught:
        pytest_tfdebug.sweep(MistralForCausalLM, MistralConfig(vocab_size=99, pad_token_id=0))

    assert "MistralForCausalLM has more than 20,000,000 parameters" in str(caught.value)
    assert "This one has hidden_size=4096, intermediate_size=14336, num_hidden_layers=32" in str(caught.value)


class Rounded(LlamaForCausalLM):
    """Adds a shift to its logits, once they went through a sum that rounds them."""

    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits = out.logits + self.config.large - self.config.large + self.config.shift
        return out


@pytest.mark.parametrize(("large", "verdict"), [(0.0, "matters"), (2.0**18, "never")])
def test_field_matters_only_beyond_what_float64_shows_to_be_rounding(large, verdict):
    report = pytest_tfdebug.sweep(Rounded, LlamaConfig(**SIZES, large=large, shift=0.004))

    assert {row.field: row.verdict for row in report.rows}["shift"] == verdict


@pytest.mark.parametrize("is_terminal", [True, False])
def test_terminal_shows_how_far_a_sweep_is(is_terminal, monkeypatch):
    stderr = io.StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(sys, "stderr", stderr)

    pytest_tfdebug.sweep(LlamaForCausalLM, LLAMA, build=LlamaForCausalLM)

    assert ("sweep of llama: " in stderr.getvalue()) == is_terminal
    assert ("sweep of the port: " in stderr.getvalue()) == is_terminal


def test_rows_are_a_table():
    pytest.importorskip("pandas")

    table = pytest_tfdebug.sweep(LlamaForCausalLM, LLAMA).to_dataframe()

    assert table.set_index("field").loc["rms_norm_eps", ["verdict", "own", "value"]].tolist() == ["matters", 1e-6, 0.1]


def test_generators_and_the_configuration_are_left_alone():
    before, given = torch.random.get_rng_state(), LLAMA.to_dict()

    pytest_tfdebug.sweep(LlamaForCausalLM, LLAMA, build=LlamaForCausalLM)

    assert torch.equal(torch.random.get_rng_state(), before)
    assert LLAMA.to_dict() == given


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"known": {"hidden_act": ""}}, "load=, forward= and known= are for a port: give build=lambda config: ..."),
        (
            {"build": LlamaForCausalLM, "known": {"hidden_size_": ""}},
            "known= names hidden_size_, which are not fields here.\nFields: attention_bias, head_dim, ",
        ),
        (
            {"build": lambda _: torch.nn.Linear(2, 2)},
            "The port's parameters are not the reference's: the reference alone",
        ),
        (
            {"build": lambda config: SimpleNamespace(config=config)},
            "The port cannot be run with the configuration as it is: TFDebugError: SimpleNamespace is not a torch.nn.Module",
        ),
        (
            {"build": hearing_all_but(rms_norm_eps=0.5)},
            "before any field changes, so no field was compared.\n",
        ),
        (
            {"inputs": {"words": torch.ones(2)}},
            "LlamaForCausalLM cannot be run with this configuration and these inputs: ",
        ),
    ],
    ids=["no-port", "known", "parameters", "no-module", "another-model", "inputs"],
)
def test_what_cannot_be_judged_is_said_with_what_to_type(arguments, told):
    with pytest.raises(pytest_tfdebug.TFDebugError) as caught:
        pytest_tfdebug.sweep(LlamaForCausalLM, LLAMA, **arguments)

    assert told in str(caught.value)


@pytest.mark.parametrize(
    "entries",
    [
        {"rope_theta": 500.0, "rope_scaling": None},
        {"rope_theta": 500.0, "rope_scaling": {"type": "default", "factor": 2.0}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ],
    ids=["version-4", "version-4-with-a-kind", "version-5"],
)
def test_rotary_embeddings_are_moved_as_each_version_writes_them(entries):
    found = {field.name: field for field in fields(entries)}

    assert found["rope_theta"].value == 500.0
    kinds = [value.get("rope_type") or value.get("type") for value in found["rope_type"].values()]
    assert kinds == ["linear", "dynamic", "llama3", "yarn", "longrope"]


@pytest.mark.parametrize(
    ("name", "value", "tried", "without"),
    [
        ("rms_norm_eps", 1e-6, [0.1], [1e-5, 1e-12]),
        ("sliding_window", 4096, [3, 4], [None, 8192]),
        ("sliding_window", None, [3, 4], []),
        ("residual_multiplier", 1.0, [0.5, 2.0, 0.25], [1.0]),
        ("attention_multiplier", 1.0, [0.5, 2.0, 0.25], [None, 2.0]),
        ("final_logit_softcapping", 30.0, [0.5, 1.0], [1e6]),
        ("use_qk_norm", False, [True], []),
        ("hidden_act", "gelu", ["relu", "silu", "gelu_pytorch_tanh"], [None]),
        ("num_hidden_layers", 2, [3, 1, 4], [None, 4]),
        ("attention_types", [[["global", "local"], 6]], [[[["local", "global"], 6]]], [None]),
    ],
)
def test_field_is_moved_by_its_name_and_type(name, value, tried, without):
    entries = {name: value, "num_attention_heads": 4}
    (field,) = [each for each in fields(entries) if each.name == name]

    assert field.values() == tried
    assert list(field.left_out()) == without
