"""Every value that a JAX function computes, with the line of its own source that asked for it."""

from pytest_tfdebug.runtimes.jax import arrays

__all__ = ["arrays"]
