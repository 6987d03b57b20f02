"""The promises about weights: they load clean, stay as they were loaded, and are tied if they should be."""

from __future__ import annotations

import logging
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from pytest_tfdebug.conform.subject import broken
from pytest_tfdebug.errors import listed
from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.checks.base import Outcome
from pytest_tfdebug.invariance.checks.same_call import load_record, told_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.conform.subject import Subject

_FILE = "model.safetensors"
_TIES = "tie_word_embeddings"
_NO_PRETRAINED = "it has no save_pretrained and from_pretrained: it is no transformers model"
_INIT = (
    "_init_weights of the class writes to weights that came from the checkpoint. It is called for each module that has "
    "a parameter or buffer of its own that is new: use torch.nn.init or transformers.initialization there, which leave "
    "loaded weights alone, and write to the module's own parameters only, not to its children's."
)


def saves(subject: Subject) -> str:
    """Return why a model cannot be saved and loaded; empty if it can."""
    is_pretrained = hasattr(subject.model, "save_pretrained") and hasattr(subject.model_class, "from_pretrained")
    return "" if is_pretrained else _NO_PRETRAINED


def clean_load(subject: Subject) -> Outcome:
    """Load what the model saved: no weight is missing, unexpected or of another shape."""
    with _saved(subject) as folder:
        _, info = _loaded(subject, folder, output_loading_info=True)
    unfit = told_keys(load_record(subject.name, "", info))
    if not unfit:
        return Outcome(1)
    told = f"{subject.name} does not load its own checkpoint clean: weights do not match."
    return broken(told, unfit, "the names of the weights that are saved are not those that are loaded.")


def kept_by_init(subject: Subject) -> Outcome:
    """Load the whole checkpoint, and one without a layer: every weight in it has to arrive bit by bit."""
    with _saved(subject) as folder:
        saved = _state(subject.model)
        found = _overwritten(subject, folder, saved, "its whole checkpoint")
        if found.failure or not (folder / _FILE).is_file():
            return found
        stored = load_file(folder / _FILE)
        left_out = _last_layer(subject.model, set(stored))
        if not left_out:
            return found
        save_file(
            {key: value for key, value in stored.items() if key not in left_out}, folder / _FILE, {"format": "pt"}
        )
        kept = {key: value for key, value in saved.items() if key not in left_out}
        return _overwritten(subject, folder, kept, f"a checkpoint without {', '.join(sorted(left_out))}")


def _overwritten(subject: Subject, folder: Path, saved: dict[str, torch.Tensor], what: str) -> Outcome:
    loaded = _state(_loaded(subject, folder))
    arrived = {key: loaded[key].cpu().to(tensor.dtype).nan_to_num() for key, tensor in saved.items() if key in loaded}
    wrong = [key for key, tensor in arrived.items() if not torch.equal(tensor, saved[key].cpu())]
    if not wrong:
        return Outcome(1)
    count = f"{len(wrong)} of {len(saved)} weights"
    told = f"{subject.name} overwrites loaded weights: after from_pretrained of {what}, {count} are not the saved ones."
    return broken(told, [listed(wrong)], _INIT)


def ties(subject: Subject) -> str:
    """Return why a model ties no weights; empty if it says that it does."""
    return saves(subject) if _pairs(subject.model) else "its configuration and class tie no weights"


def tied(subject: Subject) -> Outcome:
    """Check that each pair of tied weights is one tensor, in a new model and in one that was saved and loaded."""
    with _saved(subject) as folder:
        loaded = _loaded(subject, folder)
    for model, when in ((subject.model, "in a new model"), (loaded, "after save_pretrained and from_pretrained")):
        apart = [pair for pair in _pairs(model) if not _is_one(model, *pair)]
        if apart:
            names = listed([f"{target} and {source}" for target, source in apart])
            told = f"{subject.name} does not tie its weights: {when}, these are two tensors each."
            diagnosis = (
                "config.tie_word_embeddings is True, and the class ties nothing: give it _tied_weights_keys, and keep "
                "the head in get_output_embeddings."
                if not getattr(model, "_tied_weights_keys", None)
                else "something puts a new parameter in the place of the tied one after tie_weights has run."
            )
            return broken(told, [names], diagnosis)
    return Outcome(1)


@contextmanager
def _saved(subject: Subject) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        subject.model.save_pretrained(folder)
        yield Path(folder)


def _loaded(subject: Subject, folder: Path, **how: bool) -> Any:  # noqa: ANN401 - a pretrained model
    """Load a model, without the log messages of transformers: the verdict says the same."""
    log = logging.getLogger("transformers")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        return subject.model_class.from_pretrained(folder, **how)  # type: ignore[attr-defined] # a pretrained model
    finally:
        log.setLevel(level)


def _state(model: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - a pretrained model
    return {key: value for key, value in model.state_dict().items() if isinstance(value, torch.Tensor)}


def _last_layer(model: torch.nn.Module, stored: set[str]) -> set[str]:
    """Return the stored names of the last layer that shares no weights; empty if there is none."""
    tied_names = {name for pair in _pairs(model) for name in pair}
    for path, module in reversed(list(model.named_modules())):
        names = {f"{path}.{name}" for name, _ in module.named_parameters(recurse=False)} if path else set()
        if names and names <= stored - tied_names and len(names) < len(stored):
            return names
    return set()


def _pairs(model: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - a pretrained model
    """Return the names of tied weights, as the class declares them, or else of the head that the configuration ties."""
    declared = getattr(model, "all_tied_weights_keys", None)
    if declared and isinstance(declared, dict):
        return list(declared.items())
    config = getattr(model, "config", None)
    wants = getattr(config, _TIES) if hasattr(config, _TIES) else model_traits.setting(model, _TIES)
    if wants is not True:
        return []
    try:
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return []
    paths = {id(module): path for path, module in model.named_modules() if getattr(module, "weight", None) is not None}
    if not {id(head), id(embedding)} <= paths.keys() or head.weight.shape != embedding.weight.shape:
        return []  # they could not be one tensor
    return [(f"{paths[id(head)]}.weight", f"{paths[id(embedding)]}.weight")]


def _is_one(model: torch.nn.Module, target: str, source: str) -> bool:
    named = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    one, other = named.get(target), named.get(source)
    return one is not None and other is not None and one.data_ptr() == other.data_ptr()
