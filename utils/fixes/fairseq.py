"""Fixes of fairseq."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import torch

from fixes.fix import Build, Fix, module_of, numbers

_STATES = numbers(6, 2, 16)
_PADDED = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
_SIZES = {
    "attention_dropout": 0.0,
    "relu_dropout": 0.0,
    "dropout": 0.0,
    "encoder_embed_dim": 16,
    "encoder_attention_heads": 4,
    "encoder_ffn_embed_dim": 32,
    "encoder_normalize_before": False,
    "decoder_embed_dim": 16,
    "decoder_attention_heads": 4,
    "decoder_ffn_embed_dim": 32,
    "decoder_normalize_before": False,
}


class _Words:
    """A dictionary of a few words, of which the fixes need the length and the padding."""

    def __len__(self) -> int:
        return 20

    def pad(self) -> int:
        """Return the index of the padding."""
        return 1


def _masked(package: Any) -> Any:
    layer = module_of(package, "modules.transformer_layer").TransformerEncoderLayer
    mask = torch.triu(torch.ones(6, 6), 1)
    return layer(Namespace(**_SIZES)), {"x": _STATES, "encoder_padding_mask": _PADDED, "attn_mask": mask}


def _normalized_before(package: Any) -> Any:
    layer = module_of(package, "models.transformer").TransformerDecoderLayer
    given = {"x": _STATES, "encoder_out": numbers(5, 2, 16, seed=4), "encoder_padding_mask": None}
    return layer(Namespace(**{**_SIZES, "encoder_normalize_before": True})), {**given, "incremental_state": None}


def _both_ways(package: Any) -> Any:
    encoder = module_of(package, "models.lstm").LSTMEncoder
    model = encoder(_Words(), embed_dim=8, hidden_size=8, num_layers=2, bidirectional=True, left_pad=False)
    tokens = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 11, 1, 1]])
    return model, {"src_tokens": tokens, "src_lengths": torch.tensor([5, 3])}


def _sentences(package: Any) -> Any:
    encoder = module_of(package, "modules.transformer_sentence_encoder").TransformerSentenceEncoder
    model = encoder(
        padding_idx=1,
        vocab_size=20,
        num_encoder_layers=2,
        embedding_dim=16,
        ffn_embedding_dim=32,
        num_attention_heads=4,
        max_seq_len=8,
        num_segments=2,
        learned_pos_embedding=False,
    )
    tokens = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 11, 1, 1]])
    return model, {"tokens": tokens, "segment_labels": torch.tensor([[0, 0, 1, 1, 1], [0, 0, 1, 0, 0]])}


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("fairseq", commit, f"fairseq/{file}.py", build)


FIXES = (
    _fix("42935dcc", "modules/transformer_layer", _masked),
    _fix("12a47a64", "models/transformer", _normalized_before),
    _fix("af38ed48", "models/lstm", _both_ways),
    _fix("8d9063fe", "modules/transformer_sentence_encoder", _sentences),
)
