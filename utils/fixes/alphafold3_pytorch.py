"""Fixes of alphafold3-pytorch."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, made, numbers

_DIFFUSION: dict[str, Any] = {
    "dim_pairwise_trunk": 8,
    "dim_pairwise_rel_pos_feats": 4,
    "atoms_per_window": 3,
    "dim_atom": 16,
    "dim_atompair": 4,
    "dim_token": 16,
    "dim_single": 16,
    "dim_fourier": 8,
    "atom_encoder_depth": 1,
    "atom_encoder_heads": 2,
    "token_transformer_depth": 1,
    "token_transformer_heads": 2,
    "atom_decoder_depth": 1,
    "atom_decoder_heads": 2,
}
_ATOMS: dict[str, Any] = {
    "noised_atom_pos": numbers(2, 12, 3),
    "atom_feats": numbers(2, 12, 16, seed=4),
    "atompair_feats": numbers(2, 12, 12, 4, seed=5),
    "atom_mask": torch.ones(2, 12, dtype=torch.bool),
    "times": numbers(2, seed=6).abs(),
    "mask": torch.ones(2, 4, dtype=torch.bool),
    "single_trunk_repr": numbers(2, 4, 8, seed=7),
    "single_inputs_repr": numbers(2, 4, 8, seed=8),
    "pairwise_trunk": numbers(2, 4, 4, 8, seed=9),
    "pairwise_rel_pos_feats": numbers(2, 4, 4, 4, seed=10),
}
_LENGTHS = {"molecule_atom_lens": torch.full((2, 4), 3)}
_CLOUDS = {
    "pred_coords": numbers(2, 6, 3),
    "true_coords": numbers(2, 6, 3, seed=4),
    "weights": numbers(2, 6, seed=5).abs(),
}


def _fix(commit: str, build: Build) -> Fix:
    return Fix("alphafold3-pytorch", commit, "alphafold3_pytorch/alphafold3.py", build)


FIXES = (
    _fix("e616b98", made("alphafold3", "DiffusionModule", {**_ATOMS, **_LENGTHS}, **_DIFFUSION)),
    _fix("b6df0ed", made("alphafold3", "DiffusionModule", _ATOMS, **_DIFFUSION)),
    _fix("4c42f1b", made("alphafold3", "WeightedRigidAlign", _CLOUDS)),
    _fix("16b78b0", made("alphafold3", "WeightedRigidAlign", _CLOUDS)),
)
