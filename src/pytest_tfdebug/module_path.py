"""Paths of modules and names of what they hold, such as ``model.layers.0.mlp.gate_proj.weight``.

The root's path is empty.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: A whole part of a path that is a number: of a layer, of an expert.
NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_NAME = re.compile(r"[^.]+(?:\.\d+)*")


def holder(name: str) -> str:
    """Return the path of the module that holds a module, a parameter or a buffer."""
    return name.rpartition(".")[0]


def holders(name: str) -> Iterator[str]:
    """Yield the paths of the modules that hold something, the innermost first; the root is the last."""
    while name:
        name = holder(name)
        yield name


def common_holder(names: Iterable[str]) -> str:
    """Return the path of the innermost module that holds all of some parameters, of which there is one at least."""
    first, *others = (name.split(".")[:-1] for name in names)
    for other in others:
        same = next((place for place, (a, b) in enumerate(zip(first, other, strict=False)) if a != b), len(other))
        first = first[:same]
    return ".".join(first)


def last_part(name: str) -> str:
    """Return the last part of a name: ``weight``."""
    return name.rpartition(".")[2]


def name_of(path: str) -> str:
    """Return the last name of a module's path, with the numbers behind it: ``layers.0``."""
    *_, last = _NAME.findall(path) or [path]
    return str(last)


def under(path: str, last: str) -> str:
    """Return the name of something that a module holds."""
    return f"{path}.{last}" if path else last


def starred(name: str) -> str:
    """Return a name with a star for each part that is a number: what is called alike in every layer."""
    return NUMBER.sub("*", name)
