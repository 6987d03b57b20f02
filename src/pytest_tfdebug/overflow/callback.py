"""The watch inside ``transformers.Trainer``: what ``--debug activation_overflow`` is for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal, get_args

from transformers import TrainerCallback

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.overflow.settings import OverflowSettings
from pytest_tfdebug.overflow.watch import DATA_PARALLEL, ModelHooks, Watch

if TYPE_CHECKING:
    import torch
    from transformers import TrainerControl, TrainerState, TrainingArguments

OnOverflow = Literal["stop", "warn"]
logger = logging.getLogger(__name__)


class OverflowCallback(TrainerCallback):  # type: ignore[misc] # transformers is not typed
    """Log the report of the first inf or nan of a training, and stop the training.

    Args:
        on_overflow: ``"stop"``: log the report as an error and stop after the step. ``"warn"``: log it as a warning,
            in full the first time and as its first line from then on, and go on.
        **settings: As for :func:`pytest_tfdebug.overflow_guard`.

    Raises:
        TFDebugError: An argument is wrong, or the Trainer will use ``DataParallel``.

    Examples:
        >>> trainer = Trainer(model, args, callbacks=[OverflowCallback()])  # doctest: +SKIP
    """

    def __init__(self, on_overflow: OnOverflow = "stop", **settings: Any) -> None:  # noqa: ANN401
        if on_overflow not in get_args(OnOverflow):
            valid = ", ".join(get_args(OnOverflow))
            raise TFDebugError(f"OverflowCallback(on_overflow={on_overflow!r}): on_overflow is one of {valid}.")
        self._settings = OverflowSettings.of("OverflowCallback", (), settings)
        self._on_overflow = on_overflow
        self._watch: Watch | None = None
        self._has_told = False

    def on_train_begin(self, args: TrainingArguments, *_: object, model: torch.nn.Module, **__: object) -> None:
        """Hook the model."""
        self.remove()
        if args.n_gpu > 1:  # the Trainer wraps the model after this
            raise TFDebugError(DATA_PARALLEL)
        self._has_told = False
        self._watch = Watch(self._settings, raises=False)
        ModelHooks(self._watch, model).recorder.__enter__()

    def on_step_end(self, _: TrainingArguments, state: TrainerState, control: TrainerControl, **__: object) -> None:
        """Look at a step, or at one batch of an accumulated step."""
        report = self._watch.verdict() if self._watch is not None else None
        if report is None or self._watch is None:
            return
        if self._on_overflow == "stop":
            logger.error("Overflow in step %d, training stops.\n%s", state.global_step, report)
            control.should_training_stop = True
        elif self._has_told:
            logger.warning("Overflow in step %d: %s", state.global_step, report.answer)
        else:
            logger.warning("Overflow in step %d.\n%s", state.global_step, report)
        self._has_told = True
        self._watch.reset()

    on_substep_end = on_step_end

    def on_train_end(self, *_: object, **__: object) -> None:
        """Take the hooks off."""
        self.remove()

    def remove(self) -> None:
        """Take the hooks off; the Trainer does not say so when a training raises."""
        if self._watch is not None:
            self._watch.close()
        self._watch = None
