"""What every check takes and does: repeat a call in another way, compare the outputs, and report the first difference.

A check says how a call is repeated (:meth:`Check.repetitions`); what follows is the same for all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from pytest_tfdebug.errors import in_a_line, second_look
from pytest_tfdebug.invariance.calls.alignment import Alignment
from pytest_tfdebug.invariance.calls.sequences import main_input, token_sequence
from pytest_tfdebug.invariance.compare.change_text import change_text
from pytest_tfdebug.invariance.compare.culprit import Located, locate, raising_place
from pytest_tfdebug.invariance.compare.outputs import Mismatch, NothingToCompareError, first_mismatch
from pytest_tfdebug.marker_arguments import Arguments, argument, is_number, is_whole_number, one_of, several
from pytest_tfdebug.parity.tensors.metrics import relative_l2
from pytest_tfdebug.parity.tensors.tolerance import Tolerance, Tolerances, by_floor
from pytest_tfdebug.report.check_text import CheckText
from pytest_tfdebug.tensors import dtype_name
from pytest_tfdebug.tracing.record.modules import bare
from pytest_tfdebug.tracing.values.precision import in_float64
from pytest_tfdebug.tracing.values.widening import to_float32, widened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.invariance.calls.observed_call import Leaves, ObservedCall
    from pytest_tfdebug.invariance.calls.repetition import Repetition
    from pytest_tfdebug.records import Culprit

    #: What gives one of two answers: named inputs and a model -> its output.
    Answer = Callable[[Mapping[str, Any], torch.nn.Module], Leaves]


#: float32: transformers' own batching and left-padding tests allow 1e-5 (``test_modeling_common.py``). float16 and
#: bfloat16 are never exactly invariant (transformers#25420): 1e-3 and 1e-2. float64: 1e-6, for models compute norms
#: and softmax in float32 all the same.
#: The largest of many elements exceeds these in deep models: the noise is twice the change that another padded length
#: makes in all-MiniLM-L6-v2 and in random eight-layer models.
TOLERANCES = {
    "float64": Tolerance(1e-6, 1e-6, scaled=True, noise=1e-6),
    "float32": Tolerance(1e-5, 1e-5, scaled=True, noise=2e-6),
    "float16": Tolerance(1e-3, 1e-3, scaled=True, noise=2e-3),
    "bfloat16": Tolerance(1e-2, 1e-2, scaled=True, noise=1.6e-2),
}
#: Greatest relative L2 error of an output: about five times what eight random layers at a scale of 1 show (float16
#: 1e-3, bfloat16 1e-2), and far below that of a wrong cast.
BOUNDS = {"float16": 1e-2, "bfloat16": 5e-2}


def _problem(pattern: str) -> str:
    """Return what is wrong with a regular expression; empty if nothing is."""
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        return f"allow={pattern!r} is not a regular expression ({error}); it is searched in each key."
    return ""


def _are_names(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for pair in value.items() for name in pair)


@dataclass(frozen=True, kw_only=True)
class Settings(Arguments):
    """What a check can be given; which of these one takes is in its ``options``."""

    rtol: float | None = argument(None, is_number, "a number >= 0")  # relative tolerance; by dtype when None
    # absolute tolerance in the tensor's units; by dtype when None
    atol: float | None = argument(None, is_number, "a number >= 0")
    # what transformers calls the inputs of a forward that has names of its own, ``{"tokens": "input_ids", "mask":
    # "attention_mask"}``
    inputs: Mapping[str, str] | None = argument(
        None,
        _are_names,
        "a dict of names, as in {'tokens': 'input_ids', 'mask': 'attention_mask'}",
        lambda value: dict(value) if isinstance(value, Mapping) else value,
    )
    # where to pad: ``"right"``, ``"left"``, ``"both"``, or ``"auto"``, which does not pad models on the left that never
    # are in use: see :func:`pytest_tfdebug.invariance.calls.padding_variants.left_padding_refusal`.
    side: str = one_of("auto", "auto", "right", "left", "both")
    # numbers of pads to add; None for 1, 7 and as many as make the padded length the next multiple of 32 and one more
    lengths: tuple[int, ...] | None = argument(
        None,
        lambda value: bool(value) and all(is_whole_number(item, 1) for item in value),
        "a number of pads >= 1 or several",
        several,
    )
    # token at the new positions: ``"pad"``, ``"random"`` or an id
    filler: str | int = argument(
        "pad", lambda value: value in ("pad", "random") or is_whole_number(value), "one of 'pad', 'random', a token id"
    )
    # ``"auto"``, ``"never"`` or ``"always"`` give the forward position ids built from the mask
    position_ids: str = one_of("auto", "auto", "never", "always")
    # ``"same"``, or ``"varies"`` for a model that is not invariant to padding by design
    expect: str = one_of("same", "same", "varies")
    reason: str | None = argument(None, lambda value: isinstance(value, str), "a text")  # why it is not
    # of attention, to compare with ``"eager"``; None for every one that the model supports, that is installed, and that
    # runs on the model's device
    implementations: tuple[str, ...] | None = argument(
        None,
        lambda value: bool(value) and all(isinstance(name, str) for name in value),
        "a name or several, as in ('sdpa',)",
        several,
    )
    # ``"bfloat16"``, ``"float16"`` or both
    dtypes: tuple[str, ...] = argument(
        ("bfloat16", "float16"),
        lambda value: bool(value) and all(name in BOUNDS for name in value),
        f"one of {', '.join(map(repr, BOUNDS))}",
        lambda value: tuple(str(name).removeprefix("torch.") for name in several(value)),
    )
    # greatest relative L2 error of an output in these, ``norm(actual - expected) / norm(expected)``; None for 0.01 in
    # float16 and 0.05 in bfloat16
    bound: float | None = argument(None, lambda value: is_number(value) and value > 0, "a number > 0")
    # regular expressions that are searched in the name of each weight; one in which they are found may be missing,
    # unexpected or mismatched
    allow: tuple[str, ...] = argument((), lambda _: True, "a regular expression or several", several)

    def contradictions(self) -> list[str]:
        """Return what is wrong with values that each make sense, in sentences."""
        wrong = [problem for problem in map(_problem, self.allow) if problem]
        if self.expect == "varies" and not self.reason:
            wrong.append("expect='varies' needs reason=: say why the model is not invariant to padding.")
        return wrong


#: Relative L2 error below which a difference may come from rounding.
_SMALL = 1e-4
#: Share of what is allowed above which a difference of float32 is measured in float64; rounding is a tenth.
_NEAR = 0.75
#: What may differ in float32, for the same tensors in float64.
_IN_FLOAT64 = Tolerances(overrides=(("float64", TOLERANCES["float32"]),))
#: Options of a check that compares elements.
COMMON = ("rtol", "atol", "inputs")


@dataclass
class Outcome:
    """What a check of one call, of all calls of a test, or of a promise, found."""

    repeats: int = 0  # number of forwards that were repeated and compared
    text: CheckText | str = ""  # the report of the failure; empty when everything holds
    culprit: Culprit | None = None  # where the failure arises; None where that is not known
    call: ObservedCall | None = None  # the call whose answer changed
    located: Located | None = None  # both forwards that show it; None where they were not recorded
    diagnosis: str = ""  # what is probably wrong, in a sentence
    # the float32 answer has values that the other dtype cannot hold: with other weights it need not
    is_beyond: bool = False
    skipped: list[str] = field(default_factory=list)  # what could not be repeated and why, in sentences
    notes: list[str] = field(default_factory=list)  # what is worth saying although everything holds, in sentences

    @property
    def failure(self) -> str:
        """The report of the failure as text."""
        return str(self.text)

    @property
    def absent(self) -> str:
        """Why nothing was checked; empty where something was."""
        return "" if self.text or self.repeats else "; ".join(dict.fromkeys(self.skipped))

    @property
    def note(self) -> str:
        """What is worth saying, in a line."""
        return "; ".join(self.notes)


class Check:
    """One check of one observed call."""

    options: ClassVar[tuple[str, ...]] = COMMON  # which settings it takes
    needs: ClassVar[str]  # what a call must be like to be repeated, for a test that makes no such call
    verdict: ClassVar[str]  # what a failure says of the model, "depends on its batch"
    is_of_values: ClassVar[bool] = True  # whether a model in half precision is looked at in float32, too
    randomness: ClassVar[str] = "draws random numbers that change its answer"

    def __init__(self, call: ObservedCall, settings: Settings, rounding: float = _SMALL) -> None:
        self.call = call
        self.settings = settings
        self.rounding = rounding  # relative L2 error below which a difference is measured in float64
        self.model: Any = bare(call.model)
        self.tolerances = Tolerances(settings.rtol, settings.atol, tuple(TOLERANCES.items()))
        self.outcome = Outcome()

    @classmethod
    def run(cls, call: ObservedCall, settings: Settings, rounding: float = _SMALL) -> Outcome:
        """Check a call, in the state in which it was made; everything is left as it was.

        That of a model in half precision is checked in float32, where rounding hides nothing and is taken for nothing,
        and then as it is, within some floors of its own.
        """
        wider = to_float32(call.model) if cls.is_of_values and (settings.rtol, settings.atol) == (None, None) else {}
        if not wider:
            return cls(call, settings, rounding).finished()
        with widened(call.model, ((), call.inputs), wider) as ((_, inputs), casts):
            check = cls(replace(call, inputs=inputs), settings, rounding)
            outcome = check.finished()
            outcome.notes += casts.notes if outcome.repeats else []
            if isinstance(outcome.text, CheckText):
                outcome.text = replace(outcome.text, circumstances=(*outcome.text.circumstances, *casts.notes))
            wide = check.expected if outcome.repeats and not outcome.text else {}
        if not wide:
            return outcome
        low = cls(call, settings, rounding)
        low.tolerances = Tolerances(overrides=tuple(low._by_floors(wide, list(map(dtype_name, wider)))))
        found = low.finished()
        if not found.text:
            return outcome
        found.diagnosis = (
            f"in float32 the answer is the same: {found.diagnosis or 'something rounds more than the rest'}"
        )
        return found

    def finished(self) -> Outcome:
        """Make the check, in the state in which the call was made."""
        with self.call.restored():
            self.check()
        return self.outcome

    def _by_floors(self, wide: Leaves, dtypes: list[str]) -> Iterator[tuple[str, Tolerance]]:
        """Yield what an answer in half precision may be off by: some floors, how far it is from that in float32."""
        with self.call.restored():
            pairs = [(self.expected[path], tensor) for path, tensor in wide.items() if path in self.expected]
        floors = [
            relative_l2(*pair) for pair in pairs if pair[0].shape == pair[1].shape and pair[0].is_floating_point()
        ]
        floor = max(floors, default=0.0)
        yield from ((dtype, by_floor(floor, dtype)) for dtype in dtypes)

    def check(self) -> None:
        """Repeat the call in every way, up to the first that gives another answer."""
        found = self.first(self.repetitions())
        if found is not None:
            self.fail(*found)

    def first(self, ways: Iterator[Repetition]) -> tuple[Repetition, Mismatch] | None:
        """Return the first way in which the call raises or gives another answer."""
        return next(((made, found) for made in ways if (found := self.attempt(made)) is not None), None)

    def repetitions(self) -> Iterator[Repetition]:
        """Yield the ways in which the call is repeated."""
        raise NotImplementedError

    @cached_property
    def expected(self) -> Leaves:
        """The answer to the test's own inputs."""
        return self.call.leaves(self.call.inputs)

    @cached_property
    def unpadded(self) -> Alignment:
        """The alignment of the call with one of equal shapes: only the test's own real tokens count."""
        sequence = token_sequence(self.call)
        if sequence is not None and sequence.axis == 1:
            return Alignment(sequence.length, 0, sequence.length, sequence.batch, mask=sequence.mask)
        main = main_input(self.call)
        return Alignment(1, 0, 1, main[1].shape[0] if main else 1)

    def skip(self, reason: str) -> None:
        """Note why something was not repeated or compared."""
        self.outcome.skipped.append(reason)

    def cannot_ask(self, label: str, mismatch: Mismatch) -> None:
        """Note that the model raises when it is asked in some way."""
        self.skip(f"{self.call.name} cannot be run that way: {label} ({mismatch.error})")

    def outputs(self, made: Repetition) -> tuple[Leaves, Leaves]:
        """Return the outputs of both calls of a repetition; the test's own call is made once for all of them."""
        expected, actual = self._answers(made)
        return (
            self.expected if made.recorded == "expected" else expected(made.expected_inputs, self.model),
            self.expected if made.recorded == "actual" else actual(made.inputs, made.model or self.model),
        )

    def attempt(self, made: Repetition, **how: bool) -> Mismatch | None:
        """Make a repetition and compare the answers; whatever the model raises is a finding too."""
        try:
            outputs = self.outputs(made)
        except Exception as error:  # noqa: BLE001 - every model raises in its own way
            return self.raised(error, made.model)
        return self.compare(made, outputs, None, **how)

    def _answers(self, made: Repetition) -> tuple[Answer, Answer]:
        def answer(inputs: Mapping[str, Any], model: torch.nn.Module, side: int) -> Leaves:
            with made.within[side](model):
                return self.call.leaves(inputs, model)

        return partial(answer, side=0), partial(answer, side=1)

    def compare(
        self,
        made: Repetition,
        outputs: tuple[Leaves, Leaves],
        answers: tuple[Answer, Answer] | None = None,
        **how: bool,
    ) -> Mismatch | None:
        """Compare two outputs. If they have nothing to compare, that is noted and is no failure.

        Kernels round, and each machine's do it in their own way. So a small difference of float32 that is near what is
        allowed, or above it, is measured in float64, where every machine finds the same.
        """
        expected, actual = outputs
        try:
            near = first_mismatch(expected, actual, made.alignment, self.tolerances.times(_NEAR), **how)
            mismatch = near and first_mismatch(expected, actual, made.alignment, self.tolerances, **how)
        except NothingToCompareError as error:
            self.skip(f"{made.label}: {error}")
            return None
        self.outcome.repeats += 1
        if near is None or made.model is not None or not self._may_round(mismatch or near):
            return mismatch
        try:
            exact = self._in_float64(made, answers or self._answers(made), **how)
        except Exception:  # noqa: BLE001 - a model that does not run in float64 has shown nothing
            return mismatch
        if exact is not None:
            return mismatch or exact
        if mismatch is not None:
            self.outcome.notes.append(f"{self.call.class_name} magnifies the rounding of float32 ({made.label})")
        return None

    def _in_float64(self, made: Repetition, answers: tuple[Answer, Answer], **how: bool) -> Mismatch | None:
        with in_float64(self.model, ((made.expected_inputs, made.inputs), {})) as (widened, _):
            expected, actual = (answer(each, self.model) for answer, each in zip(answers, widened, strict=True))
        return first_mismatch(expected, actual, made.alignment, _IN_FLOAT64, **how)

    def _may_round(self, mismatch: Mismatch) -> bool:
        """Tell whether a difference may be one of rounding; a tolerance that was asked for holds all the same."""
        metrics = mismatch.leaf.metrics if mismatch.leaf is not None else None
        held = {parameter.dtype for parameter in self.model.parameters() if parameter.is_floating_point()}
        is_small = metrics is not None and metrics.relative_l2 < self.rounding
        return is_small and held == {torch.float32} and (self.settings.rtol, self.settings.atol) == (None, None)

    def raised(self, error: Exception, model: torch.nn.Module | None = None) -> Mismatch:
        """Return an exception of a repeated call as a mismatch, with the line that raised it."""
        return Mismatch(None, error=in_a_line(error), place=raising_place(model or self.model, error))

    def is_refused(self, inputs: Mapping[str, Any]) -> bool:
        """Tell whether the model raises when it is called with some inputs."""
        with suppress(Exception):  # whatever it raises
            self.call.again(inputs)
            return False
        return True

    def is_random(self, *, with_other_numbers: bool = True) -> bool:
        """Tell whether the same call gives another answer each time; if so, note it and count no repetition."""
        call, rng = self.call, self.call.rng
        is_random = False
        try:
            with second_look([]):  # a call that raises the second time says nothing, and what was found stands
                for call.rng in (rng, None) if with_other_numbers else (rng,):
                    other = call.leaves(call.inputs)
                    found = first_mismatch(self.expected, other, self.unpadded, self.tolerances, allows_nan=True)
                    is_random = is_random or found is not None
        finally:
            call.rng = rng
        if not is_random:
            return False
        self.outcome.repeats = 0
        self.skip(f"{call.name} {self.randomness}, as with dropout in training mode: call model.eval() first")
        return True

    def fail(self, made: Repetition, mismatch: Mismatch) -> None:
        """Report what was raised, or a difference, unless the call gives another answer each time anyway."""
        if mismatch.error:
            self.report(made.label, mismatch)
        elif not self.is_random():
            self.report(made.label, mismatch, locate(self.call, made, self.tolerances), made.diagnosis)

    def report(
        self, label: str, mismatch: Mismatch, located: Located | None = None, diagnosis: str = "", advice: str = ""
    ) -> None:
        """Write the report of a failure; without advice, it is to change the lines that are blamed."""
        if mismatch.place is not None:
            located = Located(mismatch.place, None)
        outcome = self.outcome
        verdict = "raises where the plain call does not" if mismatch.leaf is None else self.verdict
        outcome.text = change_text(self.call, (verdict, label), mismatch, located, diagnosis, advice=advice)
        outcome.located, outcome.diagnosis = located, diagnosis
        outcome.culprit = None if located is None else located.culprit
