"""Where a repeated call raised: the module whose forward was running, and its line."""

from __future__ import annotations

from traceback import walk_tb

import torch

from pytest_tfdebug.records import Culprit, SourceRange
from pytest_tfdebug.tracing.record.sites import is_library


def raising_place(model: torch.nn.Module, error: BaseException) -> Culprit | None:
    """Return the innermost module of the model that was running, outside of torch's own code; None where none was."""
    paths = {id(module): path for path, module in model.named_modules()}
    found = None
    for frame, line in walk_tb(error.__traceback__):
        module, file = frame.f_locals.get("self"), frame.f_code.co_filename
        if isinstance(module, torch.nn.Module) and id(module) in paths and not is_library(file):
            found = module, SourceRange(file, line, line)
    if found is None:
        return None
    module, source = found
    name = type(module).__name__
    return Culprit(paths[id(module)] or name, "glue", source, "This line raised.", name, certain=True)
