"""Is a model left as it was by every check, and are goldens never lost?

Every check on 25 architectures, in both modes, in the main thread and in another, also where the forward raises. Then
many checks in one process and on four workers, two runs that update at once, runs that Ctrl-C ends, writers of goldens
that are killed, and files of 100 MB that are made to be slow.

python utils/harden.py                     the whole of it, some minutes; the exit status is 1 where anything failed
python utils/harden.py --only llama,bert --checks 300
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import torch

import command
import padding_models
from architectures import FAMILIES, small
from safety.goldens import play_interrupts, play_kills, play_many, play_two_updates
from safety.large_files import play_large
from safety.left_as_it_was import CHECKS, RAISED, InThread, play

#: What is tried, what tries it so often in a folder and says in a line each what went wrong, and how often.
Row = tuple[str, Callable[[Path, int], list[str]], int]

ARCHITECTURES = """
llama mistral qwen2 qwen3 gemma2 phi3 gpt2 gpt_neox gptj opt bloom falcon mixtral mamba olmo2 stablelm bert roberta
distilbert electra deberta-v2 t5 bart wav2vec2 vit
""".split()  # noqa: SIM905 - a table to read
_WAYS = [*product((False, True), repeat=2)]


def rows(wanted: list[str], checks: int) -> Iterator[Row]:
    """Yield what is tried."""
    for name in CHECKS:
        yield name, partial(_over, wanted, name, is_raising=False), 3 * len(wanted)
        raising = partial(_over, wanted, name, is_raising=True)
        yield f"{name}, the forward raises", raising, len(RAISED) * len(wanted)
    yield "many tests in one process", play_many, checks // 2
    yield "many tests on 4 workers", partial(play_many, options=("-n", "4")), checks // 2
    yield "two updates at once", play_two_updates, 20
    yield "Ctrl-C", play_interrupts, 16
    yield "killed writers", play_kills, checks
    yield "files of 100 MB", play_large, 21


def main() -> int:
    """Try everything, print a table of it, and what failed."""
    parser = command.parser(__doc__, "only", only=ARCHITECTURES)
    parser.add_argument("--checks", type=int, default=1000, help="checks of each long run, and kills")
    options = parser.parse_args()
    command.quiet()
    table, failed = command.Table("check", "tried", "survived", "failed"), 0
    with get_context("fork").Pool(maxtasksperchild=1) as pool:
        for name, tried, problems in pool.imap(_played, rows(options.only, options.checks)):
            failed += len(problems)
            table.add(name, (tried, tried - len(problems), len(problems)))
            for problem in problems:
                print(f"  {problem}")
    table.total()
    return int(bool(failed))


def _played(row: Row) -> tuple[str, int, list[str]]:
    """Try one row, in a process of its own."""
    name, play_it, count = row
    with tempfile.TemporaryDirectory(prefix="tfdebug-") as folder:
        return name, count, play_it(Path(folder), count)


def _over(wanted: list[str], check: str, folder: Path, _count: int, *, is_raising: bool) -> list[str]:
    """Try a check on each architecture, in both modes, alone and in a thread, and return what was found.

    Of the four ways three are tried in an architecture, and where the forward raises each error once, in turn.
    """
    problems = []
    for first, kind in enumerate(wanted):
        model, inputs = built(kind)
        for number, error in enumerate(RAISED if is_raising else (None,) * 3, first):
            is_training, is_threaded = _WAYS[number % len(_WAYS)]
            found = play(check, (InThread(model) if is_threaded else model).train(is_training), inputs, folder, error)
            if found:
                how = f"{'train' if is_training else 'eval'}{', in a thread' if is_threaded else ''}"
                told = f", {error.__name__}" if error else ""
                problems.append(f"{kind} ({how}{told}): {'; '.join(found[:3])}")
    return problems


def built(kind: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Return a small seeded model of an architecture, and inputs that its forward takes."""
    if kind not in ("wav2vec2", "vit"):
        return small(kind, reversed(FAMILIES))
    model, inputs = padding_models.build(kind)
    model.config.update({"apply_spec_augment": True, "mask_time_length": 2})  # random masks of NumPy, in train mode
    return model, inputs


if __name__ == "__main__":
    sys.exit(main())
