"""Which modules of a model are recorded, by globs over their paths: one dialect for every option.

``*`` is one part of a path, ``**`` any number of parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.marker_arguments import several
from pytest_tfdebug.tracing.record.wrappers import bare, class_of, hidden_by_compiler, named_modules, root_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


#: The dialect in a message.
MEANING = "* is one part of a module path, ** any number of parts"
#: A whole part of a path that is a number: of a layer, of an expert.
NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_ANY_PARTS = r"((?:\.[^.]+)*)"


def checked(glob: object) -> str:
    """Return a glob that can be matched."""
    if not isinstance(glob, str):
        raise TFDebugError(f"{glob!r} is not a glob of module paths.")
    for part in glob.split("."):
        if "**" in part and part != "**":
            raise TFDebugError(f"{glob!r}: ** stands between two dots or at an end, and not in {part!r} ({MEANING}).")
    return glob


@lru_cache(maxsize=16384)
def matches(path: str, glob: str) -> bool:
    """Tell whether a module path matches a glob as a whole.

    ``*`` stands for one part of a path (the text between two dots), or for any text within a part; ``**`` for any
    number of parts, none included. Every other character means itself.

    Examples:
        >>> matches("layers.0", "layers.*"), matches("layers.0.mlp", "layers.*")
        (True, False)
        >>> matches("layers", "layers.**"), matches("layers.0.mlp", "layers.**"), matches("lm_head", "**.lm_head")
        (True, True, True)
    """
    return re.fullmatch(expression(glob), dotted(path)) is not None


def matches_any(path: str, globs: Iterable[str]) -> bool:
    """Tell whether a module path matches one of several globs."""
    return any(matches(path, glob) for glob in globs)


def expression(glob: str) -> str:
    """Return a glob as a regular expression over dotted paths, with a group for each ``*`` and ``**``."""
    parts = (
        _ANY_PARTS
        if part == "**"
        else r"\." + ("([^.]+)" if part == "*" else "([^.]*)".join(map(re.escape, part.split("*"))))
        for part in glob.split(".")
    )
    return "".join(parts) if glob else ""


def dotted(path: str) -> str:
    """Return a path with a dot before each part, as regular expressions of globs read it."""
    return f".{path}" if path else ""


def nearest(glob: str, paths: Iterable[str]) -> str:
    """Return a sentence that names the path most like a glob, with a space before it; empty where none is like it."""
    known = list(dict.fromkeys(paths))
    near = get_close_matches(glob, known, n=1, cutoff=0.3)
    near = near or [path for path in known if path.rpartition(".")[2] == glob.rpartition(".")[2]]
    return f" Nearest path: {near[0]!r}." if near else ""


Level = Literal["all", "leaves", "layers"]


@dataclass(frozen=True)
class Selection:
    """Modules picked by path and by level; the root is always recorded."""

    # globs over module paths, see :func:`~pytest_tfdebug.tracing.record.selection.matches`; empty for all
    include: str | Iterable[str] = ()
    exclude: str | Iterable[str] = ()  # globs of modules to leave out, stronger than ``include``
    # ``"all"`` modules; ``"leaves"``, those without submodules; or ``"layers"``, the items of a ``ModuleList`` or
    # ``Sequential``
    level: Level = "all"
    # module path -> the name by which the globs know it; a port is selected by the reference's paths
    names: Mapping[str, str] = field(default_factory=dict)
    among: Collection[str] | None = None  # the module paths that may be picked at all; None for no limit
    # names of the reference's modules; ``exclude`` may match one that the model itself does not have
    elsewhere: Collection[str] = ()

    def __post_init__(self) -> None:
        for name in ("include", "exclude"):
            object.__setattr__(self, name, several(getattr(self, name)))
        if self.level not in get_args(Level):
            raise TFDebugError(f"level={self.level!r} is not one of {', '.join(get_args(Level))}.")
        for glob in (*self.include, *self.exclude):
            checked(glob)

    def pick(self, model: torch.nn.Module, modules: Mapping[str, torch.nn.Module]) -> dict[str, torch.nn.Module]:
        """Return the picked ones of a model's submodules; what runs as compiled code cannot be picked."""
        kinds = (torch.nn.ModuleList, torch.nn.Sequential)
        holders = (each for _, _, each in named_modules(model) if isinstance(each, kinds))
        layers = {id(bare(item)) for holder in holders for item in holder.children()}
        hidden = hidden_by_compiler(root_of(model), modules)
        names = {path: self.names.get(path, path) for path in modules}
        known = [*names.values(), *self.elsewhere]
        for globs, paths in ((self.include, list(names.values())), (self.exclude, known)):
            for glob in globs:
                if not any(matches(name, glob) for name in paths):
                    raise TFDebugError(f"No module matches {glob!r} ({MEANING}).{nearest(glob, paths)}")
        return {
            path: module
            for path, module in modules.items()
            if path not in hidden
            and (self.among is None or path in self.among)
            and (not self.include or matches_any(names[path], self.include))
            and not matches_any(names[path], self.exclude)
            and (self.level != "leaves" or next(bare(module).children(), None) is None)
            and (self.level != "layers" or id(bare(module)) in layers)
        }


class Modules(NamedTuple):
    """The submodules of a model."""

    by_path: dict[str, torch.nn.Module]  # each module once, under its first path
    # the further paths of the modules that the model holds under several, by the first
    aliases: dict[str, tuple[str, ...]]


def modules_of(model: torch.nn.Module) -> Modules:
    """Return the submodules of a model, the root left out, under the paths of the bare model."""
    first: dict[int, str] = {}
    by_path: dict[str, torch.nn.Module] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    for path, outer, module in named_modules(model):
        own = first.setdefault(id(module), path)
        if own != path:
            aliases[own] = (*aliases.get(own, ()), path)
        elif path:
            by_path[path] = outer
    return Modules(by_path, aliases)


def root_name(model: torch.nn.Module) -> str:
    """Return the name of a root's call: the class of the bare model."""
    return class_of(bare(model)).__name__
