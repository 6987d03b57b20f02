"""What a passing padding check costs: its time against the bare forwards that it repeats.

Each run of the check is paired with a run of the same forwards, with the same inputs, by themselves; the medians of the
pairs are printed. The difference, in bare forwards of the test's own call, is what the check adds to its repetitions.

    python utils/bench_padding.py [--pairs 15] [--length 128]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

import padding_models  # type: ignore[import-not-found]  # the folder is put on the path above
from pytest_tfdebug.invariance.observed import ObservedCall, observe
from pytest_tfdebug.invariance.padding_report import check_padding
from pytest_tfdebug.invariance.settings import PaddingSettings

if TYPE_CHECKING:
    from collections.abc import Callable

Case = tuple[torch.nn.Module, dict[str, Any]]
_SIZES = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 8}


def _minilm(_length: int) -> Case:
    return padding_models.minilm()[0], padding_models.minilm_inputs()


def _llama(length: int) -> Case:
    model = LlamaForCausalLM(LlamaConfig(**_SIZES, vocab_size=8000, num_key_value_heads=4, pad_token_id=0)).eval()
    return model, _ids(length)


def _bert(length: int) -> Case:
    return BertModel(BertConfig(**_SIZES, vocab_size=8000)).eval(), _ids(length)


def _ids(length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(3, 8000, (4, length)), "attention_mask": torch.ones(4, length).long()}


CASES: dict[str, Callable[[int], Case]] = {
    "all-MiniLM-L6-v2": _minilm,
    "Llama, 6 layers": _llama,
    "BERT, 6 layers": _bert,
}


def measure(model: torch.nn.Module, inputs: dict[str, Any], pairs: int) -> tuple[int, float, float]:
    """Return the number of repeated forwards, seconds of a bare forward, and the check's overhead in forwards."""
    with torch.no_grad():
        model(**inputs)
        repeated = _inputs_of_a_check(model, inputs)
        bare, extra = [], []
        for _ in range(pairs):
            start = perf_counter()
            model(**inputs)
            single = perf_counter()
            for each in repeated:
                model(**each)
            forwards = perf_counter()
            call, _ = observe(model, (), inputs, lambda: model(**inputs))
            assert isinstance(call, ObservedCall)  # noqa: S101 - the inputs are tensors by name
            outcome = check_padding(call, PaddingSettings())
            checked = perf_counter()
            assert outcome.repeats  # noqa: S101 - what is measured must have run
            bare.append(single - start)
            extra.append((checked - forwards) - (forwards - single) - (single - start))
    single_forward = statistics.median(bare)
    return len(repeated), single_forward, statistics.median(extra) / single_forward


def _inputs_of_a_check(model: torch.nn.Module, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    call, _ = observe(model, (), inputs, lambda: model(**inputs))
    assert isinstance(call, ObservedCall)  # noqa: S101 - the inputs are tensors by name
    seen: list[dict[str, Any]] = []
    again = call.again

    def remember(given: Any, other: Any = None) -> Any:  # noqa: ANN401
        seen.append(dict(given))
        return again(given, other)

    call.again = remember  # type: ignore[method-assign,assignment] # to see what is repeated
    check_padding(call, PaddingSettings())
    return seen


def main() -> None:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--length", type=int, default=128)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(f"{'model':<18} repeated  bare forward  overhead (in bare forwards; 0.3 allowed)")
    for name, make in CASES.items():
        repeated, seconds, overhead = measure(*make(arguments.length), arguments.pairs)
        print(f"{name:<18} {repeated:8d}  {1000 * seconds:9.1f} ms  {overhead:+.2f}")


if __name__ == "__main__":
    main()
