"""Matrix products inside a forward: a sum of many terms is large before a late scale makes it small.

``linear(x, w) * scale`` and ``q @ k / sqrt(d)`` end small at the module's boundary, and in float16 the product is inf
by then (https://github.com/vllm-project/vllm/issues/33972).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.tracing.record.sites import is_library

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

#: Functions whose result is a sum of products, with the name that is shown.
_PRODUCTS: dict[Any, str] = {
    torch.nn.functional.linear: "linear",
    torch.nn.functional.bilinear: "bilinear",
    torch.matmul: "matmul",
    torch.Tensor.matmul: "matmul",
    torch.Tensor.__matmul__: "matmul",
    torch.Tensor.__rmatmul__: "matmul",
    torch.mm: "mm",
    torch.Tensor.mm: "mm",
    torch.bmm: "bmm",
    torch.Tensor.bmm: "bmm",
    torch.addmm: "addmm",
    torch.baddbmm: "baddbmm",
    torch.einsum: "einsum",
    torch.tensordot: "tensordot",
    torch.conv1d: "conv1d",
    torch.conv2d: "conv2d",
    torch.conv3d: "conv3d",
}


class Products(TorchFunctionMode):
    """Hands on what each matrix product in the code of a forward computes, and its line.

    Products of torch's own modules are left out: what they return is looked at as their output.

    Args:
        see: Takes the name of the function, its result, and the line.
    """

    def __init__(self, see: Callable[[str, torch.Tensor, SourceRange], object]) -> None:
        super().__init__()
        self._see = see

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 - as torch calls it
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Compute, and hand on what a product is."""
        made = func(*args, **(kwargs or {}))
        name = _PRODUCTS.get(func)
        if name is not None and isinstance(made, torch.Tensor):
            frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to the running frame
            file = "<>" if frame is None else frame.f_code.co_filename
            if frame is not None and not is_library(file):
                self._see(name, made, SourceRange(file, frame.f_lineno, frame.f_lineno))
        return made
