"""``save_load``: a model that was saved and loaded again gives the same answer, and misses no weight."""

from __future__ import annotations

import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.invariance.calls.loads import load_record, told_keys
from pytest_tfdebug.invariance.checks.base import Check
from pytest_tfdebug.invariance.repeat.repetition import Repetition

if TYPE_CHECKING:
    from collections.abc import Iterator

_ATTENTION = "_attn_implementation"
_DIAGNOSIS = "a weight, buffer or attribute of the culprit is not saved, or is made anew when the model is loaded."


class SaveLoadCheck(Check):
    """The model is saved and loaded, and the call repeated with what was loaded."""

    needs = "Call a model that has save_pretrained"
    verdict = "is not the same after save_pretrained and from_pretrained"

    def repetitions(self) -> Iterator[Repetition]:
        """Yield the call of the loaded model; report weights that do not match."""
        call, model = self.call, self.model
        if not hasattr(model, "save_pretrained") or not hasattr(type(model), "from_pretrained"):
            self.skip(f"{call.name} has no save_pretrained: it is no transformers model")
            return
        loaded, wrong = _reload(model)
        if wrong:
            self.outcome.text = "\n  ".join([f"{call.name} {self.verdict}: weights do not match.", *wrong])
            return
        label = "the loaded model against the saved one"
        yield Repetition(label, call.inputs, self.unpadded, call.inputs, model=loaded, diagnosis=_DIAGNOSIS)


def _reload(model: Any) -> tuple[torch.nn.Module, list[str]]:  # noqa: ANN401 - a transformers model
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        implementation = getattr(model.config, _ATTENTION, None)
        dtype = next((item.dtype for item in model.parameters() if item.is_floating_point()), torch.float32)
        load = partial(type(model).from_pretrained, folder, output_loading_info=True, dtype=dtype)
        try:
            loaded, info = load(attn_implementation=implementation)
        except ValueError:  # a part of the model, such as a convolutional backbone, has no attention to choose
            loaded, info = load()
    for own, other in zip(model.modules(), loaded.modules(), strict=False):  # each part may have another one
        chosen = getattr(getattr(own, "config", None), _ATTENTION, None)
        if chosen is not None and getattr(getattr(other, "config", None), _ATTENTION, None) != chosen:
            setattr(other.config, _ATTENTION, chosen)
    device = next((item.device for item in model.parameters()), None)
    loaded = loaded.to(device) if device is not None else loaded
    loaded.train(model.training)
    return loaded, told_keys(load_record(type(model).__name__, folder, info))
