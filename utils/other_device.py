"""How the catalogue is told against traces of its clean models that another device or other versions made.

    python utils/other_device.py FOLDER [--dtypes float32 bfloat16] [--only llama,bert]

``FOLDER`` holds ``<model>.<dtype>.safetensors`` as ``Trace.save`` writes them. A model whose weights are others than
the trace's, since another version draws them otherwise, is told as that and left out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch

import command

# isort: split
from accuracy import Pair, pair_of
from bugs import BUGS
from edits import head
from models import ARCHITECTURES, IS_V5
from pytest_tfdebug import ParityReport, Trace, compare, trace


def held(expected: Trace, pair: Pair, dtype: torch.dtype) -> ParityReport:
    """Return the report on the wrong model of a pair, in a dtype, held to a trace; the right one explains it."""
    right, wrong = (model.to(dtype) for model in (pair.right, pair.wrong))
    inputs = {name: each.to(dtype) if each.is_floating_point() else each for name, each in pair.inputs.items()}
    live = trace(right, **inputs)
    return compare(replace(expected, again=live.again), trace(wrong, **inputs), internal="warn")


def told(path: Path, name: str, dtype: torch.dtype) -> Counter[str]:
    """Return how a trace's model and its bugs are told, and print what is not as it should be."""
    expected = Trace.load(path)
    right = pair_of(name, lambda _: None)
    clean = compare(expected, trace(right.wrong.to(dtype), **right.inputs)) if dtype == torch.float32 else None
    if clean is not None and clean.culprit is not None and clean.culprit.kind == "weights":
        print(f"{path.name}: left out, its {clean.culprit.weights[0]} is another")
        return Counter()
    clean = held(expected, right, dtype)
    if not clean.ok:
        print(f"{path.name}: ALARM\n{head(str(clean), 4)}")
    found = Counter(clean=1, alarm=int(not clean.ok))
    for bug in (bug for bug in BUGS if bug.architecture == name and (IS_V5 or not bug.needs_v5)):
        report = held(expected, pair_of(name, bug.inject), dtype)
        culprit = report.culprit
        is_named = culprit is not None and culprit.path == bug.culprit
        found.update(bugs=1, caught=int(not report.ok), named=int(is_named))
        found["proved"] += culprit is not None and bool(culprit.proved)
        found["wrong"] += culprit is not None and culprit.certain and not is_named
        if not is_named:
            print(f"{path.name}: {bug.name}\n{head(str(report), 4)}")
    return found


def main() -> None:
    """Print a row for each trace."""
    parser = command.parser(__doc__, "only")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtypes", nargs="+", default=["float32"], help="as the files name them")
    options = parser.parse_args()
    command.quiet()
    command.only_work_counts()
    table = command.Table("trace", "clean", "alarm", "bugs", "caught", "named", "proved", "wrong")
    for dtype in options.dtypes:
        for name in options.only or [*ARCHITECTURES]:
            path = options.folder / f"{name}.{dtype}.safetensors"
            if path.is_file():
                table.add(path.name, told(path, name, getattr(torch, dtype.partition("-")[0])))
    table.total()


if __name__ == "__main__":
    main()
