"""The result of holding one model to one promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_tfdebug.records import Culprit


@dataclass(frozen=True)
class PromiseFinding:
    """What was found when a model was held to a promise.

    Args:
        failure: The report of a broken promise; empty if it holds.
        absent: Why the promise does not apply, in a sentence; empty if it does.
        culprit: Where it is broken; None if that is not known.
        diagnosis: What is probably wrong, in a sentence.
        note: What is worth saying although the promise holds.
    """

    failure: str = ""
    absent: str = ""
    culprit: Culprit | None = None
    diagnosis: str = ""
    note: str = ""

    @classmethod
    def broken(
        cls, told: str, details: Iterable[str], diagnosis: str, culprit: Culprit | None = None
    ) -> PromiseFinding:
        """Return the finding of a broken promise: a sentence, its details in lines, and what is probably wrong."""
        text = "\n  ".join([told, *details, f"Diagnosis: {diagnosis}"])
        return cls(text, culprit=culprit, diagnosis=diagnosis)
