"""The checks by name: for the markers, and as functions for one call of one model, without pytest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import InvarianceError, TFDebugError
from pytest_tfdebug.invariance.calls.observed_call import observe
from pytest_tfdebug.invariance.checks.base import Outcome, Settings
from pytest_tfdebug.invariance.checks.cache import CacheCheck
from pytest_tfdebug.invariance.checks.dtype import DtypeCheck
from pytest_tfdebug.invariance.checks.padding import PaddingCheck
from pytest_tfdebug.invariance.checks.same_call import AttentionCheck, BatchCheck, SaveLoadCheck
from pytest_tfdebug.marker_arguments import did_you_mean, usage_error
from pytest_tfdebug.tracing.record.state import preserved
from pytest_tfdebug.tracing.trace import check_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.checks.base import Check


CHECKS: dict[str, type[Check]] = {
    "padding": PaddingCheck,
    "batch": BatchCheck,
    "cache": CacheCheck,
    "attention": AttentionCheck,
    "save_load": SaveLoadCheck,
    "dtype": DtypeCheck,
}
#: The check of what a test loads, which repeats no call; it has hooks of its own.
CLEAN_LOAD = "clean_load"
_OPTIONS = {**{name: check.options for name, check in CHECKS.items()}, CLEAN_LOAD: ("allow",)}


#: Checks with a marker of their own -> its name, which they have in records too.
OWN_MARKERS = {"padding": "padding_invariant"}


def title(name: str) -> str:
    """Return how a check is asked for."""
    return OWN_MARKERS.get(name, f"invariant({name!r})")


def asked(
    function: str, names: Sequence[object], given: Mapping[str, Any], args: Sequence[object] = ()
) -> dict[str, Settings]:
    """Return the settings of each check that was asked for."""
    valid = ", ".join(_OPTIONS)
    if not names:
        raise TFDebugError(f"{function} needs the names of checks, as in 'batch', 'cache'; the checks are {valid}.")
    wrong = [
        f"{function} has no check {name!r}; there are {valid}.{did_you_mean(str(name), _OPTIONS)}"
        for name in names
        if name not in _OPTIONS
    ]
    options = dict.fromkeys(option for name in names for option in _OPTIONS.get(str(name), ()))
    try:
        settings = Settings.of(function, args, given, options or Settings.__dataclass_fields__)
    except TFDebugError as error:
        wrong += str(error).splitlines()
    if wrong:
        raise TFDebugError("\n".join(wrong))
    return {str(name): settings for name in names}


def requested(item: pytest.Item) -> dict[str, Settings]:
    """Return the checks that the markers of a test ask for; of several markers for one check the closest counts."""
    found: dict[str, Settings] = {}
    wrong = []
    for marker in item.iter_markers():
        if marker.name not in ("padding_invariant", "invariant"):
            continue
        names, args = (("padding",), marker.args) if marker.name == "padding_invariant" else (marker.args, ())
        try:
            found = {**asked(marker.name, names, marker.kwargs, args), **found}
        except TFDebugError as error:
            wrong.append(str(error))
    if wrong:
        raise usage_error(item, TFDebugError("\n".join(wrong)))
    return found


def judge(name: str, settings: Settings, calls: Sequence[ObservedCall], *, is_marker: bool) -> Outcome:
    """Check every call, and return what that comes to; a note tells of each model of which no call can be repeated."""
    names = settings.inputs or {}
    refused, calls = [call for call in calls if call.refusal], [call for call in calls if not call.refusal]
    taken = {each: None for call in calls for each in (*call.parameters, *call.inputs)}
    unknown = next((each for each in names if each not in taken), None)
    if unknown is not None and taken:
        told = f"inputs= names {unknown!r}, which the forward does not take; it takes {', '.join(taken)}."
        raise InvarianceError(f"{title(name)}: {told}")
    whole, repeated = Outcome(skipped=[call.refusal for call in refused]), set()
    for call in calls:
        outcome = CHECKS[name].run(call.under_names(names), settings)
        if outcome.text:
            outcome.call = call
            raise InvarianceError(outcome.text, outcome.culprit, outcome)
        whole.repeats += outcome.repeats
        repeated.add(id(call.model) if outcome.repeats else None)
        whole.notes += [told for told in outcome.notes if told not in whole.notes]
        whole.skipped += outcome.skipped
    if not whole.repeats:
        place = "this test" if is_marker else "the function"
        told = f"{title(name)} checked nothing: no model call of {place} could be repeated."
        reasons = dict.fromkeys(whole.skipped) or (f"{place.capitalize()} called no torch.nn.Module.",)
        needs = f"{CHECKS[name].needs}{', or remove the marker' if is_marker else ''}."
        raise InvarianceError("\n  ".join([told, *reasons]) + f"\n{needs}", is_empty=True)
    unseen = dict.fromkeys(call.refusal for call in refused if id(call.model) not in repeated)
    whole.notes += [f"not checked: {why}" for why in unseen]
    return whole


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
        **options: What the markers take: see :class:`pytest_tfdebug.invariance.checks.base.Settings`.

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
        raise TFDebugError(f"{function} repeats a call; only the marker sees what a test loads.")
    with preserved(model), torch.no_grad():
        call, _ = observe(model, (), dict(inputs), lambda: model(**inputs))
    for name, settings in wanted.items():
        judge(name, settings, [call], is_marker=False)
