"""``batch``, ``attention`` and ``save_load``: the call gives the same answer in other company and in another form.

That is each row alone, the rows in reverse, each attention implementation that is installed, and the model that was
saved and loaded again.
"""

from __future__ import annotations

import functools
import re
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.check_record import LoadRecord
from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.invariance.calls.repetition import Repetition, items_of, rows_of
from pytest_tfdebug.invariance.calls.sequences import main_input
from pytest_tfdebug.invariance.checks.base import COMMON, Check
from pytest_tfdebug.publish.reports import calling_line
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.triage.rules import listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_tfdebug.invariance.compare.outputs import Mismatch
    from pytest_tfdebug.records import SourceRange

    Pick = Callable[[Mapping[str, Any], Sequence[int], int], dict[str, Any]]


_OF_ROWS = "a row's answer depends on the rows beside it: statistics over the batch, a shared buffer or capacity."


class BatchCheck(Check):
    """The call is repeated row by row, and with its rows in reverse."""

    needs = "Call a model with a batch"
    verdict = "depends on its batch"

    def check(self) -> None:
        """Report the first row that gives another answer, also when each row brings its own items of an input."""
        main = main_input(self.call)
        if main is None:
            self.skip(f"{self.call.name} was given no tensor by name")
            return
        found = self._first_difference(*main, rows_of)
        if found is not None and any(items_of(value, len(main[1])) > 1 for value in self.call.inputs.values()):
            skipped, pick = len(self.outcome.skipped), partial(rows_of, with_shares=True)
            if self._first_difference(*main, pick) is None and len(self.outcome.skipped) == skipped:
                return
        if found is not None:
            self.fail(*found)

    def _first_difference(self, name: str, main: torch.Tensor, pick: Pick) -> tuple[Repetition, Mismatch] | None:
        found = self.first(self._of_rows(name, main, pick))
        if found is not None and found[1].error:  # rows that share an image cannot be told apart, say
            self.cannot_ask(found[0].label, found[1])
            return None
        return found

    def _of_rows(self, name: str, main: torch.Tensor, pick: Pick) -> Iterator[Repetition]:
        inputs, batch, at = self.call.inputs, main.shape[0], self.unpadded
        if batch == 1:
            doubled = rows_of(inputs, [0, 0], 1)
            doubled[name] = torch.cat([main, main.flip(-1) if main.dim() > 1 else main])
            alignment = replace(at, rows=(0,), batch=2)
            label = "the row beside another one, against the row alone"
            yield Repetition(label, doubled, alignment, inputs, diagnosis=_OF_ROWS)
            return
        for row in range(batch):
            mask = None if at.mask is None else at.mask[row : row + 1]
            alignment = replace(at, rows=(row,), batch=batch, mask=mask)
            label = f"row {row} in its batch of {batch}, against the row alone"
            alone = pick(inputs, [row], batch)
            yield Repetition(label, inputs, alignment, alone, recorded="actual", diagnosis=_OF_ROWS)
        backwards = tuple(reversed(range(batch)))
        alignment = replace(at, rows=backwards, batch=batch)
        reverse = pick(inputs, backwards, batch)
        yield Repetition("the rows in reverse order", reverse, alignment, inputs, diagnosis=_OF_ROWS)


#: Implementation -> flag of a model class that supports it, package that provides it, whether it needs a GPU.
_KNOWN = {
    "sdpa": ("_supports_sdpa", "torch", False),
    "flex_attention": ("_supports_flex_attn", "torch", True),
    "flash_attention_2": ("_supports_flash_attn", "flash_attn", True),
    "flash_attention_3": ("_supports_flash_attn", "flash_attn_3", True),
}
_REFERENCE = "eager"


class AttentionCheck(Check):
    """The call is repeated with each implementation of attention."""

    options = (*COMMON, "implementations")
    needs = "Call a transformers model with more than one attention implementation"
    verdict = "depends on its attention implementation"

    def repetitions(self) -> Iterator[Repetition]:
        """Yield the call with each implementation that the model can be switched to."""
        call = self.call
        if not hasattr(self.model, "set_attn_implementation"):
            self.skip(f"{call.name} has no set_attn_implementation: it is no transformers model")
            return
        is_on_gpu = any(parameter.is_cuda for parameter in self.model.parameters())
        names = self.settings.implementations or [
            name
            for name, (flag, package, needs_gpu) in _KNOWN.items()
            if getattr(self.model, flag, False) and find_spec(package) is not None and (is_on_gpu or not needs_gpu)
        ]
        if not names:
            self.skip(f"{call.name} supports no attention implementation besides eager")
        for name in names:
            try:
                for each in (_REFERENCE, name):
                    with implementation(self.model, each):
                        pass
            except TFDebugError as error:
                self.skip(f"{call.name}: {error}")
                continue
            yield Repetition(
                f"{name} against {_REFERENCE}",
                call.inputs,
                self.unpadded,
                call.inputs,
                recorded="",
                within=(partial(implementation, name=_REFERENCE), partial(implementation, name=name)),
                diagnosis=f"{name} attention computes something else than {_REFERENCE}: scale, mask, softcap or "
                "dropout.",
            )


@contextmanager
def implementation(model: torch.nn.Module, name: str) -> Iterator[None]:
    """Switch a model's attention for the length of a block; its configurations are put back as they were."""
    configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    configs += [getattr(config, key, None) for config in configs for key in getattr(config, "sub_configs", ())]
    # Idefics keeps a tuple of sizes under the name of a configuration
    kept = {id(config): (config, dict(vars(config))) for config in configs if hasattr(config, "__dict__")}
    try:
        try:
            model.set_attn_implementation(name)  # type: ignore[operator] # a transformers model
        except (ValueError, ImportError, KeyError) as error:
            raise TFDebugError(f"{name}: {redact(str(error)).partition(chr(10))[0]}") from error
        kept_as = getattr(model.config, "_attn_implementation", name)
        if kept_as != name:  # transformers 4 logs a warning for a model whose classes carry their attention
            raise TFDebugError(f"{name}: {type(model).__name__} stays with {kept_as}, its attention cannot be switched")
        yield
    finally:
        for config, attributes in kept.values():
            vars(config).clear()
            vars(config).update(attributes)


#: Lists of a load that is not clean -> what became of these weights.
_KINDS = {"missing": "random now", "unexpected": "left out", "mismatched": "random now"}


def load_record(model: str, source: str, info: Mapping[str, Any], at: SourceRange | None = None) -> LoadRecord:
    """Return what did not fit by ``from_pretrained(output_loading_info=True)``, mismatched weights with both shapes."""
    lists = (tuple(sorted(map(_named, info.get(f"{name}_keys") or ()))) for name in _KINDS)
    return LoadRecord(model, source, at, *lists)


def without(record: LoadRecord, allowed: tuple[str, ...]) -> LoadRecord:
    """Return a load without the keys in which one of the patterns is found."""
    lists = (
        tuple(key for key in getattr(record, name) if not any(re.search(pattern, key) for pattern in allowed))
        for name in _KINDS
    )
    return LoadRecord(record.model, record.source, record.at, *lists)


def told_keys(record: LoadRecord) -> list[str]:
    """Return a line for each list of weights that did not fit; none for a clean load."""
    lists = {f"{name}, {became}": list(getattr(record, name)) for name, became in _KINDS.items()}
    return [f"{told}: {listing(keys)}" for told, keys in lists.items() if keys]


def _named(entry: str | tuple[str, Any, Any]) -> str:
    """Name a weight, a mismatched one with both shapes; transformers 4 gives the name alone."""
    if isinstance(entry, str):
        return entry
    key, theirs, ours = entry
    return f"{key} (checkpoint {tuple(theirs)}, model {tuple(ours)})"


@contextmanager
def recorded(tell: Callable[[LoadRecord], None]) -> Iterator[None]:
    """Tell of what every ``PreTrainedModel.from_pretrained`` loads in the block."""
    cls = import_module("transformers.modeling_utils").PreTrainedModel
    original = vars(cls)["from_pretrained"]

    @functools.wraps(original.__func__)
    def from_pretrained(kind: type, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - it passes on what it gets
        __tracebackhide__ = True
        is_asked = kwargs.pop("output_loading_info", False)
        model, info = original.__func__(kind, *args, output_loading_info=True, **kwargs)
        source = args[0] if args else kwargs.get("pretrained_model_name_or_path")
        tell(load_record(kind.__name__, str(source), info, calling_line()))
        return (model, info) if is_asked else model

    cls.from_pretrained = classmethod(from_pretrained)
    try:
        yield
    finally:
        cls.from_pretrained = original


_ATTENTION = "_attn_implementation"
_OF_LOADED = "a weight, buffer or attribute of the culprit is not saved, or is created again when the model is loaded."


class SaveLoadCheck(Check):
    """The model is saved and loaded, and the call repeated with what was loaded."""

    needs = "Call a model that has save_pretrained"
    verdict = "is not the same after save_pretrained and from_pretrained"
    is_of_values = False  # the file holds what the model does

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
        yield Repetition(label, call.inputs, self.unpadded, call.inputs, model=loaded, diagnosis=_OF_LOADED)


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
