"""A model class as the promises check it: small, seeded, and called once with inputs that it takes."""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.goldens.check.weights import fill
from pytest_tfdebug.invariance.calls.observed_call import ObservedCall, observe
from pytest_tfdebug.tracing.record.leaves import duplicate
from pytest_tfdebug.tracing.record.state import preserved

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(eq=False)
class Subject:
    """A model that is held to the promises."""

    model_class: type  # the class
    build: Callable[[], torch.nn.Module]  # makes a model of it; called with torch's random numbers seeded
    # keyword inputs of its forward, or a function of the model that makes them
    inputs: Mapping[str, Any] | Callable[[torch.nn.Module], Mapping[str, Any]]

    @classmethod
    def of(cls, model_class: type, config: object, inputs: Any) -> Subject:  # noqa: ANN401 - as above
        """Return the subject of a class that is built from a configuration, which is left as it is."""
        return cls(model_class, lambda: model_class(copy.deepcopy(config)), inputs)

    @property
    def name(self) -> str:
        """Name of the class."""
        return self.model_class.__name__

    @cached_property
    def model(self) -> Any:  # noqa: ANN401 - a module, most often a pretrained model
        """The model in eval mode, the same in every run.

        Its weights are those of :func:`pytest_tfdebug.fill`. With the usual weights, whose standard deviation is 0.02,
        the attention of a small model is nearly uniform, and wrong positions or masks change its answer by less than
        the tolerance.
        """
        model = self._new()
        with suppress(TFDebugError):  # it keeps parameters that are not plain numbers
            fill(model)
        return model

    def _new(self) -> Any:  # noqa: ANN401 - as above
        with torch.random.fork_rng():
            torch.manual_seed(0)
            try:
                return self.build().eval()
            except Exception as error:
                why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
                raise TFDebugError(f"{self.name} cannot be built from its configuration: {why}") from error

    @cached_property
    def call(self) -> ObservedCall:
        """The model's plain call; with the weights that it is built with, where it raises with others."""
        try:
            return self._call()
        except TFDebugError:
            self.model = self._new()  # a detector may point outside of its image with weights of any other size
            with suppress(TFDebugError):
                return self._call()
            raise

    def _call(self) -> ObservedCall:
        model = self.model
        inputs = duplicate(
            dict(self.inputs(model) if callable(self.inputs) else self.inputs)
        )  # a model may write into them
        try:
            with preserved(model), torch.no_grad():
                torch.manual_seed(0)
                call, _ = observe(model, (), inputs, lambda: model(**inputs))
        except Exception as error:
            told = (
                f"{self.name} cannot be called with {', '.join(inputs) or 'no inputs'}: {type(error).__name__}: {error}"
            )
            raise TFDebugError(f"{told}\nGive inputs= that its forward takes.") from error
        if isinstance(call, str):
            raise TFDebugError(f"{call}.\nGive inputs= without a cache.")
        call.site = ""
        return call
