"""Measure what watching for overflow costs: bare forward, guard and transformers' DebugUnderflowOverflow, in turns.

One process, one model (the 8-layer Llama of the foundation benchmark), one thread count: the runs alternate, so that
whatever else the machine does falls on all of them alike. Printed are medians and the medians of the paired ratios, of
the clock and, on the CPU, of the processor time of all threads: on a busy machine that is the steadier one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.debug_utils import DebugUnderflowOverflow

from pytest_tfdebug import overflow_guard
from pytest_tfdebug.overflow.roots import Roots
from pytest_tfdebug.overflow.settings import Settings
from pytest_tfdebug.overflow.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


def build(device: str) -> tuple[LlamaForCausalLM, torch.Tensor]:
    """Return the model and its input, ``(2, 128)``."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=512, intermediate_size=1376, num_hidden_layers=8, num_attention_heads=8, vocab_size=8000
    )
    return LlamaForCausalLM(config).eval().to(device), torch.randint(0, 8000, (2, 128), device=device)


class Cost(NamedTuple):
    """What one run took.

    Args:
        clock: Seconds that went by.
        processor: Seconds of processor time, all threads together.
    """

    clock: float
    processor: float


def timed(run: Callable[[], object], device: str) -> Cost:
    """Return what one run takes."""
    clock, processor = time.perf_counter(), time.process_time()
    run()
    if device != "cpu":
        torch.cuda.synchronize()
    return Cost(time.perf_counter() - clock, time.process_time() - processor)


def transformers_debug(model: torch.nn.Module) -> Callable[[], None]:
    """Hook transformers' detector and return what takes it off again: it has no removal of its own."""
    DebugUnderflowOverflow(model)

    def remove() -> None:
        for module in model.modules():
            module._forward_hooks.clear()  # noqa: SLF001

    return remove


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15, help="runs of each kind (default 15)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default 2)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, ids = build(options.device)

    def run(context: AbstractContextManager[Any]) -> Cost:
        with torch.no_grad(), context:
            return timed(lambda: model(ids), options.device)

    def run_transformers() -> Cost:
        remove = transformers_debug(model)
        try:
            return run(nullcontext())
        finally:
            remove()

    kinds: dict[str, Callable[[], Cost]] = {
        "bare forward": lambda: run(nullcontext()),
        "overflow_guard": lambda: run(overflow_guard(model)),
        "overflow_guard, headroom": lambda: run(overflow_guard(model, dtype="float16", headroom=2.0)),
        "overflow_free (marker)": lambda: run(Roots(Watch(Settings(), raises=False)).watching()),
        "DebugUnderflowOverflow": run_transformers,
    }
    for kind in kinds.values():
        kind()
    times: dict[str, list[Cost]] = {name: [] for name in kinds}
    for _ in range(options.runs):
        for name, kind in kinds.items():
            times[name].append(kind())
    bare = times["bare forward"]
    print(
        f"{'':26}  median ms  over bare  over bare, processor time  ({options.runs} pairs, {options.threads} threads)"
    )
    for name, costs in times.items():
        pairs = list(zip(costs, bare, strict=True))
        clock = statistics.median(cost.clock / base.clock for cost, base in pairs)
        processor = statistics.median(cost.processor / base.processor for cost, base in pairs)
        milliseconds = statistics.median(cost.clock for cost in costs) * 1e3
        print(f"{name:26}  {milliseconds:9.1f}  {clock:8.2f}x  {processor:24.2f}x")


if __name__ == "__main__":
    main()
