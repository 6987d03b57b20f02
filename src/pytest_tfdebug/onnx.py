"""The outputs of every node of an ONNX graph, as onnxruntime computes them."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: What torch's exporter writes beside a node: its place in the reference.
_SCOPES, _STACK = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace"
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def arrays(model: Any, inputs: Mapping[str, Any]) -> list[tuple[str, Any]]:  # noqa: ANN401 - a path or onnx.ModelProto
    """Run an ONNX model in onnxruntime, unoptimized, and return the outputs of all its nodes.

    Args:
        model: Path of the file, or an ``onnx.ModelProto``.
        inputs: Arrays or tensors by the names of the graph's inputs.

    Returns:
        ``(label, array)`` pairs in the order of the nodes. The label is the value's name, followed by the module and
        the reference's line where torch's exporter has written these.
    """
    import numpy as np
    import onnx
    import onnxruntime
    from onnx.inliner import inline_local_functions

    proto = onnx.load(model) if isinstance(model, (str, Path)) else model
    if proto.functions:
        proto = inline_local_functions(proto)
    labels = dict(_labels(proto.graph))
    widened = onnx.ModelProto()
    widened.CopyFrom(proto)
    returned = {value.name for value in widened.graph.output}
    widened.graph.output.extend(onnx.helper.make_empty_tensor_value_info(it) for it in labels if it not in returned)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    with TemporaryDirectory() as folder:  # a file: a message of more than 2 GB cannot be handed over
        file = str(Path(folder) / "model.onnx")
        onnx.save(widened, file, save_as_external_data=True, location="weights")
        session = onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])
        feed = {each.name: np.asarray(inputs[each.name]) for each in session.get_inputs() if each.name in inputs}
        found = session.run(list(labels), feed)
    return [pair for pair in zip(labels.values(), found, strict=True) if isinstance(pair[1], np.ndarray)]


def _labels(graph: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - onnx.GraphProto
    """Yield the name of each node's output, and its label."""
    for node in graph.node:
        told = {entry.key: entry.value for entry in node.metadata_props}
        module = [part for part in re.findall(r"'([^']*)'", told.get(_SCOPES, "")) if part][-2:-1]
        frames = [frame for frame in _FRAME.findall(told.get(_STACK, "")) if "/torch/" not in frame[0]]
        line = [f"{Path(frames[-1][0]).name}:{frames[-1][1]}"] if frames else []
        place = ", ".join(module + line)
        for name in filter(None, node.output):
            yield name, f"{name} ({place})" if place else name
