"""The modules of a model: what it is wrapped in, the names that they have without it, and which of them are recorded.

``torch.compile``, ``DistributedDataParallel``, ``FullyShardedDataParallel`` and peft each put a module around a model,
or around each layer, and with it a prefix into every path below. Paths here are those of the bare model, so that a
golden of the one can be held to the other. No hook runs inside of what is compiled.

Modules are picked by globs over their paths, in one dialect for every option: ``*`` is one part of a path, ``**`` any
number of parts.
"""

from __future__ import annotations

import inspect
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.marker_arguments import several
from pytest_tfdebug.module_path import holder, last_part, under

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

#: Names that nothing but a wrapper gives to what it wraps.
_MARKS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
#: Where a wrapper's name for what it wraps is an ordinary one: the class, anywhere among the bases, and the name.
_CLASSES = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "AveragedModel": "module",
    "DeepSpeedEngine": "module",
    "PeftModel": "base_model",
    "PeftMixedModel": "base_model",
    "BaseTuner": "model",
}
#: An adapted layer of peft holds the layer that it adapts under one of these names.
_ADAPTED = ("base_layer", "original_module")
#: Where the inside of an adapted layer begins in a path.
_INSIDE_ADAPTED = re.compile(r"\.(base_layer|original_module|modules_to_save|token_adapter)(\.|$)")


def wrapped_name(module: torch.nn.Module) -> str | None:
    """Return the attribute under which a wrapper holds what it wraps; None for what is no wrapper."""
    children = module.__dict__.get("_modules", ())
    for mark in _MARKS:
        if mark in children:
            return mark
    for base in type(module).__mro__:
        name = _CLASSES.get(base.__name__)
        if name is not None and name in children:
            return name
    return None


def is_compiled_wrapper(module: torch.nn.Module) -> bool:
    """Tell whether a module is what ``torch.compile`` returned."""
    return "_orig_mod" in module.__dict__.get("_modules", ())


def _with_wrapped(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield a module, what it wraps, what that wraps, and so on."""
    yield module
    while (name := wrapped_name(module)) is not None:
        module = module._modules[name]  # type: ignore[assignment] # noqa: SLF001 - as nn.Module itself names its children
        yield module


def bare(module: torch.nn.Module) -> torch.nn.Module:
    """Return the innermost module that wrappers hold."""
    *_, inner = _with_wrapped(module)
    return inner


def class_of(module: torch.nn.Module) -> type[torch.nn.Module]:
    """Return the class of a module; of one that ``fully_shard`` has given a class of its own, the one that it had."""
    kind = type(module)
    own = [base for base in kind.__mro__[1:] if base.__name__ != "FSDPModule"]
    return own[0] if any(base.__name__ == "FSDPModule" for base in kind.__bases__) else kind


def root_of(model: torch.nn.Module) -> torch.nn.Module:
    """Return what the hooks of a model's root are put on: the bare model, or ``torch.compile``'s wrapper of it."""
    return next(named_modules(model))[1]


def callers_of_forward(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield the wrappers of a model that call its ``forward``, by which no hook of it runs: some of peft's tuners."""
    for each in _with_wrapped(model):
        forward = inspect.unwrap(type(each).forward)
        if any(base.__name__ == "BaseTuner" for base in type(each).__mro__) and "forward" in forward.__code__.co_names:
            yield each


def modules_by_path(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Return every module of a model once, under its first path in the bare model; the root under the empty one."""
    first: dict[int, tuple[str, torch.nn.Module]] = {}
    for path, _, module in named_modules(model):
        first.setdefault(id(module), (path, module))
    return dict(first.values())


def named_modules(
    module: torch.nn.Module, path: str = "", outer: torch.nn.Module | None = None
) -> Iterator[tuple[str, torch.nn.Module, torch.nn.Module]]:
    """Yield every module of a model under each of its paths in the bare model, the root first, parents first.

    Yields:
        The path, empty for the root; what hooks are put on, which is the module itself, or ``torch.compile``'s wrapper,
        inside of which no hook runs; and the module itself.
    """
    name = wrapped_name(module)
    if name is not None and is_compiled_wrapper(module) and outer is None:
        outer = module
    children = dict(module._modules.items())  # noqa: SLF001 - with each name of a child that has several
    if name is None:
        yield path, module if outer is None else outer, module  # a module may have a length of 0
    elif (inner := children.pop(name)) is not None:
        yield from named_modules(inner, path, outer)
    for own, child in children.items():
        if child is not None:
            yield from named_modules(child, f"{path}.{own}" if path else own)


def named_tensors(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Return parameters, then buffers, each under every name that it has in the bare model.

    The weights of a layer that peft adapts have the names that they have without it.
    """
    modules = [(path, module) for path, _, module in named_modules(model)]
    adapted = {path for path, module in modules if _is_adapted(module)}
    found = []
    for kind in ("_parameters", "_buffers"):
        for path, module in modules:
            is_adapter = last_part(path) in _ADAPTED and holder(path) in adapted
            owner = (is_adapter and adapted_layer(path)) or path
            for name, tensor in getattr(module, kind).items():
                if tensor is not None:
                    found.append((under(owner, name), _held(module, name, tensor)))
    return found


def unsaved(model: torch.nn.Module) -> set[str]:
    """Return the names of the buffers that no checkpoint holds, such as tables of angles: the code makes them."""
    return {
        under(path, name)
        for path, _, module in named_modules(model)
        for name in module._non_persistent_buffers_set  # noqa: SLF001 - ``state_dict`` would copy, and run hooks
    }


def _held(module: torch.nn.Module, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a module's tensor; what accelerate has put in the CPU's memory or a file, where it left none."""
    hook = getattr(module, "_hf_hook", None) if tensor.is_meta else None
    maps = (getattr(each, "weights_map", None) for each in (hook, *getattr(hook, "hooks", ())))
    return next((offloaded[name] for offloaded in maps if offloaded is not None), tensor)


def _is_adapted(module: torch.nn.Module) -> bool:
    return any(name in module.__dict__.get("_modules", ()) for name in _ADAPTED)


def adapted_paths(model: torch.nn.Module) -> list[str]:
    """Return the paths of the layers that peft has put an adapter around."""
    found = [path for path, _, module in named_modules(model) if path and _is_adapted(module)]
    return [path for path in found if adapted_layer(path) is None]


def adapted_layer(path: str) -> str | None:
    """Return the path of the layer that peft has adapted, of a module that it has put inside; None of any other.

    Examples:
        >>> adapted_layer("layers.0.q_proj.base_layer")
        'layers.0.q_proj'
    """
    inside = _INSIDE_ADAPTED.search(path)
    return path[: inside.start()] if inside is not None else None


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


def first_opaque(model: torch.nn.Module) -> str | None:
    """Return the path of the first module that no hook sees into, of a wrapper the root's; None if they see all."""
    inside = next((path for path, module in modules_by_path(model).items() if is_opaque(module)), None)
    return "" if inside is None and any(map(is_opaque, model.modules())) else inside


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


#: The dialect in a message.
MEANING = "* is one part of a module path, ** any number of parts"
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
    near = near or [path for path in known if last_part(path) == last_part(glob)]
    return f" Nearest path: {near[0]!r}." if near else ""


Level = Literal["all", "leaves", "layers"]


@dataclass(frozen=True)
class Selection:
    """Modules picked by path and by level; the root is always recorded."""

    # globs over module paths, see :func:`~pytest_tfdebug.tracing.record.modules.matches`; empty for all
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
