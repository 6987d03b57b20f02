"""Whether ``audit`` is quiet on what loads right, and tells each fault that is planted: on every text architecture.

Each model is saved and loaded, and must pass. Then one fault of those below is planted at a tensor, both drawn by a
seed, in the loaded model or in its file; the audit has to name that tensor and no other. ``--large`` gives the time of
an audit of two models of 60 million parameters beside that of loading them, five times each, in place of all that.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file

import architectures
import command
import pytest_tfdebug


@dataclass(frozen=True)
class Fault:
    """A way in which a load goes wrong: what becomes of one tensor, and what has to be said of it."""

    verdicts: tuple[str, ...]  # any of these is right
    least: int  # axes that a tensor needs
    plant: Callable[[torch.Tensor], torch.Tensor]


def _rows_moved(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.roll(1, 0)


#: Faults of one tensor of the model: it holds this in place of its numbers.
FAULTS = {
    "random": Fault(("left at its initial values",), 1, lambda t: torch.randn_like(t) * 0.02),
    "ones": Fault(("left at its initial values",), 1, torch.ones_like),
    "zeros": Fault(("left at its initial values",), 1, torch.zeros_like),
    "scaled": Fault(("changed",), 1, lambda t: t * 1.25),
    "shifted": Fault(("changed",), 1, lambda t: t + 0.5),
    "rounded": Fault(("changed",), 1, lambda t: t.bfloat16().float()),
    "noisy": Fault(("changed",), 1, lambda t: t + 0.1 * t.std() * torch.randn_like(t)),
    "row of zeros": Fault(("changed",), 2, lambda t: torch.cat([t[:1] * 0, t[1:]])),
    "rows moved": Fault(("in another order",), 2, _rows_moved),
    "columns reversed": Fault(("in another order",), 2, lambda t: t.flip(-1)),
    "halves exchanged": Fault(("in another order",), 2, lambda t: t.roll(len(t) // 2, 0)),
    "half of it": Fault(
        ("partly filled", "changed"), 2, lambda t: torch.cat([t[: len(t) // 2], torch.randn_like(t[len(t) // 2 :])])
    ),
    "not finite": Fault(("not finite",), 1, lambda t: t / 0.0),
}


def planted(model: torch.nn.Module, folder: Path, draw: random.Random) -> tuple[str, str, Fault] | None:
    """Plant a fault in a loaded model, at a parameter that its file has under its own name and that tells anything."""
    stored = load_file(folder / "model.safetensors")
    owned = Counter(each.data_ptr() for each in dict(model.named_parameters(remove_duplicate=False)).values())
    name, fault = draw.choice(sorted(FAULTS.items()))
    fits = [
        each
        for each, tensor in sorted(model.named_parameters())
        if each in stored and tensor.ndim >= fault.least and min(tensor.shape) > 3 and owned[tensor.data_ptr()] == 1  # noqa: PLR2004
    ]
    if not fits:
        return None
    path = draw.choice(fits)
    parameter = model.get_parameter(path)
    with torch.no_grad():
        parameter.copy_(fault.plant(parameter.clone()))
    return path, name, fault


def _judged(report: Any, path: str, fault: Fault) -> str:
    lost = {row.tensor: row.verdict for row in report.rows if not row.ok}
    if lost.get(path) in fault.verdicts and not lost.keys() - {path}:
        return "named"
    if lost.get(path) in fault.verdicts:
        return "named, and others"
    return "missed" if not lost else "other words" if path in lost else "another"


def _look_at(kind: str, folder: Path, draw: random.Random, seconds: dict[str, float]) -> tuple[str, str]:
    """Return what became of an architecture, and what there is to print of it."""
    try:
        model: Any = architectures.small(kind)[0]
        pytest_tfdebug.fill(model).save_pretrained(folder)
        begin = time.perf_counter()
        loaded = type(model).from_pretrained(folder)
    except Exception as error:  # noqa: BLE001 - some cannot be built or saved at these sizes
        return "not looked at", str(error).strip()[:100]
    middle = time.perf_counter()
    report = pytest_tfdebug.audit(loaded, folder)
    seconds["loading"] += middle - begin
    seconds["audit"] += time.perf_counter() - middle
    if not report:
        return "alarms", str(report)
    found = planted(loaded, folder, draw)
    if found is None:
        return "no fault", ""
    path, name, fault = found
    told = _judged(report := pytest_tfdebug.audit(loaded, folder), path, fault)
    return told, "" if told == "named" else f"{name} at {path}\n{report}"


#: Models of 60 million parameters: one with a matrix for each part, one with experts that are packed into one.
_SIZES = {"vocab_size": 16000, "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4}
_LARGE = {
    "Llama": {**_SIZES, "intermediate_size": 2048, "num_hidden_layers": 11},
    "Mixtral": {**_SIZES, "intermediate_size": 768, "num_hidden_layers": 4, "num_local_experts": 8},
}


def _time_large() -> None:
    """Print how long an audit takes beside loading: the median of five."""
    table = command.Table("model", "million parameters", "loading, ms", "audit, ms", "times")
    for name, sizes in _LARGE.items():
        kind = getattr(transformers, f"{name}ForCausalLM")
        model = pytest_tfdebug.fill(kind(getattr(transformers, f"{name}Config")(**sizes)))
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            spent: dict[str, list[float]] = {"loading": [], "audit": []}
            for _ in range(5):
                begin = time.perf_counter()
                loaded = kind.from_pretrained(folder)
                middle = time.perf_counter()
                if not pytest_tfdebug.audit(loaded, folder):
                    raise SystemExit(f"{name} does not pass.")
                spent["loading"].append(middle - begin)
                spent["audit"].append(time.perf_counter() - middle)
        loading, audit = (1000 * statistics.median(times) for times in spent.values())
        table.add(name, [model.num_parameters() / 1e6, loading, audit, audit / loading])


def main() -> int:
    """Look at every architecture; the exit status is 1 if one that loads right does not pass."""
    parser = command.parser(__doc__, "only", "seed")
    parser.add_argument("--large", action="store_true", help="only time an audit beside loading")
    options = parser.parse_args()
    command.quiet()
    if options.large:
        _time_large()
        return 0
    counted, seconds = Counter[str](), dict.fromkeys(("loading", "audit"), 0.0)
    kinds = dict.fromkeys(kind for family in architectures.FAMILIES.values() for kind in family)
    for kind in options.only or kinds:
        draw = random.Random(f"{kind} {options.seed}")  # noqa: S311 - the same fault every time
        with tempfile.TemporaryDirectory() as name:
            told, text = _look_at(kind, Path(name), draw, seconds)
        counted[told] += 1
        if text:
            print(f"{kind}: {told}: {text}", flush=True)
    print(dict(counted), {name: round(spent, 1) for name, spent in seconds.items()})
    return int(counted["alarms"] > 0)


if __name__ == "__main__":
    sys.exit(main())
