"""``attention``: every attention implementation that is installed gives the answer of the eager one."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.invariance.checks.base import COMMON, Check
from pytest_tfdebug.invariance.explain.culprit import recorded
from pytest_tfdebug.invariance.repeat.repetition import Repetition
from pytest_tfdebug.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch

    from pytest_tfdebug.invariance.calls.observed_call import Leaves
    from pytest_tfdebug.tracing.trace import Trace

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

    def check(self) -> None:
        """Report the first implementation that gives another answer."""
        if not hasattr(self.model, "set_attn_implementation"):
            self.skip(f"{self.call.name} has no set_attn_implementation: it is no transformers model")
            return
        names = self.settings.implementations or _available(self.model)
        if not names:
            self.skip(f"{self.call.name} supports no attention implementation besides eager")
        reference = None
        for name in names:
            reference = reference or self._leaves(_REFERENCE)
            try:
                actual = self._leaves(name)
            except Exception as error:  # noqa: BLE001 - whatever the model raises is the finding
                self.report(f"{name} against {_REFERENCE}", self.raised(error))
                return
            if not reference or not actual:
                continue
            inputs = self.call.inputs
            repetition = Repetition(f"{name} against {_REFERENCE}", inputs, self.unpadded, inputs)
            answers = partial(self._answer, name=_REFERENCE), partial(self._answer, name=name)
            mismatch = self.compare(repetition, (reference, actual), answers)
            if mismatch is not None:
                told = f"{name} attention computes something else than {_REFERENCE}: scale, mask, softcap or dropout."
                self.fail(repetition, mismatch, told, partial(self._traces, name))
                return

    def _leaves(self, name: str) -> Leaves | None:
        try:
            return self._answer(self.call.inputs, self.model, name)
        except TFDebugError as error:
            self.skip(f"{self.call.name}: {error}")
            return None

    def _answer(self, inputs: Mapping[str, Any], model: torch.nn.Module, name: str) -> Leaves:
        with implementation(model, name):
            return self.call.leaves(inputs, model)

    def _traces(self, name: str) -> tuple[Trace, Trace]:
        with implementation(self.model, _REFERENCE):
            expected = recorded(self.call, self.call.inputs)
        with implementation(self.model, name):
            return expected, recorded(self.call, self.call.inputs)


@contextmanager
def implementation(model: torch.nn.Module, name: str) -> Iterator[None]:
    """Switch a model's attention for the length of a block; its configurations are put back as they were.

    Raises:
        TFDebugError: If the model refuses.
    """
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


def _available(model: torch.nn.Module) -> list[str]:
    is_on_gpu = any(parameter.is_cuda for parameter in model.parameters())
    return [
        name
        for name, (flag, package, needs_gpu) in _KNOWN.items()
        if getattr(model, flag, False) and find_spec(package) is not None and (is_on_gpu or not needs_gpu)
    ]
