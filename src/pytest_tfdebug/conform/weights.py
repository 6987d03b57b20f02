"""The promise about weights: a model loads its own checkpoint clean."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.conform.subject import broken
from pytest_tfdebug.errors import silenced
from pytest_tfdebug.invariance.checks.base import Outcome
from pytest_tfdebug.invariance.checks.same_call import load_record, told_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.conform.subject import Subject

_NO_PRETRAINED = "it has no save_pretrained and from_pretrained: it is no transformers model"


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


@contextmanager
def _saved(subject: Subject) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        subject.model.save_pretrained(folder)
        yield Path(folder)


def _loaded(subject: Subject, folder: Path, **how: bool) -> Any:  # noqa: ANN401 - a pretrained model
    """Load a model, without the log messages of transformers: the verdict says the same."""
    with silenced():
        return subject.model_class.from_pretrained(folder, **how)  # type: ignore[attr-defined] # a pretrained model
