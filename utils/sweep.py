"""Which fields of a configuration matter, what inputs cannot see, and which fields ports ignore.

``alone``: architectures of transformers by themselves. ``ports``: implementations that read configurations of
transformers, held to it by a sweep: mlx-lm, ibm-fms, curated-transformers; each is loaded by its own public loader from
a folder that ``save_pretrained`` wrote. Those that are not installed are left out and named. ``blind``: what goldens of
the tests' models cannot see, and a bug planted there.
"""

from __future__ import annotations

import time

import transformers

import command
import padding_models
import pytest_tfdebug
from architectures import small
from blind_spots import planted
from pytest_tfdebug.sweeping.result import SweepReport
from sweep_ports import PORTS

#: Architectures that are swept alone: decoders, encoders, mixtures of experts, state spaces, sequence to sequence.
ALONE = """
albert afmoe bart bert bloom codegen cohere cohere2 deberta-v2 deepseek_v3 diffllama electra exaone4 falcon gemma gemma2
gemma3_text glm4_moe gpt2 gpt_neo gpt_neox gpt_oss gptj granite helium lfm2 llama llama4_text mistral mixtral
modernbert-decoder mpt nemotron olmo2 opt phi3 qwen2 qwen3_next roberta smollm3 stablelm starcoder2 t5 whisper
"""


def alone(kinds: list[str]) -> None:
    """Print a row for each architecture: fields, those that matter, those that hide, and seconds of the processor."""
    heads = "architecture", "fields", "matter", "s", "never move the output; cannot be seen at their value"
    table = command.Table(*heads)
    for kind in kinds or ALONE.split():
        try:
            model, _ = small(kind)
        except ValueError as error:
            print(f"{kind}: not built: {error}")
            continue
        began = time.process_time()
        report = pytest_tfdebug.sweep(type(model), model.config)
        matter = {row.field for row in report.rows if row.verdict == "matters"}
        never = [row.field for row in report.rows if row.verdict == "never"]
        hidden = _told(never, [f"{spot.field}={spot.own!r}" for spot in report.blind])
        table.add(kind, (len(matter) + len(never), len(matter), time.process_time() - began, hidden))
    table.total()


def _told(*lists: list[str]) -> str:
    return "; ".join(", ".join(each) or "-" for each in lists)


def ports(names: list[str]) -> None:
    """Print a row for each port: how its fields fared, and each that it does not follow."""
    verdicts = ("agrees", "refused", "ignored", "differs")
    table = command.Table("port", "matter", *verdicts, "s", "ignored; differing")
    for pair in (pair for pair in PORTS if not names or any(name in pair.name for name in names)):
        began = time.process_time()
        try:
            how = {"build": pair.build, "load": pair.load, "forward": pair.forward}
            report: SweepReport = pytest_tfdebug.sweep(pair.model_class, pair.config, **how)
        except Exception as error:  # noqa: BLE001 - a port that cannot be held is told, and left out
            print(f"{pair.name}: not held: {str(error).splitlines()[0][:150]}")
            continue
        rows = [row for row in report.rows if row.verdict != "never"]
        moves = {verdict: [f"{row.field} ({row.own} -> {row.value})" for row in rows if row.verdict == verdict]
                 for verdict in verdicts}  # fmt: skip
        named = _told(moves["ignored"], moves["differs"])
        table.add(pair.name, (len(rows), *map(len, moves.values()), time.process_time() - began, named))
    table.total()


def blind(names: list[str]) -> None:
    """Print the blind spots of goldens of the tests' models, with a bug in each."""
    table = command.Table("golden of", "field", "the bug computes with", "instead of", "passes", "seen at", "fails")
    for name in names or padding_models.ARCHITECTURES:  # those of models.py among them
        model, inputs = padding_models.build(name)
        for spot, passes, fails in planted(model, inputs) if isinstance(model, transformers.PreTrainedModel) else ():
            table.add(name, (spot.field, repr(spot.instead), repr(spot.own), str(passes), repr(spot.value), str(fails)))


def main() -> None:
    """Print the table that is asked for."""
    parser = command.parser(__doc__)
    parser.add_argument("table", choices=("alone", "blind", "ports"))
    parser.add_argument("names", nargs="*", help="architectures, or parts of names of ports")
    given = parser.parse_args()
    command.quiet()
    {"alone": alone, "blind": blind, "ports": ports}[given.table](given.names)


if __name__ == "__main__":
    main()
