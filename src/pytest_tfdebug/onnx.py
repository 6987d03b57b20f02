"""The outputs of every node of an ONNX graph, as onnxruntime computes them."""

from pytest_tfdebug.runtimes.onnx import arrays

__all__ = ["arrays"]
