"""The promises of a model class: the name of each, the models that it binds, and how it is checked."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.conform import answers, weights
from pytest_tfdebug.conform.judge import PromiseFinding
from pytest_tfdebug.errors import ActivationOverflowError
from pytest_tfdebug.invariance.api import CHECKS
from pytest_tfdebug.invariance.checks.settings import Settings
from pytest_tfdebug.overflow.guard import overflow_guard
from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.tracing.record.sites import is_library
from pytest_tfdebug.tracing.record.state import preserved

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.conform.subject import Subject
    from pytest_tfdebug.invariance.checks.base import Check


@dataclass(frozen=True)
class Promise:
    """One promise."""

    name: str  # its name in `varies=`, in the table and in the name of its test
    text: str  # what is promised, as the end of "the model ..."
    run: Callable[[Subject], PromiseFinding]  # checks it
    # returns why it does not bind a model; empty if it does, or if only the check can tell
    applies: Callable[[Subject], str] = lambda _: ""
    # the check repeats the call with other shapes. If the model raises then, the promise does not apply: some models
    # take images that belong to a whole batch. A model that raises in any other check breaks the promise
    has_other_shapes: bool = False

    def find(self, subject: Subject) -> PromiseFinding:
        """Hold a model to the promise; a model that raises breaks it."""
        subject.call  # noqa: B018 - fail early if the model cannot be called
        absent = self.applies(subject)
        if absent:
            return PromiseFinding(absent=absent)
        try:
            return self.run(subject)
        except Exception as error:
            text = redact(f"{type(error).__name__}: {error}").partition("\n")[0]
            frames = [*traceback.walk_tb(error.__traceback__)]
            if self.has_other_shapes:
                if not any(isinstance(frame.f_locals.get("self"), torch.nn.Module) for frame, _ in frames):
                    raise  # no module was running, so it is not the model that refuses
                return PromiseFinding(absent=f"it cannot be asked that way ({text})")
            places = [SourceRange(frame.f_code.co_filename, line, line) for frame, line in frames]
            own = next((place for place in reversed(places) if not is_library(place.file)), "")
            return PromiseFinding(f"{subject.name} raises when it is asked for {self.name}: {text}\n  at {own}")


def _check(kind: type[Check], subject: Subject) -> PromiseFinding:
    """Repeat the plain call, as a marker or an ``assert_`` function does; what float64 does not show is rounding."""
    outcome = kind.run(subject.call, Settings(), rounding=inf)
    if outcome.is_beyond:  # the weights are not the model's own
        return PromiseFinding(note=f"with these weights {outcome.diagnosis}")
    if outcome.text:
        return PromiseFinding(outcome.failure, culprit=outcome.culprit, diagnosis=outcome.diagnosis)
    if not outcome.repeats:
        return PromiseFinding(absent="; ".join(dict.fromkeys(outcome.skipped)))
    return PromiseFinding(note="; ".join(outcome.notes))


def _repeats(name: str) -> Callable[[Subject], PromiseFinding]:
    return partial(_check, CHECKS[name])


def _overflow(subject: Subject) -> PromiseFinding:
    model = subject.model
    try:
        with preserved(model), torch.no_grad(), overflow_guard(model):
            torch.manual_seed(0)
            model(**subject.call.inputs)
    except ActivationOverflowError as error:
        told = f"{subject.name} gives a value that is not finite.\n{error}"
        return PromiseFinding(told, diagnosis=f"arises in {error.fault.owner}" if error.fault is not None else "")
    return PromiseFinding()


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
    Promise("init", "keeps loaded weights when it initialises new ones", weights.kept_by_init, weights.saves),
    Promise("tied", "ties the weights that its configuration ties", weights.tied, weights.ties),
    Promise("dtype", "stays close to its answer in bfloat16 and float16", _repeats("dtype")),
    Promise("overflow", "gives finite values", _overflow),
    Promise("inputs", "leaves what it is given as it is", answers.leaves_inputs),
    Promise("gradients", "gives a gradient to each parameter that it uses", answers.each_has_gradient),
    Promise("golden", "gives what its golden holds", answers.agrees_with_golden, answers.has_golden),
)
