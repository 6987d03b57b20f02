"""Whose code a frame runs: the user's, or that of a library."""

from __future__ import annotations

import os
import sysconfig
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

#: Packages that are never the user's code, even if a developer has installed them from a checkout.
_LIBRARIES = frozenset(
    {
        *("accelerate", "huggingface_hub", "peft", "pytest_tfdebug", "safetensors", "tokenizers", "torch"),
        *("transformers", "transformers_modules"),  # the last is the code of a repository, in the hub's cache
    }
)


def is_users(frame: FrameType) -> bool:
    """Tell whether a frame runs the user's code: not the standard library, an installed package or this package."""
    return package_of(frame) not in _LIBRARIES and not _is_installed(frame.f_code.co_filename)


def module_of(frame: FrameType) -> str:
    """Return the name of the module whose code a frame runs."""
    return str(frame.f_globals.get("__name__", ""))


def package_of(frame: FrameType) -> str:
    """Return the name of the package whose code a frame runs."""
    return module_of(frame).partition(".")[0]


@cache
def _is_installed(file: str) -> bool:
    """Tell whether a file is one of the standard library or of an installed package, or none at all: ``<string>``."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return file.startswith("<") or os.path.realpath(file).startswith(
        tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in folders)
    )
