"""Which modules of a model are recorded."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch

from pytest_tfdebug.errors import TFDebugError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

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
        among: Tells of such a name whether the module may be picked at all; None for no limit.

    Raises:
        TFDebugError: If the level is none of these.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    level: Level = "all"
    rename: Callable[[str], str] = str
    among: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        if self.level not in get_args(Level):
            raise TFDebugError(f"level={self.level!r} is not one of {', '.join(get_args(Level))}.")

    def pick(self, model: torch.nn.Module, modules: Mapping[str, torch.nn.Module]) -> dict[str, torch.nn.Module]:
        """Return the picked ones of a model's submodules.

        Raises:
            TFDebugError: If a glob matches no module of the model, with the nearest path.
        """
        return dict(self._picked(model, modules))

    def _picked(
        self, model: torch.nn.Module, modules: Mapping[str, torch.nn.Module]
    ) -> Iterator[tuple[str, torch.nn.Module]]:
        layers = {id(item) for _, item in _items_of_containers(model)} if self.level == "layers" else set()
        globs = (*self.include, *self.exclude)
        names = {path: self.rename(path) for path in modules} if globs else {}
        for glob in globs:
            if not any(fnmatchcase(name, glob) for name in names.values()):
                raise TFDebugError(_no_match(glob, names.values()))
        for path, module in modules.items():
            if self.among is not None and not self.among(self.rename(path)):
                continue
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
    include: str | Iterable[str],
    exclude: str | Iterable[str],
    level: Level,
    rename: Callable[[str], str] = str,
    among: Callable[[str], bool] | None = None,
) -> Selection:
    """Build a selection from what a user types: one glob or several."""
    return Selection(_globs(include), _globs(exclude), level, rename, among)


class Modules(NamedTuple):
    """The submodules of a model.

    Args:
        by_path: Each module once, under its first path.
        aliases: The further paths of the modules that the model holds under several, by the first.
    """

    by_path: dict[str, torch.nn.Module]
    aliases: dict[str, tuple[str, ...]]


def modules_of(model: torch.nn.Module) -> Modules:
    """Return the submodules of a model, the root left out."""
    first: dict[int, str] = {}
    by_path: dict[str, torch.nn.Module] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        own = first.setdefault(id(module), path)
        if own != path:
            aliases[own] = (*aliases.get(own, ()), path)
        elif path:
            by_path[path] = module
    return Modules(by_path, aliases)


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
