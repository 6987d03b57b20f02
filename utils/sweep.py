"""Which fields of a configuration matter, what inputs cannot see, and which fields ports ignore.

``alone``: architectures of transformers by themselves. ``ports``: implementations that read configurations of
transformers, held to it by a sweep: mlx-lm, ibm-fms, curated-transformers; each is loaded by its own public loader from
a folder that ``save_pretrained`` wrote. Those that are not installed are left out and named. ``blind``: what goldens of
the tests' models cannot see, and a bug planted there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

import pytest_tfdebug

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "fixtures"))

import padding_models  # type: ignore[import-not-found]  # the folder is put on the path above
from architectures import _FAMILIES, small
from blind_spots import planted  # type: ignore[import-not-found]
from sweep_ports import PORTS, Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.sweeping.result import SweepReport

#: Architectures that are swept alone: decoders, encoders, mixtures of experts, state spaces, sequence to sequence.
ALONE = """
albert afmoe bart bert bloom codegen cohere cohere2 deberta-v2 deepseek_v3 diffllama electra exaone4 falcon gemma gemma2
gemma3_text glm4_moe gpt2 gpt_neo gpt_neox gpt_oss gptj granite helium lfm2 llama llama4_text mistral mixtral
modernbert-decoder mpt nemotron olmo2 opt phi3 qwen2 qwen3_next roberta smollm3 stablelm starcoder2 t5 whisper
"""


def models(kinds: list[str]) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, class and small configuration of each architecture."""
    for kind in kinds:
        class_name = next(table[kind] for table in _FAMILIES.values() if kind in table)
        names = class_name if isinstance(class_name, tuple) else (class_name,)
        try:
            model, _ = small(kind, names[0])
        except ValueError as error:
            print(f"| {kind} | not built: {error} |", flush=True)
        else:
            yield kind, type(model), model.config


def alone(kinds: list[str]) -> None:
    """Print a row for each architecture: fields, those that matter, those that hide, and seconds of the processor."""
    print("| architecture | fields | matter | never move the output | cannot be seen at their own value | s |")
    print("|---|---|---|---|---|---|")
    for kind, model_class, config in models(kinds):
        began = time.process_time()
        report = pytest_tfdebug.sweep(model_class, config)
        took = time.process_time() - began
        matter = {row.field for row in report.rows if row.verdict == "matters"}
        never = [row.field for row in report.rows if row.verdict == "never"]
        counts = f"{len(matter) + len(never)} | {len(matter)}"
        blind = ", ".join(f"{spot.field}={spot.own!r}" for spot in report.blind)
        print(
            f"| {kind} | {counts} | {', '.join(never)} | {blind} | {took:.1f} |",
            flush=True,
        )


def ports(names: list[str], *, show: bool) -> None:
    """Print a row for each port: how its fields fared, and each that it does not follow."""
    print("| port | matter | agree | refused | ignored | differ | s |")
    print("|---|---|---|---|---|---|---|")
    counts: Counter[str] = Counter()
    for pair in PORTS:
        if names and not any(name in pair.name for name in names):
            continue
        began = time.process_time()
        try:
            report = swept(pair)
        except Exception as error:  # noqa: BLE001 - a port that cannot be held is told, and left out
            print(f"| {pair.name} | not held: {str(error).splitlines()[0][:150]} |", flush=True)
            continue
        _row(pair, report, time.process_time() - began, show=show)
        counts.update(row.verdict for row in report.rows)
        counts["pairs"] += 1
    print(", ".join(f"{count} {name}" for name, count in counts.items()))


def blind() -> None:
    """Print the blind spots of goldens of the tests' models, each with a bug that is planted there."""
    print("| golden of | field | the planted bug computes with | passes | at | fails |")
    print("|---|---|---|---|---|---|")
    for name in padding_models.ARCHITECTURES:  # those of models.py among them
        model, inputs = padding_models.build(name)
        if not isinstance(model, transformers.PreTrainedModel):
            continue
        for spot, passes, fails in planted(model, inputs):
            told = f"{spot.instead!r} for {spot.own!r} | {passes} | {spot.value!r} | {fails}"
            print(f"| {name} | {spot.field} | {told} |", flush=True)


def swept(pair: Pair) -> SweepReport:
    """Return the sweep of one port."""
    report: SweepReport = pytest_tfdebug.sweep(
        pair.model_class, pair.config, build=pair.build, load=pair.load, forward=pair.forward, inputs=pair.inputs
    )
    return report


def _row(pair: Pair, report: SweepReport, took: float, *, show: bool) -> None:
    def named(verdict: str) -> str:
        values: dict[str, list[str]] = {}
        for row in report.rows:
            if row.verdict == verdict:
                values.setdefault(row.field, []).append(f"{row.own} -> {row.value}")
        return ", ".join(f"{field} ({'; '.join(moves)})" for field, moves in values.items())

    rows = [row for row in report.rows if row.verdict != "never"]
    counts = [sum(row.verdict == verdict for row in rows) for verdict in ("agrees", "refused")]
    told = " | ".join([str(len(rows)), *map(str, counts), named("ignored"), named("differs")])
    print(f"| {pair.name} | {told} | {took:.1f} |", flush=True)
    if show:
        print(report)


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=("alone", "blind", "ports"))
    parser.add_argument("names", nargs="*", help="architectures, or parts of names of ports; all without")
    parser.add_argument("--show", action="store_true", help="print the report of each port")
    given = parser.parse_args()
    if given.table == "alone":
        alone(given.names or ALONE.split())
    elif given.table == "blind":
        blind()
    else:
        ports(given.names, show=given.show)
    sys.stdout.flush()
