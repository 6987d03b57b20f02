"""What a model of real size costs and says on a device: a Llama of 7B parameters in bfloat16 on a GPU.

    python utils/real_size.py [--device cuda] [--dtype bfloat16] [--layers 32] [--width 4096] [--look costs,promises]

costs      the time of each way to look at a forward, in bare forwards, and its memory beyond the model
promises   the right model asked another way, by each promise: none may alarm
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import command

# isort: split
import argparse
import copy

import llama_port
import pytest_tfdebug
from measuring import candidates
from pytest_tfdebug.goldens.golden_file import load
from pytest_tfdebug.goldens.held_model import compare_with
from pytest_tfdebug.goldens.port_call import PortCall
from pytest_tfdebug.goldens.settings import CheckSettings
from pytest_tfdebug.parity.tensors.tolerance import Tolerances
from pytest_tfdebug.tracing.values.rerun import Rerun

_GB = 1e9
_ROUNDS = 5
_VOCABULARY = 32000


def reference(options: argparse.Namespace) -> LlamaForCausalLM:
    """Return a Llama with random weights and norms that are not all ones, made on the device."""
    config = LlamaConfig(
        hidden_size=options.width,
        intermediate_size=options.width * 43 // 16,
        num_hidden_layers=options.layers,
        num_attention_heads=max(options.width // 128, 1),
        num_key_value_heads=max(options.width // 128, 1),
        vocab_size=_VOCABULARY,
        max_position_embeddings=4096,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, options.dtype))
    torch.manual_seed(0)
    try:
        with torch.device(options.device):
            model = LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)
    frequencies = 1.0 / config.rope_parameters["rope_theta"] ** (torch.arange(0, 128, 2, device=options.device) / 128)
    model.model.rotary_emb.inv_freq = frequencies[: model.model.rotary_emb.inv_freq.numel()]  # as it is when loaded
    with torch.no_grad():
        for weight in (each for each in model.parameters() if each.dim() == 1):
            weight.add_(0.1 * torch.randn_like(weight))
    return model


class _Measured:
    """Times what is run in bare forwards, and weighs what it allocates beyond what is there."""

    def __init__(self, options: argparse.Namespace, bare: Callable[[], object]) -> None:
        self._is_cuda = options.device.startswith("cuda")
        self.table = command.Table(f"{options.layers} layers, {options.dtype}", "ms", "x bare", "GB more")
        bare()
        self._bare = 1.0
        self._bare = self.row("bare forward", bare)

    def row(self, name: str, run: Callable[[], object], rounds: int = _ROUNDS) -> float:
        """Add the median of some runs after one that does not count."""
        took, most = list[float](), 0
        for _ in range(rounds + (rounds > 1)):
            if self._is_cuda:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                held = torch.cuda.memory_allocated()
            began = time.perf_counter()
            kept = run()
            if self._is_cuda:
                torch.cuda.synchronize()
                most = torch.cuda.max_memory_allocated() - held
            took.append(time.perf_counter() - began)
            del kept
        seconds = median(took[1:] or took)
        self.table.add(name, (1e3 * seconds, seconds / self._bare, most / _GB if self._is_cuda else "-"))
        return seconds


def costs(options: argparse.Namespace) -> None:
    """Print what each way to look at the forward costs."""
    model = reference(options)
    ids = torch.randint(3, _VOCABULARY, (2, options.tokens), generator=torch.Generator().manual_seed(3))
    work = candidates.Work("Llama", model, {"input_ids": ids.to(options.device)})
    measured = _Measured(options, work.forward)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        kinds = {kind.name: kind for kind in candidates.KINDS}
        for name in ("hooks that keep references", "hooks that clone", "trace", "overflow_guard"):
            measured.row(name, kinds[name].make(work, folder))
        in_half = {kind.name: kind for kind in candidates.KINDS if kind.section == "weights"}
        measured.row("golden, update", in_half["golden, update"].make(work, folder), 3)
        measured.row("golden, check", in_half["golden, check"].make(work, folder), 3)
        _of_port(measured, work, folder)
    print(f"model {sum(each.nbytes for each in model.parameters()) / _GB:.1f} GB, largest weight ", end="")
    print(f"{max(each.nbytes for each in model.parameters()) / _GB:.3f} GB", flush=True)


def _of_port(measured: _Measured, work: candidates.Work, folder: Path) -> None:
    golden = load(folder / "checked")
    inputs = dict(work.inputs)
    call = PortCall((), inputs, reference=lambda: Rerun(work.model, (), inputs))
    wrong: Any = copy.deepcopy(work.model)
    wrong.model.layers[len(wrong.model.layers) // 2].mlp.act_fn = torch.nn.GELU()

    def check(port: torch.nn.Module) -> None:
        report = compare_with(golden, port, call, CheckSettings(Tolerances()))
        print(str(report).splitlines()[0][:150], flush=True)

    measured.row("golden, check that fails", partial(check, wrong), 1)
    del wrong
    port = llama_port.load_port(work.model)
    measured.row("bare port", lambda: port(**inputs))
    measured.row("port, own names", partial(check, port), 1)
    port.blocks[len(port.blocks) // 2].attention.merge.weight.data.mul_(1.01)
    measured.row("port that fails, own names", partial(check, port), 1)


def promises(options: argparse.Namespace) -> None:
    """Print what each promise says of the right model."""
    model = reference(options)
    ids = torch.randint(3, _VOCABULARY, (2, 32), generator=torch.Generator().manual_seed(3)).to(options.device)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    asked: dict[str, Callable[[], Any]] = {
        "padding": lambda: pytest_tfdebug.assert_padding_invariant(model, inputs),
        **{
            name: partial(pytest_tfdebug.assert_invariant, model, inputs, name)
            for name in ("batch", "cache", "attention", "dtype")
        },
    }
    table = command.Table(f"promise, {options.layers} layers, {options.dtype}", "s", "verdict")
    for name, ask in asked.items():
        if options.only and name not in options.only:
            continue
        began, verdict = time.perf_counter(), "kept"
        try:
            ask()
        except AssertionError as error:
            verdict = " | ".join(str(error).splitlines()[:4])
        except Exception as error:  # noqa: BLE001 - each is told
            verdict = f"{type(error).__name__}: {error}".splitlines()[0]
        table.add(name, (time.perf_counter() - began, verdict))


def main() -> None:
    """Print what is asked for."""
    parser = command.parser(__doc__, "dtype", "only", "look", dtype="bfloat16", look=["costs", "promises"])
    parser.add_argument("--device", default="cuda", help="(default %(default)s)")
    parser.add_argument("--layers", type=int, default=32, help="(default %(default)s)")
    parser.add_argument("--width", type=int, default=4096, help="(default %(default)s)")
    parser.add_argument("--tokens", type=int, default=256, help="of each of two rows (default %(default)s)")
    options = parser.parse_args()
    threads = torch.get_num_threads()
    command.quiet()
    torch.set_num_threads(threads)
    for look in options.look:
        {"costs": costs, "promises": promises}[look](options)


if __name__ == "__main__":
    main()
