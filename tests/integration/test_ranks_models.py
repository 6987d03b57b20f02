"""Goldens of one process hold models on two ranks, and the reverse; a bug on the ranks is named, with its rank."""

import json
from importlib import import_module

import pytest
import torch

# Loaded once for all runs of this process: torch loads some of its parts no second time.
for name in ("torch.distributed.fsdp", "torch.distributed.tensor.parallel", "transformers.models.llama.modeling_llama"):
    import_module(name)

SHARDED = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM
from pytest_tfdebug.tracing.record.ranks import held_here

IDS = torch.arange(12).view(2, 6)
COLUMNS = "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"
ROWS = "self_attn.o_proj", "mlp.down_proj"


def llama(**changes):
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, **changes)).eval()


def tied():
    return llama(tie_word_embeddings=True)


def parallelized():
    plan = {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Replicate()),
    }
    for layer in ("model.layers.0", "model.layers.1"):
        plan |= {f"{layer}.{name}": ColwiseParallel() for name in COLUMNS}
        plan |= {f"{layer}.{name}": RowwiseParallel() for name in ROWS}
    return parallelize_module(llama(), init_device_mesh("cpu", (2,)), plan)


def automatic():
    return LlamaForCausalLM.from_pretrained("checkpoint", tp_plan="auto").eval()


def fully_sharded():
    model, mesh = llama(), init_device_mesh("cpu", (2,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class VocabularyPart(nn.Embedding):
    def forward(self, ids):
        ids = ids - dist.get_rank() * len(self.weight)
        held = (ids >= 0) & (ids < len(self.weight))
        found = super().forward(ids.where(held, 0)) * held[..., None]
        dist.all_reduce(found)
        return found


def is_seen_as_one():
    given, mesh = torch.ones(2, 3), init_device_mesh("cpu", (2,))
    made = [DTensor.from_local(given, mesh, [Replicate()]) for _ in range(2)]
    return [held_here(each)[0] is given for each in made]


def gather(_module, _args, output):
    parts = [torch.empty_like(output) for _ in range(2)]
    dist.all_gather(parts, output.contiguous())
    return torch.cat(parts, -1)


def tied_and_sharded(times=1):
    model = tied()
    model.model.embed_tokens.__class__ = VocabularyPart
    for _ in range(times):  # under each of its names
        model.lm_head.weight.data = model.lm_head.weight.data.chunk(2)[dist.get_rank()].clone()
    model.lm_head.register_forward_hook(gather)
    return model


def without_all_reduce():
    model = parallelized()
    projection = model.model.layers[0].self_attn.o_proj
    projection._forward_hooks.clear()
    projection.register_forward_hook(lambda _module, _args, output: output.to_local())
    return model


def with_the_shard_of_rank_0():
    model = automatic()
    dist.broadcast(model.model.layers[1].self_attn.v_proj.weight.to_local().data, 0)
    return model


def other_on_rank_1():
    model = fully_sharded()
    if dist.get_rank() == 1:
        model.model.layers[1].post_attention_layernorm.variance_epsilon = 0.5
    return model


def permuted_on_rank_1():
    model = parallelized()
    if dist.get_rank() == 1:  # its two heads of 8 rows, taken for one of 16
        for name in ("q_proj", "k_proj"):
            rows = getattr(model.model.layers[0].self_attn, name).weight.to_local().data
            rows.copy_(rows.view(2, 8, 32).transpose(0, 1).reshape(16, 32).clone())
    return model


def stage(number):
    given, model = {}, llama()
    layer = model.model.layers[number]

    def keep(_module, args, kwargs):
        given.update(kwargs, hidden_states=args[0])

    with layer.register_forward_pre_hook(keep, with_kwargs=True), torch.no_grad():
        model(IDS, use_cache=False)
    return layer, given


CLEAN = {
    "parallelized": (llama, parallelized),
    "automatic": (llama, automatic),
    "fully_sharded": (llama, fully_sharded),
    "tied": (tied, tied_and_sharded),
}
BUGS = {
    "all_reduce": (llama, without_all_reduce),
    "shard": (llama, with_the_shard_of_rank_0),
    "scaled": (llama, other_on_rank_1),
    "permuted": (llama, permuted_on_rank_1),
    "tied_twice": (tied, lambda: tied_and_sharded(2)),
}
"""
TESTS = """
import json
import os
from pathlib import Path

import pytest
import torch.distributed as dist
from sharded import BUGS, CLEAN, IDS, is_seen_as_one, llama, stage


def test_it(tf_golden):
    on_ranks = dist.is_initialized()
    if not on_ranks or dist.get_rank() == 0:
        llama().save_pretrained("checkpoint")
    if on_ranks:
        dist.barrier()
    answers = {}
    ways = {} if "BACK" in os.environ else {**CLEAN, **BUGS}
    if on_ranks or "BACK" in os.environ:
        ways |= {f"{name} of ranks": made for name, made in CLEAN.items()}
    for name, (whole, split) in ways.items():
        model = split() if on_ranks else whole()
        try:
            report = tf_golden.check(model, input_ids=IDS, name=name)
            answers[name] = None if report is None else [report.coverage.share, report.notes]
        except AssertionError as error:
            answers[name] = str(error)
    if on_ranks:
        layer, inputs = stage(dist.get_rank())
        root = f"model.layers.{dist.get_rank()}"
        report = tf_golden.check(layer, reference=llama, root=root, port_inputs=inputs, name="stage", input_ids=IDS)
        answers["one tensor in two"] = is_seen_as_one()
        answers["stage"] = [report.coverage.share, report.notes]
    if not on_ranks or dist.get_rank() == 0:
        Path("answers.json").write_text(json.dumps(answers))


if "RANKS" in os.environ:
    test_it = pytest.mark.tf_ranks(2, timeout=900)(test_it)
"""
CLEAN = ["parallelized", "automatic", "fully_sharded", "tied"]


@pytest.fixture
def run(pytester, monkeypatch):
    pytester.makepyfile(sharded=SHARDED, test_sharded=TESTS)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

    def run(mode, **environment):
        for name in ("RANKS", "BACK"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        options = "-p", "no:cacheprovider", "-p", "no:randomly", f"--tf-golden={mode}"
        pytester.runpytest_inprocess(*options).assert_outcomes(passed=1)
        return json.loads((pytester.path / "answers.json").read_text())

    return run


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(torch.cpu.Stream(), "record_event"), reason="FSDP2 needs torch 2.7 on a CPU")
@pytest.mark.as_run(
    "ranks",
    works="Names a missing all-reduce, a wrong shard, another value on one rank, a wrong permutation of q and k, and tied weights that were sharded twice.",
    limits="Operators are not looked at. Not tested with nccl.",
)
def test_goldens_hold_models_on_ranks_and_bugs_are_named_with_the_rank(run):
    run("update")
    answers = run("missing", RANKS="1")
    back = run("check", BACK="1")

    agree = [1.0, []]  # all calls compared, and nothing to say
    assert {name: answers[name] for name in CLEAN} == dict.fromkeys(CLEAN, agree)
    without_cache = (
        "'LlamaDecoderLayer' is given past_key_values=None instead of an object, use_cache=False instead of True."
    )
    assert answers["stage"] == [1.0, [without_cache]]
    assert answers["one tensor in two"] == [True, True]  # what three projections take in is compared once
    assert back == {f"{name} of ranks": agree for name in CLEAN}
    lines = {name: text.partition("\n")[0].partition(" in ")[2] for name, text in answers.items() if type(text) is str}
    assert lines == {
        "all_reduce": "model.layers.0.self_attn.o_proj (Linear) on every rank: gives another output for the same inputs",
        "shard": "model.layers.1.self_attn.v_proj (Linear) on rank 1 alone: has other weights: "
        "model.layers.1.self_attn.v_proj.weight",
        "scaled": "model.layers.1.post_attention_layernorm (LlamaRMSNorm) on rank 1 alone: gives another output for the "
        "same inputs",
        "permuted": "model.layers.0.self_attn.q_proj (Linear) on rank 1 alone: has other weights: "
        "model.layers.0.self_attn.q_proj.weight",
        "tied_twice": "model.embed_tokens (VocabularyPart) on every rank: has other weights: model.embed_tokens.weight",
    }
    assert "An all-reduce is missing" in answers["all_reduce"]
    assert "sharded more than once" in " ".join(answers["tied_twice"].split())
