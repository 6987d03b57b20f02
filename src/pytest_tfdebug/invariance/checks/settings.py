"""What the markers and the ``assert_*`` functions take, each check a part of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_tfdebug.marker_arguments import Arguments, argument, is_number, is_whole_number, one_of, several
from pytest_tfdebug.parity.tensors.tolerance import Tolerance, Tolerances

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

    def tolerances(self) -> Tolerances:
        """Return the tolerance of every tensor."""
        return Tolerances(self.rtol, self.atol, tuple(TOLERANCES.items()))
