"""What was found of a promise, the verdict on it, and how that is told to the running test.

A model that is declared to vary by design has to vary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.check_record import CheckRecord, PromiseVerdict
from pytest_tfdebug.errors import ConformanceError, TFDebugError
from pytest_tfdebug.options import CONFORMANCE
from pytest_tfdebug.parity.record.check import culprit_record
from pytest_tfdebug.publish.note import note, raised, wants_details
from pytest_tfdebug.running import RUNNING
from pytest_tfdebug.workers import as_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_tfdebug.conform.mixin import Promise
    from pytest_tfdebug.conform.subject import Subject
    from pytest_tfdebug.records import Culprit

#: Promise -> class of the model -> why it varies by design.
Varies = dict[str, dict[str, str]]


@dataclass(frozen=True)
class PromiseFinding:
    """What was found when a model was held to a promise."""

    failure: str = ""  # the report of a broken promise; empty if it holds
    absent: str = ""  # why the promise does not apply, in a sentence; empty if it does
    culprit: Culprit | None = None  # where it is broken; None if that is not known
    diagnosis: str = ""  # what is probably wrong, in a sentence
    note: str = ""  # what is worth saying although the promise holds

    @classmethod
    def broken(
        cls, told: str, details: Iterable[str], diagnosis: str, culprit: Culprit | None = None
    ) -> PromiseFinding:
        """Return the finding of a broken promise: a sentence, its details in lines, and what is probably wrong."""
        text = "\n  ".join([told, *details, f"Diagnosis: {diagnosis}"])
        return cls(text, culprit=culprit, diagnosis=diagnosis)


def declared(varies: Mapping[str, object] | None, classes: Iterable[str], promises: Iterable[str]) -> Varies:
    """Return the declared reasons, each under its promise and class."""
    classes, promises = list(classes), list(promises)
    found: Varies = {}
    for promise, given in (varies or {}).items():
        if promise not in promises:
            raise TFDebugError(
                f"varies names {promise!r}, which is no promise; the promises are {', '.join(promises)}."
            )
        reasons: dict[Any, Any] = given if isinstance(given, dict) else dict.fromkeys(classes, given)
        for name, reason in reasons.items():
            if name not in classes:
                raise TFDebugError(f"varies[{promise!r}] names {name!r}; the classes are {', '.join(classes)}.")
            if not isinstance(reason, str) or not reason.strip():
                raise TFDebugError(f"varies[{promise!r}] gives no reason for {name}: say why it varies by design.")
        found[promise] = dict(reasons)
    return found


def judge(subject: Subject, promise: Promise, reason: str = "") -> PromiseVerdict:
    """Hold a model to a promise."""
    finding, name = promise.find(subject), subject.name
    culprit = finding.culprit.path if finding.culprit is not None else ""
    if finding.absent:
        return PromiseVerdict(name, promise.name, "does not apply", finding.absent)
    if reason and finding.failure:
        return PromiseVerdict(name, promise.name, "varies", reason, culprit)
    if reason:
        told = f"{name} is declared to break the promise of {promise.name} ({reason}) and keeps it."
        verdict = PromiseVerdict(name, promise.name, "fails", told)
        raise ConformanceError(f"{told}\nTake {name} out of varies[{promise.name!r}].", verdict, finding)
    if finding.failure:
        verdict = PromiseVerdict(name, promise.name, "fails", finding.failure.partition("\n")[0], culprit)
        told = f"To declare that by design: varies={{{promise.name!r}: {{{name!r}: 'the reason'}}}}"
        raise ConformanceError(f"{finding.failure}\n{told}", verdict, finding)
    return PromiseVerdict(name, promise.name, "passes", finding.note)


def tell(verdict: PromiseVerdict, error: ConformanceError | None = None) -> None:
    """Hand a verdict to the running test; do nothing outside pytest."""
    item = RUNNING.item
    if item is None:
        return
    item.user_properties.append((CONFORMANCE, as_text(verdict)))
    if verdict.state == "does not apply":
        return
    headline = f"{verdict.model}, {verdict.promise}: {verdict.state}" + (f" ({verdict.text})" if verdict.text else "")
    name = f"{verdict.model} {verdict.promise}"
    record = CheckRecord(item.nodeid, "conformance", "passed", headline, name=name, model=verdict.model)
    if error is not None:
        raised(item, error, None)
        record = replace(
            record,
            status="failed",
            headline=verdict.text,
            culprit=culprit_record(error.culprit),
            diagnosis=error.finding.diagnosis,
            text=str(error) if wants_details(item.config) else "",
        )
    note(item, record)
