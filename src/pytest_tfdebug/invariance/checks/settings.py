"""What a marker or an ``assert_*`` function takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.marker_arguments import Arguments, argument, is_number, is_whole_number, one_of, several
from pytest_tfdebug.parity.tolerance import Tolerance, Tolerances

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


@dataclass(frozen=True, kw_only=True)
class Settings(Arguments):
    """What every check takes.

    Args:
        rtol: Relative tolerance; by dtype when None.
        atol: Absolute tolerance in the tensor's units; by dtype when None.
        inputs: What transformers calls the inputs of a forward that has names of its own,
            ``{"tokens": "input_ids", "mask": "attention_mask"}``.
    """

    rtol: float | None = argument(None, is_number, "a number >= 0")
    atol: float | None = argument(None, is_number, "a number >= 0")
    inputs: Mapping[str, str] | None = argument(
        None,
        lambda value: isinstance(value, dict) and all(isinstance(name, str) for pair in value.items() for name in pair),
        "a dict of names, as in {'tokens': 'input_ids', 'mask': 'attention_mask'}",
        lambda value: dict(value) if isinstance(value, Mapping) else value,
    )

    def tolerances(self) -> Tolerances:
        """Return the tolerance of every tensor."""
        return Tolerances(self.rtol, self.atol, tuple(TOLERANCES.items()))


@dataclass(frozen=True, kw_only=True)
class PaddingSettings(Settings):
    """What ``padding_invariant`` takes.

    Args:
        side: ``"right"``, ``"left"`` or ``"both"``. ``"both"`` does not pad models on the left that never are in use:
            see :func:`pytest_tfdebug.invariance.repeat.sides_and_lengths.left_padding_refusal`.
        lengths: Numbers of pads to add; None for 1, 7 and as many as make the padded length the next
            multiple of 32 and one more.
        filler: Token at the new positions: ``"pad"``, ``"random"`` or an id.
        position_ids: ``"auto"``, ``"never"`` or ``"always"`` give the forward position ids built from the mask.
        expect: ``"same"``, or ``"varies"`` for a model that is not invariant by design.
        reason: Why it is not.
    """

    side: str = one_of("both", "right", "left", "both")
    lengths: tuple[int, ...] | None = argument(
        None,
        lambda value: bool(value) and all(is_whole_number(item, 1) for item in value),
        "a number of pads >= 1 or several",
        several,
    )
    filler: str | int = argument(
        "pad", lambda value: value in ("pad", "random") or is_whole_number(value), "one of 'pad', 'random', a token id"
    )
    position_ids: str = one_of("auto", "auto", "never", "always")
    expect: str = one_of("same", "same", "varies")
    reason: str | None = argument(None, lambda value: isinstance(value, str), "a text")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.expect == "varies" and not self.reason:
            raise TFDebugError("expect='varies' needs reason=: say why the model is not invariant to padding.")
