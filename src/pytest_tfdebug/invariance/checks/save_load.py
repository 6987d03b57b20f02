"""``save_load_invariant``: a model that was saved and loaded again gives the same answer, and misses no weight."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.invariance import family
from pytest_tfdebug.invariance.located import recorded
from pytest_tfdebug.invariance.outcome import Outcome, Repetition
from pytest_tfdebug.invariance.sister import Sister, unpadded

if TYPE_CHECKING:
    from pytest_tfdebug.invariance.observed import ObservedCall
    from pytest_tfdebug.invariance.settings import Settings

#: What ``from_pretrained(output_loading_info=True)`` lists, and what it means.
_KEYS = {
    "missing_keys": "not in the checkpoint, so newly initialised",
    "unexpected_keys": "in the checkpoint and not in the model",
    "mismatched_keys": "of another shape in the checkpoint",
}
_SHOWN = 5


def check_save_load(call: ObservedCall, settings: Settings) -> Outcome:
    """Save the model of a call, load it, and repeat the call with what was loaded."""
    model: Any = family.unwrapped(call.model)
    with call.restored():
        sister = Sister(call, settings.tolerances(), "is not the same after save_pretrained and from_pretrained")
        if not hasattr(model, "save_pretrained") or not hasattr(type(model), "from_pretrained"):
            sister.outcome.skipped.append(f"{call.name} has no save_pretrained: it is no transformers model")
            return sister.outcome
        loaded, wrong = _reload(model)
        if wrong:
            listed = "\n".join(f"  {name}: {_shown(keys)} ({_KEYS[name]})" for name, keys in wrong.items())
            sister.outcome.failure = f"{call.name} {sister.verdict}: weights do not match.\n{listed}"
            return sister.outcome
        repetition = Repetition("the loaded model against the saved one", call.inputs, unpadded(call), call.inputs)
        actual = call.leaves(call.inputs, loaded)
        mismatch = sister.hold(repetition.label, sister.expected(), actual, repetition.alignment)
        if mismatch is None or sister.draws_random_numbers():
            return sister.outcome
        told = "a weight, buffer or attribute of the culprit is not saved, or is made anew when the model is loaded."
        pair = lambda: (recorded(call, call.inputs), recorded(call, call.inputs, loaded))  # noqa: E731
        return sister.fail(repetition, mismatch, told, pair)


def _reload(model: Any) -> tuple[torch.nn.Module, dict[str, list[str]]]:  # noqa: ANN401 - a transformers model
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        implementation = getattr(model.config, "_attn_implementation", None)
        loaded, info = type(model).from_pretrained(
            folder,
            output_loading_info=True,
            dtype=next((item.dtype for item in model.parameters() if item.is_floating_point()), torch.float32),
            **({"attn_implementation": implementation} if implementation else {}),
        )
    device = next((item.device for item in model.parameters()), None)
    loaded = loaded.to(device) if device is not None else loaded
    loaded.train(model.training)
    return loaded, {name: sorted(map(str, info[name])) for name in _KEYS if info.get(name)}


def _shown(keys: list[str]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return ", ".join(keys[:_SHOWN]) + more
