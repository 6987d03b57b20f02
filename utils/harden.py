"""Is a model left as it was by every check, and are goldens never lost?

Every check on 25 architectures, in both modes, in the main thread and in another, also where the forward raises. Then
many checks in one process and on four workers, two runs that update at once, runs that Ctrl-C ends, goldens that are
malformed, writers of goldens that are killed, and files of 100 MB that are made to be slow.

python utils/harden.py                     the whole of it, some minutes; the exit status is 1 where anything failed
python utils/harden.py --only llama,bert --checks 300
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import nullcontext
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import transformers

import command
from architectures import FAMILIES, small
from safety.kills import play_kills
from safety.large_files import play_large
from safety.left_as_it_was import CHECKS, RAISED, InThread, play, raising
from safety.long_run import samples, told_growth
from safety.malformed import play_malformed
from safety.suites import play_interrupts, play_two_updates, play_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Outcome = tuple[int, list[str]]

ARCHITECTURES = """
llama mistral qwen2 qwen3 gemma2 phi3 gpt2 gpt_neox gptj opt bloom falcon mixtral mamba olmo2 stablelm bert roberta
distilbert electra deberta-v2 t5 bart
""".split()  # noqa: SIM905 - a table to read
_SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
#: Those that read no text: how they are made, and the shapes of their inputs.
OTHERS: dict[str, tuple[Callable[[], torch.nn.Module], dict[str, tuple[int, ...]]]] = {
    "wav2vec2": (
        lambda: transformers.Wav2Vec2Model(
            transformers.Wav2Vec2Config(
                **_SIZES,
                conv_dim=(32, 32),
                conv_stride=(5, 2),
                conv_kernel=(10, 3),
                num_conv_pos_embeddings=16,
                num_conv_pos_embedding_groups=4,
                mask_time_length=2,
            )
        ),
        {"input_values": (2, 800)},
    ),
    "vit": (
        lambda: transformers.ViTModel(transformers.ViTConfig(**_SIZES, image_size=16, patch_size=8)),
        {"pixel_values": (2, 3, 16, 16)},
    ),
}

#: Of each kind, so many.
_MALFORMED, _KILLS, _INTERRUPTS, _UPDATED = 700, 1000, 16, 20


def main() -> int:
    """Try everything, print a table of it, and what failed."""
    parser = command.parser(__doc__, "only", only=[*ARCHITECTURES, *OTHERS])
    parser.add_argument("--checks", type=int, default=1000, help="checks of the long run")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="rows that are tried at once")
    options = parser.parse_args()
    command.quiet()
    table, failed = command.Table("check", "tried", "survived", "failed"), 0
    names = [name for name, _ in _parts(options.only, options.checks)]
    with get_context("fork").Pool(options.workers, maxtasksperchild=1) as pool:
        for name, (tried, problems) in zip(
            names, pool.imap(partial(_played, options.only, options.checks), names), strict=True
        ):
            failed += len(problems)
            table.add(name, table.row(tried, tried - len(problems), len(problems)))
            for problem in problems:
                print(f"  {problem}")
    table.total()
    return int(bool(failed))


def _played(wanted: list[str], checks: int, name: str) -> Outcome:
    """Try one row, in a process of its own."""
    return dict(_parts(wanted, checks))[name]()


def _parts(wanted: list[str], checks: int) -> Iterator[tuple[str, Callable[[], Outcome]]]:
    for name in CHECKS:
        yield name, partial(_over, wanted, name, (None,))
        yield f"{name}, the forward raises", partial(_over, wanted, name, RAISED)
    yield "a long run", lambda: (checks, told_growth(samples(checks), 3))
    counted: dict[str, tuple[Callable[[Path, int], list[str]], int]] = {
        "a long run on 4 workers": (play_workers, checks // 2),
        "two updates at once": (play_two_updates, _UPDATED),
        "Ctrl-C": (play_interrupts, _INTERRUPTS),
        "malformed goldens": (play_malformed, _MALFORMED),
        "killed writers": (play_kills, _KILLS),
    }
    for name, (play_goldens, count) in counted.items():
        yield name, partial(_in_a_folder, partial(_counted, play_goldens, count))
    yield "files of 100 MB", partial(_in_a_folder, play_large)


def _counted(play_goldens: Callable[[Path, int], list[str]], count: int, folder: Path) -> Outcome:
    return count, play_goldens(folder, count)


def _in_a_folder(play_files: Callable[[Path], Outcome]) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="tfdebug-") as folder:
        return play_files(Path(folder))


def _over(wanted: list[str], check: str, raised: Sequence[type[BaseException] | None]) -> Outcome:
    """Try a check on each architecture, in both modes, alone and in a thread; return how often, and what was found.

    Of the four ways three are tried in an architecture, and where the forward raises each error once, in turn.
    """
    tried, problems, ways = 0, [], list(product((False, True), repeat=2))
    for first, kind in enumerate(wanted):
        model, inputs = built(kind)
        for number, error in enumerate((*raised,) * (3 // len(raised) or 1), first):
            is_training, is_threaded = ways[number % len(ways)]
            tried += 1
            root = (InThread(model) if is_threaded else model).train(is_training)
            wrong = raising(model, inputs, error) if error else nullcontext()
            with tempfile.TemporaryDirectory() as folder, wrong:
                found = play(check, root, inputs, Path(folder), error)
            if found:
                how = f"{'train' if is_training else 'eval'}{', in a thread' if is_threaded else ''}"
                told = f", {error.__name__}" if error else ""
                problems.append(f"{kind} ({how}{told}): {'; '.join(found[:3])}")
    return tried, problems


def built(kind: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Return a small seeded model of an architecture, and inputs that its forward takes."""
    if kind not in OTHERS:
        return small(kind, reversed(FAMILIES))
    torch.manual_seed(0)
    make, inputs = OTHERS[kind]
    return make().eval(), {name: torch.randn(shape) for name, shape in inputs.items()}


if __name__ == "__main__":
    sys.exit(main())
