"""``attention``: every attention implementation that is installed gives the answer of the eager one."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.invariance.calls.inputs import Repetition
from pytest_tfdebug.invariance.checks.base import COMMON, Check
from pytest_tfdebug.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

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
        names = self.settings.implementations or _available(self.model)
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


def _available(model: torch.nn.Module) -> list[str]:
    is_on_gpu = any(parameter.is_cuda for parameter in model.parameters())
    return [
        name
        for name, (flag, package, needs_gpu) in _KNOWN.items()
        if getattr(model, flag, False) and find_spec(package) is not None and (is_on_gpu or not needs_gpu)
    ]
