"""The inputs and outputs of an MLX model's modules, in the order of computation."""

from pytest_tfdebug.runtimes.mlx import arrays

__all__ = ["arrays"]
