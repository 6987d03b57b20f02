"""A model as files, and the lines of Python that build it from them."""

from __future__ import annotations

import importlib
import logging
import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import torch
from packaging.version import Version

if TYPE_CHECKING:
    from pathlib import Path


def save_model(directory: Path, model: torch.nn.Module) -> list[str]:
    """Write a model beside a repro and return the lines that build it there, bound to ``model``.

    A transformers model is written as its config and weights, and built by its class. Any other module, and one in
    which a part was replaced after it was built, is written whole, by ``torch.save``: building it imports its classes
    from where the test had them.
    """
    lines = _as_pretrained(directory, model) or _as_module(directory, model)
    return [*lines, f"model.{'train' if model.training else 'eval'}()"]


def _as_pretrained(directory: Path, model: torch.nn.Module) -> list[str] | None:
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel) or not _is_importable(type(model)):
        return None
    kind: Any = type(model)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.save_pretrained(directory)
            rebuilt, report = kind.from_pretrained(directory, output_loading_info=True)
    except Exception:
        logging.getLogger(__name__).debug("save_pretrained failed", exc_info=True)
        return None
    if report["missing_keys"] or report["unexpected_keys"] or _parts(rebuilt) != _parts(model):
        return None
    attention = getattr(model.config, "_attn_implementation", None)
    options = f"{_dtype_keyword()}={model.dtype}" + (f", attn_implementation={attention!r}" if attention else "")
    return [
        f"from {kind.__module__} import {kind.__name__}",
        f"model = {kind.__name__}.from_pretrained(HERE, {options})",
    ]


def _dtype_keyword() -> str:
    """Return the name of ``from_pretrained``'s argument, which transformers 4.56 shortened."""
    return "dtype" if Version(version("transformers")) >= Version("4.56") else "torch_dtype"


def _parts(model: torch.nn.Module) -> dict[str, tuple[type, bool]]:
    """Return the class of each module, and whether the module itself was given another forward."""
    return {path: (type(module), "forward" in vars(module)) for path, module in model.named_modules()}


def _as_module(directory: Path, model: torch.nn.Module) -> list[str]:
    torch.save(model, directory / "model.pt")
    return ['model = torch.load(HERE / "model.pt", weights_only=False)  # your own file: a module, not only weights']


def _is_importable(kind: type) -> bool:
    try:
        return getattr(importlib.import_module(kind.__module__), kind.__name__, None) is kind
    except ImportError:
        return False
