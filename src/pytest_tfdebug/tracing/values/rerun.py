"""A forward that can be made again, to look at its operators once a comparison has failed."""

from __future__ import annotations

from contextlib import contextmanager
from copy import copy
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import second_look
from pytest_tfdebug.generators import put_back, states
from pytest_tfdebug.tensors import readable
from pytest_tfdebug.tracing.record.leaves import replaced, walk
from pytest_tfdebug.tracing.record.modules import named_tensors, uncompiled
from pytest_tfdebug.tracing.record.signatures import method_of, parameters_of
from pytest_tfdebug.tracing.record.state import kept, preserved
from pytest_tfdebug.tracing.values.constructors import tables_of
from pytest_tfdebug.tracing.values.conversions import Conversions
from pytest_tfdebug.tracing.values.operators import plain_attributes, values_of
from pytest_tfdebug.tracing.values.tape import Tape
from pytest_tfdebug.tracing.values.widening import computing, to_float32, widened
from pytest_tfdebug.values import Fingerprint, are_among

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_tfdebug.tensors import Leaf
    from pytest_tfdebug.tracing.values.edited import Edited
    from pytest_tfdebug.tracing.values.widening import Wider
    from pytest_tfdebug.values import Values

#: Fingerprints of the outputs of two forwards of one model differ by less: fused kernels are computed step by step.
_SAME = 1e-3
#: Those of a forward in half precision and of the same in float32 by less than this.
_SAME_WIDENED = 0.1


class Rerun:
    """A model and its inputs as they were before its forward.

    Tensors of the inputs are kept without being copied until somebody writes to them. With ``wider`` the forward is one
    in wider dtypes, see :mod:`.widening`.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        method: str = "forward",
        wider: Wider = MappingProxyType({}),
    ) -> None:
        self.model, self.method, self.wider = model, method, wider
        self._inputs = kept((args, kwargs))
        self.notes: list[str] = []  # why it could not be made again
        self.random = torch.random.get_rng_state(), states()  # what generators held before the forward

    def seed(self) -> None:
        """Let random numbers be drawn as in the first forward."""
        torch.random.set_rng_state(self.random[0])
        put_back(self.random[1])

    def inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the inputs as they were, for one forward."""
        args, kwargs = kept(self._inputs)
        return args, kwargs

    def run(self) -> None:
        """Make the forward again, for what watches it."""
        with computing(self.model, self.inputs(), self.wider, None) as ((args, kwargs), _):
            self.seed()
            call = self.model if self.method == "forward" else method_of(self.model, self.method)
            call(*args, **kwargs)

    def outputs(self) -> dict[str, torch.Tensor]:
        """Make the forward again, and return its outputs by leaf path; in wider dtypes, if it is one in these."""
        with self.kept():
            return self.outputs_now()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Leave the model as it was after a block in which its forward is made again, as often as one likes."""
        with preserved(self.model), torch.no_grad(), uncompiled(self.model), torch.random.fork_rng(devices=[]):
            yield

    def outputs_now(self) -> dict[str, torch.Tensor]:
        """Do as :meth:`outputs`, in a block of :meth:`kept`."""
        if self.wider:
            with widened(self.model, self.inputs(), self.wider) as ((args, kwargs), casts):
                leaves = self._leaves(args, kwargs)
                with casts.paused():
                    return {leaf.path: casts.of(leaf.tensor) for leaf in leaves}
        return {leaf.path: leaf.tensor for leaf in self._leaves(*self.inputs())}

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Leaf]:
        self.seed()
        return walk(method_of(self.model, self.method)(*args, **kwargs))

    def of(self, model: torch.nn.Module) -> Rerun:
        """Return the same forward of another model."""
        other = copy(self)
        other.model = model
        return other

    def in_float32(self) -> Rerun:
        """Return the forward in float32, if it is one in half precision and in no wider dtypes yet."""
        return self if self.wider else self.widened(to_float32(self.model))

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors of the inputs."""
        return [leaf.tensor for leaf in walk(self.inputs())]

    def named(self) -> dict[str, torch.Tensor]:
        """Return the tensors that are inputs themselves, by name."""
        args, kwargs = self.inputs()
        named = [*zip(self.parameters(), args, strict=False), *kwargs.items()]
        return {name: value for name, value in named if isinstance(value, torch.Tensor)}

    def given(self, others: Mapping[str, Any]) -> Rerun:
        """Return the forward with others in the place of some inputs, by name, or beside them."""
        args, kwargs = self.inputs()
        names = self.parameters()[: len(args)]
        given = [others.get(name, value) for name, value in zip(names, args, strict=False)]
        changed = {**kwargs, **{name: value for name, value in others.items() if name not in names}}
        return Rerun(self.model, (*given, *args[len(names) :]), changed, self.method, self.wider)

    def parameters(self) -> Sequence[str]:
        """Return the names of the forward's parameters."""
        return parameters_of(method_of(self.model, self.method))

    def on(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Rerun:
        """Return the forward on other inputs: each tensor of them changed."""
        args, kwargs = replaced(self.inputs(), change)
        return Rerun(self.model, args, kwargs, self.method, self.wider)

    def widened(self, wider: Wider) -> Rerun:
        """Return the same forward in wider dtypes."""
        return Rerun(self.model, *self.inputs(), self.method, wider)

    def attributes(self) -> dict[str, dict[str, str]]:
        """Return what the modules hold that is no tensor, by module path and name."""
        return plain_attributes(self.model)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each parameter, by its name."""
        return {name: tuple(parameter.shape) for name, parameter in self.model.named_parameters()}

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the parameters that can be read, under each of their names."""
        held = (
            (name, readable(each)) for name, each in named_tensors(self.model) if isinstance(each, torch.nn.Parameter)
        )
        return {name: each for name, each in held if each is not None}

    def values(
        self,
        outputs: Sequence[torch.Tensor | None] | None = None,
        progress: Callable[[int], object] | None = None,
        tape: Tape | None = None,
    ) -> Values | None:
        """Make the forward again and return its table of values; None where it cannot be made as it was.

        A model in half precision is looked at in float32: its rounding would hide what is computed.
        """
        self.notes = []
        for is_written_out in (True, False):  # what is written out rounds and lies otherwise: some models need more
            with second_look(self.notes, "A forward made once more raised"):
                values = self._values(progress, tape, is_written_out=is_written_out)
                given = (Fingerprint.of(each) for each in outputs or () if each is not None and each.numel())
                made = [values.values[index].print for _, index in values.results]
                if are_among(given, made, _SAME_WIDENED if values.is_widened else _SAME):
                    return values
        return None

    def edited(self, edited: Edited) -> dict[str, torch.Tensor]:
        """Make the forward again with some operators done otherwise, and return its outputs by leaf path."""
        tape = Tape()
        with torch.random.fork_rng(devices=[]):
            values = self._values(None, tape, is_written_out=True, edited=edited)
        return {leaf: tape.tensors[index] for leaf, index in values.results if index in tape.tensors}

    def _values(
        self,
        progress: Callable[[int], object] | None,
        tape: Tape | None,
        *,
        is_written_out: bool,
        edited: Edited | None = None,
    ) -> Values:
        if tape is not None:
            tape.clear()
        wider = self.wider or to_float32(self.model)
        with widened(self.model, self.inputs(), wider) as ((args, kwargs), casts):
            self.seed()
            run = partial(values_of, self.model, self.method, args, kwargs, progress)
            values = run(
                is_written_out=is_written_out, tape=tape, casts=casts, edited=edited, tables=tables_of(self.model)
            )
        values.is_widened = bool(wider)
        values.conversions = Conversions(self.model)
        return values


class Recorded:
    """Values that were recorded with a golden: nothing has to be run again."""

    notes: tuple[str, ...] = ()

    def __init__(self, values: Values) -> None:
        self._values = values

    def attributes(self) -> dict[str, dict[str, str]]:
        """Return what the modules held that is no tensor, by module path and name."""
        return self._values.attributes

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each parameter, by its name."""
        return {name: tuple(shape) for name, (_, shape) in self._values.parameters.items()}

    def weights(self) -> dict[str, torch.Tensor]:
        """Return none: of weights that were recorded only sums are left."""
        return {}

    def values(
        self,
        outputs: Sequence[torch.Tensor | None] | None = None,  # noqa: ARG002 - as of a rerun
        tape: Tape | None = None,  # noqa: ARG002
    ) -> Values:
        """Return the table."""
        return self._values
