"""``attention_invariant``: every attention implementation that is installed gives the answer of the eager one."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.invariance import family
from pytest_tfdebug.invariance.located import recorded
from pytest_tfdebug.invariance.outcome import Outcome, Repetition
from pytest_tfdebug.invariance.settings import Settings
from pytest_tfdebug.invariance.sister import Sister, unpadded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch

    from pytest_tfdebug.invariance.observed import Leaves, ObservedCall
    from pytest_tfdebug.tracing.trace import Trace

#: Implementation -> flag of a model class that supports it, package that provides it, whether it needs a GPU.
_KNOWN = {
    "sdpa": ("_supports_sdpa", "torch", False),
    "flex_attention": ("_supports_flex_attn", "torch", True),
    "flash_attention_2": ("_supports_flash_attn", "flash_attn", True),
    "flash_attention_3": ("_supports_flash_attn", "flash_attn_3", True),
}
_REFERENCE = "eager"


@dataclass(frozen=True, kw_only=True)
class AttentionSettings(Settings):
    """What ``attention_invariant`` takes.

    Args:
        implementations: Names to hold to ``"eager"``; None for every one that the model supports, that is installed,
            and that runs on the model's device.
    """

    implementations: Iterable[str] | str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.implementations
        if given is None:
            return
        names = (given,) if isinstance(given, str) else tuple(given)
        if not names or not all(isinstance(name, str) for name in names):
            raise TFDebugError(f"implementations={given!r} is not a name or several, as in ('sdpa',).")
        object.__setattr__(self, "implementations", names)


def check_attention(call: ObservedCall, settings: AttentionSettings) -> Outcome:
    """Repeat a call with each implementation of attention and hold it to the eager one."""
    with call.restored():
        sister = Sister(call, settings.tolerances(), "depends on its attention implementation")
        model = family.unwrapped(call.model)
        if not hasattr(model, "set_attn_implementation"):
            sister.outcome.skipped.append(f"{call.name} has no set_attn_implementation: it is no transformers model")
            return sister.outcome
        names = tuple(settings.implementations or _available(model))
        if not names:
            sister.outcome.skipped.append(f"{call.name} supports no attention implementation besides eager")
        reference = None
        for name in names:
            reference = reference or _leaves(call, _REFERENCE, sister.outcome)
            actual = _leaves(call, name, sister.outcome)
            if not reference or not actual:
                continue
            repetition = Repetition(f"{name} against {_REFERENCE}", call.inputs, unpadded(call), call.inputs)
            mismatch = sister.hold(repetition.label, reference, actual, repetition.alignment)
            if mismatch is not None and sister.draws_random_numbers():
                return sister.outcome
            if mismatch is not None:
                told = f"{name} attention computes something else than {_REFERENCE}: scale, mask, softcap or dropout."
                return sister.fail(repetition, mismatch, told, lambda name=name: _traces(call, name))  # type: ignore[misc]
        return sister.outcome


@contextmanager
def implementation(model: torch.nn.Module, name: str) -> Iterator[None]:
    """Switch a model's attention for the length of a block; its configurations are put back as they were.

    Raises:
        TFDebugError: If the model refuses.
    """
    configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
    kept = [(config, dict(vars(config))) for config in configs.values()]
    parts = [getattr(config, key, None) for config in configs.values() for key in getattr(config, "sub_configs", {})]
    kept += [(part, dict(vars(part))) for part in parts if part is not None]
    try:
        try:
            model.set_attn_implementation(name)  # type: ignore[operator] # a transformers model
        except (ValueError, ImportError, KeyError) as error:
            raise TFDebugError(f"{name}: {str(error).partition(chr(10))[0]}") from error
        kept_as = getattr(model.config, "_attn_implementation", name)
        if kept_as != name:  # transformers 4 logs a warning for a model whose classes carry their attention
            raise TFDebugError(f"{name}: {type(model).__name__} stays with {kept_as}, its attention cannot be switched")
        yield
    finally:
        for config, attributes in kept:
            vars(config).clear()
            vars(config).update(attributes)


def _available(model: torch.nn.Module) -> list[str]:
    is_on_gpu = any(parameter.is_cuda for parameter in model.parameters())
    return [
        name
        for name, (flag, package, needs_gpu) in _KNOWN.items()
        if getattr(model, flag, False) and find_spec(package) is not None and (is_on_gpu or not needs_gpu)
    ]


def _leaves(call: ObservedCall, name: str, outcome: Outcome) -> Leaves | None:
    model = family.unwrapped(call.model)
    try:
        with implementation(model, name):
            return call.leaves(call.inputs)
    except TFDebugError as error:
        outcome.skipped.append(f"{call.name}: {error}")
        return None


def _traces(call: ObservedCall, name: str) -> tuple[Trace, Trace]:
    made: list[Any] = []
    for each in (_REFERENCE, name):
        with implementation(family.unwrapped(call.model), each):
            made.append(recorded(call, call.inputs))
    return made[0], made[1]
