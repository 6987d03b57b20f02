"""``audit``: did every tensor of a checkpoint arrive in the model."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    FunnelConfig,
    FunnelForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

import load_faults
import pytest_tfdebug
from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.loading.command import main

CONFIG = LlamaConfig(
    vocab_size=99,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
)


@pytest.fixture(scope="module")
def model():
    return pytest_tfdebug.fill(LlamaForCausalLM(CONFIG).eval(), seed=0)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("llama")
    model.save_pretrained(path)
    return path


@pytest.fixture
def loaded(folder):
    return LlamaForCausalLM.from_pretrained(folder)


def lost(report):
    """Return what did not arrive."""
    return {row.tensor: row.verdict for row in report.rows if not row.ok}


class Fused(nn.Module):
    """A port of Llama's attention and norms under names of its own, with one projection for three."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(99, 32)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "qkv": nn.Linear(32, 64, bias=False),
                    "out": nn.Linear(32, 32, bias=False),
                    "up": nn.Linear(32, 96, bias=False),
                    "down": nn.Linear(48, 32, bias=False),
                    "n1": nn.LayerNorm(32, bias=False),
                    "n2": nn.LayerNorm(32, bias=False),
                }
            )
            for _ in range(3)
        )
        self.norm = nn.LayerNorm(32, bias=False)
        self.head = nn.Parameter(torch.zeros(32, 99))

    def load(self, state, order="qkv"):
        with torch.no_grad():
            self.embed.weight.copy_(state["model.embed_tokens.weight"])
            self.norm.weight.copy_(state["model.norm.weight"])
            self.head.copy_(state["lm_head.weight"].t())
            for number, block in enumerate(self.blocks):
                stored = {
                    name.partition(f".{number}.")[2]: each for name, each in state.items() if f".{number}." in name
                }
                block["qkv"].weight.copy_(torch.cat([stored[f"self_attn.{each}_proj.weight"] for each in order]))
                block["up"].weight.copy_(torch.cat([stored[f"mlp.{each}_proj.weight"] for each in ("gate", "up")]))
                block["out"].weight.copy_(stored["self_attn.o_proj.weight"])
                block["down"].weight.copy_(stored["mlp.down_proj.weight"])
                block["n1"].weight.copy_(stored["input_layernorm.weight"])
                block["n2"].weight.copy_(stored["post_attention_layernorm.weight"])
        return self


def test_loaded_model_has_every_tensor(loaded, folder):
    report = pytest_tfdebug.audit(loaded, folder)

    assert report
    assert {row.verdict for row in report.rows} == {"read", "made again"}
    assert len(report.to_dataframe()) == len(report.rows) > 30
    assert "arrived" in str(report)


def test_cast_model_has_every_tensor(folder):
    half = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)

    report = pytest_tfdebug.audit(half, folder)

    assert report
    assert {row.verdict for row in report.rows} <= {"cast", "made again", "read"}


def test_fused_port_has_every_tensor(model):
    state = model.state_dict()

    report = pytest_tfdebug.audit(Fused().load(state), state)

    assert report, report
    by_name = {row.tensor: row for row in report.rows}
    assert by_name["blocks.1.qkv.weight"].verdict == "fused"
    assert by_name["blocks.1.qkv.weight"].from_ == tuple(f"model.layers.1.self_attn.{e}_proj.weight" for e in "qkv")
    assert by_name["head"].verdict == "transposed"
    assert by_name["blocks.2.down.weight"].verdict == "renamed"


def test_projection_joined_in_another_order_is_told(model):
    port = Fused().load(model.state_dict(), order="kqv")

    assert set(lost(pytest_tfdebug.audit(port, model.state_dict())).values()) == {"in another order"}


@pytest.mark.parametrize("name", sorted(load_faults.FAULTS))
def test_each_planted_fault_is_named(loaded, folder, name):
    fault = load_faults.FAULTS[name]
    path = "model.layers.1.mlp.down_proj.weight"
    parameter = loaded.get_parameter(path)
    torch.manual_seed(0)
    with torch.no_grad():
        parameter.copy_(fault.plant(parameter.clone()))

    found = lost(pytest_tfdebug.audit(loaded, folder))

    assert found.pop(path) in fault.verdicts
    assert not found


def test_layers_that_are_exchanged_are_told(loaded, folder):
    with torch.no_grad():
        one, other = (loaded.model.layers[number].mlp.up_proj.weight for number in (0, 2))
        kept = one.clone()
        one.copy_(other)
        other.copy_(kept)

    found = lost(pytest_tfdebug.audit(loaded, folder))

    assert found == {f"model.layers.{number}.mlp.up_proj.weight": "from elsewhere" for number in (0, 2)}


def test_layer_loaded_twice_is_told(loaded, folder):
    with torch.no_grad():
        loaded.model.layers[2].mlp.up_proj.weight.copy_(loaded.model.layers[1].mlp.up_proj.weight)

    found = lost(pytest_tfdebug.audit(loaded, folder))

    assert found["model.layers.1.mlp.up_proj.weight"] == "loaded twice"
    assert found["model.layers.2.mlp.up_proj.weight"] in ("never read", "from elsewhere")


def test_key_that_strict_false_leaves_out_is_told(model):
    state = {name.replace("layers.1.mlp.up_proj", "layers.1.mlp.up"): each for name, each in model.state_dict().items()}
    torch.manual_seed(1)
    port = LlamaForCausalLM(CONFIG)
    port.load_state_dict(state, strict=False)

    report = pytest_tfdebug.audit(port, state)

    assert lost(report) == {
        "model.layers.1.mlp.up.weight": "never read",
        "model.layers.1.mlp.up_proj.weight": "left at its initial values",
    }
    assert str(report).splitlines()[0] == (
        "LlamaForCausalLM: 2 tensors did not arrive from a state dict: model.layers.1.mlp.up.weight was never read "
        "(probably model.layers.1.mlp.up_proj.weight under another name), model.layers.1.mlp.up_proj.weight is left at "
        "its initial values"
    )
    assert "  Next: map its name to the model's where the state dict is converted;" in str(report)


def test_names_that_need_not_arrive_pass(model):
    assert not pytest_tfdebug.audit(model.model, model.state_dict())
    assert pytest_tfdebug.audit(model.model, model.state_dict(), allow=["lm_head"])


def test_row_that_loading_sets_to_zero_is_told(tmp_path):
    config = FunnelConfig(vocab_size=99, block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=64, pad_token_id=0)
    funnel = FunnelForMaskedLM(config)
    funnel.get_input_embeddings().weight.data.normal_()
    funnel.save_pretrained(tmp_path)

    report = pytest_tfdebug.audit(FunnelForMaskedLM.from_pretrained(tmp_path), tmp_path)

    [row] = [row for row in report.rows if not row.ok]
    assert (row.tensor, row.verdict) == ("funnel.embeddings.word_embeddings.weight", "changed")
    assert row.detail == "row 0 is zero"


def test_embedding_tied_to_another_than_declared_is_told(tmp_path):
    config = T5Config(
        vocab_size=64,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        tie_word_embeddings=False,
        feed_forward_proj="gated-gelu",
    )
    t5 = pytest_tfdebug.fill(T5ForConditionalGeneration(config))
    t5.lm_head.weight = nn.Parameter(-t5.lm_head.weight.detach())
    t5.save_pretrained(tmp_path)
    t5 = T5ForConditionalGeneration.from_pretrained(tmp_path)
    assert pytest_tfdebug.audit(t5, tmp_path)
    t5.encoder.embed_tokens.weight = t5.lm_head.weight

    found = lost(pytest_tfdebug.audit(t5, tmp_path))

    assert found["encoder.embed_tokens.weight"] == "wrongly tied"


def test_quantised_numbers_need_their_scale():
    linear = nn.Linear(64, 32, bias=False)
    scale = linear.weight.detach().abs().amax(1, keepdim=True) / 127
    stored = {"weight": (linear.weight.detach() / scale).round().to(torch.int8), "weight_scale": scale}
    right, wrong = nn.Linear(64, 32, bias=False), nn.Linear(64, 32, bias=False)
    with torch.no_grad():
        right.weight.copy_(stored["weight"].float() * scale)
        wrong.weight.copy_(stored["weight"].float())

    report = pytest_tfdebug.audit(right, stored)

    assert report, report
    assert report.rows[0].verdict == "scaled"
    assert lost(pytest_tfdebug.audit(wrong, stored)) == {"weight": "not scaled", "weight_scale": "never read"}


def test_blocks_of_float8_need_their_scale():
    linear = nn.Linear(256, 192, bias=False)
    scale = torch.rand(2, 2) * 0.01 + 0.001
    spread = scale.repeat_interleave(128, 0)[:192].repeat_interleave(128, 1)
    stored = {"weight": (linear.weight.detach() / spread).to(torch.float8_e4m3fn), "weight_scale_inv": scale}
    with torch.no_grad():
        linear.weight.copy_(stored["weight"].float() * spread)

    report = pytest_tfdebug.audit(linear, stored)

    assert report, report


def test_batch_statistics_left_out_are_told():
    net = pytest_tfdebug.fill(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
    state = {name: each for name, each in net.state_dict().items() if "running" not in name}
    fresh = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    fresh.load_state_dict(state, strict=False)

    assert lost(pytest_tfdebug.audit(fresh, state)) == {
        "1.running_mean": "left at its initial values",
        "1.running_var": "left at its initial values",
    }


def test_every_file_of_an_index_is_read(loaded, folder, tmp_path):
    stored = load_file(folder / "model.safetensors")
    halves = {"a.safetensors": list(stored)[::2], "b.safetensors": list(stored)[1::2]}
    for file, names in halves.items():
        save_file({name: stored[name] for name in names}, tmp_path / file)
    index = {"weight_map": {name: file for file, names in halves.items() for name in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))

    report = pytest_tfdebug.audit(loaded, tmp_path)

    assert report
    assert report.stored == len(stored)


def test_pickled_state_inside_a_checkpoint_is_read(loaded, model, tmp_path):
    torch.save({"state_dict": model.state_dict(), "step": 3}, tmp_path / "last.ckpt")

    assert pytest_tfdebug.audit(loaded, tmp_path / "last.ckpt")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("nowhere", r"There is no checkpoint 'nowhere': no such file or directory.\nGive a directory with"),
        (
            torch.nn.Linear(2, 2),
            r"^audit needs a checkpoint and got a Linear\.\nGive a directory with .*, or a state dict\.$",
        ),
        ({}, "a state dict holds no tensor, so there is nothing to look for"),
    ],
)
def test_what_is_no_checkpoint_is_refused(loaded, given, told):
    with pytest.raises(TFDebugError, match=told):
        pytest_tfdebug.audit(loaded, given)


def test_file_that_is_no_checkpoint_is_refused(loaded, tmp_path):
    (tmp_path / "model.safetensors").write_text("nothing")

    with pytest.raises(TFDebugError, match="cannot be read as a checkpoint"):
        pytest_tfdebug.audit(loaded, tmp_path)


def test_audit_leaves_the_random_numbers_alone(loaded, folder):
    torch.manual_seed(0)
    first = torch.rand(3)
    torch.manual_seed(0)
    pytest_tfdebug.audit(loaded, folder)

    assert torch.equal(torch.rand(3), first)


def test_command_prints_what_did_not_arrive(folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "load_audited.py").write_text(
        "from transformers import LlamaForCausalLM\n"
        f"def right(): return LlamaForCausalLM.from_pretrained({str(folder)!r})\n"
        "def wrong(): model = right(); model.lm_head.weight.data.zero_(); return model\n"
    )
    monkeypatch.chdir(tmp_path)

    assert main([str(folder), "--model", "load_audited:right"]) == 0
    assert "arrived" in capsys.readouterr().out
    assert main([str(folder), "--model", "load_audited:wrong"]) == 1
    assert "lm_head.weight is left at its initial values" in capsys.readouterr().out
    assert main([str(folder), "--model", "load_audited:nothing"]) == 2
    assert "Name a module that can be imported from this directory" in capsys.readouterr().err


def test_check_fails_with_its_report(pytester, folder):
    pytester.makepyfile(
        f"""
        from transformers import LlamaForCausalLM

        FOLDER = {str(folder)!r}

        def test_right(tf_golden):
            assert tf_golden.check_loaded(LlamaForCausalLM.from_pretrained(FOLDER), FOLDER)

        def test_wrong(tf_golden):
            model = LlamaForCausalLM.from_pretrained(FOLDER)
            model.model.norm.weight.data.mul_(2)
            tf_golden.check_loaded(model, FOLDER)
        """
    )

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tf-json=checks.json")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*LlamaForCausalLM: 1 tensor did not arrive from *: model.norm.weight is changed"])
    right, wrong = json.loads((pytester.path / "checks.json").read_text())["checks"]
    assert right["loads"][0]["verdicts"]["read"] == right["tensors"] - right["loads"][0]["verdicts"]["made again"]
    assert (wrong["status"], wrong["loads"][0]["mismatched"]) == ("failed", ["model.norm.weight"])
