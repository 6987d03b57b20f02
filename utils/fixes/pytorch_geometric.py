"""Fixes of PyTorch Geometric."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, module_of, numbers


class _Typed(torch.nn.Module):
    """A layer of a graph with two types of nodes, given by name."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, authors: torch.Tensor, papers: torch.Tensor, writes: torch.Tensor, cites: torch.Tensor) -> Any:
        """Return what the layer makes of the nodes."""
        edges = {("author", "writes", "paper"): writes, ("paper", "cites", "author"): cites}
        return self.layer({"author": authors, "paper": papers}, edges)


def _typed(package: Any) -> Any:
    torch.utils.data.IterDataPipe.functions.clear()  # to which the package may add each of its own but once
    kinds = ["author", "paper"], [("author", "writes", "paper"), ("paper", "cites", "author")]
    layer = module_of(package, "nn.conv.fast_hgt_conv").FastHGTConv(16, 16, kinds, heads=2)
    edges = {"writes": torch.tensor([[0, 1, 2, 0], [0, 1, 2, 3]]), "cites": torch.tensor([[0, 1, 2, 3], [0, 0, 1, 2]])}
    return _Typed(layer), {"authors": numbers(3, 16), "papers": numbers(4, 16, seed=4), **edges}


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("pytorch_geometric", commit, f"torch_geometric/nn/{file}.py", build)


FIXES = (_fix("958e43b73", "conv/fast_hgt_conv", _typed),)
