"""A port that is right, and was run or called otherwise than its reference: that is told, and no line is blamed."""

# ruff: noqa: NPY002 - the generator that models draw from

import copy
import importlib
import linecache

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

import pytest_tfdebug
from models import build
from pytest_tfdebug.parity.proof import prove

SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
IDS = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
MASK = (IDS > 0).long()


def report_on(reference, port, inputs, own=None, **settings):
    expected = pytest_tfdebug.trace(reference, **inputs)
    return pytest_tfdebug.compare(expected, pytest_tfdebug.trace(port, **(own or inputs)), **settings)


def line_with(comment):
    return next(at for at, text in enumerate(linecache.getlines(__file__), 1) if text.rstrip().endswith(comment))


def first_line(report):
    return str(report).partition("\n")[0]


@pytest.fixture(autouse=True)
def _with_a_search(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 5.0)


# --- the mode


@pytest.mark.parametrize("architecture", ["gpt2", "bert", "t5"])
def test_port_left_in_training_mode_is_told_and_nothing_is_proved(architecture):
    reference, inputs = build(architecture)
    port = copy.deepcopy(reference).train()

    report = report_on(reference, port, inputs)

    name = type(reference).__name__
    assert first_line(report) == f"{name} ({name}): is in training mode, and the reference was in eval mode"
    assert "In eval mode every output agrees." in str(report)
    assert (report.culprit.kind, report.culprit.certain, report.culprit.proved) == ("mode", True, "")
    assert port.training


class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm, self.drop = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.1)

    def forward(self, pixel_values):
        return self.drop(self.norm(self.convolution(pixel_values)))


class Theirs(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.bn, self.d = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.1)

    def forward(self, pixel_values):
        return self.d(self.bn(self.c(pixel_values)))


def pair_of_norms():
    reference, port = pytest_tfdebug.fill(Theirs().eval(), seed=0), Mine().eval()
    port.load_state_dict(dict(zip(port.state_dict(), reference.state_dict().values(), strict=True)))
    return reference, port, {"pixel_values": torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))}


@pytest.mark.parametrize("module", ["", "norm", "drop"])
def test_one_module_in_training_mode_is_told_under_any_name(module):
    reference, port, inputs = pair_of_norms()
    port.get_submodule(module).train()

    report = report_on(reference, port, inputs)

    assert (report.culprit.path, report.culprit.kind) == (module or "Mine", "mode")
    assert report.culprit.certain


def test_mode_that_changes_nothing_is_not_blamed():
    reference, inputs = build("llama")  # its dropout is 0
    port = copy.deepcopy(reference).train()
    port.model.layers[1].input_layernorm.variance_epsilon = 0.1

    report = report_on(reference, port, inputs)

    assert report.culprit.path == "model.layers.1.input_layernorm"


def test_fault_beside_the_wrong_mode_is_announced():
    reference, port, inputs = pair_of_norms()
    port.train().norm.eps = 0.5

    report = report_on(reference, port, inputs)

    assert report.culprit.kind == "mode"
    told = " ".join(str(report).split())
    assert "In eval mode other values differ: what is wrong there is seen once the mode is right." in told


def test_mode_of_each_module_is_kept_in_a_file(tmp_path):
    _, port, inputs = pair_of_norms()
    port.norm.train()
    made = pytest_tfdebug.trace(port, **inputs)
    made.save(tmp_path / "made.safetensors")

    calls = pytest_tfdebug.Trace.load(tmp_path / "made.safetensors").calls

    assert [call.path for call in calls if call.training] == ["norm"]


# --- the compiler


def test_what_a_compiler_changes_is_told_as_that():
    def miscompile(graph, _inputs):
        for node in graph.graph.nodes:
            if node.op == "call_function" and node.target is nn.functional.silu:
                node.target, node.kwargs = nn.functional.gelu, {}
        graph.recompile()
        return graph.forward

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x):
            return self.down(nn.functional.silu(self.up(x)))

    reference, port = (pytest_tfdebug.fill(Gated().eval(), seed=0) for _ in range(2))
    inputs = {"x": torch.randn(2, 16, generator=torch.Generator().manual_seed(0))}

    report = report_on(reference, torch.compile(port, backend=miscompile), inputs)

    told = "compiled it differs, uncompiled it agrees: the compiler changes the result"
    assert first_line(report) == f"Gated (Gated): {told}"
    assert report.culprit.certain


# --- arguments


class Wrap(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.inner = model

    def forward(self, ids, lengths=None):
        return self.inner(ids).last_hidden_state


def test_mask_that_a_wrapper_drops_is_told_where_it_calls():
    model = pytest_tfdebug.fill(BertModel(BertConfig(**SMALL)).eval(), seed=0)
    given, own = {"input_ids": IDS, "attention_mask": MASK}, {"ids": IDS, "lengths": MASK.sum(1)}

    report = report_on(model, Wrap(model), given, own, outputs={"": "last_hidden_state"})

    line = Wrap.forward.__code__.co_firstlineno + 1
    told = "'inner' takes attention_mask and was given none; the reference had one"
    assert first_line(report) == f"test_circumstances.py:{line} in Wrap (Wrap): {told}"
    assert "With it every output agrees." in str(report)
    assert report.culprit.certain


class WrapLM(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.inner = model

    def forward(self, input_ids, attention_mask=None, position_ids=None):
        return self.inner(input_ids=input_ids, attention_mask=attention_mask).logits


def test_positions_that_a_wrapper_drops_are_told():
    model = pytest_tfdebug.fill(LlamaForCausalLM(LlamaConfig(**SMALL)).eval(), seed=0)
    positions = torch.tensor([[0, 1, 4, 9], [0, 1, 0, 0]])
    given = {"input_ids": IDS, "attention_mask": MASK, "position_ids": positions}

    report = report_on(model, WrapLM(model), given, outputs={"": "logits"})

    assert "'inner' takes position_ids and was given none; the reference had one" in first_line(report)


class Inverts(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.inner = model

    def forward(self, input_ids, attention_mask):
        padding = attention_mask.eq(0)  # INVERTED
        return self.inner(input_ids, padding.long())[0]


def test_mask_that_a_wrapper_inverts_is_told_where_that_is_made():
    model = pytest_tfdebug.fill(BertModel(BertConfig(**SMALL)).eval(), seed=0)

    report = report_on(
        model, Inverts(model), {"input_ids": IDS, "attention_mask": MASK}, outputs={"": "last_hidden_state"}
    )

    line = line_with("# INVERTED")
    told = "'inner' is given another attention_mask than the reference"
    assert first_line(report) == f"test_circumstances.py:{line} in Inverts (Inverts): {told}"
    assert "With that of the reference every output agrees." in str(report)
    assert report.culprit.certain


class Trunk(nn.Module):
    """The layers of a Llama under another top."""

    def __init__(self, llama):
        super().__init__()
        self.model, self.head = llama.model, llama.lm_head

    def forward(self, input_ids):
        hidden = self.model.embed_tokens(input_ids)
        table = self.model.rotary_emb(hidden, torch.arange(input_ids.shape[1])[None])[::-1]
        hidden_keys = torch.full((input_ids.shape[1],) * 2, torch.finfo(hidden.dtype).min).triu(1)[None, None]
        for layer in self.model.layers:
            hidden = layer(hidden, attention_mask=hidden_keys, position_embeddings=table)  # EXCHANGED
        return self.head(self.model.norm(hidden))


def test_two_tensors_of_a_call_that_are_exchanged_are_told_where_it_is_made():
    model = pytest_tfdebug.fill(LlamaForCausalLM(LlamaConfig(**SMALL, attn_implementation="eager")).eval(), seed=0)

    report = report_on(model, Trunk(model), {"input_ids": IDS}, outputs={"": "logits"})

    assert first_line(report) == (
        f"test_circumstances.py:{line_with('# EXCHANGED')} in Trunk (Trunk): 'model.layers.0' is given "
        "position_embeddings[0] in place of position_embeddings[1], and the other way around"
    )
    assert "With both exchanged every output agrees." in str(report)
    assert report.culprit.certain


class Narrowed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(6, 6), nn.Sequential(*(nn.Linear(6, 6) for _ in range(4)))

    def forward(self, x):
        return self.last(self.inner(x))


class NarrowedHere(Narrowed):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):  # NARROWED
            x = self.inner(x)
        return self.last(x.float())


def test_autocast_of_a_models_own_is_told_where_it_begins():
    reference, port = (pytest_tfdebug.fill(each().eval(), seed=0) for each in (Narrowed, NarrowedHere))

    report = report_on(reference, port, {"x": torch.randn(2, 6)})

    assert first_line(report) == (
        f"test_circumstances.py:{line_with('# NARROWED')} in NarrowedHere (NarrowedHere): runs under torch.autocast here, "
        "in bfloat16"
    )
    assert "Without it every output agrees." in str(report)
    assert report.culprit.certain


class DropsLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(12))

    def forward(self, x):
        for layer in self.layers:
            is_kept = np.random.choice([0.0, 1.0]) >= 0.5  # DRAWN
            if is_kept:
                x = x + layer(x)
        return x


class KeepsLayers(DropsLayers):
    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


def test_port_that_draws_from_numpys_generator_is_told_the_line():
    reference, port = (pytest_tfdebug.fill(each().eval(), seed=0) for each in (KeepsLayers, DropsLayers))
    np.random.seed(0)
    before = np.random.get_state()[2]

    report = report_on(reference, port, {"x": torch.ones(2, 6)})

    assert first_line(report) == (
        f"test_circumstances.py:{line_with('# DRAWN')} in DropsLayers (DropsLayers): draws from numpy.random here"
    )
    assert (report.culprit.kind, report.culprit.certain) == ("random", True)
    assert np.random.get_state()[2] == before


class LogsSometimes(KeepsLayers):
    def forward(self, x):
        np.random.uniform()
        return super().forward(x) * 2


def test_random_number_that_changes_nothing_is_not_blamed():
    reference, port = (pytest_tfdebug.fill(each().eval(), seed=0) for each in (KeepsLayers, LogsSometimes))

    report = report_on(reference, port, {"x": torch.ones(2, 6)})

    assert report.culprit.kind != "random"


class Unpacks(WrapLM):
    def forward(self, input_ids, attention_mask=None, position_ids=None):
        given = {"input_ids": input_ids}
        given["attention_mask"] = attention_mask  # HERE
        return self.inner(**given).logits


def test_argument_that_an_unpacked_mapping_lacks_is_told_where_that_is_made():
    model = pytest_tfdebug.fill(LlamaForCausalLM(LlamaConfig(**SMALL)).eval(), seed=0)
    positions = torch.tensor([[0, 1, 4, 9], [0, 1, 0, 0]])
    given = {"input_ids": IDS, "attention_mask": MASK, "position_ids": positions}

    culprit = report_on(model, Unpacks(model), given, outputs={"": "logits"}).culprit

    assert linecache.getline(culprit.source.file, culprit.source.first).rstrip().endswith("# HERE")
    assert "takes position_ids and was given none" in culprit.explanation


class CrossBlind(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.m = model

    def forward(self, input_ids, attention_mask=None, decoder_input_ids=None):
        hidden = self.m.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        hidden = self.m.decoder(
            input_ids=decoder_input_ids, encoder_hidden_states=hidden, use_cache=False
        ).last_hidden_state
        return {"logits": self.m.lm_head(hidden * self.m.model_dim**-0.5)}


def test_mask_that_the_decoder_lacks_is_told_before_a_missing_output():
    config = T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0)
    model = pytest_tfdebug.fill(T5ForConditionalGeneration(config).eval(), seed=0)
    given = {"input_ids": IDS, "attention_mask": MASK, "decoder_input_ids": torch.tensor([[0, 3, 4], [0, 5, 6]])}

    report = report_on(model, CrossBlind(model), given)

    assert "'m.decoder' takes encoder_attention_mask and was given none; the reference had one" in first_line(report)
    assert "'encoder_last_hidden_state' (2, 4, 16): not compared" in " ".join(report.notes)


class DropsPositions(nn.Module):
    """Calls a layer without the argument, and does something wrong beside."""

    def __init__(self, model):
        super().__init__()
        self.inner = model

    def forward(self, input_ids, attention_mask=None):
        return self.inner(input_ids=input_ids, attention_mask=attention_mask).logits * 1.5


def test_argument_that_both_have_is_not_blamed():
    model = pytest_tfdebug.fill(LlamaForCausalLM(LlamaConfig(**SMALL)).eval(), seed=0)

    report = report_on(model, DropsPositions(model), {"input_ids": IDS, "attention_mask": MASK}, outputs={"": "logits"})

    assert "takes" not in first_line(report)
    assert not report.ok


# --- random numbers


class Attention(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.qkv, self.hidden = nn.Linear(16, 48), hidden

    def forward(self, x, mask):
        query, key, value = self.qkv(x).view(2, -1, 3, 4, 4).permute(2, 0, 3, 1, 4)
        scores = (query @ key.transpose(-1, -2)).masked_fill(mask.logical_not(), self.hidden)
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=scores)


def test_attention_without_dropout_draws_nothing():
    reference = pytest_tfdebug.fill(Attention(torch.finfo(torch.float32).min).eval(), seed=0)
    port = Attention(float("-inf")).eval()
    port.load_state_dict(reference.state_dict())
    seen = torch.ones(2, 8, dtype=torch.bool)
    seen[0, 5:] = False
    mask = (seen[:, None, :] & seen[:, :, None])[:, None]

    report = report_on(reference, port, {"x": torch.randn(2, 8, 16), "mask": mask})

    assert report.culprit.kind != "random"
    assert "random numbers" not in str(report)


class Hands(nn.Module):
    def __init__(self, model, other, *, is_masked):
        super().__init__()
        self.model, self.other, self.is_masked = model, other, is_masked

    def forward(self, x):
        mask = torch.ones(4, 4).triu(1).bool() if self.is_masked else None
        x = self.model(x, mask=mask)
        return self.other(x, memory_mask=mask)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x, mask=None, memory_mask=None):
        mask = memory_mask if mask is None else mask
        return self.inner(x, x, x, attn_mask=mask, need_weights=False)[0]


def test_argument_missing_from_a_caller_is_told_where_that_was_called():
    layers, x = [pytest_tfdebug.fill(Layer().eval(), seed=seed) for seed in (0, 1)], torch.randn(2, 4, 8)

    report = report_on(Hands(*layers, is_masked=True), Hands(*layers, is_masked=False), {"x": x})

    line = Hands.forward.__code__.co_firstlineno + 2
    told = "'model' takes mask and was given none; the reference had one"
    assert first_line(report) == f"test_circumstances.py:{line} in Hands (Hands): {told}"


_MASKS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        mask = self.made(x)
        return self.inner(x, x, x, attn_mask=mask, need_weights=False)[0]

    def made(self, x):
        mask = None
        if x.ndim == 3:
            mask = torch.ones(4, 4).triu(1).bool()
        return mask
"""


def test_argument_that_a_helper_no_longer_makes_is_told_there(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    made = {"with_mask": _MASKS, "without_mask": _MASKS.replace("x.ndim == 3", "x.ndim == 2")}
    models = []
    for name, text in made.items():
        (tmp_path / f"{name}.py").write_text(text)
        models.append(pytest_tfdebug.fill(importlib.import_module(name).Model().eval(), seed=0))

    culprit = report_on(*models, {"x": torch.randn(2, 4, 8)}).culprit

    assert culprit.wrong == "'inner' takes attn_mask and was given none; the reference had one"
    assert (culprit.source.first, culprit.reference.first, culprit.function) == (16, 16, "made")
