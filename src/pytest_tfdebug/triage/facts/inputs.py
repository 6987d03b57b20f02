"""What a failed call was given: ids and labels that the model has no row or class for, too much memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.frames import is_users, module_of
from pytest_tfdebug.triage import text
from pytest_tfdebug.triage.failure import is_a
from pytest_tfdebug.triage.rules import Facts

if TYPE_CHECKING:
    from pytest_tfdebug.triage.failure import Failure, Link


#: What models call ids and labels.
_ARGUMENTS = ("input_ids", "decoder_input_ids", "token_type_ids", "position_ids", "labels")
_IGNORED_LABEL = -100


@dataclass(frozen=True)
class Range:
    """The values of an integer tensor and what they index.

    ``room`` is the number of rows or classes; valid values are 0 to ``room - 1``, and ``outside`` of ``count`` are not.
    """

    name: str
    of: str
    low: int
    high: int
    outside: int
    count: int
    room: int

    def __str__(self) -> str:
        verdict = f"{self.outside} of {self.count} outside" if self.outside else "all inside"
        return f"{self.name} holds {self.low} to {self.high}, {self.of} take 0 to {self.room - 1}: {verdict}"


def read_ranges(failure: Failure, _link: Link, _matched: re.Match[str]) -> Facts:
    """Give the range of ids and labels against the embedding's rows and the number of classes."""
    measured = [_measure(*pair) for pair in _pairs(failure)]
    found = [entry for entry in measured if entry is not None]
    lines = dict.fromkeys(map(str, found))
    wrong = next((entry for entry in found if entry.outside), None)
    if wrong is None:
        return Facts({}, tuple(lines)[:6])
    kind = "labels" if "classes" in wrong.of else ("ids" if wrong.room in _vocabularies(failure) else "indices")
    names = {"range": str(wrong), kind: text.value(wrong.name), "limit": str(wrong.room), "last": str(wrong.room - 1)}
    return Facts(names, tuple(line for line in lines if line != str(wrong))[:6])


def _pairs(failure: Failure) -> list[tuple[Any, str, int, str]]:
    """Find tensors of indices and what they index, in the frames of the functions that do."""
    pairs: list[tuple[Any, str, int, str]] = []
    for frame in failure.frames:
        values, function = frame.f_locals, frame.f_code.co_name
        if module_of(frame) == "torch.nn.functional" and is_a(values.get("input"), "Tensor"):
            if function == "embedding" and is_a(values.get("weight"), "Tensor"):
                rows = values["weight"].shape[0]
                pairs.append(
                    (values["input"], _named(failure, values["input"], "ids"), rows, f"the embedding's {rows} rows")
                )
            elif function in {"cross_entropy", "nll_loss"} and is_a(values.get("target"), "Tensor"):
                classes = values["input"].shape[1 if values["input"].dim() > 1 else 0]
                name = _named(failure, values["target"], "labels")
                pairs.append((values["target"], name, classes, f"the {classes} classes"))
    return pairs


def _vocabularies(failure: Failure) -> set[int]:
    """Return the vocabulary sizes of the models at hand, which tell ids from positions and token types."""
    models = (model for _, model in failure.local_values("self", "model"))
    sizes = (getattr(getattr(model, "config", None), "vocab_size", None) for model in models)
    return {size for size in sizes if isinstance(size, int)}


def _measure(values: Any, name: str, room: int, of: str) -> Range | None:  # noqa: ANN401 - a torch tensor
    flat = values.detach().reshape(-1)
    if flat.is_floating_point() or flat.is_meta or flat.numel() == 0:
        return None
    flat = flat.cpu()
    if "classes" in of:
        flat = flat[flat != _IGNORED_LABEL]
    if flat.numel() == 0:
        return None
    outside = int(((flat < 0) | (flat >= room)).sum())
    return Range(name, of, int(flat.min()), int(flat.max()), outside, flat.numel(), room)


def _named(failure: Failure, tensor: Any, otherwise: str) -> str:  # noqa: ANN401 - a torch tensor
    """Return the user's name for a tensor, or else the model's: that of a variable on the same memory."""
    model_name = otherwise
    for frame in failure.frames:
        for name, value in list(frame.f_locals.items()):
            if is_a(value, "Tensor") and value.dtype == tensor.dtype and value.data_ptr() == tensor.data_ptr():
                if is_users(frame):
                    return name
                if name in _ARGUMENTS:
                    model_name = name
    return model_name


_GIB = 2**30


def read_memory(_failure: Failure, link: Link, _matched: re.Match[str]) -> Facts:
    """Say how much was asked for."""
    asked = re.search(r"[Tt]ried to allocate ([\d.]+ [KMGT]i?B|\d+(?= bytes))", link.message)
    size = asked[1] if asked is not None else ""
    return Facts({"asked": f"{int(size) / _GIB:.2f} GiB" if size.isdigit() else size})
