"""Models on a CUDA device: ``make test-cuda``, on a machine that has one."""

import copy
import warnings

import pytest
import torch
from as_checked import checked
from cases import Case
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import llama_port
from pytest_tfdebug import ActivationOverflowError, Trace, assert_padding_invariant, compare, overflow_guard, trace

DEVICE = "cuda"


def synchronisations(run):
    """Return how often a call makes the host wait for the device, as far as torch itself can tell."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            run()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return sum("synchronizing CUDA operation" in str(warning.message) for warning in told)


IDS = torch.arange(1, 9)[None]


def llama(layers=2):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "vocab_size": 32, "head_dim": 8}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=layers)).double().eval()


def on_device(model):
    return copy.deepcopy(model).to(DEVICE)


def wrong():
    model = llama()
    model.model.layers[1].mlp.act_fn = nn.GELU()
    return model


def test_trace_of_the_cpu_holds_the_device_and_the_reverse(tmp_path):
    here, there = trace(llama(), IDS), trace(on_device(llama()), IDS.to(DEVICE))
    here.save(tmp_path / "cpu.safetensors")
    there.save(tmp_path / "device.safetensors")

    for expected in (here, there, *(Trace.load(path) for path in tmp_path.iterdir())):
        for actual in (here, there):
            report = compare(expected, actual)
            assert report.ok, str(report)
            assert report.coverage.compared == report.coverage.expected


def test_bug_on_the_device_is_named():
    expected = trace(llama(), IDS)

    report = compare(expected, trace(on_device(wrong()), IDS.to(DEVICE)))

    assert report.culprit.path == "model.layers.1.mlp.act_fn"


def test_what_overflows_on_the_device_is_named():
    model = on_device(llama())
    model.model.layers[1].mlp.up_proj.weight.data[0] = float("inf")

    with pytest.raises(ActivationOverflowError) as caught, overflow_guard(model), torch.no_grad():
        model(IDS.to(DEVICE))

    assert caught.value.fault.owner == "model.layers.1.mlp.up_proj"


def test_padding_changes_nothing_on_the_device():
    inputs = {"input_ids": IDS.to(DEVICE), "attention_mask": torch.ones_like(IDS).to(DEVICE)}

    assert_padding_invariant(on_device(llama()), inputs)


def guarded(model, ids):
    with overflow_guard(model), torch.no_grad():
        model(ids)


@pytest.mark.parametrize("watch", [trace, guarded], ids=["trace", "overflow_guard"])
def test_no_module_makes_the_host_wait_for_the_device(watch):
    ids, waits = IDS.to(DEVICE), []
    for layers in (2, 8):
        model = on_device(llama(layers))
        watch(model, ids)
        with torch.no_grad():
            own = synchronisations(lambda model=model: model(ids))
        waits.append(synchronisations(lambda model=model: watch(model, ids)) - own)

    assert waits[0] == waits[1]


def test_proof_is_found_on_the_device_against_a_golden_on_disk(monkeypatch):
    monkeypatch.setattr("pytest_tfdebug.parity.proof.prove.SECONDS", 120.0)
    wrong = llama().float()
    wrong.model.layers[1].mlp.act_fn = nn.GELU().eval()
    case = Case(on_device(llama().float()), on_device(wrong), (IDS.to(DEVICE),), {}, (IDS.to(DEVICE),), {})

    report = checked(case)

    assert report.culprit.path == "model.layers.1.mlp.act_fn"
    assert report.culprit.proved


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_wide_port_with_names_of_its_own_agrees_on_the_device(dtype):
    torch.manual_seed(0)
    sizes = {"hidden_size": 2048, "intermediate_size": 5504, "num_attention_heads": 16, "vocab_size": 1000}
    with torch.device(DEVICE):
        reference = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=16, use_cache=False)).eval()
    frequencies = reference.model.rotary_emb.inv_freq.clone()
    reference.to(dtype).model.rotary_emb.inv_freq = frequencies  # as ``from_pretrained`` keeps them
    ids = torch.arange(1, 513).view(2, 256).to(DEVICE)

    report = checked(Case(reference, llama_port.load_port(reference), (), {"input_ids": ids}, (ids,), {}))

    assert report.ok, str(report)
