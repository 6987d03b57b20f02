"""The checks as functions: one call of one model, without pytest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import InvarianceError, TFDebugError
from pytest_tfdebug.invariance.calls.observed_call import observe
from pytest_tfdebug.invariance.checks.registry import CHECKS, asked, judge
from pytest_tfdebug.tracing.record.state import preserved
from pytest_tfdebug.tracing.trace import check_model

if TYPE_CHECKING:
    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall


def assert_padding_invariant(
    model: torch.nn.Module, inputs: Mapping[str, Any], *, names: Mapping[str, str] | None = None, **options: object
) -> None:
    """Assert that padding changes nothing at the real tokens: :func:`assert_invariant` with ``"padding"``."""
    _run("assert_padding_invariant", ("padding",), model, inputs, {**options, "inputs": names})


def assert_invariant(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    *checks: str,
    names: Mapping[str, str] | None = None,
    **options: object,
) -> None:
    """Assert that a model gives the same answer when it is asked in another way.

    ``"padding"``: tokens, decoder tokens, frames and pixels are padded one after the other. ``"batch"``: each row
    alone, and the rows in reverse order. ``"cache"``: decoding in steps, in chunks and behind left pads.
    ``"attention"``: every attention implementation. ``"save_load"``: saved and loaded again. ``"dtype"``: bfloat16 and
    float16, within a bound.

    Elements agree when ``|actual - expected| <= atol + rtol * |expected|``; both are 1e-5 in float32, as in
    transformers' own batching and left-padding tests, 1e-6 in float64, 1e-3 in float16 and 1e-2 in bfloat16, which are
    never exactly invariant (transformers#25420). ``atol`` is scaled by the root mean square of a tensor where that is
    above 1.

    Args:
        model: Any module.
        inputs: Keyword inputs of its forward.
        *checks: Names of checks.
        names: What transformers calls the inputs of a forward that has names of its own,
            ``{"tokens": "input_ids", "mask": "attention_mask"}``; the markers' ``inputs=``.
        **options: What the markers take: see :class:`pytest_tfdebug.invariance.checks.settings.Settings`.

    Raises:
        InvarianceError: If an answer changes, or nothing could be repeated.
        TFDebugError: If an argument makes no sense.
    """
    _run("assert_invariant", checks, model, inputs, {**options, "inputs": names})


def _run(
    function: str, checks: tuple[str, ...], model: torch.nn.Module, inputs: Mapping[str, Any], given: dict[str, object]
) -> None:
    wanted = asked(function, checks, given)
    check_model(model, {}, function)
    if not isinstance(inputs, Mapping) or not all(isinstance(key, str) for key in inputs):
        raise TFDebugError(f"{function} needs the keyword inputs of a forward as a dict and got {inputs!r:.80}.")
    if not wanted.keys() <= CHECKS.keys():
        raise TFDebugError(f"{function} makes a call again; what a test loads is seen by the marker alone.")
    with preserved(model), torch.no_grad():
        call, _ = observe(model, (), dict(inputs), lambda: model(**inputs))
    calls: list[ObservedCall] = [] if isinstance(call, str) else [call]
    refusals = [call] if isinstance(call, str) else []
    try:
        for name, settings in wanted.items():
            judge(name, settings, calls, refusals, is_marker=False)
    except InvarianceError as error:
        raise InvarianceError(error.text or str(error), error.culprit, outcome=error.outcome) from None
