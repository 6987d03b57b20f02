"""The watch outside pytest: a context manager, an object that stays, and a look at one tensor."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import ActivationOverflowError, TFDebugError
from pytest_tfdebug.overflow.extremes import details
from pytest_tfdebug.overflow.settings import OverflowSettings
from pytest_tfdebug.overflow.watch import ModelHooks, Watch
from pytest_tfdebug.report.overflow import told_range
from pytest_tfdebug.tracing.trace import check_model

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from typing_extensions import Self

    from pytest_tfdebug.data.overflow import Fault, Tight


class OverflowGuard:
    """What :func:`overflow_guard` gives to its block."""

    def __init__(self, model: torch.nn.Module, settings: OverflowSettings) -> None:
        self._watch = Watch(settings, raises=True)
        self._hooks = ModelHooks(self._watch, model)
        self._is_used = False

    @property
    def forwards(self) -> int:
        """Number of outermost calls so far."""
        return self._watch.forwards

    @property
    def fault(self) -> Fault | None:
        """Where the first value arose that is not finite, if there is one; it stays when it was raised."""
        return self._watch.fault or self._watch.raised

    @property
    def tightest(self) -> list[Tight]:
        """The ten modules with the least headroom, least first; empty unless ``dtype`` or ``headroom`` is given."""
        return self._watch.headroom.tightest()

    @property
    def skipped(self) -> dict[str, int]:
        """Number of tensors that could not be looked at, by kind."""
        return dict(self._watch.skipped)

    def __enter__(self) -> Self:
        if self._is_used:
            raise TFDebugError("A guard watches one block.\nCall overflow_guard(model, ...) again for another.")
        self._is_used = True
        self._hooks.recorder.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if error is None:
                advice = "Run a forward of the guarded model inside the block."
                found = self._watch.verdict() or self._watch.emptiness("overflow_guard", advice)
                if found is not None:
                    raise self._watch.error(found)
            elif self._watch.fault is not None and not isinstance(error, ActivationOverflowError):
                vars(error)["__notes__"] = [*getattr(error, "__notes__", ()), str(self._watch.verdict())]
        finally:
            self._watch.close()


def overflow_guard(
    model: torch.nn.Module,
    *,
    frames: int = 40,
    dtype: str | torch.dtype | None = None,
    headroom: float | None = None,
    gradients: bool = False,
    ignore: str | Iterable[str] = (),
) -> OverflowGuard:
    """Watch a model inside a ``with`` block: the first inf or nan raises a report, headroom is judged at its end.

    A value that is not finite raises at the end of the forward in which it arose (with ``gradients=True``, of the
    backward), whatever the device. An exception of the block itself stays what it is, with the report as a note.

    Args:
        model: The model; in use by any thread.
        frames: Length of the report's list of frames.
        dtype: The dtype that values have to fit, ``"float16"``; None for the dtype of each tensor.
        headroom: Factor by which the largest absolute value must stay below the dtype's largest number. None checks a
            given ``dtype`` with factor 1, and nothing without one.
        gradients: Watch gradients too.
        ignore: A glob of module paths whose inputs and outputs are not judged, or several.

    Returns:
        The guard, with ``fault``, ``forwards``, ``tightest`` and ``skipped``.

    Raises:
        ActivationOverflowError: A value is not finite or too large, or no forward ran; an ``AssertionError``.
        TFDebugError: An argument is wrong, or the model's modules cannot be hooked.

    Examples:
        >>> with overflow_guard(model, dtype="float16", headroom=2.0) as guard:  # doctest: +SKIP
        ...     model(input_ids)
        >>> guard.tightest[0].ratio  # doctest: +SKIP
        11.3
    """
    given = {name: value for name, value in locals().items() if name != "model"}
    check_model(model, {}, "overflow_guard")
    return OverflowGuard(model, OverflowSettings.of("overflow_guard", (), given))


class DebugActivationOverflow:
    """Watch a model until told to stop: every forward with an inf or a nan raises a report.

    The name is the one of the transformers documentation.

    Args:
        model: The model.
        **settings: As for :func:`overflow_guard`, without ``dtype`` and ``headroom``: they are judged at the end of a
            block.

    Raises:
        TFDebugError: An argument is wrong, or the model's modules cannot be hooked.

    Examples:
        >>> debug_overflow = DebugActivationOverflow(model)  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
        >>> debug_overflow.remove()  # doctest: +SKIP
    """

    def __init__(self, model: torch.nn.Module, **settings: Any) -> None:  # noqa: ANN401
        checked = OverflowSettings.of("DebugActivationOverflow", (), settings)
        if checked.wants_headroom:
            raise TFDebugError(
                "DebugActivationOverflow cannot check dtype and headroom: these need the end of a block.\n"
                "Use `with overflow_guard(model, ...):`."
            )
        self._watch = Watch(checked, raises=True)
        check_model(model, {}, "DebugActivationOverflow")
        ModelHooks(self._watch, model).recorder.__enter__()

    def remove(self) -> None:
        """Take every hook off; harmless when they are off."""
        self._watch.close()


def detect_overflow(tensor: torch.Tensor, text: str) -> bool:
    """Print the range of one tensor, wherever it is, and tell whether it has an inf or a nan.

    Args:
        tensor: The tensor; one without elements, or of integers, has neither.
        text: What it is, such as ``"after layer_norm"``.

    Raises:
        TFDebugError: If it is no tensor.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TFDebugError(f"detect_overflow needs a tensor and got {type(tensor).__name__}.")
    if not tensor.numel() or tensor.is_meta or not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    found = details(tensor)
    sys.stdout.writelines(f"{line}\n" for line in told_range(text, found))
    return bool(found.nans or found.infs)
