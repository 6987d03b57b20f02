"""Is a model left as it was? Every check on 25 architectures, in both modes, also where the forward raises.

Beside it: many checks in one process and on four workers, runs that Ctrl-C ends, goldens that are malformed, writers
of goldens that are killed, and files of 100 MB that are made to be slow.

python utils/harden.py                     the whole of it, some minutes; the exit status is 1 where anything failed
python utils/harden.py --only llama,bert --checks 300
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from contextlib import nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import transformers

from architectures import small
from safety.kills import play_kills
from safety.large_files import play_large
from safety.left_as_it_was import CHECKS, RAISED, InThread, play, raising
from safety.long_run import play_long_run
from safety.malformed import play_malformed
from safety.suites import play_interrupts, play_workers_and_repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Model types, and the classes that are built of them.
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_neox": "GPTNeoXForCausalLM",
    "gptj": "GPTJForCausalLM",
    "opt": "OPTForCausalLM",
    "bloom": "BloomForCausalLM",
    "falcon": "FalconForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "mamba": "MambaForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "stablelm": "StableLmForCausalLM",
    "bert": "BertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "distilbert": "DistilBertForMaskedLM",
    "electra": "ElectraForMaskedLM",
    "deberta-v2": "DebertaV2ForMaskedLM",
    "t5": "T5ForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
}
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

#: Of the goldens, as in golden_safety.py, which also prunes them and writes them at once.
_MALFORMED, _KILLS = 700, 100
#: Runs that Ctrl-C ends.
_INTERRUPTS = 40


def main() -> int:
    """Try everything, print a table of it, and what failed."""
    assert __doc__ is not None  # noqa: S101 - it is above
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="model types, with commas")
    parser.add_argument("--checks", type=int, default=3000, help="checks of the long run")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    wanted = options.only.split(",") if options.only else [*ARCHITECTURES, *OTHERS]
    print(f"{'':40} tried  survived  failed")
    failed = 0
    for name, part in _parts(wanted, options.checks):
        tried, problems = part()
        failed += len(problems)
        print(f"{name:40} {tried:5}  {tried - len(problems):8}  {len(problems):6}", flush=True)
        for problem in problems:
            print(f"  {problem}")
    return int(bool(failed))


def _parts(wanted: list[str], checks: int) -> Iterator[tuple[str, Callable[[], tuple[int, list[str]]]]]:
    for name in CHECKS:
        yield name, partial(_over, wanted, name, (None,))
        yield f"{name}, the forward raises", partial(_over, wanted, name, RAISED)
    yield "memory, handles, time in a long run", partial(play_long_run, checks)
    yield "the same, repeated on 4 workers", partial(_in_a_folder, play_workers_and_repeats, checks)
    yield "runs that Ctrl-C ends", partial(_in_a_folder, play_interrupts, _INTERRUPTS)
    yield "files of 100 MB", _play_large
    yield "goldens, malformed", partial(_in_a_folder, play_malformed, _MALFORMED)
    yield "goldens, whose writers are killed", partial(_in_a_folder, play_kills, _KILLS)


def _play_large() -> tuple[int, list[str]]:
    with tempfile.TemporaryDirectory(prefix="tfdebug-") as folder:
        return play_large(Path(folder))


def _in_a_folder(play_goldens: Callable[[Path, int], list[str]], count: int) -> tuple[int, list[str]]:
    with tempfile.TemporaryDirectory(prefix="tfdebug-") as folder:
        return count, play_goldens(Path(folder), count)


def _over(wanted: list[str], check: str, raised: Iterable[type[BaseException] | None]) -> tuple[int, list[str]]:
    """Try a check on each architecture, in both modes, alone and in a thread; return how often, and what was found."""
    tried, problems = 0, []
    for kind in wanted:
        model, inputs = built(kind)
        for is_training, error, is_threaded in product((False, True), raised, (False, True)):
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
        return small(kind, ARCHITECTURES[kind])
    torch.manual_seed(0)
    make, inputs = OTHERS[kind]
    return make().eval(), {name: torch.randn(shape) for name, shape in inputs.items()}


if __name__ == "__main__":
    sys.exit(main())
