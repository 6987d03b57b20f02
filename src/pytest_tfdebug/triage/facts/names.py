"""A name that the installed transformers does not have: the nearest one, what replaced it, a model's Auto classes."""

from __future__ import annotations

import difflib
import inspect
import pkgutil
import re
import sys
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.triage.rules import Facts, is_a, listing, shown, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.triage.rules import Failure, Link


_SIMILARITY = 0.8
#: Module or library as a message names it -> distribution, where they differ by more than case and ``_`` for ``-``.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "PyTorch": "torch",
    "sklearn": "scikit-learn",
    "google.protobuf": "protobuf",
}


def read_missing_name(failure: Failure, _link: Link, matched: re.Match[str]) -> Facts:
    """Say what replaced a name, where it lives now, or which name is nearest."""
    name, here = matched["name"], _names_of(matched["module"])
    same = next((other for other in here if other.lower() == name.lower()), "")
    removed = "" if same else _replacement(name)
    if removed:
        told = f"{shown(name)} was removed and is not in transformers 5: upgrading will not help"
        return Facts({"removed": removed, **_as_code(failure, name, removed)}, (told,))
    elsewhere = "" if same else _module_with(name)
    near = "" if elsewhere else same or nearest(name, here, _SIMILARITY)
    return Facts({"elsewhere": elsewhere, "near": near, **failure.rewritten(name, near)})


def read_missing_module(_failure: Failure, _link: Link, matched: re.Match[str]) -> Facts:
    """Say where a module's contents are now, or which module is nearest."""
    module = matched["module"]
    fast = re.fullmatch(r"(transformers\.models\.\w+\.tokenization_\w+)_fast", module)
    moved = _REMOVED["modules"].get(module) or (fast[1] if fast else "")
    parent, _, last = module.rpartition(".")
    folders = getattr(sys.modules.get(parent), "__path__", [])
    near = nearest(last, [sibling.name for sibling in pkgutil.iter_modules(folders)], 0.6)
    return Facts({"moved": moved, "near": f"{parent}.{near}" if near and not moved else ""})


def read_lazy_import(failure: Failure, link: Link, matched: re.Match[str]) -> Facts:
    """Give the innermost cause as the reason why a module or a name of transformers could not be imported."""
    causes = {id(inner.error): inner for inner in failure.links}
    reason = link
    while id(reason.error.__cause__) in causes:
        reason = causes.pop(id(reason.error.__cause__))
    exported = "" if "." in matched["module"] else shown(matched["module"])
    return Facts({"exported": exported, "reason": shown(reason.described) if reason is not link else ""})


def read_missing_package(_failure: Failure, _link: Link, matched: re.Match[str]) -> Facts:
    """Name the distribution behind a module."""
    package = matched["package"]
    return Facts({"distribution": _DISTRIBUTIONS.get(package, package.replace("_", "-"))})


def read_backends(_failure: Failure, _link: Link, matched: re.Match[str]) -> Facts:
    """Collect every library that one message asks for, so that one command installs them all."""
    libraries = sorted(set(re.findall(r"requires the (\S+) library but it was not found", matched.string)))
    wanted = [_DISTRIBUTIONS.get(library, library.lower()) for library in libraries]
    return Facts({"libraries": " and ".join(libraries), "distributions": " ".join(wanted)})


def read_argument(failure: Failure, _link: Link, matched: re.Match[str]) -> Facts | None:
    """Say what replaced an argument; None when the callable is the user's own."""
    cls, argument = matched["cls"], matched["argument"]
    owner = getattr(sys.modules.get("transformers"), cls, None)
    if not isinstance(owner, type):
        return None
    had, replacement = _REMOVED["arguments"].get(argument, ("", ""))
    if had and (had == cls or (had == "from_pretrained" and cls not in {"Trainer", "TrainingArguments"})):
        told = f"{argument} was removed from {had}: upgrading transformers does not bring it back"
        code = failure.rewritten(argument, replacement[:-1]) if replacement.endswith("=") else {}
        return Facts({"replacement": replacement, "drop": "" if replacement else argument, **code}, (told,))
    near = nearest(argument, inspect.signature(owner).parameters, 0.7)
    return Facts({"near": near, **failure.rewritten(argument, near)})


def read_removed_attribute(_failure: Failure, link: Link, matched: re.Match[str]) -> Facts | None:
    """Say what replaced an attribute of an object of transformers; None of any other object."""
    owner = getattr(link.error, "obj", None)
    owner = getattr(sys.modules.get("transformers"), matched["cls"], None) if owner is None else owner
    kinds = (owner if isinstance(owner, type) else type(owner)).__mro__
    known = [kind.__name__ for kind in kinds if kind.__module__.partition(".")[0] == "transformers"]
    found = (_REMOVED["attributes"].get(name, {}).get(matched["name"]) for name in known)
    told: str = next(filter(None, found), "")
    if not told:
        return None
    start, _, why = told.partition("nothing: ")
    return Facts({"drop": matched["name"], "why": why} if why else {"replacement": start})


def read_tuple_for_a_cache(failure: Failure, _link: Link, _matched: re.Match[str]) -> Facts | None:
    """Count the layers of what was given for a cache; None where that is no tuple or list."""
    given = next(failure.local_values("past_key_values", "past_key_value", "cache"), None)
    return Facts({"layers": str(len(given))}) if isinstance(given, (tuple, list)) else None


def read_empty_cache(failure: Failure, _link: Link, _matched: re.Match[str]) -> Facts | None:
    """Name the cache that has no layers; None where none is asked."""
    asked = (type(each).__name__ for each in failure.local_values("self") if getattr(each, "layers", None) == [])
    name = next((name for name in asked if name.endswith("Cache")), "")
    return Facts({"cls": name}) if name else None


def read_adaptable(failure: Failure, _link: Link, _matched: re.Match[str]) -> Facts:
    """Name the linear layers of the model that was to be adapted."""
    models = (each for each in failure.local_values("model", "self") if hasattr(each, "named_modules"))
    for model in models:
        linear = [name.rpartition(".")[2] for name, part in model.named_modules() if hasattr(part, "in_features")]
        if linear:
            return Facts({"linears": shown(sorted(set(linear) - {"lm_head"}))})
    return Facts()


def nearest(name: str, known: Iterable[str], cutoff: float) -> str:
    """Return the known name that is spelt most alike; empty if none is as similar as the cutoff, from 0 to 1."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), "")


def _replacement(name: str) -> str:
    for pattern, replacement in _REMOVED["names"].items():
        found = re.fullmatch(pattern, name)
        if found:
            told: str = replacement.format(*found.groups(""))
            if "{0}" not in replacement or told.partition(",")[0] in _names_of("transformers"):
                return told
    return ""


def _as_code(failure: Failure, name: str, replacement: str) -> dict[str, str]:
    """Turn a replacement into the line to write, if it is a single name."""
    path = replacement.partition(",")[0]
    module, _, attribute = path.rpartition(".")
    if module and all(part.isidentifier() for part in path.split(".")):
        return {"rewritten": f"from {module} import {attribute}"}
    return failure.rewritten(name, attribute) if attribute in _names_of("transformers") else {}


def _names_of(module: str) -> list[str]:
    loaded = sys.modules.get(module)
    return [] if loaded is None else [name for name in dir(loaded) if not name.startswith("_")]


def _module_with(name: str) -> str:
    """Return the transformers module that defines a name: the top level, or else one that is loaded in this run."""
    if name in _names_of("transformers"):
        return "transformers"
    loaded = [(path, module) for path, module in list(sys.modules.items()) if path.startswith("transformers.")]
    of = ((path, getattr(module, "__dict__", {}).get(name)) for path, module in loaded)
    return min((path for path, value in of if getattr(value, "__module__", None) == path), default="")


#: What is gone from transformers, as the file says.
_REMOVED = table("facts/removed.toml")
#: Shown last: they fit everything and say nothing about the task.
_GENERAL = ("AutoModel", "AutoModelForPreTraining")


def read_auto_classes(failure: Failure, _link: Link, matched: re.Match[str]) -> Facts:
    """List the Auto classes that map this config, first the one with the checkpoint's own architecture."""
    config = next((value for value in failure.local_values("config") if hasattr(value, "model_type")), None)
    if config is None:
        return Facts()
    architectures = {str(name) for name in getattr(config, "architectures", None) or ()}
    found = {name: classes for name, classes in _mapping(config) if name != matched["auto"]}
    ordered = sorted(found, key=lambda name: (not architectures & set(found[name]), name in _GENERAL, name))
    names = {"own": type(config).__name__} if not ordered and _is_own(type(config)) else {}
    names["checkpoint"] = shown(next(failure.local_values("pretrained_model_name_or_path"), ""))
    if ordered:
        names |= {"right": ordered[0], **failure.rewritten(matched["auto"], ordered[0])}
    listed = listing(ordered, 12) or "none"
    return Facts(names, (f"Auto classes that map {type(config).__name__}: {listed}",))


def read_no_generate(failure: Failure, _link: Link, matched: re.Match[str]) -> Facts | None:
    """Name the class with a language model head; None if the object is not a transformers model."""
    model = next((value for value in failure.local_values("self") if is_a(value, "PreTrainedModel")), None)
    if model is None or type(model).__name__ != matched["cls"]:
        return None
    names = {"model_type": shown(model.config.model_type)}
    if _is_own(type(model)):
        bases = ", ".join(each.__name__ for each in type(model).__bases__)
        return Facts(names | {"own": matched["cls"], "bases": bases})
    auto, classes = next((pair for pair in _mapping(model.config) if pair[0] in _GENERATING), ("", [""]))
    code = failure.rewritten(matched["cls"], classes[0]) if auto else {}
    return Facts(names | {"right": auto, "head": classes[0], **code})


def read_model_type(_failure: Failure, _link: Link, matched: re.Match[str]) -> Facts:
    """Name the known model type nearest to an unknown one."""
    configuration = sys.modules.get("transformers.models.auto.configuration_auto")
    known = [] if configuration is None else list(configuration.CONFIG_MAPPING_NAMES)
    return Facts({"near": nearest(matched["given"].lower().replace("-", "_"), known, 0.75)})


_GENERATING = tuple(
    f"AutoModelFor{task}" for task in ("CausalLM", "Seq2SeqLM", "ImageTextToText", "SpeechSeq2Seq", "TextToWaveform")
)


def _mapping(config: Any) -> Iterator[tuple[str, list[str]]]:  # noqa: ANN401 - a transformers config
    """Yield each Auto class of models that maps the config, with the names of the classes it maps it to."""
    module = sys.modules.get("transformers.models.auto.modeling_auto")
    for name in dir(module):
        mapping = getattr(getattr(module, name), "_model_mapping", None) if name.startswith("Auto") else None
        if mapping is not None and type(config) in mapping:
            named = getattr(mapping, "_model_mapping", {}).get(config.model_type, ())
            yield name, [named] if isinstance(named, str) else list(named)


def _is_own(cls: type) -> bool:
    """Whether a class is the user's, not one of transformers."""
    return cls.__module__.partition(".")[0] != "transformers"
