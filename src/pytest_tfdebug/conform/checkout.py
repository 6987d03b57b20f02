"""The model classes of a checkout: of its own code, or of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_tfdebug.conform.inputs import default_inputs
from pytest_tfdebug.conform.small_config import small
from pytest_tfdebug.conform.subject import Subject
from pytest_tfdebug.errors import TFDebugError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MODELS = "AutoModel"


def subjects(source: str, revision: str | None, *, trusts_code: bool) -> Iterator[Subject]:
    """Yield a small model of each model class that a checkout's ``config.json`` names.

    Args:
        source: Directory of the checkout, or name of a repository on the hub.
        revision: Branch, tag or commit of a repository.
        trusts_code: Whether code of the checkout may run.

    Raises:
        TFDebugError: If there is no configuration, it names no class, or its code may not run.
    """
    from transformers import AutoConfig, PretrainedConfig

    try:
        entries, _ = PretrainedConfig.get_config_dict(source, revision=revision)
    except OSError as error:
        raise TFDebugError(f"{source} has no config.json that can be read: {error}") from error
    if not entries:
        raise TFDebugError(f"{source} has no config.json. Name a directory that has one, or a repository of the hub.")
    files = sorted({str(reference).partition(".")[0] + ".py" for reference in entries.get("auto_map", {}).values()})
    if files and not trusts_code:
        raise TFDebugError(
            f"{source} has code of its own ({', '.join(files)}), and this command would run it with your rights.\n"
            "Read it, and then add --trust-remote-code."
        )
    try:
        config = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=trusts_code)
    except ValueError as error:  # a type of model that this version of transformers does not have
        raise TFDebugError(f"config.json of {source} cannot be used: {error}") from error
    for model_class in _classes(entries, source, revision):
        yield Subject.of(model_class, small(model_class, config), default_inputs)


def _classes(entries: dict[str, Any], source: str, revision: str | None) -> list[Any]:
    import transformers
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    own = {str(value) for name, value in entries.get("auto_map", {}).items() if name.startswith(_MODELS)}
    if own:
        return [get_class_from_dynamic_module(reference, source, revision=revision) for reference in sorted(own)]
    names = entries.get("architectures") or []
    known = [getattr(transformers, name) for name in names if hasattr(transformers, name)]
    if not known:
        raise TFDebugError(
            f"config.json of {source} names no model class: neither auto_map nor architectures "
            f"({', '.join(names) or 'empty'}) does."
        )
    return known
