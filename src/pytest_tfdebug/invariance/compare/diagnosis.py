"""What is behind a leak: further repetitions, and a table of rules from what they show to what is probably wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.calls.alignment import Alignment
from pytest_tfdebug.invariance.calls.inputs import can_take_positions, numbered, padded, rows_of
from pytest_tfdebug.invariance.calls.padding_variants import padded_alike
from pytest_tfdebug.invariance.calls.sequences import mask_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_tfdebug.invariance.calls.inputs import Repetition
    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.calls.sequences import InputSequence
    from pytest_tfdebug.invariance.compare.culprit import Located
    from pytest_tfdebug.invariance.compare.outputs import Mismatch

#: Up to this number, pads are tried one by one to find the first number that fails.
_MOST_STEPS = 64
_NORM = re.compile(r"GroupNorm|InstanceNorm|BatchNorm")
_CONVOLUTION = re.compile(r"Conv[123]d|Convolution|Mamba|StateSpace|SSM|Mixer|Recurrent|LSTM|GRU|RNN")
_ATTENTION = re.compile(r"att(?:entio)?n", re.IGNORECASE)
_INTEGERS = ("int64", "int32", "uint8", "int16", "int8", "bool")
#: A leak stays beside the pads when it changes at most this share of the real tokens.
_BESIDE = 0.5


@dataclass(frozen=True)
class Leak:
    """Padding that changed the answer."""

    sequence: InputSequence
    repetition: Repetition
    mismatch: Mismatch  # the first output that changed
    has_positions: bool  # the repetition was given position ids built from the mask


@dataclass(frozen=True)
class Findings:
    """All that is known about a leak: what further repetitions showed, and where the two forwards part."""

    call: ObservedCall
    leak: Leak
    smallest: Repetition  # the repetition with the fewest pads that leaks
    failing: tuple[int, ...] = ()  # numbers of pads that change the answer, ascending; empty for rows of a batch
    passing: tuple[int, ...] = ()  # numbers of pads that do not
    content_matters: bool | None = None  # other tokens at the pads change the answer; None where that was not tried
    mask_matters: bool | None = None  # switching the mask on at the pads does; None where there is no mask
    positions_help: bool = False  # position ids built from the mask make the answer right
    batch_matters: bool = False  # a row's answer depends on its batch without any change of padding
    located: Located | None = None

    @property
    def has_nan(self) -> bool:
        """Whether the repeated output has NaN where the original has none."""
        metrics = self.leak.mismatch.leaf.metrics if self.leak.mismatch.leaf else None
        is_new = metrics is not None and metrics.non_finite_actual > metrics.non_finite_expected
        return is_new or self.leak.mismatch.is_at_pads

    @property
    def divergence(self) -> tuple[str, str]:
        """Module path and dtype of the first tensor that differs."""
        found = self.located.divergence if self.located else None
        return (found.path, found.comparison.dtype) if found else ("", "")

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes of the culprit and of its direct children; those of a forward's own lines are not to blame."""
        culprit = self.located.culprit if self.located else None
        module = dict(self.call.model.named_modules()).get(culprit.path) if culprit else None
        children = [] if module is None or culprit is None or culprit.kind == "glue" else list(module.children())
        return (*([culprit.class_name] if culprit else []), *(type(child).__name__ for child in children))

    def is_in_attention(self) -> bool:
        """Tell whether the culprit, a module in it, or the first tensor that differs is of an attention."""
        path = self.located.culprit.path if self.located and self.located.culprit else ""
        return any(map(_ATTENTION.search, (path, self.divergence[0], *self.classes)))

    def is_in_positions(self) -> bool:
        """Tell whether the first difference is in a table of positions: pads behind the tokens move none of them."""
        is_behind = self.smallest.side == "right"
        return model_traits.is_position_table(self.divergence[0]) and self.leak.sequence.is_exact and not is_behind

    def is_scan(self) -> bool:
        """Tell whether what the pads hold reaches only a part of the real tokens, past a mask that has an effect."""
        tokens = self.located.tokens if self.located else None
        is_beside = tokens is not None and tokens.real > 2 and tokens.differing <= _BESIDE * tokens.real  # noqa: PLR2004
        has_effect = self.mask_matters is not False and self.content_matters is not False
        return is_beside and has_effect and not self.is_in_attention()


#: What is probably wrong: when, and in words. The first that applies is reported.
RULES: tuple[tuple[Callable[[Findings], object], str], ...] = (
    (
        lambda f: f.has_nan,
        "NaN from a softmax over a row whose keys are all masked: add the dtype's lowest finite number, not -inf.",
    ),
    (
        lambda f: f.leak.sequence.is_mask_inferred and f.leak.sequence.takes_mask,
        "the call was made without {mask} although rows of {main} end in pad tokens: pass {mask}.",
    ),
    (
        lambda f: f.batch_matters,
        "a row's answer depends on the other rows of its batch, without any change of padding.",
    ),
    (
        lambda f: f.positions_help,
        "position ids are shifted by the pads: with {positions} built from the mask the answer is right.",
    ),
    (lambda f: f.located and f.located.fault, "{fault}."),
    (Findings.is_in_positions, "position ids are shifted by the pads: they count pads as tokens."),
    (
        lambda f: f.divergence[1] in _INTEGERS,
        "the indices given to {path!r} are shifted by the pads or depend on them.",
    ),
    (
        lambda f: any(map(_NORM.search, f.classes)),
        "normalisation over time: the statistics of the real tokens include the pads (by design? expect='varies').",
    ),
    (
        lambda f: f.located and f.located.is_pooling,
        "pooling over pads: the mean, maximum or position that is taken of the sequence includes them.",
    ),
    (
        lambda f: any(map(_CONVOLUTION.search, f.classes)) or f.is_scan(),
        "a convolution or state-space scan runs across the pads: set the pads to 0 before it.",
    ),
    (
        lambda f: f.content_matters is False,
        "the number of pads matters, not their content: something there depends on the padded length.",
    ),
    (
        lambda f: not f.leak.sequence.takes_mask or (f.mask_matters is not False and not f.is_in_attention()),
        "the pads are treated there like real {unit}, and {mask} is ignored.",
    ),
    (
        lambda _: True,
        (
            "{mask} never reached attention there: the pads are attended to like real {unit}, or keys are made of "
            "several tokens, pads too."
        ),
    ),
)


def diagnose(findings: Findings) -> str:
    """Return what is probably wrong, in a sentence."""
    sequence, fault = findings.leak.sequence, findings.located.fault if findings.located else ""
    words = {"mask": sequence.kind.mask, "positions": sequence.kind.positions, "unit": sequence.kind.unit}
    told = next(told for applies, told in RULES if applies(findings))
    return told.format(**words, main=sequence.main, path=findings.divergence[0], fault=fault)


def observations(findings: Findings) -> str:
    """Return what further repetitions showed, in sentences."""
    kind = findings.leak.sequence.kind
    told = (
        (findings.content_matters, "The content of the pads matters.", "The content of the pads does not matter."),
        (findings.mask_matters, f"{kind.mask} changes the answer.", f"{kind.mask} has no effect at all on the answer."),
        (findings.positions_help or None, f"With {kind.positions} built from the mask the answer is right.", ""),
    )
    return " ".join(yes if is_so else no for is_so, yes, no in told if is_so is not None)


@dataclass(frozen=True)
class LeakRepeater:
    """Repeats a leaking call in further ways, inside ``call.restored()``."""

    call: ObservedCall
    leak: Leak
    fails: Callable[[Repetition], bool | None]  # whether a repetition changes the answer; None where it is refused
    lengths: Sequence[int]  # the numbers of pads to try
    filler: str | int

    def run(self) -> Findings:
        """Find from how many pads on the answer changes, and whether content, mask or positions matter."""
        leak, made = self.leak, self.leak.repetition
        failing, passing = self._profile()
        if failing and failing[0] != made.pads:
            made = self._of_pads(failing[0])
        found = Findings(self.call, leak, made, failing, passing)
        if leak.mismatch.error:
            return found
        sequence, mask = leak.sequence, leak.sequence.kind.mask
        has_mask = sequence.takes_mask and sequence.kind.unit == "tokens" and made.inputs.get(mask) is not None
        all_on = torch.ones_like(mask_of(made.inputs, sequence))
        may_number = not leak.has_positions and can_take_positions(self.call, sequence)
        return replace(
            found,
            content_matters=self._content_matters(made),
            mask_matters=self._differs(made, mask, all_on) if has_mask else None,
            positions_help=may_number and self.fails(numbered(self.call, sequence, leak.repetition)) is False,
            batch_matters=self._batch_matters(made),
        )

    def _of_pads(self, pads: int) -> Repetition:
        side = self.leak.repetition.side or "right"
        made = padded_alike(self.call, self.leak.sequence, side, pads, self.filler)
        return numbered(self.call, self.leak.sequence, made) if self.leak.has_positions else made

    def _profile(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the numbers of pads that change the answer and those that do not, the first one found step by step."""
        made = self.leak.repetition
        if made.alignment.rows is not None:
            return (), ()
        results = {pads: self.fails(self._of_pads(pads)) for pads in self.lengths}
        first = min((pads for pads, fails in results.items() if fails), default=made.pads)
        steps = range(1, min(first, _MOST_STEPS)) if self.leak.sequence.is_exact else ()
        for pads in steps:
            if pads not in results:
                results[pads] = self.fails(self._of_pads(pads))
                if results[pads]:
                    break
        failing, passing = (tuple(sorted(pads for pads in results if results[pads] is each)) for each in (True, False))
        return failing, passing

    def _content_matters(self, made: Repetition) -> bool | None:
        at, sequence = made.alignment, self.leak.sequence
        if at.rows is not None or sequence.kind.unit == "pixels":
            return None
        widths = (at.start, at.total - at.real - at.start)
        other = padded(self.call.model, self.call.inputs, sequence, widths, "random")
        return self._differs(made, sequence.main, other[sequence.main])

    def _differs(self, made: Repetition, name: str, value: Any) -> bool | None:  # noqa: ANN401 - an input
        """Tell whether a padded call gives another answer at real tokens when an input is changed."""
        at, sequence = made.alignment, self.leak.sequence
        count = mask_of(made.inputs, sequence)[..., 0].numel() if sequence.is_exact else at.batch
        mask = torch.zeros(count, at.total, dtype=torch.bool)
        for place, row in enumerate(range(count) if at.rows is None else at.rows):
            mask[row, at.start : at.start + at.real] = True if at.mask is None else at.mask[place].cpu()
        alignment, inputs = Alignment(at.total, 0, at.total, at.batch, mask=mask), {**made.inputs, name: value}
        return self.fails(replace(made, inputs=inputs, expected_inputs=made.inputs, alignment=alignment, recorded=""))

    def _batch_matters(self, made: Repetition) -> bool:
        at = made.alignment
        if at.rows is None:
            return False
        alone = rows_of(made.inputs, at.rows, at.batch)
        alignment = Alignment(at.total, 0, at.total, at.batch, rows=at.rows)
        return self.fails(replace(made, alignment=alignment, expected_inputs=alone, recorded="")) is True
