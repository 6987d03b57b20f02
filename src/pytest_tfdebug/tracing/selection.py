"""Which modules of a model are recorded."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, get_args

import torch

from pytest_tfdebug.errors import TFDebugError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Level = Literal["all", "leaves", "layers"]


@dataclass(frozen=True)
class Selection:
    """Modules picked by path and by level; the root is always recorded.

    Args:
        include: Globs over module paths as :func:`fnmatch.fnmatchcase` reads them (``*`` also matches dots); empty for
            every module.
        exclude: Globs of modules to leave out, stronger than ``include``.
        level: ``"all"`` modules; ``"leaves"``, those without submodules; or ``"layers"``, the items of a
            ``ModuleList`` or ``Sequential``.
        rename: The name by which the globs know a module path; a port is selected by the reference's paths.

    Raises:
        TFDebugError: If the level is none of these.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    level: Level = "all"
    rename: Callable[[str], str] = str

    def __post_init__(self) -> None:
        if self.level not in get_args(Level):
            raise TFDebugError(f"level={self.level!r} is not one of {', '.join(get_args(Level))}.")

    def pick(self, model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
        """Yield path and module of each picked submodule, the root left out.

        Raises:
            TFDebugError: If a glob matches no module of the model, with the nearest path.
        """
        layers = {id(item) for _, item in _items_of_containers(model)} if self.level == "layers" else set()
        paths = {path: module for path, module in model.named_modules() if path}
        names = {path: self.rename(path) for path in paths}
        for glob in (*self.include, *self.exclude):
            if not any(fnmatchcase(name, glob) for name in names.values()):
                raise TFDebugError(_no_match(glob, names.values()))
        for path, module in paths.items():
            if self.include and not any(fnmatchcase(names[path], glob) for glob in self.include):
                continue
            if any(fnmatchcase(names[path], glob) for glob in self.exclude):
                continue
            if self.level == "leaves" and next(module.children(), None) is not None:
                continue
            if self.level == "layers" and id(module) not in layers:
                continue
            yield path, module


def selection(
    include: str | Iterable[str], exclude: str | Iterable[str], level: Level, rename: Callable[[str], str] = str
) -> Selection:
    """Build a selection from what a user types: one glob or several."""
    return Selection(_globs(include), _globs(exclude), level, rename)


def _globs(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _items_of_containers(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    for module in model.modules():
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            yield from module.named_children()


def _no_match(glob: str, paths: Iterable[str]) -> str:
    near = get_close_matches(glob, list(paths), n=1, cutoff=0.3)
    hint = f" Nearest path: {near[0]!r}." if near else ""
    return f"No module matches {glob!r} (globs are over module paths, * also matches dots).{hint}"
