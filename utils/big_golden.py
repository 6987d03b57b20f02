"""A golden of a large model: its size, and whether it names what a whole golden names.

A Llama of 12 layers is recorded twice, sampled and whole; then each bug of the catalogue's Llama, and a few faults deep
inside, goes into the model and is held to both. ``--layers``, ``--hidden`` and ``--tokens`` make it smaller;
``--by-calls`` leaves out the table of operators, which is the same in both and takes most of the time.
"""

from __future__ import annotations

import argparse
import copy
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "fixtures"))

import pytest_tfdebug
from bugs import BUGS  # type: ignore[import-not-found]  # the folder is put on the path above
from pytest_tfdebug.tracing.file.codec import shown_size
from pytest_tfdebug.tracing.file.samples import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.tracing.trace import Trace


class Fault(NamedTuple):
    """A fault and the module that must be named.

    Args:
        name: Of the fault.
        inject: Puts it into a model.
        culprit: Module path.
    """

    name: str
    inject: Callable[[torch.nn.Module], None]
    culprit: str


def faults(layers: int) -> Iterator[Fault]:
    """Yield the faults: the catalogue's of a Llama, and some of one parameter deep inside."""
    for bug in BUGS:
        if bug.architecture == "llama":
            yield Fault(bug.name, bug.inject, bug.culprit)
    deep = f"model.layers.{layers - 3}"
    for path, element in (("mlp.down_proj", (5, 7)), ("self_attn.k_proj", (3, 2)), ("input_layernorm", (11,))):
        yield Fault(f"one weight of {deep}.{path}", _one_weight(f"{deep}.{path}", element), f"{deep}.{path}")


def _one_weight(path: str, element: tuple[int, ...]) -> Callable[[torch.nn.Module], None]:
    def inject(model: torch.nn.Module) -> None:
        with torch.no_grad():
            model.get_submodule(path).weight[element] += 0.5  # type: ignore[index,operator] # a parameter

    return inject


def build(layers: int, hidden: int, tokens: int) -> tuple[LlamaForCausalLM, dict[str, torch.Tensor]]:
    """Return the model, with weights as large as the catalogue's, and its inputs."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=hidden * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=8192,
        max_position_embeddings=max(tokens, 64),
        initializer_range=0.02 * (1024 / hidden) ** 0.5,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model, {"input_ids": torch.randint(0, 8192, (1, tokens))}


def main() -> None:
    """Record, inject, compare and print a line for each fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("layers", 12), ("hidden", 1024), ("tokens", 512)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--by-calls", action="store_true")
    given = parser.parse_args()
    model, inputs = build(given.layers, given.hidden, given.tokens)
    full = pytest_tfdebug.trace(model, **inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "golden.safetensors"
        started = time.process_time()
        sampled(full).save(path)
        print(f"{shown_size(path.stat().st_size)}, written in {time.process_time() - started:.1f} s of processor time")
        held: Trace = pytest_tfdebug.Trace.load(path)
        if given.by_calls:
            full.again = held.again = None
        wrong = [fault.name for fault in faults(given.layers) if not _is_named(fault, model, inputs, full, held)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{len(wrong)} named otherwise: {', '.join(wrong) or 'none'}; at most {peak >> 10} MiB of memory")
    sys.exit(bool(wrong))


def _is_named(fault: Fault, model: torch.nn.Module, inputs: dict[str, torch.Tensor], full: Trace, held: Trace) -> bool:
    port = copy.deepcopy(model)
    fault.inject(port)
    actual = pytest_tfdebug.trace(port, **inputs)
    answers = []
    for expected in (full, held):
        report = pytest_tfdebug.compare(expected, actual, internal="fail")
        answers.append(None if report.culprit is None else (report.culprit.path, report.culprit.kind))
    is_alike = answers[0] == answers[1]
    print(f"{'alike' if is_alike else 'OTHER':6} {fault.name}: {answers[1]} of {fault.culprit}", flush=True)
    return is_alike


if __name__ == "__main__":
    main()
