"""Which Auto classes map a config, and which class a checkpoint was saved from."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.triage import text
from pytest_tfdebug.triage.facts.names import nearest
from pytest_tfdebug.triage.failure import is_a
from pytest_tfdebug.triage.rules import Facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.triage.failure import Failure, Link

#: Shown last: they fit everything and say nothing about the task.
_GENERAL = ("AutoModel", "AutoModelForPreTraining")


def read_auto_classes(failure: Failure, _link: Link, matched: re.Match[str]) -> Facts:
    """List the Auto classes that map this config, first the one with the checkpoint's own architecture."""
    config = next((value for _, value in failure.local_values("config") if hasattr(value, "model_type")), None)
    if config is None:
        return Facts()
    own = {str(name) for name in getattr(config, "architectures", None) or ()}
    asked = matched.group("auto")
    found = dict(_mapping(config))
    found.pop(asked, None)
    ordered = sorted(found, key=lambda name: (not own & set(found[name]), name in _GENERAL, name))
    names = {"config": type(config).__name__, "model_type": text.value(config.model_type)}
    checkpoint = next((value for _, value in failure.local_values("pretrained_model_name_or_path")), None)
    if checkpoint is not None:
        names["checkpoint"] = text.value(checkpoint)
    if ordered:
        names |= {"right": ordered[0], **failure.rewritten(asked, ordered[0])}
    elif _is_own(type(config)):
        names["own"] = names["config"]
    if own:
        names["architecture"] = text.listing(sorted(own))
    lines = [f"Auto classes that map {names['config']}: {text.listing(ordered, 12) or 'none'}"]
    if own:
        lines.append(f"the checkpoint's own architecture: {names['architecture']}")
    return Facts(names, tuple(lines))


def read_no_generate(failure: Failure, _link: Link, matched: re.Match[str]) -> Facts | None:
    """Name the class with a language model head; None if the object is not a transformers model."""
    model = next((value for _, value in failure.local_values("self") if is_a(value, "PreTrainedModel")), None)
    if model is None or type(model).__name__ != matched.group("cls"):
        return None
    names = {"cls": type(model).__name__, "model_type": text.value(model.config.model_type)}
    if _is_own(type(model)):
        bases = ", ".join(base.__name__ for base in type(model).__bases__)
        return Facts(names | {"own": names["cls"], "bases": bases})
    causal = [(name, classes) for name, classes in _mapping(model.config) if name in _GENERATING]
    if not causal:
        return Facts(names, (f"no Auto class with generate maps {type(model.config).__name__}",))
    auto, classes = causal[0]
    names |= {"right": auto, "head": classes[0], **failure.rewritten(names["cls"], classes[0])}
    return Facts(
        names,
        (f"classes of model type {names['model_type']} with generate: {text.listing([c[0] for _, c in causal])}",),
    )


def read_model_directory(_failure: Failure, _link: Link, matched: re.Match[str]) -> Facts:
    """Say why a directory is not recognised: no config.json, an adapter, or a config without a model type."""
    directory = Path(matched["path"])
    names = {"path": text.value(matched["path"])}
    if not directory.is_dir():
        return Facts(names)
    entries = sorted(entry.name for entry in directory.iterdir())
    if "adapter_config.json" in entries:
        adapter = json.loads((directory / "adapter_config.json").read_text(encoding="utf-8"))
        names["adapter"] = text.value(adapter.get("base_model_name_or_path"))
    elif not entries:
        names["empty"] = "empty"
    elif "config.json" not in entries:
        names["no_config"] = "config.json"
    else:
        names["no_type"] = "model_type"
    return Facts(names, (f"the directory holds: {text.listing(entries) or 'nothing'}",))


def read_model_type(_failure: Failure, _link: Link, matched: re.Match[str]) -> Facts:
    """Name the known model type nearest to an unknown one."""
    given = matched.group("given")
    configuration = sys.modules.get("transformers.models.auto.configuration_auto")
    known = [] if configuration is None else list(configuration.CONFIG_MAPPING_NAMES)
    near = nearest(given.lower().replace("-", "_"), known, 0.75)
    version = getattr(sys.modules.get("transformers"), "__version__", "?")
    names = {"given": text.value(given), "version": str(version), "near": near}
    return Facts(names, (f"transformers {version} knows {len(known)} model types; nearest: {near or 'none'}",))


def read_task(failure: Failure, _link: Link, matched: re.Match[str]) -> Facts:
    """Name the pipeline task nearest to an unknown one."""
    given = matched.group("task")
    near = nearest(given, re.findall(r"'([\w-]+)'", matched.string), 0.5)
    return Facts({"task": text.value(given), "near": near, **failure.rewritten(given, near)})


_GENERATING = (
    "AutoModelForCausalLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForImageTextToText",
    "AutoModelForSpeechSeq2Seq",
    "AutoModelForTextToWaveform",
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
