"""A model as files, and the lines of Python that build it from them."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from importlib.metadata import version
from types import FunctionType, NoneType
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from pytest_tfdebug.environment import is_of_python
from pytest_tfdebug.redaction import without_secrets
from pytest_tfdebug.repro.inputs import imported
from pytest_tfdebug.repro.module_file import save_module

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch

#: Packages whose modules a test imports and does not write.
_LIBRARIES = ("transformers", "torch")
_OURS = (*_LIBRARIES, "pytest_tfdebug")
_PLAIN = (int, float, str, NoneType)


def save_model(directory: Path, model: torch.nn.Module) -> list[str]:
    """Write a model beside a repro and return the lines that build it there, bound to ``model``.

    A transformers model is written as its config and weights, and built by its class. Any other module, and one whose
    parts, attributes or hooks were changed after it was built, is written by :mod:`.module_file`: building it imports
    its classes from where the test had them. The weights are safetensors in both cases.
    """
    lines = _as_pretrained(directory, model) or _as_module(directory, model)
    return [*lines, f"model.{'train' if model.training else 'eval'}()"]


def _as_pretrained(directory: Path, model: torch.nn.Module) -> list[str] | None:
    from transformers import PreTrainedModel

    kind: Any = type(model)
    if not isinstance(model, PreTrainedModel) or imported(kind.__module__, kind.__name__) is not kind:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.save_pretrained(directory)
            _clean_configs(directory)
            rebuilt, report = kind.from_pretrained(directory, output_loading_info=True)
    except Exception:
        logging.getLogger(__name__).debug("save_pretrained failed", exc_info=True)
        return None
    if report["missing_keys"] or report["unexpected_keys"] or _parts(rebuilt) != _parts(model):
        return None
    attention = getattr(model.config, "_attn_implementation", None)
    options = f"use_safetensors=True, {_dtype_keyword()}={model.dtype}"
    options += f", attn_implementation={attention!r}" if attention else ""
    return [
        f"from {kind.__module__} import {kind.__name__}",
        f"model = {kind.__name__}.from_pretrained(HERE, {options})",
    ]


def _clean_configs(directory: Path) -> None:
    """Remove what looks like a secret from a model's JSON files."""
    for file in directory.glob("*config.json"):
        document = json.loads(file.read_text(encoding="utf-8"))
        cleaned = without_secrets(document)
        if cleaned != document:
            file.write_text(json.dumps(cleaned, indent=2), encoding="utf-8")


def _dtype_keyword() -> str:
    """Return the name of ``from_pretrained``'s argument, which transformers 4.56 shortened."""
    return "dtype" if Version(version("transformers")) >= Version("4.56") else "torch_dtype"


def replaced_functions(model: torch.nn.Module) -> list[str]:
    """Return the names of library functions that the test replaced by its own, which no file can hold."""
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    homes = {kind.__module__: sys.modules.get(kind.__module__) for kind in kinds}
    spaces = [(f"{kind.__module__}.{kind.__qualname__}", kind) for kind in kinds]
    return sorted(
        f"{name}.{key}"
        for name, space in (*homes.items(), *spaces)
        if _package(name) in _LIBRARIES
        for key, value in vars(space).items()
        if isinstance(value, FunctionType) and _is_of_test(value)
    )


def _is_of_test(function: FunctionType) -> bool:
    """Tell whether a function was defined outside of every library, whatever its name is."""
    file = function.__code__.co_filename
    return _package(function.__globals__.get("__name__")) not in _OURS and file[:1] != "<" and not is_of_python(file)


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _parts(model: torch.nn.Module) -> dict[str, tuple[object, ...]]:
    """Return each module's class, plain attributes and hooks, and whether it has a forward or a mode of its own."""
    return {
        path: (
            type(module),
            "forward" in vars(module),
            module.training != model.training,
            _attributes(module),
            [hook for hook in _hooks(module) if _package(getattr(hook, "__module__", None)) not in _OURS],
        )
        for path, module in model.named_modules()
    }


def _hooks(module: torch.nn.Module) -> Iterator[Any]:
    yield from module._forward_pre_hooks.values()  # noqa: SLF001 - torch lists them nowhere else
    yield from module._forward_hooks.values()  # noqa: SLF001


def _attributes(module: torch.nn.Module) -> str:
    """Return a module's own numbers and strings; a config that went through JSON has lists for tuples."""
    own = {
        name: list(value) if isinstance(value, (tuple, list)) else [value]
        for name, value in vars(module).items()
        if name not in ("training", "name_or_path") and not name.startswith("_")
    }
    return repr(sorted((name, items) for name, items in own.items() if all(isinstance(item, _PLAIN) for item in items)))


def _as_module(directory: Path, model: torch.nn.Module) -> list[str]:
    for pattern in ("*config.json", "model*.safetensors*"):  # of the attempt to write a transformers model
        for left in directory.glob(pattern):
            left.unlink()
    names = save_module(directory, model)
    listed = "".join(f"    {name!r},\n" for name in names)
    return [
        "from pytest_tfdebug.repro.module_file import load_module",
        f"model = load_module(HERE, [  # nothing else is made of what the file holds\n{listed}])",
    ]
