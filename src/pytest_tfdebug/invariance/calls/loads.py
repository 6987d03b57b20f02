"""What ``from_pretrained`` loads, and which weights do not fit."""

from __future__ import annotations

import functools
import re
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.check_record import LoadRecord
from pytest_tfdebug.publish.note import calling_line
from pytest_tfdebug.triage import text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_tfdebug.records import SourceRange

#: Lists of a load that is not clean: the name in the record, that of transformers, and what became of the weights.
_KINDS = {
    "missing": ("missing_keys", "random now"),
    "unexpected": ("unexpected_keys", "left out"),
    "mismatched": ("mismatched_keys", "random now"),
}


class Load(NamedTuple):
    """One call of ``from_pretrained``: what did not fit, and the line of the call."""

    record: LoadRecord
    at: SourceRange | None

    @property
    def is_clean(self) -> bool:
        """Whether every weight of the checkpoint went into the model and every weight of the model came from it."""
        return not told_keys(self.record)


def load_record(model: str, source: str, info: Mapping[str, Any]) -> LoadRecord:
    """Return what did not fit by ``from_pretrained(output_loading_info=True)``, mismatched weights with both shapes."""
    lists = (tuple(sorted(map(_named, info.get(name) or ()))) for name, _ in _KINDS.values())
    return LoadRecord(model, source, *lists)


def without(record: LoadRecord, allowed: tuple[str, ...]) -> LoadRecord:
    """Return a load without the keys in which one of the patterns is found."""

    def kept(keys: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(key for key in keys if not any(re.search(pattern, key) for pattern in allowed))

    return replace(
        record,
        missing=kept(record.missing),
        unexpected=kept(record.unexpected),
        mismatched=kept(record.mismatched),
    )


def told_keys(record: LoadRecord) -> list[str]:
    """Return a line for each list of weights that did not fit; none for a clean load."""
    lists = ((name, became, list(getattr(record, name))) for name, (_, became) in _KINDS.items())
    return [f"{name}, {became}: {text.listing(keys)}" for name, became, keys in lists if keys]


def _named(entry: str | tuple[str, Any, Any]) -> str:
    """Name a weight, a mismatched one with both shapes; transformers 4 gives the name alone."""
    if isinstance(entry, str):
        return entry
    key, theirs, ours = entry
    return f"{key} (checkpoint {tuple(theirs)}, model {tuple(ours)})"


@contextmanager
def recorded(loads: list[Load]) -> Iterator[None]:
    """Append to a list what every ``PreTrainedModel.from_pretrained`` loads in the block."""
    cls = import_module("transformers.modeling_utils").PreTrainedModel
    original = vars(cls)["from_pretrained"]

    @functools.wraps(original.__func__)
    def from_pretrained(kind: type, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - it passes on what it gets
        __tracebackhide__ = True
        is_asked = kwargs.pop("output_loading_info", False)
        model, info = original.__func__(kind, *args, output_loading_info=True, **kwargs)
        source = args[0] if args else kwargs.get("pretrained_model_name_or_path")
        loads.append(Load(load_record(kind.__name__, str(source), info), calling_line()))
        return (model, info) if is_asked else model

    cls.from_pretrained = classmethod(from_pretrained)
    try:
        yield
    finally:
        cls.from_pretrained = original
