"""How long reading and judging arrays takes, and what floors add to a golden: ``python utils/runtimes/speed.py``."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pytest_tfdebug import Trace, compare, trace
from pytest_tfdebug.tracing.values.operators import values_of


def main() -> None:
    """Print arrays, megabytes, seconds and bytes."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=16, vocab_size=1000)).eval()
    ids, path = torch.arange(1, 129)[None], Path(mkdtemp()) / "golden.safetensors"
    recorded = trace(model, input_ids=ids, use_cache=False)
    kept = [
        (call.name, leaf.tensor.clone()) for call in recorded for leaf in call.outputs or () if leaf.tensor is not None
    ]
    recorded.save(path)
    plain = path.stat().st_size
    recorded.save(path, dtypes=("bfloat16",))
    values = values_of(model, "forward", (), {"input_ids": ids, "use_cache": False})
    golden = Trace.load(path)
    arrays = (kept[:1] + kept[1:] * 2)[:499] + kept[:1]
    best = min(_seconds(golden, arrays) for _ in range(3))
    size = sum(held.numel() * held.element_size() for _, held in arrays) / 1e6
    print(f"{len(arrays)} arrays of {size:.0f} MB against {len(values.values)} values: {best:.2f} s")
    print(f"floors of bfloat16 add {path.stat().st_size - plain} bytes to {plain}")


def _seconds(golden: Trace, arrays: list[tuple[str, torch.Tensor]]) -> float:
    begun = perf_counter()
    compare(golden, arrays)
    return perf_counter() - begun


if __name__ == "__main__":
    main()
