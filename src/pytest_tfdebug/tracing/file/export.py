"""A trace as the two JSON files of transformers' ``model_addition_debugger_context``, for a comparison by eye.

The keys, the text of the values and the pruning of inner outputs follow that tool (``model_debugging_utils.py``), so
that a file made here differs from one made there only where the tensors do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError

if TYPE_CHECKING:
    import os

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
    with _print_options():
        trees = [_tree(trace, full=full) for full in (False, True)]
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        for path, tree in zip(paths, trees, strict=True):
            Path(path).write_text(json.dumps(tree, indent=2), encoding="utf-8")
    except OSError as error:
        raise TFDebugError(f"{directory} cannot be written: {error.strerror or error}.") from error
    return paths


class _print_options:  # noqa: N801 - a context manager reads as a verb
    """Scientific notation at the debugger's width inside a block, the user's print options after it."""

    def __enter__(self) -> None:
        from torch._tensor_str import PRINT_OPTS

        self._before = dict(vars(PRINT_OPTS))
        torch.set_printoptions(sci_mode=True, linewidth=120)  # type: ignore[no-untyped-call]

    def __exit__(self, *_: object) -> None:
        from torch._tensor_str import PRINT_OPTS

        vars(PRINT_OPTS).update(self._before)


def _tree(trace: Trace, *, full: bool) -> dict[str, Any]:
    nodes: dict[int, dict[str, Any]] = {}
    for call in trace.calls:
        node = _node(trace.model_class, call, full=full)
        nodes[call.index] = node
        if call.parent is not None:
            nodes[call.parent].setdefault("children", []).append(node)
    for call in trace.calls:
        node = nodes[call.index]
        if "children" in node:
            node.pop("outputs", None)
            node["children"] = node.pop("children")  # last, as there
    root = nodes[trace.calls[0].index]
    return {key: value for key, value in root.items() if value}


def _node(root_name: str, call: Call, *, full: bool) -> dict[str, Any]:
    inputs = (
        _refill(call.skeleton.get("args"), call.inputs, full=full),
        _refill(call.skeleton.get("kwargs"), call.inputs, full=full),
    )
    named = {"args": inputs[0], "kwargs": inputs[1]}
    is_root = call.parent is None
    outputs = None
    if call.outputs is not None and (is_root or not call.has_children):
        outputs = _refill(call.skeleton.get("outputs"), call.outputs, full=full)
    return {
        "module_path": root_name if is_root else f"{root_name}.{call.path}",
        "inputs": named if is_root else {key: value for key, value in named.items() if value},
        "outputs": outputs,
    }


def _refill(bare: Any, records: tuple[TensorRecord, ...], *, full: bool) -> Any:  # noqa: ANN401
    """Put tensors back into a skeleton, as the debugger writes them."""
    if isinstance(bare, list):
        return [_refill(child, records, full=full) for child in bare]
    if isinstance(bare, dict) and "items" in bare:
        return {key: _refill(child, records, full=full) for key, child in bare["items"].items()}
    if isinstance(bare, dict):
        return _tensor(records[bare["leaf"]], full=full)
    return bare


def _tensor(record: TensorRecord, *, full: bool) -> dict[str, Any]:
    written: dict[str, Any] = {"shape": f"torch.Size({list(record.shape)})", "dtype": f"torch.{record.dtype}"}
    tensor = record.tensor
    if tensor is None:
        return written
    if full:
        written["value"] = str(tensor).splitlines()
    if tensor.dtype in _SUMMARIZED:
        # the debugger's own reductions, in the tensor's dtype, so that the digits agree
        written.update(
            {name: repr(getattr(tensor, name)()) for name in ("mean", "std", "min", "max") if tensor.numel()}
        )
    return written
