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
    """All that is known about a leak."""

    sequence: InputSequence  # the sequence that was padded
    experiments: Experiments  # what further repetitions showed
    located: Located  # where the two forwards part
    is_at_pads: bool = False  # NaN at pad positions only
    module_classes: tuple[str, ...] = ()  # classes of the culprit and of the modules inside it
    takes_positions: bool = True  # the forward takes position ids
    side: str = ""  # side of the pads; empty where they are of several rows

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

    def is_in_positions(self) -> bool:
        """Tell whether the first difference is in a table of positions: pads behind the tokens move none of them."""
        return model_traits.is_position_table(self.path) and self.sequence.is_exact and self.side != "right"

    def is_scan(self) -> bool:
        """Tell whether what the pads hold reaches only a part of the real tokens, past a mask that has an effect."""
        tokens, e = self.located.tokens, self.experiments
        is_beside = tokens is not None and tokens.real > 2 and tokens.differing <= _BESIDE * tokens.real  # noqa: PLR2004
        is_hidden = self.located.has_good_mask and self.is_in_attention()
        return is_beside and not is_hidden and e.mask_matters is not False and e.content_matters is not False


#: What is probably wrong: when, and in words. The first that applies is reported.
RULES: tuple[tuple[Callable[[Findings], object], str], ...] = (
    (
        lambda f: f.experiments.has_nan or f.is_at_pads,
        (
            "NaN from a softmax over a row whose keys are all masked; add the dtype's lowest finite number there "
            "instead of -inf, or leave such rows unmasked."
        ),
    ),
    (
        lambda f: f.sequence.is_mask_inferred and f.sequence.takes_mask,
        (
            "the call was made without {mask} although rows of {main} end in pad tokens: the mask never reached "
            "attention. Pass {mask}."
        ),
    ),
    (
        lambda f: f.experiments.batch_matters,
        "a row's answer depends on the other rows of its batch, without any change of padding.",
    ),
    (
        lambda f: f.experiments.positions_help,
        "position ids are shifted by the pads: with {positions} built from the mask the answer is right.",
    ),
    (lambda f: f.located.fault, "{fault}."),
    (
        lambda f: f.is_in_positions() and f.takes_positions,
        "position ids are shifted by the pads: they count pads as tokens.",
    ),
    (
        Findings.is_in_positions,
        (
            "position ids are shifted by the pads: they count pads as tokens, and the forward takes none to set "
            "them right: pad on the right."
        ),
    ),
    (lambda f: f.dtype in _INTEGERS, "the indices given to {path!r} are shifted by the pads or depend on them."),
    (
        lambda f: f.has_class(_NORM),
        (
            "normalisation over time: the statistics of the real tokens include the pads. If that is the model's "
            "design, declare it with expect='varies' and reason=."
        ),
    ),
    (
        lambda f: f.experiments.pad_ids_help,
        (
            "the end of a row is found by its pad tokens and not by the mask, and the positions that the mask hides"
            " hold other tokens: write the pad token there."
        ),
    ),
    (
        lambda f: f.located.is_pooling and f.experiments.content_matters is not False,
        "pooling over pads: the mean, maximum or position that is taken of the sequence includes them.",
    ),
    (
        lambda f: f.located.is_pooling,
        (
            "pooling over pads: the mean, maximum or position that is taken of the sequence includes them, though "
            "not their content."
        ),
    ),
    (
        lambda f: f.has_class(_CONVOLUTION) or f.is_scan(),
        "a convolution or state-space scan runs across the pads: set the pads to 0 before it.",
    ),
    (
        lambda f: f.experiments.content_matters is False,
        (
            "the number of pads matters and not what they hold: positions, windows or a scale there follow from the"
            " padded length."
        ),
    ),
    (
        lambda f: not f.sequence.takes_mask,
        "the pads reach the real tokens, and the forward takes no {mask} to tell them apart.",
    ),
    (
        lambda f: f.experiments.mask_matters is not False and not f.is_in_attention(),
        "the pads are taken in there like real {unit}, without a look at {mask}.",
    ),
    (
        lambda f: f.located.has_good_mask,
        (
            "{mask} never reached attention there: the pads are attended to like real {unit}, or keys are made of "
            "several tokens, pads too."
        ),
    ),
    (lambda _: True, "{mask} never reached attention there: the pads are attended to like real {unit}."),
)


def diagnose(findings: Findings) -> str:
    """Return what is probably wrong, in a sentence."""
    kind, fault = findings.sequence.kind, findings.located.fault
    words = {"mask": kind.mask, "positions": kind.positions, "unit": kind.unit, "main": findings.sequence.main}
    told = next(told for applies, told in RULES if applies(findings))
    return told.format(**words, path=findings.path, fault=fault.sentence if fault else "")


def observations(findings: Findings) -> str:
    """Return what further repetitions showed, in sentences."""
    e, kind = findings.experiments, findings.sequence.kind
    told = (
        (e.content_matters, "The content of the pads matters.", "The content of the pads does not matter."),
        (e.mask_matters, f"{kind.mask} changes the answer.", f"{kind.mask} has no effect at all on the answer."),
        (e.positions_help or None, f"With {kind.positions} built from the mask the answer is right.", ""),
    )
    return " ".join(yes if is_so else no for is_so, yes, no in told if is_so is not None)
