"""Measure tracing, comparing, recording and checking beside the tools a user would pick instead, in one process.

One 8-layer Llama (hidden 512, vocabulary 8000, input 2 x 128) on two threads; the candidates run in turns, so that
whatever else the machine does falls on all of them alike. Printed are medians, and medians of the ratios of pairs. The
last lines are the plugin's own cost in a run that does not use it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, model_addition_debugger_context
from transformers.utils import logging

import pytest_tfdebug
from pytest_tfdebug.goldens.fixture import _compare_with
from pytest_tfdebug.goldens.settings import CheckSettings
from pytest_tfdebug.goldens.store import load, save
from pytest_tfdebug.parity.tolerance import Tolerances

if TYPE_CHECKING:
    from collections.abc import Callable

#: Ratio to the bare forward that each of our own may take.
BUDGETS = {"trace": 1.15, "trace and compare": 2.0, "golden, recorded": 2.5, "golden, checked": 2.5}


def build() -> tuple[LlamaForCausalLM, torch.Tensor]:
    """Return the model and its input, ``(2, 128)``."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=512, intermediate_size=1376, num_hidden_layers=8, num_attention_heads=8, vocab_size=8000
    )
    return LlamaForCausalLM(config).eval(), torch.randint(0, 8000, (2, 128))


def candidates(folder: Path) -> dict[str, Callable[[], object]]:
    """Return what is measured, the bare forward first."""
    model, ids = build()
    golden = folder / "golden.safetensors"
    settings = CheckSettings(Tolerances(), None, (), (), "all")
    expected = pytest_tfdebug.trace(model, input_ids=ids)

    @torch.no_grad()
    def bare() -> object:
        return model(input_ids=ids)

    def cloning_hooks() -> None:
        kept: list[Any] = []

        def hook(_module: object, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401
            outputs = output if isinstance(output, tuple) else (output,)
            kept.append([value.clone() for value in (*inputs, *outputs) if isinstance(value, torch.Tensor)])

        handles = [module.register_forward_hook(hook) for module in model.modules()]
        bare()
        for handle in handles:
            handle.remove()

    def transformers_debugger() -> None:
        with model_addition_debugger_context(model, str(folder / "json"), do_prune_layers=False, use_repr=False):
            bare()

    def record() -> None:
        golden.unlink(missing_ok=True)
        save(golden, pytest_tfdebug.trace(model, input_ids=ids), model, "bench")

    return {
        "bare forward": bare,
        "trace": lambda: pytest_tfdebug.trace(model, input_ids=ids),
        "trace and compare": lambda: pytest_tfdebug.compare(expected, pytest_tfdebug.trace(model, input_ids=ids)),
        "golden, recorded": record,
        "golden, checked": lambda: _compare_with(load(golden), model, (), {"input_ids": ids}, settings),
        "hooks that clone": cloning_hooks,
        "transformers debugger": transformers_debugger,
    }


def idle_cost(runs: int) -> tuple[float, list[str]]:
    """Return the milliseconds that importing the plugin adds to pytest, and the heavy modules it brings."""
    code = (
        "import sys, time, pytest; before = set(sys.modules); t = time.perf_counter(); import pytest_tfdebug.plugin;"
        "print(time.perf_counter() - t, *{n.partition('.')[0] for n in set(sys.modules) - before})"
    )
    outputs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()  # noqa: S603
        for _ in range(runs)
    ]
    heavy = {"torch", "transformers", "numpy", "pandas", "safetensors", "libcst"} & set(outputs[0][1:])
    return statistics.median(float(output[0]) for output in outputs) * 1e3, sorted(heavy)


def main() -> int:
    """Print the table; 1 if a budget is exceeded and ``--check`` was given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="runs of each kind (default 9)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a budget is exceeded")
    options = parser.parse_args()
    torch.set_num_threads(2)
    logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        kinds = candidates(Path(folder))
        seconds: dict[str, list[float]] = {name: [] for name in kinds}
        for turn in range(options.runs + 1):
            for name, run in kinds.items():
                began = time.perf_counter()
                run()
                if turn:  # the first is a warm-up
                    seconds[name].append(time.perf_counter() - began)
    print(f"{'':22}  median ms   over bare (median of {options.runs} pairs)   budget")
    exceeded = []
    for name, values in seconds.items():
        pairs = zip(values, seconds["bare forward"], strict=True)
        ratio = statistics.median(value / bare for value, bare in pairs)
        budget = BUDGETS.get(name)
        allowed = f"{budget:.2f}x" if budget else ""
        print(f"{name:22}  {statistics.median(values) * 1e3:9.1f}  {ratio:10.2f}x  {allowed:>30}")
        exceeded += [name] if budget and ratio > budget else []
    milliseconds, heavy = idle_cost(options.runs)
    told = f"{milliseconds:9.2f} ms of import beyond pytest (budget 5), heavy modules: {heavy or 'none'}"
    print(f"{'plugin, unused':22}  {told}")
    exceeded += ["plugin, unused"] if milliseconds > 5 or heavy else []  # noqa: PLR2004
    if exceeded:
        print(f"Over budget: {', '.join(exceeded)}.")
    return int(bool(exceeded) and options.check)


if __name__ == "__main__":
    sys.exit(main())
