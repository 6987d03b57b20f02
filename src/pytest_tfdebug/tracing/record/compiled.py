"""Which modules run as compiled code, inside of which no hook runs."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.tracing.record.wrappers import is_compiled_wrapper

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def is_compiled_in_place(module: torch.nn.Module) -> bool:
    """Tell whether ``module.compile()`` was called: torch then compiles the hooks of the module with it."""
    return module.__dict__.get("_compiled_call_impl") is not None


def is_opaque(module: torch.nn.Module) -> bool:
    """Tell whether hooks inside a module would not run: it is compiled in one of torch's ways, or TorchScript."""
    return (
        is_compiled_wrapper(module)
        or is_compiled_in_place(module)
        or isinstance(module, torch.jit.ScriptModule)
        or hasattr(module.__dict__.get("forward", type(module).forward), "_torchdynamo_orig_callable")
    )


def hidden_by_compiler(root: torch.nn.Module, modules: Mapping[str, torch.nn.Module]) -> Collection[str]:
    """Return the paths of the modules that cannot be seen; what is compiled itself can be seen from outside."""
    if is_opaque(root):
        return modules.keys()
    inside = tuple(f"{path}." for path, module in modules.items() if is_opaque(module))
    return {
        path
        for path, module in modules.items()
        if path.startswith(inside) or isinstance(module, torch.jit.ScriptModule)
    }


def uncompiled(model: torch.nn.Module) -> AbstractContextManager[object]:
    """Return a block in which compiled modules run as they are written, so that their operators can be seen."""
    if "torch._dynamo" not in sys.modules or not any(map(is_opaque, model.modules())):
        return nullcontext()
    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance
