"""A trace as the two JSON files of transformers' ``model_addition_debugger_context``, for a comparison by eye.

The keys, the text of the values and the pruning of inner outputs follow that tool (``model_debugging_utils.py``), so
that a file made here differs from one made there only where the tensors do.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._tensor_str import printoptions

from pytest_tfdebug.errors import TFDebugError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from pytest_tfdebug.records import Call, TensorRecord
    from pytest_tfdebug.tracing.trace import Trace

#: Dtypes whose summary the debugger writes.
_SUMMARIZED = (torch.float16, torch.float32, torch.bfloat16)


def export_json(trace: Trace, directory: str | os.PathLike[str]) -> tuple[str, str]:
    """Write the summary and the full file; see ``Trace.export_json``."""
    if not trace.calls:
        raise TFDebugError("The trace has no calls: there is nothing to export.")
    name = trace.model_class.replace("/", "_").replace("\\", "_")  # it may come from a file
    base = Path(directory) / f"{name}_debug_tree"
    paths = (f"{base}_SUMMARY.json", f"{base}_FULL_TENSORS.json")
    with printoptions(sci_mode=True, linewidth=120):  # as the debugger
        trees = [_tree(trace, shown) for shown in (_summary, _full)]
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        for path, tree in zip(paths, trees, strict=True):
            Path(path).write_text(json.dumps(tree, indent=2), encoding="utf-8")
    except OSError as error:
        raise TFDebugError(f"{directory} cannot be written: {error.strerror or error}.") from error
    return paths


def _tree(trace: Trace, shown: Callable[[TensorRecord], dict[str, Any]]) -> dict[str, Any]:
    """Return the first root with the calls inside it; what these return is left out where they have calls inside."""
    inside: dict[int | None, list[Call]] = defaultdict(list)
    for call in trace.calls:
        inside[call.parent].append(call)

    def filled(bare: Any, records: Sequence[TensorRecord]) -> Any:  # noqa: ANN401 - a skeleton
        if isinstance(bare, list):
            return [filled(child, records) for child in bare]
        if isinstance(bare, dict) and "items" in bare:
            return {key: filled(child, records) for key, child in bare["items"].items()}
        return shown(records[bare["leaf"]]) if isinstance(bare, dict) else bare

    def node(call: Call) -> dict[str, Any]:
        is_root, path = call.parent is None, trace.model_class
        inputs = {key: filled(call.skeleton.get(key), call.inputs) for key in ("args", "kwargs")}
        told: dict[str, Any] = {
            "module_path": path if is_root else f"{path}.{call.path}",
            "inputs": inputs if is_root else {key: value for key, value in inputs.items() if value},
        }
        if inside[call.index]:
            return told | {"children": [node(child) for child in inside[call.index]]}
        is_shown = call.outputs is not None and (is_root or not call.has_children)
        return told | {"outputs": filled(call.skeleton.get("outputs"), call.outputs or ()) if is_shown else None}

    return {key: value for key, value in node(trace.calls[0]).items() if value}


def _summary(record: TensorRecord) -> dict[str, Any]:
    """Return a tensor as the debugger sums it up: its own reductions, in the tensor's dtype, so that digits agree."""
    tensor = record.tensor
    written = {"shape": f"torch.Size({list(record.shape)})", "dtype": f"torch.{record.dtype}"}
    if tensor is not None and tensor.dtype in _SUMMARIZED and tensor.numel():
        written |= {name: repr(getattr(tensor, name)()) for name in ("mean", "std", "min", "max")}
    return written


def _full(record: TensorRecord) -> dict[str, Any]:
    written: dict[str, Any] = _summary(record)
    form = {"shape": written.pop("shape"), "dtype": written.pop("dtype")}
    value = {} if record.tensor is None else {"value": str(record.tensor).splitlines()}
    return form | value | written
