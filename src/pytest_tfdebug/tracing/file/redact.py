"""The text of string inputs, which a trace keeps beside the tensors: which there are, and a trace without them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.tracing.record.skeleton import ends, with_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.records import Call
    from pytest_tfdebug.tracing.trace import Trace

#: Stands for a text that was left out.
REDACTED = "'<redacted>'"
_QUOTES = ("'", '"')


def string_inputs(trace: Trace) -> dict[str, list[str]]:
    """Return the texts among a model's inputs, as Python writes them, by the name of the input."""
    found: dict[str, list[str]] = {}
    for call in trace.calls:
        if call.parent is None:
            for name, bare in _inputs(call):
                texts = [text for text in map(str, ends(bare)) if text.startswith(_QUOTES) and text != REDACTED]
                if texts:
                    found.setdefault(name, []).extend(texts)
    return found


def redacted(trace: Trace, names: bool | tuple[str, ...]) -> Trace:  # noqa: FBT001 - what a user gave
    """Return a trace without the text of string inputs, wherever a call was given or returned it."""
    held = string_inputs(trace)
    given = {name for call in trace.calls if call.parent is None for name, _ in _inputs(call)}
    told = ", ".join(map(repr, sorted(given))) or "nothing by name"
    for name in () if names is True else names or ():
        if name not in given:
            raise TFDebugError(f"redact={name!r} is no input of {trace.model_class}: it was given {told}.")
    chosen = held if names is True else {name: held.get(name, []) for name in names or ()}
    secrets = {text[1:-1] for texts in chosen.values() for text in texts if len(text) > 2}  # noqa: PLR2004 - the quotes
    if not secrets:
        return trace

    def without(text: str) -> str:
        return REDACTED if any(secret in text for secret in secrets) else text

    calls = [
        replace(call, skeleton={key: with_texts(bare, without) for key, bare in call.skeleton.items()})
        for call in trace.calls
    ]
    return replace(trace, calls=calls)


def _inputs(call: Call) -> Iterator[tuple[str, Any]]:
    args, kwargs = call.skeleton.get("args", ()), call.skeleton.get("kwargs", {})
    names = [*call.parameters, *(f"[{place}]" for place in range(len(call.parameters), len(args)))]
    yield from zip(names, args, strict=False)
    yield from (kwargs.get("items", {}) if isinstance(kwargs, dict) else {}).items()
