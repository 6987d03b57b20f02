"""From what was observed to what is probably wrong: a table of rules, the most specific first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_tfdebug.invariance.calls import model_traits

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.invariance.calls.sequences import InputSequence
    from pytest_tfdebug.invariance.explain.culprit import Located
    from pytest_tfdebug.invariance.explain.experiments import Experiments

_NORM = re.compile(r"GroupNorm|InstanceNorm|BatchNorm")
_CONVOLUTION = re.compile(r"Conv[123]d|Convolution|Mamba|StateSpace|SSM|Mixer|Recurrent|LSTM|GRU|RNN")
_ATTENTION = re.compile(r"att(?:entio)?n", re.IGNORECASE)
_INTEGERS = ("int64", "int32", "uint8", "int16", "int8", "bool")
#: A leak stays beside the pads when it changes at most this share of the real tokens.
_BESIDE = 0.5


@dataclass(frozen=True)
class Findings:
    """All that is known about a leak.

    Args:
        sequence: The sequence that was padded.
        experiments: What further repetitions showed.
        located: Where the two forwards part.
        is_at_pads: NaN at pad positions only.
        module_classes: Classes of the culprit and of the modules inside it.
        takes_positions: The forward takes position ids.
        side: Side of the pads; empty where they are of several rows.
    """

    sequence: InputSequence
    experiments: Experiments
    located: Located
    is_at_pads: bool = False
    module_classes: tuple[str, ...] = ()
    takes_positions: bool = True
    side: str = ""

    @property
    def dtype(self) -> str:
        """Dtype of the first tensor that differs."""
        return self.located.divergence.comparison.dtype if self.located.divergence else ""

    @property
    def path(self) -> str:
        """Module path of the first tensor that differs."""
        return self.located.divergence.path if self.located.divergence else ""

    def has_class(self, pattern: re.Pattern[str]) -> bool:
        """Tell whether the culprit, or a module in it, has a class of this kind."""
        return any(pattern.search(name) for name in self.module_classes)

    def is_in_attention(self) -> bool:
        """Tell whether the culprit, a module in it, or the first tensor that differs is of an attention."""
        path = self.located.culprit.path if self.located.culprit else ""
        return any(_ATTENTION.search(name) for name in (path, self.path, *self.module_classes))

    def is_scan(self) -> bool:
        """Tell whether what the pads hold reaches only a part of the real tokens, past a mask that has an effect."""
        tokens, e = self.located.tokens, self.experiments
        is_beside = tokens is not None and tokens.real > 2 and tokens.differing <= _BESIDE * tokens.real  # noqa: PLR2004
        is_hidden = self.located.has_good_mask and self.is_in_attention()
        return is_beside and not is_hidden and e.mask_matters is not False and e.content_matters is not False


def _no_mask_given(f: Findings) -> str:
    return (
        f"the call was made without {f.sequence.kind.mask} although rows of {f.sequence.main} end in pad tokens: "
        f"the mask never reached attention. Pass {f.sequence.kind.mask}."
    )


def _positions_shifted(f: Findings) -> str:
    told = "position ids are shifted by the pads: they count pads as tokens"
    return (
        f"{told}." if f.takes_positions else f"{told}, and the forward takes none to set them right: pad on the right."
    )


def _mask_ignored(f: Findings) -> str:
    mask, unit = f.sequence.kind.mask, f.sequence.kind.unit
    if f.experiments.mask_matters is not False and not f.is_in_attention():
        return f"the pads are taken in there like real {unit}, without a look at {mask}."
    or_made = ", or keys are made of several tokens, pads too" if f.located.has_good_mask else ""
    return f"{mask} never reached attention there: the pads are attended to like real {unit}{or_made}."


def _are_positions_shifted(f: Findings) -> bool:
    """Tell whether the first difference is in a table of positions: pads behind the tokens move none of them."""
    return model_traits.is_position_table(f.path) and f.sequence.is_exact and f.side != "right"


#: What is probably wrong: when, and in words. The first that applies is reported.
RULES: tuple[tuple[Callable[[Findings], bool], Callable[[Findings], str]], ...] = (
    (
        lambda f: f.experiments.has_nan or f.is_at_pads,
        lambda _: (
            "NaN from a softmax over a row whose keys are all masked; add the dtype's lowest finite number there "
            "instead of -inf, or leave such rows unmasked."
        ),
    ),
    (lambda f: f.sequence.is_mask_inferred and f.sequence.takes_mask, _no_mask_given),
    (
        lambda f: f.experiments.batch_matters,
        lambda _: "a row's answer depends on the other rows of its batch, without any change of padding.",
    ),
    (
        lambda f: f.experiments.positions_help,
        lambda f: (
            f"position ids are shifted by the pads: with {f.sequence.kind.positions} built from the mask the "
            "answer is right."
        ),
    ),
    (
        lambda f: f.located.fault is not None,
        lambda f: f"{f.located.fault.sentence}." if f.located.fault else "",
    ),
    (_are_positions_shifted, _positions_shifted),
    (
        lambda f: f.dtype in _INTEGERS,
        lambda f: f"the indices given to {f.path!r} are shifted by the pads or depend on them.",
    ),
    (
        lambda f: f.has_class(_NORM),
        lambda _: (
            "normalisation over time: the statistics of the real tokens include the pads. If that is the "
            "model's design, declare it with expect='varies' and reason=."
        ),
    ),
    (
        lambda f: f.experiments.pad_ids_help,
        lambda _: (
            "the end of a row is found by its pad tokens and not by the mask, and the positions that the mask hides "
            "hold other tokens: write the pad token there."
        ),
    ),
    (
        lambda f: f.located.is_pooling,
        lambda f: (
            "pooling over pads: the mean, maximum or position that is taken of the sequence includes them"
            + ("." if f.experiments.content_matters is not False else ", though not their content.")
        ),
    ),
    (
        lambda f: f.has_class(_CONVOLUTION) or f.is_scan(),
        lambda _: "a convolution or state-space scan runs across the pads: set the pads to 0 before it.",
    ),
    (
        lambda f: f.experiments.content_matters is False,
        lambda _: (
            "the number of pads matters and not what they hold: positions, windows or a scale there follow from the "
            "padded length."
        ),
    ),
    (lambda f: f.sequence.takes_mask, _mask_ignored),
    (
        lambda _: True,
        lambda f: (
            f"the pads reach the real tokens, and the forward takes no {f.sequence.kind.mask} to tell them apart."
        ),
    ),
)


def diagnose(findings: Findings) -> str:
    """Return what is probably wrong, in a sentence."""
    return next(say(findings) for applies, say in RULES if applies(findings))


def observations(findings: Findings) -> list[str]:
    """Return what further repetitions showed, in sentences."""
    e, sequence = findings.experiments, findings.sequence
    told = []
    if e.content_matters is not None:
        told.append(f"The content of the pads {'matters' if e.content_matters else 'does not matter'}.")
    if e.mask_matters is not None:
        told.append(
            f"{sequence.kind.mask} {'changes the answer' if e.mask_matters else 'has no effect at all on the answer'}."
        )
    if e.positions_help:
        told.append(f"With {sequence.kind.positions} built from the mask the answer is right.")
    return told
