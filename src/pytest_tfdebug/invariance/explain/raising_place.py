"""Where a repeated call raised: the module whose forward was running, and its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.records import Culprit, SourceRange
from pytest_tfdebug.tracing.sites import is_library

if TYPE_CHECKING:
    from types import TracebackType


def raising_place(model: torch.nn.Module, error: BaseException) -> Culprit | None:
    """Return the innermost module of the model that was running, outside of torch's own code; None where none was.

    Args:
        model: The model that was called.
        error: What left it, with its traceback.
    """
    paths = {id(module): path for path, module in model.named_modules()}
    found = None
    step: TracebackType | None = error.__traceback__
    while step is not None:
        module = step.tb_frame.f_locals.get("self")
        file = step.tb_frame.f_code.co_filename
        if isinstance(module, torch.nn.Module) and id(module) in paths and not is_library(file):
            found = module, SourceRange(file, step.tb_lineno, step.tb_lineno)
        step = step.tb_next
    if found is None:
        return None
    module, source = found
    name = type(module).__name__
    return Culprit(paths[id(module)] or name, "glue", source, "This line raised.", name, None)
