"""The checks as functions: one call of one model, without pytest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import InvarianceError, TFDebugError
from pytest_tfdebug.invariance.calls.observed_call import observe
from pytest_tfdebug.invariance.checks.registry import CHECKS, judge
from pytest_tfdebug.tracing.state import preserved
from pytest_tfdebug.tracing.trace import check_model

if TYPE_CHECKING:
    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall


def assert_padding_invariant(  # noqa: PLR0913 - the marker's arguments
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    *,
    side: str = "both",
    lengths: Iterable[int] | int | None = None,
    filler: str | int = "pad",
    position_ids: str = "auto",
    rtol: float | None = None,
    atol: float | None = None,
    expect: str = "same",
    reason: str | None = None,
    names: Mapping[str, str] | None = None,
) -> None:
    """Assert that padding changes nothing at the real tokens.

    Tokens, decoder tokens, frames and pixels are padded one after the other. Elements agree when
    ``|padded - plain| <= atol + rtol * |plain|``; both are 1e-5 in float32, as in transformers' own batching and
    left-padding tests, 1e-6 in float64, 1e-3 in float16 and 1e-2 in bfloat16, which are never exactly invariant
    (transformers#25420). ``atol`` is scaled by the root mean square of a tensor where that is above 1.

    Args:
        model: Any module.
        inputs: Keyword inputs of its forward.
        side: ``"right"``, ``"left"`` or ``"both"``; ``"both"`` leaves the left side out for models that do not decode
            and for those with absolute positions that take no position ids.
        lengths: Numbers of pads; by default 1, 7, as many as make the padded length the next multiple of 32, and one
            more.
        filler: What to pad with: ``"pad"``, ``"random"`` or a token id.
        position_ids: ``"auto"`` (plainly, then with position ids built from the mask), ``"never"`` or ``"always"``.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        expect: ``"same"``, or ``"varies"`` for a model that is not invariant by design.
        reason: Why it is not.
        names: What transformers calls the inputs of a forward that has names of its own,
            ``{"tokens": "input_ids", "mask": "attention_mask"}``; the marker's ``inputs=``.

    Raises:
        InvarianceError: If something changes, or nothing could be repeated.
        TFDebugError: If an argument makes no sense.
    """
    given = {"side": side, "lengths": lengths, "filler": filler, "position_ids": position_ids, "inputs": names}
    _run("padding_invariant", model, inputs, {**given, "rtol": rtol, "atol": atol, "expect": expect, "reason": reason})


def assert_batch_invariant(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    *,
    rtol: float | None = None,
    atol: float | None = None,
    names: Mapping[str, str] | None = None,
) -> None:
    """Assert that each row alone gives the answer that it gives in its batch, in any order.

    Args:
        model: Any module.
        inputs: Keyword inputs of its forward.
        rtol: Relative tolerance, as in :func:`assert_padding_invariant`.
        atol: Absolute tolerance likewise.
        names: Names of transformers by the forward's own, likewise.

    Raises:
        InvarianceError: If an answer changes, or nothing could be repeated.
        TFDebugError: If an argument makes no sense.
    """
    _run("batch_invariant", model, inputs, {"rtol": rtol, "atol": atol, "inputs": names})


def assert_cache_invariant(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    *,
    rtol: float | None = None,
    atol: float | None = None,
    names: Mapping[str, str] | None = None,
) -> None:
    """Assert that decoding with a cache, in steps, in chunks and with left padding, equals the full forward.

    Args:
        model: A model that decodes and takes ``past_key_values`` or ``cache_params``.
        inputs: Keyword inputs of its forward.
        rtol: Relative tolerance, as in :func:`assert_padding_invariant`.
        atol: Absolute tolerance likewise.
        names: Names of transformers by the forward's own, likewise.

    Raises:
        InvarianceError: If an answer changes, or nothing could be repeated.
        TFDebugError: If an argument makes no sense.
    """
    _run("cache_invariant", model, inputs, {"rtol": rtol, "atol": atol, "inputs": names})


def assert_attention_invariant(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    *,
    implementations: Iterable[str] | str | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    names: Mapping[str, str] | None = None,
) -> None:
    """Assert that every installed attention implementation gives the answer of the eager one.

    Args:
        model: A transformers model.
        inputs: Keyword inputs of its forward.
        implementations: Names to hold to ``"eager"``; by default every one that can run.
        rtol: Relative tolerance, as in :func:`assert_padding_invariant`.
        atol: Absolute tolerance likewise.
        names: Names of transformers by the forward's own, likewise.

    Raises:
        InvarianceError: If an answer changes, or nothing could be repeated.
        TFDebugError: If an argument makes no sense.
    """
    given = {"implementations": implementations, "rtol": rtol, "atol": atol, "inputs": names}
    _run("attention_invariant", model, inputs, given)


def assert_save_load_invariant(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    *,
    rtol: float | None = None,
    atol: float | None = None,
    names: Mapping[str, str] | None = None,
) -> None:
    """Assert that a model gives the same answer after ``save_pretrained`` and ``from_pretrained``.

    Args:
        model: A transformers model.
        inputs: Keyword inputs of its forward.
        rtol: Relative tolerance, as in :func:`assert_padding_invariant`.
        atol: Absolute tolerance likewise.
        names: Names of transformers by the forward's own, likewise.

    Raises:
        InvarianceError: If weights are missing or unexpected, an answer changes, or nothing could be repeated.
        TFDebugError: If an argument makes no sense.
    """
    _run("save_load_invariant", model, inputs, {"rtol": rtol, "atol": atol, "inputs": names})


def assert_dtype_close(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    *,
    dtypes: Iterable[str] | str = ("bfloat16", "float16"),
    bound: float | None = None,
    names: Mapping[str, str] | None = None,
) -> None:
    """Assert that a float32 model stays within a bound of its answer in lower precision.

    Args:
        model: A model with float32 weights.
        inputs: Keyword inputs of its forward.
        dtypes: ``"bfloat16"``, ``"float16"`` or both.
        bound: Greatest relative L2 error of an output; 0.05 in bfloat16 and 0.01 in float16 by default.
        names: Names of transformers by the forward's own, as in :func:`assert_padding_invariant`.

    Raises:
        InvarianceError: If an output is further away, or nothing could be repeated.
        TFDebugError: If an argument makes no sense.
    """
    _run("dtype_close", model, inputs, {"dtypes": dtypes, "bound": bound, "inputs": names})


def _run(name: str, model: torch.nn.Module, inputs: Mapping[str, Any], given: dict[str, Any]) -> None:
    function = f"assert_{name}"
    settings = CHECKS[name].takes.of(function, (), given)
    check_model(model, {}, function)
    if not isinstance(inputs, Mapping) or not all(isinstance(key, str) for key in inputs):
        raise TFDebugError(f"{function} needs the keyword inputs of a forward as a dict and got {inputs!r:.80}.")
    with preserved(model), torch.no_grad():
        call, _ = observe(model, (), dict(inputs), lambda: model(**inputs))
    calls: list[ObservedCall] = [] if isinstance(call, str) else [call]
    refusals = [call] if isinstance(call, str) else []
    try:
        judge(name, settings, calls, refusals, is_marker=False)
    except InvarianceError as error:
        raise InvarianceError(error.text or str(error), error.culprit, outcome=error.outcome) from None
