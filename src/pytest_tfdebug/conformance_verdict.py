"""A verdict on one model and one promise, as plain data: it travels with the report of its test."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pytest_tfdebug.options import CONFORMANCE
from pytest_tfdebug.workers import as_text, read

State = Literal["passes", "varies", "does not apply", "fails"]


class PromiseVerdict(NamedTuple):
    """What a promise came to.

    Args:
        model: Class of the model.
        promise: Name of the promise.
        state: ``passes``; ``varies`` by design, as declared; ``does not apply``; ``fails``.
        text: Why it varies or does not apply, or the first line of the failure, or what is worth saying of a pass.
        culprit: Module path of the culprit of a failure; empty where that is not known.
    """

    model: str
    promise: str
    state: State
    text: str = ""
    culprit: str = ""

    def to_property(self) -> tuple[str, str]:
        """Return the verdict as a property of its test."""
        return CONFORMANCE, as_text(self)

    @classmethod
    def from_property(cls, value: str) -> PromiseVerdict:
        """Return the verdict that a property holds."""
        return read(value, cls)
