"""The promises of a model class, the verdict on each, and one test for each, also beside tests of transformers.

A model that is declared to vary by design has to vary.
"""

from __future__ import annotations

import sys
import traceback
import unittest
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import torch

from pytest_tfdebug.check_record import CheckRecord, PromiseVerdict
from pytest_tfdebug.conform import accumulation, answers, checkpointing, weights
from pytest_tfdebug.conform.subject import Subject, prepared
from pytest_tfdebug.errors import ActivationOverflowError, ConformanceError, TFDebugError
from pytest_tfdebug.invariance.api import CHECKS
from pytest_tfdebug.invariance.calls.model_traits import default_inputs
from pytest_tfdebug.invariance.checks.base import Outcome, Settings
from pytest_tfdebug.options import CONFORMANCE
from pytest_tfdebug.overflow.guard import overflow_guard
from pytest_tfdebug.parity.record import culprit_record
from pytest_tfdebug.publish.reports import note, raised, wants_details
from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.running import RUNNING, as_text
from pytest_tfdebug.tracing.record.sites import is_library
from pytest_tfdebug.tracing.record.state import preserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_tfdebug.invariance.checks.base import Check


@dataclass(frozen=True)
class Promise:
    """One promise."""

    name: str  # its name in `varies=`, in the table and in the name of its test
    text: str  # what is promised, as the end of "the model ..."
    run: Callable[[Subject], Outcome]  # checks it
    # returns why it does not bind a model; empty if it does, or if only the check can tell
    applies: Callable[[Subject], str] = lambda _: ""
    # the check repeats the call with other shapes. If the model raises then, the promise does not apply: some models
    # take images that belong to a whole batch. A model that raises in any other check breaks the promise
    has_other_shapes: bool = False

    def find(self, subject: Subject) -> Outcome:
        """Hold a model to the promise; a model that raises breaks it."""
        subject.call  # noqa: B018 - fail early if the model cannot be called
        absent = self.applies(subject)
        if absent:
            return Outcome(skipped=[absent])
        try:
            return self.run(subject)
        except Exception as error:
            text = redact(f"{type(error).__name__}: {error}").partition("\n")[0]
            frames = [*traceback.walk_tb(error.__traceback__)]
            if self.has_other_shapes:
                if not any(isinstance(frame.f_locals.get("self"), torch.nn.Module) for frame, _ in frames):
                    raise  # no module was running, so it is not the model that refuses
                return Outcome(skipped=[f"it cannot be run that way ({text})"])
            places = [SourceRange(frame.f_code.co_filename, line, line) for frame, line in frames]
            own = next((place for place in reversed(places) if not is_library(place.file)), "")
            return Outcome(text=f"{subject.name} raises when it is asked for {self.name}: {text}\n  at {own}")


def _check(kind: type[Check], subject: Subject) -> Outcome:
    """Repeat the plain call, as a marker or an ``assert_`` function does; what float64 does not show is rounding."""
    outcome = kind.run(subject.named_call, Settings(), rounding=inf)
    if outcome.is_beyond:  # the weights are not the model's own
        return Outcome(1, notes=[f"with these weights {outcome.diagnosis}"])
    return outcome


def _repeats(name: str) -> Callable[[Subject], Outcome]:
    return partial(_check, CHECKS[name])


def _overflow(subject: Subject) -> Outcome:
    model = subject.model
    try:
        with preserved(model), torch.no_grad(), overflow_guard(model):
            torch.manual_seed(0)
            model(**subject.call.inputs)
    except ActivationOverflowError as error:
        told = f"{subject.name} gives a value that is not finite.\n{error}"
        return Outcome(text=told, diagnosis=f"arises in {error.fault.owner}" if error.fault is not None else "")
    return Outcome(1)


PROMISES: tuple[Promise, ...] = (
    Promise("padding", "gives the same answer with and without padding", _repeats("padding"), has_other_shapes=True),
    Promise("batch", "gives each row the answer that it has in its batch", _repeats("batch"), has_other_shapes=True),
    Promise("cache", "decodes to the answer of the full forward", _repeats("cache"), has_other_shapes=True),
    Promise(
        "use_cache", "gives the same answer whether it fills a cache or not", partial(_check, answers.UseCacheCheck)
    ),
    Promise("attention", "gives the same answer under each attention", _repeats("attention")),
    Promise("save_load", "is the same after it was saved and loaded", _repeats("save_load"), weights.saves),
    Promise("clean_load", "loads its own checkpoint without missing weights", weights.clean_load, weights.saves),
    Promise("dtype", "stays close to its answer in bfloat16 and float16", _repeats("dtype")),
    Promise("overflow", "gives finite values", _overflow),
    Promise("inputs", "leaves what it is given as it is", answers.leaves_inputs),
    Promise("gradients", "gives a gradient to each parameter that it uses", answers.each_has_gradient),
    Promise("checkpointing", "trains the same with checkpoints", checkpointing.is_the_same, checkpointing.applies),
    Promise(
        "accumulation",
        "gets from two micro-batches the gradients of the whole",
        accumulation.is_the_same,
        accumulation.applies,
        has_other_shapes=True,
    ),
    Promise("golden", "gives what its golden holds", answers.agrees_with_golden, answers.has_golden),
)

_NAMES = [promise.name for promise in PROMISES]
#: Promise -> class of the model -> why it varies by design.
Varies = dict[str, dict[str, str]]


def declared(varies: Mapping[str, object] | None, classes: Iterable[str], promises: Iterable[str]) -> Varies:
    """Return the declared reasons, each under its promise and class."""
    classes, promises = list(classes), list(promises)
    if varies is not None and not isinstance(varies, Mapping):
        raise TFDebugError(f'varies says why, {{"padding": "it ..."}}; it is {varies!r}.')
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
    verdict = partial(PromiseVerdict, name, promise.name)
    if finding.absent:
        return verdict("does not apply", finding.absent)
    if finding.failure and reason:
        return verdict("varies", reason, culprit)
    if not finding.failure and not reason:
        return verdict("passes", finding.note)
    told = finding.failure or f"{name} is declared to break the promise of {promise.name} ({reason}) and keeps it."
    advice = f"To declare that by design: varies={{{promise.name!r}: {{{name!r}: 'the reason'}}}}"
    if reason:
        advice = f"Take {name} out of varies[{promise.name!r}]."
    raise ConformanceError(f"{told}\n{advice}", verdict("fails", told.partition("\n")[0], culprit), finding)


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


class ConformanceMixin:
    """Adds a test for each promise to a test class of transformers, over its ``all_model_classes``.

    The inputs are those of the model tester, made anew with seeded random numbers, with the real tokens of each row
    side by side and no special token among them that does not stand in every row. Each model class is a sub-test.
    """

    conformance_varies: ClassVar[Mapping[str, object]] = {}  # promise -> class of the model -> why it varies by design

    def conformance_subjects(self) -> Iterator[Subject]:
        """Yield the models that the promises are asked of."""
        yield from prepared(self)

    def _keep(self, promise: Promise) -> None:
        __tracebackhide__ = True
        subjects = list(self.conformance_subjects())
        if not subjects:
            raise TFDebugError(f"{type(self).__name__} has no model class to test: set all_model_classes.")
        varies = declared(self.conformance_varies, (subject.name for subject in subjects), _NAMES).get(promise.name, {})
        absent, count = [], len(subjects)
        while subjects:
            subject = subjects.pop(0)  # its model is let go with it
            with self.subTest(model=subject.name):  # type: ignore[attr-defined] # of a TestCase
                try:
                    verdict = judge(subject, promise, varies.get(subject.name, ""))
                except ConformanceError as error:
                    tell(error.verdict, error)
                    raise
                except TFDebugError as error:  # of a user's mistake the sentence says all
                    raise error.with_traceback(None) from error.__cause__
                tell(verdict)
                absent += [verdict.text] if verdict.state == "does not apply" else []
        if len(absent) == count:
            # After subtests a SkipTest is lost on Python 3.10: pytest then counts the test as passed.
            skip = unittest.SkipTest if RUNNING.item is None else pytest.skip.Exception
            raise skip(f"{promise.name} does not apply: {'; '.join(dict.fromkeys(absent))}")


def _test(promise: Promise) -> Callable[[ConformanceMixin], None]:
    def test(self: ConformanceMixin) -> None:
        __tracebackhide__ = True
        self._keep(promise)

    test.__name__ = f"test_conformance_{promise.name}"
    test.__qualname__ = f"{ConformanceMixin.__name__}.{test.__name__}"
    test.__doc__ = f"The model {promise.text}."
    return test


for _promise in PROMISES:
    setattr(ConformanceMixin, f"test_conformance_{_promise.name}", _test(_promise))


def conformance(
    model_class: type,
    config: object,
    *,
    inputs: Mapping[str, Any] | None = None,
    varies: Mapping[str, object] | None = None,
) -> type[unittest.TestCase]:
    """Return a test class with one test for each promise of a model class.

    The model is built from the configuration with seeded random numbers, so the configuration should be small.

    Args:
        model_class: The class, called with the configuration alone.
        config: The configuration.
        inputs: What transformers calls the inputs of a forward that has names of its own, as for the markers,
            ``{"tokens": "input_ids", "mask": "attention_mask"}``; or keyword inputs themselves, ``{"pixels": tensor}``.
            By default made from the configuration and the forward's parameters.
        varies: Promise -> why the model does not keep it by design. Its test then fails once it does keep it.

    Returns:
        A ``unittest.TestCase``: give it a name in a test file.

    Raises:
        TFDebugError: If ``varies`` names a promise that does not exist, or gives no reason.

    Example:
        >>> TestMyModel = pytest_tfdebug.conformance(MyForCausalLM, MyConfig(hidden_size=32, num_hidden_layers=2))
    """
    if not isinstance(model_class, type):
        raise TFDebugError(f"conformance takes a model class and its configuration, not {model_class!r:.80}.")
    given = declared(varies, [model_class.__name__], _NAMES)

    names = {name: known for name, known in (inputs or {}).items() if isinstance(known, str)}
    values = {name: value for name, value in (inputs or {}).items() if name not in names}
    are_made = inputs is None or bool(names)

    def subjects(_: object) -> Iterator[Subject]:
        made = partial(default_inputs, names=names, given=values) if are_made else values
        yield Subject(model_class, config, made, names)

    caller = sys._getframe(1).f_globals.get("__name__", __name__)  # noqa: SLF001 - the module that gets the class
    namespace = {"conformance_subjects": subjects, "conformance_varies": given, "__module__": caller}
    return type(f"Test{model_class.__name__}", (ConformanceMixin, unittest.TestCase), namespace)
