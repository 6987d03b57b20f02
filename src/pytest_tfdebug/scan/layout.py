"""Which files of a repository are model tests, and of which model.

Two layouts are known: a directory for each model (``tests/models/bert/test_modeling_bert.py``, as transformers has
it) and a file for each model (``tests/models/unets/test_models_unet_2d.py``, as diffusers has it).
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

#: A path with a models directory of tests in it: what comes before, and what comes below.
_MODELS = re.compile(r"(?P<models>(?:.*/)?tests?/models)/(?P<below>.+)")
_MODELING = re.compile(r"test_modeling_(\w+)\.py")
_MODEL = re.compile(r"test_models?_(\w+)\.py")


class Place(NamedTuple):
    """A model test file: its path, its models directory, its model, and the path that belongs to the model alone."""

    path: str
    models: str
    model: str
    owned: str


@cache
def place(path: str) -> Place | None:
    """Return which model a file tests, or None where it is no model test file.

    Args:
        path: Posix path relative to the repository's root.
    """
    found = _MODELS.fullmatch(path)
    if found is None:
        return None
    models, below = found.group("models"), found.group("below").split("/")
    directory, name = below[:-1], below[-1]
    modeling = _MODELING.fullmatch(name)
    if modeling is not None:
        if directory:
            return Place(path, models, directory[-1], f"{path.rpartition('/')[0]}/")
        return None if modeling.group(1) == "common" else Place(path, models, modeling.group(1), path)
    model = _MODEL.fullmatch(name)
    if model is not None and model.group(1) not in {"auto", "common"}:
        return Place(path, models, model.group(1), path)
    return None


@cache
def is_owned(path: str, owned: frozenset[str]) -> bool:
    """Tell whether a file belongs to one model, so that what it defines is no common test."""
    parts = path.split("/")
    prefixes = {"/".join(parts[:count]) + "/" for count in range(1, len(parts))}
    prefixes.add(path)
    return not prefixes.isdisjoint(owned)


def is_model_file(path: str, siblings: Iterable[str]) -> bool:
    """Tell whether a file belongs to one model, from its path and the names of the model tests beside it."""
    if place(path) is not None:
        return True
    found = _MODELS.fullmatch(path)
    return found is not None and "/" in found.group("below") and any(map(_MODELING.fullmatch, siblings))
